"""优化器与调度共用的参数检查"""

import math
from typing import Any, cast

import numpy as np

from gptcore.errors import ArgumentError
from gptcore.kernels.convert import brief


def as_float(value: Any) -> float:
    """变成 `float`；不是数时是 NaN，大得装不下时是无穷。"""
    if not isinstance(value, int | float | np.integer | np.floating):
        return math.nan
    try:
        return float(cast("float", value))
    except OverflowError:
        return math.inf


def require_number(name: str, argument: str, value: Any, example: float = 0.001) -> None:
    """必须是非负的有限数。

    Args:
        name: 类或方法，写进消息。
        argument: 参数名。
        value: 得到的值。
        example: 消息里举例用的值。

    Raises:
        ArgumentError: 不是数，是负数、NaN 或无穷。
    """
    if not 0 <= as_float(value) < math.inf:
        raise ArgumentError(
            f"{name}：{argument} 必须是非负的有限数，这里是 {brief(value)}；请写例如 {argument}={example}"
        )


def require_steps(name: str, argument: str, value: Any) -> None:
    """步数：必须是非负的整数。各参数同 `require_number`。"""
    require_number(name, argument, value, 100)
    if value != int(value):
        raise ArgumentError(
            f"{name}：{argument} 必须是整数，这里是 {value}；请写例如 {argument}=int({value})"
        )
