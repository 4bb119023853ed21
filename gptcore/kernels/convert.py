"""把用户给的数据变成数组，统一两个操作数的类型"""

from collections.abc import Iterable
from typing import Any, cast

import numpy as np

from gptcore.errors import ArgumentError, DtypeError, ShapeError
from gptcore.kernels.array import Array

FLOATS = "fd"
"""支持的浮点类型：float32 与 float64。float16 的和与平方很快就溢出，算出来的是错的。"""


def brief(value: Any) -> str:
    """写进错误消息的值，至多 60 个字符；很大的整数只写出大小，Python 不肯把几千位的整数变成文字。"""
    if isinstance(value, int) and abs(value) > 10**20:
        return f"{'-' if value < 0 else ''}2 的 {value.bit_length() - 1} 次方以上"
    try:
        return repr(value)[:60]
    except ValueError:  # 里面有这样的整数
        return type(value).__name__


def to_array(data: Any, dtype: Any) -> tuple[Array, bool]:
    """变成数组，并说明数值是否来自整数。

    Args:
        data: NumPy 数组与 NumPy 标量保持自己的类型，`range` 变成 int64，其余（Python 数、列表）变成 `dtype`。
        dtype: Python 数与列表用的浮点类型；`None` 表示由 NumPy 决定。

    Returns:
        数组，以及数值是否来自整数。

    Raises:
        DtypeError: 数据不是数，或者是 float32 与 float64 以外的浮点数。
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
        raise DtypeError(_not_numbers(data, array.dtype))
    integral = kind != "f" or (array.size == 0 and isinstance(data, list))
    if dtype is not None and not isinstance(data, np.ndarray | np.generic | range):
        array = array.astype(dtype, copy=False)
    if kind == "f" and array.dtype.char not in FLOATS:
        raise DtypeError(
            f"Tensor：浮点数只支持 float32 与 float64，这里是 {array.dtype}；请先转换，例如 array.astype(np.float32)"
        )
    return array, integral


def _not_numbers(data: Any, dtype: np.dtype[Any]) -> str:
    remedy = (
        "文本请先用分词器编码，例如 dataset.encode(text)"
        if dtype.kind in "US"
        else "请给出数、列表或数组，例如 Tensor([1.0, 2.0])"
    )
    given = "None" if data is None else f"{brief(data)}（类型 {dtype}）"
    return f"Tensor：数据必须是数，这里是 {given}；{remedy}"


def to_dtype(operation: str, dtype: Any) -> np.dtype[Any]:
    """元素类型；不认识的、不是数的都报错。

    Args:
        operation: 哪个操作，写进错误消息。
        dtype: 类型或它的名字，例如 `np.float64`、`"float32"`。

    Raises:
        DtypeError: 不是整数、布尔、float32 或 float64。
    """
    try:
        result: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise DtypeError(
            f"{operation}：不认识类型 {dtype!r}；请写 np.float32、np.float64 或 np.int64"
        ) from error
    if result.kind not in "fiub" or (result.kind == "f" and result.char not in FLOATS):
        raise DtypeError(
            f"{operation}：不支持类型 {result}；请写 np.float32、np.float64 或 np.int64"
        )
    return result


def to_operand(value: Any, like: np.dtype[Any], default: Any) -> Array:
    """把运算的另一方变成数组。

    Args:
        value: Python 数与列表、NumPy 标量与 0 维数组跟随对方的浮点类型；其余的数组保持自己的类型。
        like: 对方的类型。
        default: 对方是整数时，小数用的类型。

    Returns:
        数组。
    """
    array, _ = to_array(value, None)
    if isinstance(value, np.ndarray) and array.ndim:
        return array
    if like.kind == "f":
        return array.astype(like, copy=False)
    return array.astype(default) if array.dtype.kind == "f" else array


def to_exponent(value: Any) -> int | float:
    """乘方的指数：整数值的变成 `int`，其余为 `float`。

    Raises:
        DtypeError: 不是数。
        ArgumentError: 大得不能成为浮点数。
    """
    if not isinstance(value, int | float | np.integer | np.floating):
        raise DtypeError(
            f"乘方 **：指数必须是一个数，这里是 {type(value).__name__}；"
            "指数是张量时请写成 (x.log() * n).exp()"
        )
    try:
        exponent = float(cast("float", value))
    except OverflowError as error:
        raise ArgumentError("乘方 **：指数太大，不能成为浮点数；请用例如 x ** 2") from error
    return int(exponent) if exponent.is_integer() and abs(exponent) < 2**31 else exponent


def unify(x: Array, y: Array) -> tuple[Array, Array]:
    """统一两个操作数的类型：整数跟随浮点数，浮点数里 0 维的跟随另一个，整数之间一律 int64。

    NumPy 2 会让 float32 数组与 float64 的 0 维数组得到 float64；在这里结果仍是 float32。
    窄的整数先变宽再算：uint8 的 200 加 200 是 400，不会绕回成 144；布尔值当作整数。
    """
    x_floats, y_floats = x.dtype.kind == "f", y.dtype.kind == "f"
    if not x_floats and not y_floats:
        return to_int64(x), to_int64(y)
    if x.dtype == y.dtype:
        return x, y
    if (x_floats and not y_floats) or (x_floats == y_floats and x.ndim and not y.ndim):
        return x, y.astype(x.dtype)
    if (y_floats and not x_floats) or (x_floats == y_floats and y.ndim and not x.ndim):
        return x.astype(y.dtype), y
    return x, y


def to_int64(x: Array) -> Array:
    """整数数组变成 int64。

    Raises:
        ArgumentError: uint64 里有装不下的数。
    """
    if x.dtype.kind == "u" and x.dtype.itemsize == 8 and x.size and int(x.max()) >= 2**63:
        raise ArgumentError(
            f"整数运算：{int(x.max())} 超出 int64 的范围；请先转换成浮点数，例如 x.astype(np.float64)"
        )
    return x.astype(np.int64, copy=False)


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
    try:
        wanted = axis_tuple("transpose", axes, shape) or tuple(every[::-1])
    except ArgumentError:
        wanted = ()
    if sorted(wanted) != every:
        raise ShapeError(
            f"transpose：{brief(axes)} 不是形状 {shape} 各轴的一种排列；"
            f"请给出 0 到 {len(shape) - 1} 各一次，例如 {tuple(every[::-1])}"
        )
    return list(wanted)


def axis_tuple(operation: str, axis: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """把一个轴或若干个轴变成非负整数的元组。

    Args:
        operation: 哪个运算，写进错误消息。
        axis: 整数，或整数的元组、列表；负数从后往前数。
        shape: 数组的形状。

    Returns:
        各轴，没有重复。

    Raises:
        ShapeError: 没有这样的轴，或者有重复。
    """
    axes: list[Any] = list(cast("Iterable[Any]", axis)) if isinstance(axis, Iterable) else [axis]
    n = len(shape)
    whole = all(isinstance(a, int | np.integer) and not isinstance(a, bool) for a in axes)
    if not whole or not all(-n <= a < n for a in axes) or len({a % n for a in axes}) < len(axes):
        known = f"可以是 {-n} 到 {n - 1} 的整数，不能重复" if n else "不能指定，它是 0 维的"
        raise ShapeError(f"{operation}：没有轴 axis={brief(axis)}；形状 {shape} 的轴{known}")
    return tuple(int(a) % n for a in axes)


def reduced_axes(operation: str, axis: Any, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """归约的轴；`None` 表示全部。各参数同 `axis_tuple`。"""
    return None if axis is None else axis_tuple(operation, axis, shape)


def plain_index(index: Any) -> Any:
    """下标里的张量与列表换成数组；数组都复制，以后改动原来的也不影响反向传播。"""
    if isinstance(index, tuple):
        return tuple(plain_index(i) for i in cast("tuple[Any, ...]", index))
    if index is None or index is ... or isinstance(index, int | np.integer | slice):
        return cast("Any", index)
    data = getattr(index, "data", index) if hasattr(index, "integral") else index
    array = np.array(data)
    if array.dtype.kind == "f" and (getattr(index, "integral", False) or not array.size):
        return array.astype(np.int64)
    return array
