"""各层共用的参数检查"""

import sys
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from gptcore.errors import ArgumentError, DtypeError, RangeError, ShapeError
from gptcore.kernels.array import Array
from gptcore.kernels.convert import brief
from gptcore.tensor import Tensor

FLOAT_MAX = sys.float_info.max
LARGEST_SIZE = 10**9
"""尺寸的上限；再大，元素个数就超出整数的范围"""


def require_size(layer: str, name: str, value: Any, remedy: str = "") -> int:
    """尺寸必须是正整数；返回 Python 的 `int`，NumPy 的整数相乘会溢出。

    Args:
        layer: 哪一层，写进错误消息。
        name: 参数名。
        value: 要检查的值。
        remedy: 怎么改；不给时写“请写例如 name=64”。

    Raises:
        ArgumentError: 不是 1 到 10 亿的整数。
    """
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if whole and value > LARGEST_SIZE:
        raise ArgumentError(f"{layer}：{name} 不能超过 10 亿，这里是 {brief(value)}；请减小 {name}")
    if not whole or value < 1:
        remedy = remedy or f"请写例如 {name}=64"
        raise ArgumentError(f"{layer}：{name} 必须是正整数，这里是 {brief(value)}；{remedy}")
    return int(cast("Any", value))


def require_flag(layer: str, name: str, value: Any) -> bool:
    """开关必须是 `True` 或 `False`；返回 Python 的 `bool`。"""
    if not isinstance(value, bool | np.bool_):
        raise DtypeError(
            f"{layer}：{name} 必须是 True 或 False，这里是 {brief(value)}；请写例如 {name}=True"
        )
    return bool(cast("Any", value))


def require_choice(layer: str, name: str, value: Any, choices: Sequence[str | None]) -> None:
    """必须是几种写法之一。"""
    if not isinstance(value, str | None) or value not in choices:
        raise ArgumentError(
            f"{layer}：{name} 必须是 {'、'.join(map(repr, choices))} 之一，这里是 {brief(value)}"
        )


def require_number(layer: str, name: str, value: Any, low: float, high: float) -> None:
    """一个有限的实数，不小于 `low`，小于 `high`。"""
    if isinstance(value, np.floating):  # float32 与 FLOAT_MAX 相比会溢出
        value = float(cast("Any", value))
    number = isinstance(value, int | float | np.integer)
    if (
        not number
        or isinstance(value, bool)
        or not low <= value < high
        or not -FLOAT_MAX <= value <= FLOAT_MAX
    ):
        raise ArgumentError(
            f"{layer}：{name} 必须是满足 {low:g} ≤ {name} < {high:g} 的数，这里是 {brief(value)}"
        )


def require_floats(layer: str, x: Any) -> None:
    """输入必须是浮点张量。"""
    if not isinstance(x, Tensor):
        remedy = "前一层的 forward 是不是忘了 return" if x is None else "请写 Tensor(x)"
        raise DtypeError(f"{layer}：输入必须是 Tensor，这里是 {type(x).__name__}；{remedy}")
    if x.dtype.kind != "f":
        raise DtypeError(
            f"{layer}：输入必须是浮点张量，这里的类型是 {x.dtype}；请写 x.astype(DTYPE)，词元编号请先通过 Embedding"
        )


def require_axes(layer: str, x: Tensor, names: str) -> None:
    """输入的轴要与 `names` 一样多，且没有一轴是空的，例如 `"批大小, 长度, 嵌入尺寸"`。"""
    if x.ndim != names.count(",") + 1 or not x.size:
        raise ShapeError(
            f"{layer}：输入的形状 {x.shape}，应为 ({names})，且不为空；请用 reshape 补齐各轴"
        )


def require_last_axis(layer: str, argument: str, x: Tensor, size: int) -> None:
    """输入必须是浮点张量，最后一轴长 `size`。"""
    require_floats(layer, x)
    if not x.ndim or x.shape[-1] != size:
        raise ShapeError(
            f"{layer}：输入的形状 {x.shape}，最后一轴应为 {argument}={size}；请检查上一层的输出尺寸"
        )


def to_tensor(x: Any) -> Tensor:
    """数组与列表也可以当输入。"""
    return x if isinstance(x, Tensor) else Tensor(x, requires_grad=False)


def to_ids(layer: str, ids: Any, count: int) -> Array:
    """词元编号：整数，且都在 0 到 `count - 1`。

    Args:
        layer: 哪一层，写进错误消息。
        ids: 张量、数组或列表。
        count: 有多少个编号可用。

    Returns:
        整数数组。

    Raises:
        DtypeError: 编号是小数类型。
        RangeError: 编号超出范围。
    """
    tensor = to_tensor(ids)
    array = tensor.data
    if array.dtype.kind not in "iu":
        if not tensor.integral:
            raise DtypeError(
                f"{layer}：编号必须是整数，这里的类型是 {array.dtype}；请写 Tensor(x.data.astype(int))"
            )
        array = array.astype(np.int64)
    if array.size:
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >= count:
            wrong = low if low < 0 else high
            where = tuple(int(i) for i in np.argwhere(array == wrong)[0])
            raise RangeError(
                f"{layer}：编号 {wrong}（位置 {where}）超出范围，可用的编号是 0 到 {count - 1}；"
                "请检查词表与模型的 vocab_size 是否一致"
            )
    return array
