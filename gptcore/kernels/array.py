"""各个核函数共用的数组类型与小工具"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
"""元素类型不限的 ndarray；各个核函数收发的都是它。"""

BLOCK = 1 << 16
"""一个行块的元素数：float32 时 256 KiB，几个这样的块能一起留在二级缓存里。"""


def rows(x: Array) -> Array:
    r"""把 $(\dots, C)$ 看成二维的 $(N, C)$；连续数组不复制。"""
    return x.reshape(-1, x.shape[-1])


@lru_cache(maxsize=64)
def row_blocks(count: int, width: int) -> tuple[slice, ...]:
    """把 `count` 行、每行 `width` 个元素的数组切成能留在缓存里的行块；每一步都是同样的几种，所以记着。"""
    step = max(1, BLOCK // max(1, width))
    return tuple(slice(start, min(start + step, count)) for start in range(0, count, step))


def row_sums(x: Array) -> Array:
    """每行的和：写成与全 1 向量的乘积，比 `x.sum(-1)` 快两到四倍。

    Args:
        x: 形状 (N, C)

    Returns:
        形状 (N,)
    """
    return x @ constants(x.shape[-1], 1, x.dtype.char)


def row_maxima(x: Array) -> Array:
    """每行的最大值。`argmax` 比 `max(-1)` 快两到五倍（NumPy 2.4，一行 64 到 768 个），所以先找位置再取。

    Args:
        x: 形状 (…, C)，连续。

    Returns:
        形状 (…, 1)
    """
    flat = rows(x)
    best = positions(flat.argmax(-1), x.shape[-1])
    return flat.reshape(-1).take(best).reshape(*x.shape[:-1], 1)


def positions(columns: Array, width: int) -> Array:
    """每行各取一列时，它们在摊平的数组里的位置；比成对的下标 `x[行, 列]` 快两倍。

    Args:
        columns: 每行取第几列，形状 (N,)
        width: 一行有几列。

    Returns:
        形状 (N,)
    """
    return np.arange(0, len(columns) * width, width) + columns


def column_sums(x: Array) -> Array:
    """每列的和，即对行求和：写成全 1 向量与矩阵的乘积。

    Args:
        x: 形状 (N, C)

    Returns:
        形状 (C,)
    """
    return constants(len(x), 1, x.dtype.char) @ x


@lru_cache(maxsize=32)
def constants(size: int, value: float, dtype: str) -> Array:
    """每个元素都是 `value` 的只读向量，形状 `(size,)`。

    记着最近用过的几个：行数少时，新建一个的时间不比用它做的乘法少。
    """
    vector = np.full((size,), value, dtype)
    vector.flags.writeable = False
    return vector
