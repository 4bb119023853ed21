"""命令行上的训练进度：同一个 `ProgressDisplay`，写到命令行自己的终端上"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext

from gptcore.cli.terminal import Terminal
from gptcore.data import Dataset
from gptcore.progress import LineView, LiveView, ProgressDisplay
from gptcore.training import GPTTrainer, Scheduler


def open_display(terminal: Terminal, unit: str = "字符") -> ProgressDisplay:
    """写到这个终端上的进度显示。

    Args:
        terminal: 终端。
        unit: 一个词元叫什么。

    Returns:
        回调；写不出去时不抛出错误，记在 `error` 里。
    """

    def write(line: str) -> None:
        terminal.say(line)
        terminal.console.file.flush()

    view = LiveView(terminal.console) if terminal.live else LineView(write)
    return ProgressDisplay(unit=unit, view=view)


def fit(
    trainer: GPTTrainer,
    dataset: Dataset,
    steps: int,
    scheduler: Scheduler,
    terminal: Terminal,
    pauses: Mapping[int, Callable[[], None]] | None = None,
) -> float:
    """训练若干步并显示进度，不存检查点。

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
        NonFiniteError: 损失或最后的参数里有 NaN 或无穷。
    """
    display = open_display(terminal)
    for report in trainer.steps(dataset, steps, scheduler, callbacks=[display]):
        if display.error is not None:
            raise display.error
        pause = (pauses or {}).get(report.step + 1)
        with display.paused() if pause else nullcontext():
            if pause:
                pause()
    return display.seconds
