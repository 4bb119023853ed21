"""把一长串词元切成窗口：都不复制，取出一批时才复制那一批"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gptcore.data.checks import positive_integer
from gptcore.errors import ArgumentError, DtypeError, RangeError
from gptcore.kernels.convert import brief
from gptcore.tensor import DTYPE

Integers = npt.NDArray[np.integer[Any]]


class TokenSequence(Protocol):
    """不在内存里的一串词元，例如磁盘上的词元文件；切片得到其中的一段，仍不读取。"""

    def __len__(self) -> int: ...

    def __getitem__(self, index: slice) -> "TokenSequence": ...

    def windows(self, starts: npt.NDArray[np.int64], length: int) -> Integers:
        """读出从各个位置开始、长 `length` 的几段。

        Args:
            starts: 各段的开头，一维。
            length: 每一段的长度。

        Returns:
            形状 `(段数, length)` 的新数组。
        """
        ...


class LazyRows(ABC):
    """样子像一个二维数组，取用时才生成的行；数据集的 `x` 与 `y` 可以是它。

    下标可以是整数、切片、整数数组或布尔数组，得到的都是新数组；`np.asarray(rows)` 得到全部。
    """

    ndim = 2

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """形状 `(样本数, 每个样本的长度)`。"""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """取出来的数组的类型。"""

    @abstractmethod
    def __getitem__(self, index: Any) -> npt.NDArray[Any]: ...

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ArgumentError(
                f"{type(self).__name__}：copy 得到 False，但取出全部总要新建数组；请用 copy=None 或 True"
            )
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype})"


class OneHotRows(LazyRows):
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

    def __getitem__(self, index: Any) -> npt.NDArray[Any]:
        chosen = np.asarray(self.indices[index])
        rows = np.zeros((*chosen.shape, self.size), dtype=DTYPE)
        np.put_along_axis(rows, chosen[..., np.newaxis], 1.0, axis=-1)
        return rows


class TokenRows(LazyRows):
    """窗口的行，取用时才从词元里读出，变成 int64。

    词元可以是 uint16 这样的小整数，也可以在磁盘上。

    Args:
        tokens: 一维整数数组，或不在内存里的一串词元。
        length: 窗口长度。
        stride: 相邻窗口起点的距离。

    Examples:
        >>> rows = TokenRows(np.arange(7, dtype=np.uint16), 3, 2)
        >>> rows[1:]
        array([[2, 3, 4],
               [4, 5, 6]])
    """

    def __init__(self, tokens: Integers | TokenSequence, length: int, stride: int) -> None:
        self.tokens, self.length = tokens, length
        self._starts = range(0, max(0, len(tokens) - length + 1), stride)

    @property
    def shape(self) -> tuple[int, int]:
        """形状 `(窗口数, 窗口长度)`。"""
        return len(self._starts), self.length

    @property
    def dtype(self) -> np.dtype[Any]:
        """取出来的总是 int64。"""
        return np.dtype(np.int64)

    def __getitem__(self, index: Any) -> npt.NDArray[np.int64]:
        if isinstance(index, slice):
            chosen = self._starts[index]
            return take_windows(
                self.tokens, np.arange(chosen.start, chosen.stop, chosen.step), self.length
            )
        rows, count = np.asarray(index), len(self._starts)
        if rows.dtype.kind == "b" and rows.shape == (count,):
            rows = np.flatnonzero(rows)
        if rows.size and rows.dtype.kind not in "iu":
            raise DtypeError(
                f"TokenRows：下标得到 {brief(index)}，它必须是整数、切片或整数数组；请先转换"
            )
        rows = rows.astype(np.int64)
        outside = (rows < -count) | (rows >= count)
        if outside.any():
            raise RangeError(
                f"TokenRows：下标 {rows[outside].flat[0]} 越界，共有 {count} 个窗口；"
                f"请用 {-count} 到 {count - 1} 之间的下标"
            )
        starts = rows % max(count, 1) * self._starts.step
        found = take_windows(self.tokens, starts.reshape(-1), self.length)
        return found.reshape((*rows.shape, self.length))


def take_windows(
    tokens: Integers | TokenSequence, starts: npt.NDArray[np.int64], length: int
) -> npt.NDArray[np.int64]:
    """读出从各个位置开始、长 `length` 的几段，变成 int64。

    Args:
        tokens: 一维整数数组，或不在内存里的一串词元。
        starts: 各段的开头，一维。
        length: 每一段的长度。

    Returns:
        形状 `(段数, length)` 的新数组。
    """
    if isinstance(tokens, np.ndarray):
        found = tokens[starts[:, np.newaxis] + np.arange(length)]  # (b, length)
    else:
        found = tokens.windows(starts, length)
    return found.astype(np.int64, copy=False)


def window_rows(
    tokens: Integers | TokenSequence, context_size: int, stride: int
) -> Integers | TokenRows:
    r"""取出全部完整的窗口，不复制数据。

    窗口从 $0, s, 2s, \dots$ 开始（$s$ 为步长）。
    输入取自 `tokens[:-1]`，右移一位的标签取自 `tokens[1:]`，
    于是长度为 $n$ 的词元序列给出 $\lceil (n - T) / s \rceil$ 对窗口（$T$ 为窗口长度）。

    Args:
        tokens: 一维词元数组，或不在内存里的一串词元。
        context_size: 窗口长度。
        stride: 相邻窗口起点的距离。

    Returns:
        形状 `(窗口数, 上下文尺寸)`；比一个窗口还短时窗口数是 0。int64 数组给出只读的视图，
        别的给出 `TokenRows`，取用时才变成 int64。
    """
    if not isinstance(tokens, np.ndarray) or tokens.dtype != np.int64:
        return TokenRows(tokens, context_size, stride)
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


def spread(count: int, limit: int | None, size: int) -> Iterator[npt.NDArray[np.int64]]:
    """从 `count` 个里均匀地选出至多 `limit` 个，分成几批给出。

    Args:
        count: 一共多少个。
        limit: 至多选多少个，正整数；`None` 表示全选。
        size: 每批多少个；最后一批可以少些。

    Yields:
        选中的编号，从小到大。
    """
    total = count
    if limit is not None:
        total = min(count, positive_integer("evaluation_batches", "limit", limit))
    for start in range(0, total, size):
        yield np.arange(start, min(start + size, total)) * count // total
