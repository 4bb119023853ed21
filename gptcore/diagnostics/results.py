"""一项检查的结果：正常、提醒或错误，得到的值，它说明什么，该怎么办"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import wraps
from typing import ParamSpec

import numpy as np

from gptcore.errors import GptcoreError, system_reason

P = ParamSpec("P")

LONGEST = 300
"""意外错误的消息最多写多少个字符"""


class Status(StrEnum):
    """一项检查的结论。"""

    OK = "正常"
    WARNING = "提醒"
    FAILURE = "错误"


@dataclass(frozen=True)
class CheckResult:
    """一项检查的结果。

    Attributes:
        status: 结论。
        value: 得到的值，一句短话，例如 `OpenBLAS 0.3.31，2 个线程`。
        explanation: 这个值说明什么；不正常时说哪里不对。
        remedy: 该怎么办；正常时是空的。
        name: 这一项的名字。
        seconds: 用了几秒。
    """

    status: Status
    value: str
    explanation: str = ""
    remedy: str = ""
    name: str = ""
    seconds: float = 0.0


def ok(value: str, explanation: str = "") -> CheckResult:
    """正常。

    Args:
        value: 得到的值。
        explanation: 它说明什么。
    """
    return CheckResult(Status.OK, value, explanation)


def warning(value: str, explanation: str, remedy: str) -> CheckResult:
    """可以用，但有一处值得处理。

    Args:
        value: 得到的值。
        explanation: 哪里不对，有什么后果。
        remedy: 该怎么办。
    """
    return CheckResult(Status.WARNING, value, explanation, remedy)


def failure(value: str, explanation: str, remedy: str) -> CheckResult:
    """有错误，结果不能相信，或有的功能不能用。

    Args:
        value: 得到的值。
        explanation: 哪里不对，有什么后果。
        remedy: 该怎么办。
    """
    return CheckResult(Status.FAILURE, value, explanation, remedy)


def check(name: str) -> Callable[[Callable[P, CheckResult]], Callable[P, CheckResult]]:
    """把一个函数变成一项检查：填上名字与用时；它抛出的错误也成为结果，不影响其余的检查。

    检查只看数值，所以运行时不显示 NumPy 的溢出之类的警告。

    Args:
        name: 这一项的名字。

    Returns:
        装饰器。
    """

    def decorate(function: Callable[P, CheckResult]) -> Callable[P, CheckResult]:
        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> CheckResult:
            start = time.perf_counter()
            try:
                with np.errstate(all="ignore"):
                    result = function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 任何错误都是这一项的结果
                result = _broken(error)
            return replace(result, name=name, seconds=time.perf_counter() - start)

        return run

    return decorate


def _broken(error: Exception) -> CheckResult:
    """检查没有做完：写出错误的消息，压成一行。"""
    if isinstance(error, OSError) and not isinstance(error, GptcoreError):
        message = system_reason(error) + (f"（{error.filename}）" if error.filename else "")
    elif isinstance(error, MemoryError):
        message = "内存不够"
    else:
        message = " ".join(str(error).split())
    if not isinstance(error, GptcoreError):
        message = f"{type(error).__name__}：{message}"
    return failure(
        message[:LONGEST],
        "检查中途出错，没有做完",
        "先关掉别的程序再试一次；仍然出错时，重新安装 gptcore 与 NumPy，或带上这份报告提问",
    )
