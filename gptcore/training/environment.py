"""结果在什么环境里得到：逐位重现需要这些都相同"""

import platform
from typing import Any, cast

import numpy as np

from gptcore.threads import blas_info
from gptcore.version import __version__


def environment() -> dict[str, Any]:
    """版本、处理器与 BLAS；写进检查点与训练记录。"""
    return {
        "gptcore": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": platform.system(),
        "machine": platform.machine(),
        **blas_info(),
    }


NAMES = {
    "gptcore": "gptcore 的版本",
    "python": "Python 的版本",
    "numpy": "NumPy 的版本",
    "system": "操作系统",
    "machine": "处理器",
    "blas": "BLAS",
    "blas_kernel": "BLAS 所用的核",
    "threads": "BLAS 的线程数",
    "processes": "进程数",
}
ABSENT = {"processes": 1}
"""没有写出的项当作什么"""


def changes(before: Any, now: dict[str, Any]) -> list[str]:
    """两次的环境有哪些不同，每项一句话。"""
    if not isinstance(before, dict):
        return ["检查点没有记下环境"]
    old = ABSENT | cast("dict[str, Any]", before)
    return [
        f"{NAMES.get(key, key)}由 {old.get(key)} 变成 {value}"
        for key, value in (ABSENT | now).items()
        if old.get(key) != value
    ]
