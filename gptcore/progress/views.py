"""进度显示在哪里：终端、Jupyter，或者一行一行的日志

rich 与 IPython 都在用到时才导入：`import gptcore` 不加载它们。
"""

from __future__ import annotations

import html
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

WIDEST_BAR = 60


class View(Protocol):
    """显示进度的地方。"""

    live: bool
    """是否原地刷新；不是时，`draw` 一次就是一行。"""

    def open(self) -> None:
        """训练开始。"""
        ...

    def draw(self, done: int, total: int | None, items: list[str]) -> None:
        """显示做到第几步，以及各段文字。"""
        ...

    def say(self, text: str) -> None:
        """写一句话，例如评估的结果；原地刷新的不必写，`draw` 的文字里有。"""
        ...

    def close(self) -> None:
        """训练结束，无论怎样结束。"""
        ...


class LiveView:
    """终端里的几行，原地刷新。

    Args:
        console: rich 的控制台；不给时写到标准输出。
    """

    live = True

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = console or Console()
        self._live = Live(console=self._console, auto_refresh=False)

    def open(self) -> None:
        """第一次 `draw` 时才占几行。"""

    def draw(self, done: int, total: int | None, items: list[str]) -> None:
        """画一次；第一次藏起光标。"""
        if not self._live.is_started:
            self._live.start()
        self._live.update(self._frame(done, total, items), refresh=True)

    def say(self, text: str) -> None:
        """什么也不做。"""

    def close(self) -> None:
        """留下最后的画面，还原光标。"""
        self._live.stop()

    def _frame(self, done: int, total: int | None, items: list[str]) -> RenderableType:
        from rich.cells import cell_len
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        width = self._console.width
        if total is None:
            return Group(*pack([f"训练 {done}", *items], width))
        count = f"训练 {done}/{total} "
        bar = Table.grid()
        room = max(4, min(WIDEST_BAR, width - cell_len(count)))
        bar.add_row(count, ProgressBar(max(total, 1), done, room))
        return Group(bar, *pack(items, width - 2))  # 给终端回显的 ^C 留地方


class NotebookView:
    """Jupyter 的一个输出格，原地更新；不需要 ipywidgets。"""

    live = True

    def __init__(self) -> None:
        self._handle: Any = None

    def open(self) -> None:
        """第一次 `draw` 时才占一格。"""
        self._handle = None

    def draw(self, done: int, total: int | None, items: list[str]) -> None:
        """更新那一格。"""
        show: Any = import_module("IPython.display")
        bar, count = "", f"训练 {done}"
        if total is not None:
            bar = f'<progress value="{done}" max="{max(total, 1)}" style="width: 60%"></progress> '
            count = f"{done}/{total}"
        content = {
            "text/html": f"<div>{bar}{count}<br>{html.escape('　'.join(items))}</div>",
            "text/plain": "  ".join([count, *items]),
        }
        if self._handle is None:
            self._handle = show.display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def say(self, text: str) -> None:
        """什么也不做。"""

    def close(self) -> None:
        """最后的画面留在那里。"""


class LineView:
    """一行一行的日志，写进文件、管道或不能移动光标的终端。

    Args:
        write: 写一行的函数，行尾的换行由它加；不给时写到标准输出，写一行送出一行。
    """

    live = False

    def __init__(self, write: Callable[[str], None] | None = None) -> None:
        self._write = write or _print

    def open(self) -> None:
        """什么也不做。"""

    def draw(self, done: int, total: int | None, items: list[str]) -> None:
        """写一行。"""
        count = f"步 {done}" if total is None else f"步 {done}/{total}"
        self._write("  ".join([count, *items]))

    def say(self, text: str) -> None:
        """写一行。"""
        self._write(text)

    def close(self) -> None:
        """什么也不做。"""


def open_view() -> View:
    """按标准输出选择：Jupyter、终端，或者一行一行的日志。"""
    if _in_notebook():
        return NotebookView()
    stream: Any = sys.stdout
    if stream is not None and stream.isatty():
        from rich.console import Console

        console = Console()
        if console.width < 1:  # COLUMNS=0：宽度不知道
            console.width = 80
        if console.is_terminal and not console.is_dumb_terminal:
            return LiveView(console)
    return LineView()


def pack(items: list[str], width: int) -> list[Text]:
    """把几段文字排成若干行，段内不折行。

    Args:
        items: 各段文字。
        width: 一行有多宽，单位列；汉字占两列。

    Returns:
        各行。
    """
    from rich.cells import cell_len
    from rich.text import Text

    lines: list[str] = []
    for item in items:
        if lines and cell_len(lines[-1]) + 2 + cell_len(item) <= width:
            lines[-1] += "  " + item
        else:
            lines.append(item)
    return [Text(line, no_wrap=True) for line in lines]


def _print(line: str) -> None:
    stream: Any = sys.stdout
    if stream is not None:  # 没有控制台的程序（例如 pythonw）没有标准输出
        stream.write(line + "\n")
        stream.flush()


def _in_notebook() -> bool:
    """在 Jupyter 里：IPython 已经导入，而且它背后是 Jupyter，不是终端。"""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None
