"""数据模块共用的参数检查"""

import operator
from typing import SupportsIndex

from gptcore.errors import ArgumentError
from gptcore.kernels.convert import brief


def positive_integer(operation: str, name: str, value: SupportsIndex) -> int:
    """检查参数是不是正整数，返回 Python 的 `int`。

    Args:
        operation: 操作或类的名字，写进错误消息。
        name: 参数名。
        value: 要检查的值；NumPy 的整数也可以。

    Returns:
        检查过的整数。

    Raises:
        ArgumentError: 不是整数，或小于 1。
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < 1:
        raise ArgumentError(
            f"{operation}：{name} 得到 {brief(value)}，它必须是正整数；请给出 1 或更大的整数"
        )
    return number
