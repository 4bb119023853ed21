"""下一个词元的分数从哪里来：每次重算整个窗口，或者用缓存"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from gptcore.kernels.array import Array
from gptcore.layers import Layer
from gptcore.tensor import Tensor, no_grad
from gptcore.threads import model_threads

if TYPE_CHECKING:
    from gptcore.models.cache import KVCache
    from gptcore.models.gpt import GPT

History = Mapping[int, list[int]]
"""第几条文字 → 它已有的编号"""


ROUNDING: dict[str | None, int] = {"LayerNorm": 64, "RMSNorm": 64, None: 4096}
"""用缓存与重算的分数至多差多少，以绝对值最大的分数的末位（eps）为单位。

四十八种随机初始化的模型实测，有归一化时至多 24，通常 2 到 10；没有归一化的深模型把误差逐层放大，见过 967。
"""


class WindowScorer:
    """每次把最后 `limit` 个词元重新算一遍：任何模型都可以，也是缓存的标准。

    Args:
        model: 由编号 `(1, 长度)` 得到分数 `(1, 长度, 词表大小)` 的模型。
        limit: 窗口的长度。
    """

    rounding = 0.0
    """分数的误差，相对于绝对值最大的分数：这里就是标准，没有误差。"""

    def __init__(self, model: Layer, limit: int) -> None:
        self.model, self.limit = model, limit
        self.gpt = plain_gpt(model)

    def exact(self, ids: list[int]) -> Array:
        """只由最后 `limit` 个词元算出的分数，形状 `(词表大小,)`。"""
        window = np.array([ids[-self.limit :]])
        if self.gpt is not None:
            return self.gpt.next_scores(window)[0]
        return self.model(Tensor(window)).data[0, -1]

    def scores(self, texts: History) -> dict[int, tuple[Array, bool]]:
        """每一条的分数，以及它是不是用缓存算的、与标准相差舍入误差。"""
        return {key: (self.exact(ids), False) for key, ids in texts.items()}


class CachedScorer(WindowScorer):
    r"""记下算过的键与值，每次只算一个词元。

    缓存只在窗口没有移动时成立：位置嵌入是绝对的，文字超过 `limit` 个词元之后，窗口每移动一个词元，
    其余每个词元的位置都少了 1，键与值全都变了。所以越过边缘的文字退回重算，一个词元一次完整的前向，
    结果与没有缓存时相同。

    Args:
        model: GPT。
        limit: 窗口的长度，不超过模型的上下文尺寸。
        tokens: 一共最多到多少个词元，决定缓存的大小。
    """

    def __init__(self, model: GPT, limit: int, tokens: int) -> None:
        super().__init__(model, limit)
        self.cached, self.capacity = model, min(limit, tokens)
        self.cache: KVCache | None = None
        self.slots: list[int] = []  # 缓存的第 i 条是第几条文字

    def scores(self, texts: History) -> dict[int, tuple[Array, bool]]:
        """第一次算提示，以后每条只算最后一个词元；越过边缘的重算窗口。"""
        if self.cache is None:
            return self._prefill(texts)
        inside = {key: ids for key, ids in texts.items() if len(ids) <= self.limit}
        found = super().scores({key: ids for key, ids in texts.items() if key not in inside})
        if inside:
            self._keep(list(inside))
            last = np.array([[ids[-1]] for ids in inside.values()])
            step = self.cached.next_scores(last, self.cache)
            found |= {key: (step[i], True) for i, key in enumerate(inside)}
        return found

    def _prefill(self, texts: History) -> dict[int, tuple[Array, bool]]:
        """各条提示单独算：与没有缓存时逐位相同，也不必补齐。窗口已经满了的，以后用不着缓存。"""
        self.slots = [key for key, ids in texts.items() if len(ids) < self.limit]
        self.cache = self.cached.new_cache(len(self.slots) or 1, self.capacity)
        eps = float(np.finfo(self.cache.keys.dtype).eps)
        self.rounding = ROUNDING[self.cached.config["norm"]] * eps
        found = super().scores({key: ids for key, ids in texts.items() if key not in self.slots})
        for i, key in enumerate(self.slots):
            scores = self.cached.next_scores(np.array([texts[key]]), self.cache.row(i))
            found[key] = scores[0], False
        return found

    def _keep(self, keys: list[int]) -> None:
        """写完的、越过边缘的，从缓存里去掉。"""
        if keys != self.slots and self.cache is not None:
            self.cache = self.cache.keep([self.slots.index(key) for key in keys])
            self.slots = keys


def make_scorer(model: Layer, limit: int, tokens: int, use_cache: bool) -> WindowScorer:
    """窗口放得进上下文的 GPT 用缓存；别的模型与改过的 GPT 每次重算，结果一样。"""
    gpt = plain_gpt(model)
    if use_cache and gpt is not None and limit <= gpt.context_size:
        return CachedScorer(gpt, limit, tokens)
    return WindowScorer(model, limit)


def plain_gpt(model: Layer) -> GPT | None:
    """各部分都是库里原样的 GPT；别的模型是 `None`。"""
    from gptcore.models.gpt import GPT

    return model if isinstance(model, GPT) and model.cacheable else None


class Quiet:
    """一步之内：评估模式、不记计算图、合适的线程数；离开时都恢复，所以从不跨越 `yield`。

    Args:
        model: 模型。
    """

    def __init__(self, model: Layer) -> None:
        self.parameters = model.num_parameters
        layers = list(model.sublayers())  # 只找一次：逐层走一遍，快赶上小模型的一步了
        before = [layer.training for layer in layers]
        try:
            model.eval()
            self.modes = [(layer, layer.training) for layer in layers]
        finally:
            for layer, training in zip(layers, before, strict=True):
                layer.training = training

    @contextmanager
    def __call__(self) -> Generator[None]:
        """进入，离开时恢复。"""
        changed = [(layer, mode) for layer, mode in self.modes if layer.training is not mode]
        before = [layer.training for layer, _ in changed]
        try:
            for layer, mode in changed:
                layer.training = mode
            with no_grad(), model_threads(self.parameters):
                yield
        finally:
            for (layer, _), mode in zip(changed, before, strict=True):
                layer.training = mode
