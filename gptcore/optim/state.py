"""读回优化器的状态之前的检查"""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from gptcore.errors import ArgumentError, DtypeError, ShapeError
from gptcore.kernels.array import Array
from gptcore.kernels.convert import brief

LISTED = 10
"""错误消息里最多列出几处"""


def require_state(operation: str, state: Any, own: Mapping[str, Array]) -> dict[str, Array]:
    """检查给出的状态与优化器自己的是否处处相符。

    Args:
        operation: 哪个操作，写进消息。
        state: 给出的状态，名字与数组。
        own: 优化器自己的状态。

    Returns:
        给出的各个数组。

    Raises:
        DtypeError: 不是字典，有的值不是数组，或者类型不符。
        ShapeError: 有名字缺少或多出，或者形状不符。
        ArgumentError: 学习率或步数不可能是这个值。
    """
    if not isinstance(state, Mapping):
        raise DtypeError(
            f"{operation}：state 必须是从名字到数组的字典，这里是 {type(state).__name__}；"
            "请给出 state_dict() 的结果"
        )
    given = cast("Mapping[str, Any]", state)
    shapes: list[str] = []
    dtypes: list[str] = []
    arrays: dict[str, Array] = {}
    for name in [*(n for n in own if n in given), *(n for n in given if n not in own)]:
        item = given[name]
        if not isinstance(item, np.ndarray | np.generic):
            dtypes.append(f"{name} 不是数组，是 {type(item).__name__}")
            continue
        value = arrays[name] = np.asarray(cast("Array", item))
        if name not in own:
            shapes.append(f"多出 {name}，形状 {value.shape}")
        elif value.shape != own[name].shape:
            shapes.append(f"{name}：应有的形状 {own[name].shape}，给出的形状 {value.shape}")
        elif value.dtype != own[name].dtype:
            dtypes.append(f"{name}：应有的类型 {own[name].dtype}，给出的类型 {value.dtype}")
    shapes += [f"缺少 {name}，形状 {own[name].shape}" for name in own if name not in given]
    if problems := [*shapes, *dtypes]:
        kind = ShapeError if shapes else DtypeError
        raise kind(
            f"{operation}：优化器的状态对不上，请检查优化器、参数的顺序与类型是否与保存时相同：\n  "
            + "\n  ".join(problems[:LISTED])
            + (f"\n  ……共 {len(problems)} 处" if len(problems) > LISTED else "")
        )
    _require_settings(operation, arrays)
    return arrays


def _require_settings(operation: str, arrays: dict[str, Array]) -> None:
    """学习率与步数不能是负数，学习率还要有限。"""
    for name in [name for name in ("lr", "steps") if name in arrays]:
        value = arrays[name].item()
        if not 0 <= value < np.inf:
            raise ArgumentError(
                f"{operation}：{name} 必须是非负的有限数，这里是 {brief(value)}；请给出 state_dict() 的结果"
            )
