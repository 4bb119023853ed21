"""库里的层与书里的层，参数如何一一对应"""

from collections.abc import Iterator
from typing import Any

import numpy as np

PARTS = {
    "GPTEmbedding": ("embedding", "positional_embedding"),
    "GPTAttention": ("normalize", "query", "key", "value", "output"),
    "GPTFeedForward": ("normalize", "input", "output"),
    "GPTTransformer": ("attention", "feed_forward"),
    "GPTOutput": ("normalize", "linear"),
    "GPT": ("embedding", "transformers", "output"),
}


def pairs(mine: Any, theirs: Any) -> Iterator[tuple[str, Any, Any]]:
    """逐个给出 `(名字, 库里的参数, 书里的参数)`；查询、键、值是合并矩阵的视图。"""
    for part in PARTS.get(type(theirs).__name__, ()):
        for name, ours, other in pairs(getattr(mine, part), getattr(theirs, part)):
            yield f"{part}.{name}", ours, other
    if type(theirs).__name__ == "Sequential":
        for i, (ours, other) in enumerate(zip(mine, theirs.layers, strict=True)):
            for name, a, b in pairs(ours, other):
                yield f"{i}.{name}", a, b
    elif type(theirs).__name__ not in PARTS:
        for name in ("weight", "bias"):
            if hasattr(theirs, name):
                yield name, getattr(mine, name), getattr(theirs, name)


def copy_weights(mine: Any, theirs: Any) -> None:
    """把书里的层的参数抄给库里的层，就地写入。"""
    for _, ours, other in pairs(mine, theirs):
        ours.data[...] = other.data


def randomize(layer: Any, rng: np.random.Generator) -> Any:
    """改成 float64，并把每个参数换成不平凡的随机数，返回层自己。"""
    layer.astype(np.float64)
    for parameter in layer.parameters:
        parameter.data[...] = rng.normal(0.3, 0.7, parameter.shape)
    return layer
