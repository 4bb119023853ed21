"""训练记录：设置、结果与环境，写进模型文件夹的 `training.json`"""

import platform
from typing import Any

import numpy as np


def record(command: str, settings: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """一次训练的记录。

    Args:
        command: 哪个命令。
        settings: 它的全部设置，包括种子与 BLAS 的线程数。
        result: 损失、时间等结果。

    Returns:
        可以写成 JSON 的字典。
    """
    from gptcore import __version__

    return {
        "command": command,
        "settings": settings,
        "result": result,
        "environment": {
            "gptcore": __version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
        },
    }
