"""词元编号的检查：列表、数组与张量都变成一维整数数组"""

import operator
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gptcore.errors import DataError, DtypeError, ShapeError
from gptcore.tensor import Tensor

Ids = npt.NDArray[np.int64]


def integer_ids(operation: str, ids: Any) -> npt.NDArray[np.integer[Any]]:
    """把列表、数组或张量变成一维整数数组。

    Args:
        operation: 操作名，写进错误消息。
        ids: 词元编号。

    Returns:
        一维整数数组。

    Raises:
        DataError: 整数大得存不下。
        DtypeError: 编号不是整数。
        ShapeError: 不是一维。
    """
    array = _ids_array(operation, ids)
    if array.ndim != 1:
        raise ShapeError(
            f"{operation}：ids 的形状是 {array.shape}，这里只接受一维的一串编号；"
            "请逐行处理，单个编号写成 [编号]"
        )
    if array.dtype.kind not in "iu":
        if array.size:
            raise DtypeError(
                f"{operation}：ids 的类型是 {array.dtype}，词元编号必须是整数；"
                "请先转换，例如 ids.astype(np.int64)"
            )
        return array.astype(np.int64)
    return array


def check_range(operation: str, ids: npt.NDArray[np.integer[Any]], size: int) -> None:
    """检查编号是否都在 `0` 到 `size - 1` 之间。

    Args:
        operation: 操作名，写进错误消息。
        ids: 一维整数数组。
        size: 词表大小。

    Raises:
        DataError: 有编号超出范围；消息写出值、范围和位置。
    """
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= size):
        position = int(np.argmax((ids < 0) | (ids >= size)))
        _out_of_range(operation, int(ids[position]), position, f"0 到 {size - 1}")


def _ids_array(operation: str, ids: Any) -> npt.NDArray[Any]:
    if isinstance(ids, Tensor):
        return ids.data.astype(np.int64) if ids.integral else ids.data
    if isinstance(ids, np.ndarray):
        return cast(npt.NDArray[Any], ids)
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise DtypeError(
            f"{operation}：ids 得到 {ids!r}，它必须是编号的列表、数组或张量；"
            "单个编号写成 [编号]，文本请用 encode"
        )
    return _list_to_array(operation, list(cast("Iterable[Any]", ids)))


def _list_to_array(operation: str, ids: list[Any]) -> npt.NDArray[Any]:
    numbers: list[int] = []
    limit = np.iinfo(np.int64)
    for position, value in enumerate(ids):
        try:
            number = operator.index(value)
        except TypeError:
            raise DtypeError(
                f"{operation}：ids 的位置 {position} 上是 {value!r}（{type(value).__name__}），"
                "词元编号必须是整数；请先用 int(...) 转换"
            ) from None
        if not limit.min <= number <= limit.max:
            _out_of_range(operation, number, position, "int64 能表示的整数")
        numbers.append(number)
    return np.array(numbers, dtype=np.int64)


def _out_of_range(operation: str, value: int, position: int, allowed: str) -> None:
    raise DataError(
        f"{operation}：位置 {position}（从 0 数起）上的编号 {value} 超出范围，应当是 {allowed}；"
        "请检查编号是否来自同一个分词器"
    )
