"""读入之前的核对：设置说的参数，与文件里的数组是不是同一些

设置来自文件，不可信：`vocab_size` 写成十亿，`GPT(**config)` 就会去要几千 GB 的内存。所以先按设置建立一个只有形状、
没有数值的模型，与数组逐个比较名字与形状；都对上了，需要的内存就不会超过文件的大小。
"""

from collections.abc import Mapping
from typing import Any, cast

from gptcore.errors import DataError, GptcoreError
from gptcore.kernels.array import Array
from gptcore.kernels.convert import brief
from gptcore.layers.initial import without_values
from gptcore.models.gpt import GPT

MANY_BLOCKS = 500
"""超过这么多块，先逐块核对数组，再建立模型"""


def build(config: Any, arrays: Mapping[str, Array]) -> GPT:
    """按设置建立模型，参数就用给出的数组，只读的才复制；数组是什么类型，参数就是什么类型。

    Args:
        config: `GPT.config` 那样的字典；以前保存的、没有新选项的也可以。
        arrays: 名字与数组，`GPT.state_dict()` 那样的。

    Raises:
        DataError: 设置不能建立模型，或者数组有缺少、多出、形状或类型不符；此时没有分配大的内存。
    """
    if not isinstance(config, dict):
        raise DataError(f"设置必须是字典，这里是 {type(config).__name__}；请给出 model.config")
    settings = cast("dict[str, Any]", config)
    try:
        model = _outline(settings, arrays)
        model.load_state_dict(arrays, assign=True, copy=False)
    except DataError:
        raise
    except (GptcoreError, TypeError) as error:  # TypeError：缺少或不认识的键
        raise DataError(str(error)) from error
    return model


def require_rebuildable(operation: str, model: GPT) -> None:
    """保存之前：由 `model.config` 重建的模型，参数要与它的相同，否则存了也读不回来。

    Raises:
        DataError: 模型建立之后换过层，设置里没有说到。
    """
    with without_values():
        again = GPT(**model.config)
    ours, theirs = ({(n, a.shape) for n, a in m.state_dict().items()} for m in (model, again))
    if ours != theirs:
        names = sorted({name for name, _ in ours ^ theirs})
        raise DataError(
            f"{operation}：模型建立之后改动过，由 model.config 重建的模型，参数 {'、'.join(names[:5])} 与它的不同，"
            "存了也读不回来；请用 dump_arrays(model.state_dict()) 只保存参数"
        )


def _outline(settings: dict[str, Any], arrays: Mapping[str, Array]) -> GPT:
    """按设置建立没有数值的模型。块数很多时先逐块核对数组：说有十亿块的设置，不会真的去建十亿块。"""
    blocks = settings.get("blocks")
    with without_values():
        if type(blocks) is int and blocks > MANY_BLOCKS:
            sample: dict[str, Any] = {**settings, "blocks": 1}
            _require_blocks(GPT(**sample, rng=None), blocks, arrays)
        return GPT(**settings, rng=None)


def _require_blocks(sample: GPT, blocks: int, arrays: Mapping[str, Array]) -> None:
    """每一块的数组都在，形状与样板的第 0 块相同；遇到第一处不同就停下。"""
    shapes = {name: a.shape for name, a in sample.transformers[0].state_dict().items()}
    for i in range(blocks):
        for inner, shape in shapes.items():
            name = f"transformers.{i}.{inner}"
            if name not in arrays or arrays[name].shape != shape:
                found = f"形状是 {arrays[name].shape}" if name in arrays else "不在文件里"
                raise DataError(
                    f"设置里有 blocks={brief(blocks)} 块，其中 {name} 应当是 {shape}，却{found}"
                )
