"""终端：输出流的编码、颜色与宽度"""

import os
import sys
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text


def prepare_streams() -> None:
    """让标准输出与标准错误写得出中文，写不出的字符换成“?”而不是报错。

    终端与环境指定的编码（例如 GBK）保持不变；编码里根本没有汉字（ASCII、Latin-1、cp1252）
    而用户又没有用 `PYTHONIOENCODING` 指定时，改用 UTF-8。
    """
    for stream in (sys.stdout, sys.stderr):
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


@dataclass
class Terminal:
    """命令往哪里写，怎样写。

    Attributes:
        console: rich 的控制台。
        live: 是否原地刷新进度；不是终端时写成一行一行的日志。
    """

    console: Console
    live: bool = False

    def say(self, message: RenderableType = "", style: str = "") -> None:
        """写一段文字；不是终端时不折行，一条消息就是一行。"""
        if isinstance(message, str):
            message = Text(message, style)
        self.console.print(message, soft_wrap=not self.console.is_terminal)

    def command(self, command: str) -> None:
        """写一条可以照抄的命令；不插入换行，太长时由终端自己折。"""
        self.console.print(Text("  " + command, "bold cyan"), soft_wrap=True)

    def sample(self, title: str, text: str) -> None:
        """写一段模型生成的文字。"""
        self.say()
        self.say(title, "bold cyan")
        body = Text(text.strip("\n"))
        if self.console.is_terminal:
            self.console.print(Padding(body, (0, 0, 0, 2)))
        else:
            self.say(body)


def open_terminal(file: TextIO | None = None) -> Terminal:
    """连到标准输出。

    Args:
        file: 写到哪里；默认是标准输出。

    Returns:
        终端；输出不是终端（管道、文件），或终端不能移动光标（`TERM=dumb`）时不原地刷新。
    """
    console = Console(file=file, highlight=False, markup=False, emoji=False)
    live = console.file.isatty() and console.is_terminal and not console.is_dumb_terminal
    return Terminal(console, live)


def complain(message: str, prefix: str = "错误：") -> None:
    """在标准错误上写一行。"""
    sys.stdout.flush()
    sys.stderr.write(f"{prefix}{message}\n")
    sys.stderr.flush()
