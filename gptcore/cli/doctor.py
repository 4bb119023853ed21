"""`gptcore doctor`：逐项检查，最后说一切正常，或者有哪几项要处理、怎么处理"""

import time
from collections.abc import Generator
from contextlib import contextmanager

from rich.cells import cell_len
from rich.live import Live
from rich.spinner import Spinner
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
    """运行全部检查并写出结果，几秒钟。

    Args:
        terminal: 终端。

    Returns:
        退出码：0 没有错误（可以有提醒），1 有错误。
    """
    start = time.perf_counter()
    _warn_in_english(terminal)
    results: list[CheckResult] = []
    with _waiting(terminal):
        for title, checks in SECTIONS.items():
            terminal.say(title, "bold cyan")
            for function in checks:
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
            f"The output encoding ({encoding}) cannot show Chinese; characters appear as '?'. "
            "Set the environment variable PYTHONIOENCODING=utf-8 and run again."
        )


@contextmanager
def _waiting(terminal: Terminal) -> Generator[None]:
    """检查进行时，最后一行有东西在转；它是 ASCII 的，哪种编码都写得出。"""
    if not terminal.live:
        yield
        return
    spinner = Spinner("line", "正在检查……", style="cyan")
    # 不改动标准输出与标准错误：它们的编码也是要检查的
    with Live(
        spinner,
        console=terminal.console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield


def _line(terminal: Terminal, result: CheckResult) -> None:
    """一项的结论、名字与值；窄的终端上，值写在下一行。"""
    body = Text(_clean(result.value))
    if result.status is Status.OK and result.explanation:
        body.append(f"（{_clean(result.explanation)}）", "dim")
    status = Text.assemble("  ", (result.status, STYLES[result.status]), "  ")
    console = terminal.console
    if console.is_terminal and console.width < NARROW:
        terminal.say(Text.assemble(status, (result.name, "bold")))
        terminal.hanging(Text(" " * 8), body)
    else:
        name = result.name + " " * (NAME - cell_len(result.name))
        terminal.hanging(Text.assemble(status, name, "  "), body)


def _verdict(terminal: Terminal, results: list[CheckResult], seconds: float) -> None:
    """最后的结论：一切正常，或者逐项写出问题与办法。"""
    wrong = [r for r in results if r.status is Status.FAILURE]
    doubtful = [r for r in results if r.status is Status.WARNING]
    count = f"{len(results)} 项检查，{seconds:.0f} 秒"
    if wrong:
        terminal.say(f"有 {len(wrong)} 项要处理（{count}）：", STYLES[Status.FAILURE])
        _problems(terminal, wrong)
        if doubtful:
            title = f"另有 {len(doubtful)} 项提醒，可以先不管："
            terminal.say(title, STYLES[Status.WARNING])
    elif doubtful:
        title = f"可以使用，有 {len(doubtful)} 项提醒（{count}）："
        terminal.say(title, STYLES[Status.WARNING])
    else:
        terminal.say(f"一切正常（{count}）。可以开始了：", "bold green")
        terminal.command("gptcore demo")
    _problems(terminal, doubtful)


def _problems(terminal: Terminal, results: list[CheckResult]) -> None:
    for i, result in enumerate(results, 1):
        number = Text(f"  {i}. ")
        problem = _clean(f"{result.explanation}（{result.value}）")
        terminal.hanging(number, Text.assemble((f"{result.name}：", "bold"), problem))
        remedy = Text.assemble(("办法：", "bold"), _clean(result.remedy))
        terminal.hanging(Text(" " * len(number)), remedy)


def _clean(text: str) -> str:
    """去掉函数名，控制字符写成转义，没有换行。"""
    return visible(plain(" ".join(text.split())))
