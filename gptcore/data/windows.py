"""把一长串词元切成窗口：全部是视图，取出一批时才复制"""

from typing import Any

import numpy as np
import numpy.typing as npt

from gptcore.data.checks import positive_integer
from gptcore.errors import ArgumentError, DtypeError, RangeError
from gptcore.tensor import DTYPE

Integers = npt.NDArray[np.integer[Any]]


class OneHotRows:
    """独热编码（one-hot）的行，取用时才生成。

    样子像一个 `(样本数, 词表大小)` 的数组，实际只存编号：6 万行、词表 65 的标签若全部展开要 16 MB，
    这里只是词元数组的一个视图。下标可以是整数、切片或整数数组，得到的都是新数组；
    `np.asarray(rows)` 展开全部。

    Args:
        indices: 每一行中 1 的位置，一维整数数组。
        size: 每一行的长度，即词表大小。

    Raises:
        ArgumentError: `indices` 不是一维，或 `size` 不是正整数。
        DtypeError: `indices` 不是整数数组。
        RangeError: 有编号不在 0 到 `size - 1`。

    Examples:
        >>> rows = OneHotRows(np.array([2, 0]), 3)
        >>> rows.shape
        (2, 3)
        >>> rows[:1]
        array([[0., 0., 1.]], dtype=float32)
    """

    ndim = 2

    def __init__(self, indices: Integers, size: int) -> None:
        kind = getattr(getattr(indices, "dtype", None), "kind", "")
        if not hasattr(indices, "ndim") or kind not in ("i", "u"):
            raise DtypeError(
                f"OneHotRows：indices 得到 {str(indices)[:40]}，它必须是整数数组；"
                "列表请写成 np.array(indices)，小数请先 astype(np.int64)"
            )
        if indices.ndim != 1:
            raise ArgumentError(
                f"OneHotRows：indices 的形状是 {indices.shape}，它必须是一维；请先展平成一维数组"
            )
        self.indices = indices
        self.size = positive_integer("OneHotRows", "size", size)
        if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < self.size:
            raise RangeError(
                f"OneHotRows：indices 的范围是 {indices.min()} 到 {indices.max()}，"
                f"应在 0 到 {self.size - 1} 之间；请检查 size 是不是词表大小"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """形状 `(样本数, 词表大小)`。"""
        return len(self.indices), self.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """展开后的类型，即库的默认浮点类型。"""
        return np.dtype(DTYPE)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> npt.NDArray[Any]:
        chosen = np.asarray(self.indices[index])
        rows = np.zeros((*chosen.shape, self.size), dtype=DTYPE)
        np.put_along_axis(rows, chosen[..., np.newaxis], 1.0, axis=-1)
        return rows

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ArgumentError(
                "OneHotRows：copy 得到 False，但展开独热编码总要新建数组；请用 copy=None 或 True"
            )
        return self[:].astype(DTYPE if dtype is None else dtype, copy=False)

    def __repr__(self) -> str:
        return f"OneHotRows(shape={self.shape}, dtype={self.dtype})"


def window_rows(tokens: Integers, context_size: int, stride: int) -> Integers:
    r"""取出全部完整的窗口，不复制数据。

    窗口从 $0, s, 2s, \dots$ 开始（$s$ 为步长）。
    输入取自 `tokens[:-1]`，右移一位的标签取自 `tokens[1:]`，
    于是长度为 $n$ 的词元序列给出 $\lceil (n - T) / s \rceil$ 对窗口（$T$ 为窗口长度）。

    Args:
        tokens: 一维词元数组。
        context_size: 窗口长度。
        stride: 相邻窗口起点的距离。

    Returns:
        形状 `(窗口数, 上下文尺寸)` 的只读视图；数组比一个窗口还短时窗口数是 0。
    """
    if len(tokens) < context_size:
        return np.empty((0, context_size), dtype=tokens.dtype)
    return np.lib.stride_tricks.sliding_window_view(tokens, context_size)[::stride]


def next_tokens(tokens: Integers, context_size: int, stride: int) -> Integers:
    """取出每个窗口之后的那一个词元，不复制数据。

    Args:
        tokens: 一维词元数组。
        context_size: 窗口长度。
        stride: 相邻窗口起点的距离。

    Returns:
        形状 `(窗口数,)` 的视图，与 `window_rows` 的行一一对应。
    """
    return tokens[context_size::stride]


def spread(count: int, limit: int | None) -> npt.NDArray[np.int64]:
    """从 `count` 个里均匀地选出至多 `limit` 个。

    Args:
        count: 一共多少个。
        limit: 至多选多少个，正整数；`None` 表示全选。

    Returns:
        选中的编号，从小到大。
    """
    if limit is None or limit >= count:
        return np.arange(count)
    return np.arange(positive_integer("evaluation_batches", "limit", limit)) * count // limit
