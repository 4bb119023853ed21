"""参数的初值"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from gptcore.kernels.array import Array, row_blocks
from gptcore.random import default_rng
from gptcore.tensor import DTYPE, Tensor

_outlines = ContextVar("gptcore_outlines", default=False)


@contextmanager
def without_values() -> Generator[None]:
    """在其中建立的层，参数只有形状，没有数值：不抽随机数，再大的模型也几乎不占内存。

    用来数参数、写出 `summary()`，以及在读入文件之前核对形状。这些参数全是 0，而且只读，不能训练。

    Examples:
        >>> from gptcore import GPT
        >>> from gptcore.layers import without_values
        >>> with without_values():
        ...     gpt2 = GPT(50257, 1024, 768, 12, 12, head_bias=False, tied=True)
        >>> gpt2.num_parameters
        124439808
    """
    token = _outlines.set(True)
    try:
        yield
    finally:
        _outlines.reset(token)


def normal(shape: tuple[int, int], std: float, rng: np.random.Generator | None) -> Tensor:
    r"""取自 $\mathcal N(0, \text{std}^2)$ 的参数。

    Args:
        shape: 形状。
        std: 标准差。
        rng: 随机数生成器。
    """
    weight = _allocate(shape)
    if not _outlines.get():
        rng = default_rng() if rng is None else rng
        for rows in row_blocks(*shape):  # 分段抽取：抽到的数是一样的，不必另有一份 float64
            weight[rows] = rng.standard_normal((rows.stop - rows.start, shape[1])) * std
    return Tensor(weight)


def constant(size: int, value: float) -> Tensor:
    """每个元素都是 `value` 的参数，形状 `(size,)`"""
    weight = _allocate((size,))
    if not _outlines.get():
        weight[...] = value
    return Tensor(weight)


def _allocate(shape: tuple[int, ...]) -> Array:
    """一个还没有填的数组；在 `without_values` 里，各个元素都是同一个 0。"""
    if _outlines.get():
        return np.broadcast_to(np.zeros((), DTYPE), shape)
    return np.empty(shape, DTYPE)
