"""标准输出与标准错误：编码、被关闭的时候、控制字符；只用标准库，导入很快"""

import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""换行与制表符以外的控制字符，终端会把它们当作命令"""


def prepare_streams() -> None:
    """让标准输出与标准错误写得出中文，写不出的字符换成“?”而不是报错。

    终端与环境指定的编码（例如 GBK）保持不变；编码里根本没有汉字（ASCII、Latin-1、cp1252）
    而用户又没有用 `PYTHONIOENCODING` 指定时，改用 UTF-8。启动时就已关闭的（`>&-`），写到空设备上。
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            null = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 一直用到退出
            setattr(sys, name, null)
            continue
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is None:  # 例如测试里的替身
            continue
        if _writes_chinese(stream.encoding) or os.environ.get("PYTHONIOENCODING"):
            reconfigure(errors="replace")
        else:
            reconfigure(encoding="utf-8", errors="replace")


def _writes_chinese(encoding: str) -> bool:
    try:
        "中文".encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def silence(stream: TextIO) -> None:
    """写不出去的流改到空设备上：解释器退出时还会刷新一次，不要再出错。"""
    with suppress(OSError, ValueError):  # 测试里的替身没有文件描述符
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def complain(message: str, prefix: str = "错误：") -> None:
    """在标准错误上写一行；写不出去也不再报错，还有退出码。"""
    try:
        sys.stdout.flush()
    except OSError:
        silence(sys.stdout)
    try:
        sys.stderr.write(f"{prefix}{message}\n")
        sys.stderr.flush()
    except OSError:
        silence(sys.stderr)


def visible(text: str) -> str:
    r"""把控制字符写成转义，例如 `\x1b`；换行与制表符不变。"""
    return _CONTROL.sub(lambda match: repr(match.group())[1:-1], text)
