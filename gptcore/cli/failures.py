"""各种错误在命令行上的说法：一行中文，说出值和办法"""

import re

from gptcore import api, data
from gptcore.cli.usage import PARSE_ERROR, explain
from gptcore.errors import GptcoreError, system_reason

FAILURES = (PARSE_ERROR, GptcoreError, MemoryError, OSError)
"""用户能够补救的错误；其余的是程序的错误，显示 Traceback"""

_FUNCTIONS = {
    *api.__all__,
    *data.__all__,
    *("encode", "generate", "held_out_loss", "load_state_dict", "sample", "softmax"),
}

_MEMORY = {
    "train": "请减小模型（--embedding-size、--blocks）或 --batch-size、--context-size",
    "demo": "请关掉别的程序再试，或用 gptcore train 训练一个小一些的模型",
}


def describe(error: Exception, command: str) -> str:
    """一个错误的消息。

    Args:
        error: `FAILURES` 之一。
        command: 运行的命令，例如 `train`；还没有认出命令时是空的。

    Returns:
        一行消息。
    """
    if isinstance(error, PARSE_ERROR):
        message = explain(error, f"gptcore {command}".strip())
    elif isinstance(error, MemoryError):
        advice = _MEMORY.get(command, "请关掉别的程序再试，或换一个小一些的模型")
        message = f"内存不够；{advice}"
    elif isinstance(error, OSError) and not isinstance(error, GptcoreError):
        where = f"{error.filename}：" if error.filename else "读写时出错："
        message = f"{where}{system_reason(error)}；请检查路径、权限与磁盘空间"
    else:
        message = plain(str(error)).replace("write_tokens", "gptcore tokenize")
    return one_line(message)


def plain(message: str) -> str:
    """去掉消息里的函数名，例如“read_text：文件 …”：命令行的用户没有调用它们。"""

    def drop(match: re.Match[str]) -> str:
        return match[1] if match[2].split(".")[0] in _FUNCTIONS else match[0]

    return re.sub(r"(^|：)([A-Za-z_][A-Za-z_.]*)：", drop, message)


def one_line(message: str) -> str:
    """把多行消息并成一行，控制字符写成转义。"""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    text = "；".join(lines).replace("：；", "：")
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", lambda match: repr(match.group())[1:-1], text)
