"""终端：颜色、宽度与折行"""

from dataclasses import dataclass
from typing import TextIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from gptcore.cli.streams import visible
from gptcore.cli.wrapping import wrap

WIDTH = 80
"""不知道终端有多宽时当作多少列"""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """管道被关闭时原样抛出，由 `run` 决定退出码；rich 自己会以 1 退出。"""
        raise BrokenPipeError


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
        """写一段文字；不是终端时不折行，一条消息就是一行。控制字符写成转义。"""
        if isinstance(message, str):
            self.hanging(Text(), Text(visible(message), style))
        else:
            self.console.print(message, soft_wrap=not self.console.is_terminal)

    def hanging(self, title: Text, body: Text) -> None:
        """标题之后写一段文字，折行时各行与第一行对齐；不是终端时不折行。"""
        console = self.console
        width = max(8, console.width - title.cell_len)
        for line in wrap(body, width) if console.is_terminal else [body]:
            console.print(title + line, soft_wrap=True)
            title = Text(" " * title.cell_len)

    def command(self, command: str) -> None:
        """写一条可以照抄的命令；不插入换行，太长时由终端自己折。"""
        self.console.print(Text("  " + visible(command), "bold cyan"), soft_wrap=True)

    def sample(self, title: str, text: str) -> None:
        """写一段模型生成的文字。"""
        self.say()
        self.say(title, "bold cyan")
        body = Text(visible(text.strip("\n")))
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
    console = _Console(file=file, highlight=False, markup=False, emoji=False)
    if console.width < 1:  # COLUMNS=0：宽度不知道，而不是零列
        console.width = WIDTH
    live = console.file.isatty() and console.is_terminal and not console.is_dumb_terminal
    return Terminal(console, live)
