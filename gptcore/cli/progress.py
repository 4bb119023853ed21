"""训练进度：终端上原地刷新，别处写成一行一行的日志"""

import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Self

import numpy as np
from rich.cells import cell_len
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gptcore.cli.terminal import Terminal
from gptcore.cli.usage import UsageError
from gptcore.data import Dataset
from gptcore.training import GPTTrainer, Scheduler, StepReport

REFRESH = 0.2
"""原地刷新的间隔，单位秒"""

LOG_LINES = 10
"""写成日志时大约写几行"""

DIVERGED = "请减小 --lr 或 --weight-decay，或者增加 --warmup-steps"
"""训练发散时的办法；学习率太大、升温太短、衰减太强都会这样"""

RECENT = 25
"""损失与速度取最近多少步的平均"""


class Progress:
    """显示训练进度：步数、损失、学习率、每秒字符数、剩余时间。

    损失与速度是最近 25 步的平均；生成样本的时间不算在内。

    Args:
        terminal: 终端。
        steps: 总步数。
        clock: 计时用的函数，单位秒。
    """

    def __init__(
        self, terminal: Terminal, steps: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.terminal, self.steps, self._clock = terminal, steps, clock
        self.seconds = 0.0
        self._recent: deque[tuple[float, StepReport]] = deque(maxlen=RECENT)
        self._last = self._shown = clock()
        self._live = Live(console=terminal.console, auto_refresh=False) if terminal.live else None
        self._every = max(1, steps // LOG_LINES)

    def __enter__(self) -> Self:
        self._last = self._clock()
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, report: StepReport) -> None:
        """记下一步的结果；到时候就显示出来。

        Args:
            report: 这一步的结果。
        """
        now = self._clock()
        self._recent.append((now - self._last, report))
        self.seconds += now - self._last
        self._last = now
        done = report.step + 1
        if self._live is not None:
            if done == self.steps or now - self._shown >= REFRESH:
                self._shown = now
                self._live.update(self._frame(done), refresh=True)
        elif done == 1 or done == self.steps or done % self._every == 0:
            self.terminal.say("  ".join([f"步 {done}/{self.steps}", *self._items(done)]))
            self.terminal.console.file.flush()

    @contextmanager
    def paused(self) -> Generator[None]:
        """这一段时间不算训练。"""
        yield
        self._last = self._clock()

    def _items(self, done: int) -> list[str]:
        seconds = sum(s for s, _ in self._recent)
        pace = len(self._recent) / max(seconds, 1e-9)
        loss = sum(r.loss for _, r in self._recent) / len(self._recent)
        tokens = self._recent[-1][1].tokens
        left = round((self.steps - done) / pace)
        return [
            f"损失 {loss:.3f}",
            f"学习率 {self._recent[-1][1].lr:.1e}",
            f"{round(pace * tokens):,} 字符/秒",
            f"剩余 {left // 60}:{left % 60:02d}",
        ]

    def _frame(self, done: int) -> Group:
        width = self.terminal.console.width
        count = f"训练 {done}/{self.steps} "
        bar = Table.grid()
        bar.add_row(count, ProgressBar(self.steps, done, max(4, min(60, width - cell_len(count)))))
        return Group(bar, *pack(self._items(done), width))


def pack(items: list[str], width: int) -> list[Text]:
    """把几段文字排成若干行，段内不折行。

    Args:
        items: 各段文字。
        width: 一行有多宽，单位列；汉字占两列。

    Returns:
        各行。
    """
    lines: list[str] = []
    for item in items:
        if lines and cell_len(lines[-1]) + 2 + cell_len(item) <= width:
            lines[-1] += "  " + item
        else:
            lines.append(item)
    return [Text(line, no_wrap=True) for line in lines]


def fit(
    trainer: GPTTrainer,
    dataset: Dataset,
    steps: int,
    scheduler: Scheduler,
    terminal: Terminal,
    pauses: Mapping[int, Callable[[], None]] | None = None,
) -> float:
    """训练若干步并显示进度。

    Args:
        trainer: 训练器。
        dataset: 数据集。
        steps: 步数。
        scheduler: 学习率调度。
        terminal: 终端。
        pauses: 做完多少步之后停下来做什么，例如生成一段样本。

    Returns:
        训练所用的秒数，不含停下来的时间。

    Raises:
        UsageError: 损失或最后的参数里有 NaN 或无穷。
    """
    with Progress(terminal, steps) as progress, np.errstate(all="ignore"):
        for report in trainer.steps(dataset, steps, scheduler):
            if not np.isfinite(report.loss):
                raise UsageError(
                    f"第 {report.step + 1} 步的损失变成 {report.loss}，训练已停止，没有保存；"
                    f"这一步的学习率是 {report.lr:.2g}，{DIVERGED}"
                )
            progress.update(report)
            pause = (pauses or {}).get(report.step + 1)
            with progress.paused() if pause else nullcontext():
                if pause:
                    pause()
    if not all(np.isfinite(p.data).all() for p in trainer.model.parameters):
        raise UsageError(f"最后一步之后参数里有 NaN 或无穷，没有保存；{DIVERGED}")
    return progress.seconds
