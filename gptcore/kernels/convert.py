"""把用户给的数据变成数组，统一两个操作数的类型"""

from collections.abc import Iterable
from typing import Any, cast

import numpy as np

from gptcore.errors import DtypeError, ShapeError
from gptcore.kernels.array import Array


def to_array(data: Any, dtype: Any) -> tuple[Array, bool]:
    """变成数组，并说明数值是否来自整数。

    Args:
        data: NumPy 数组与 NumPy 标量保持自己的类型，`range` 变成 int64，其余（Python 数、列表）变成 `dtype`。
        dtype: Python 数与列表用的浮点类型。

    Returns:
        数组，以及数值是否来自整数。

    Raises:
        DtypeError: 数据不是数。
        ShapeError: 列表各行长短不一。
    """
    if type(data) is np.ndarray:
        array = data
    else:
        try:
            array = np.asarray(data)
        except ValueError as error:
            raise ShapeError("Tensor：列表各行的长度不同，不能成为数组；请补齐或截断") from error
    kind = array.dtype.kind
    if kind not in "fiub":
        raise DtypeError(f"Tensor：数据要是数，这里的类型是 {array.dtype}：{str(data)[:60]}")
    integral = kind != "f" or (array.size == 0 and isinstance(data, list))
    if isinstance(data, np.ndarray | np.generic | range):
        return array, integral
    return array.astype(dtype, copy=False), integral


def unify(x: Array, y: Array) -> tuple[Array, Array]:
    """统一两个操作数的类型：0 维的跟随另一个，整数跟随浮点数，其余由 NumPy 决定。

    NumPy 2 会让 float32 数组与 float64 的 0 维数组得到 float64；在这里结果仍是 float32。
    """
    if x.dtype == y.dtype:
        return x, y
    x_floats, y_floats = x.dtype.kind == "f", y.dtype.kind == "f"
    if (x_floats and not y_floats) or (x_floats == y_floats and x.ndim and not y.ndim):
        return x, y.astype(x.dtype)
    if (y_floats and not x_floats) or (x_floats == y_floats and y.ndim and not x.ndim):
        return x.astype(y.dtype), y
    return x, y


def broadcastable(s: tuple[int, ...], t: tuple[int, ...]) -> bool:
    """两个形状能不能广播：从最后一轴往前，要么等长，要么有一个是 1。"""
    return all(m == n or 1 in (m, n) for m, n in zip(s[::-1], t[::-1], strict=False))


def permutation(axes: Any, shape: tuple[int, ...]) -> list[int]:
    """检查轴的排列；空的表示倒序，负数从后往前数。

    Args:
        axes: 轴的序列。
        shape: 数组的形状。

    Returns:
        0 到轴数减 1 的一种排列。

    Raises:
        ShapeError: 不是一种排列。
    """
    every = list(range(len(shape)))
    wanted: list[Any] = list(cast("Iterable[Any]", axes)) if isinstance(axes, Iterable) else [axes]
    order = [a % len(shape) for a in wanted if -len(shape) <= a < len(shape)] or every[::-1]
    if sorted(order) != every or len(wanted) not in (0, len(shape)):
        raise ShapeError(
            f"transpose：{tuple(wanted)} 不是形状 {shape} 各轴的一种排列；"
            f"请给出 0 到 {len(shape) - 1} 各一次，例如 {tuple(every[::-1])}"
        )
    return order
