"""`gptcore doctor`：逐项检查，最后说一切正常，或者有哪几项要处理、怎么处理"""

import time
from collections.abc import Generator
from contextlib import contextmanager

from rich.cells import cell_len
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gptcore.cli.failures import plain
from gptcore.cli.help import NARROW
from gptcore.cli.streams import visible
from gptcore.cli.terminal import Terminal
from gptcore.diagnostics import SECTIONS, CheckResult, Status
from gptcore.diagnostics.files import writes_chinese

STYLES = {Status.OK: "green", Status.WARNING: "bold yellow", Status.FAILURE: "bold red"}
NAME = 12
"""名字一栏的宽度，单位列：六个汉字"""


def run_doctor(terminal: Terminal) -> int:
    """运行全部检查并写出结果，不到二十秒。

    Args:
        terminal: 终端。

    Returns:
        退出码：0 没有错误（可以有提醒），1 有错误。
    """
    start = time.perf_counter()
    _warn_in_english(terminal)
    results: list[CheckResult] = []
    for title, checks in SECTIONS.items():
        terminal.say(title, "bold cyan")
        for function in checks:
            with _waiting(terminal, title):
                results.append(function())
            _line(terminal, results[-1])
        terminal.say()
    _verdict(terminal, results, time.perf_counter() - start)
    return int(any(r.status is Status.FAILURE for r in results))


def _warn_in_english(terminal: Terminal) -> None:
    """输出写不出中文时，下面全是问号；先用英文说一句怎样改。"""
    encoding = getattr(terminal.console.file, "encoding", None)
    if not writes_chinese(encoding):
        terminal.say(
            f"The output encoding ({encoding}) has no Chinese characters, so they show as '?'. "
            "Set the environment variable PYTHONIOENCODING=utf-8 and run again."
        )


@contextmanager
def _waiting(terminal: Terminal, title: str) -> Generator[None]:
    """检查进行时，在终端的最后一行转一个小圈；它是 ASCII 的，哪种编码都写得出。"""
    if not terminal.live:
        yield
        return
    with terminal.console.status(f"正在检查{title}……", spinner="line"):
        yield


def _line(terminal: Terminal, result: CheckResult) -> None:
    """一项的结论、名字与值；窄的终端上，值写在下一行。"""
    status = Text(result.status, STYLES[result.status])
    name = Text(result.name + " " * (NAME - cell_len(result.name)))
    body = Text(_clean(result.value))
    if result.status is Status.OK and result.explanation:
        body.append(f"（{_clean(result.explanation)}）", "dim")
    console = terminal.console
    if not console.is_terminal:
        terminal.say(Text.assemble("  ", status, "  ", name, "  ", body))
    elif console.width < NARROW:
        console.print(Text.assemble("  ", status, "  ", Text(result.name, "bold")))
        console.print(Padding(body, (0, 0, 0, 8)))
    else:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_row(status, name, body)
        console.print(Padding(table, (0, 0, 0, 2)))


def _verdict(terminal: Terminal, results: list[CheckResult], seconds: float) -> None:
    """最后的结论：一切正常，或者逐项写出问题与办法。"""
    wrong = [r for r in results if r.status is Status.FAILURE]
    doubtful = [r for r in results if r.status is Status.WARNING]
    count = f"{len(results)} 项检查，{seconds:.0f} 秒"
    if wrong:
        terminal.say(f"有 {len(wrong)} 项要处理（{count}）：", STYLES[Status.FAILURE])
        _problems(terminal, wrong)
        if doubtful:
            terminal.say(f"另有 {len(doubtful)} 项提醒，可以先不管：", STYLES[Status.WARNING])
    elif doubtful:
        terminal.say(f"可以使用，有 {len(doubtful)} 项提醒（{count}）：", STYLES[Status.WARNING])
    else:
        terminal.say(f"一切正常（{count}），可以开始了：", "bold green")
        terminal.command("gptcore demo")
    _problems(terminal, doubtful)


def _problems(terminal: Terminal, results: list[CheckResult]) -> None:
    for i, result in enumerate(results, 1):
        lines = Text.assemble(
            (f"{i}. {result.name}：", "bold"),
            _clean(f"{result.explanation}（{result.value}）"),
            "\n办法：",
            _clean(result.remedy),
        )
        if terminal.console.is_terminal:
            terminal.console.print(Padding(lines, (0, 0, 0, 2)))
        else:
            for line in lines.split("\n"):
                terminal.say(Text("  ") + line)


def _clean(text: str) -> str:
    """去掉函数名，控制字符写成转义。"""
    return visible(plain(text))
