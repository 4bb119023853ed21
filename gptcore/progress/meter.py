"""进度里的数：做到哪里，平滑的损失，速度，还要多久"""

import math
from collections import deque
from collections.abc import Callable

from gptcore.training import RunState, StepReport

RECENT = 25
"""损失与速度取最近多少步的平均"""


class Meter:
    """记下每一步，算出要显示的各段文字。

    速度只看训练自己的时间；评估、保存与别的事占的时间另外记着，只算进剩余时间。

    Args:
        total: 总步数；不知道时是 `None`。
        unit: 数什么，例如 `词元`、`字符`。
        clock: 计时的函数，单位秒。
        state: 这时的训练状态；接着训练时，步数与评估从它开始。
    """

    def __init__(
        self, total: int | None, unit: str, clock: Callable[[], float], state: RunState
    ) -> None:
        self.total, self.unit, self.done = total, unit, state.step
        self._clock, self._state = clock, state
        self._start = self._last = clock()
        self._paused = 0.0
        self.counted = 0  # 这次做了几步
        self._training = 0.0  # 其中只有训练的那些步共用了多久
        self._seconds: deque[float] = deque(maxlen=RECENT)
        self._losses: deque[float] = deque(maxlen=RECENT)
        self._disturbed = False
        self._report: StepReport | None = None

    @property
    def seconds(self) -> float:
        """到最近一步为止用了多少秒，不含 `resume` 扣除的。"""
        return self._last - self._start - self._paused

    def record(self, report: StepReport) -> float:
        """记下一步，返回此刻的时间。"""
        now = self._clock()
        if not self._disturbed:
            self._seconds.append(now - self._last)
            self._training += now - self._last
        self._disturbed, self._last = False, now
        self.counted += 1
        self.done, self._report = report.step + 1, report
        if not report.skipped and math.isfinite(report.loss):
            self._losses.append(report.loss)
        return now

    def disturb(self) -> None:
        """这一步的前后做了别的事，它的时间不能代表训练的速度。"""
        self._disturbed = True

    def resume(self) -> None:
        """上一步到现在的时间不算。"""
        now = self._clock()
        self._paused += now - self._last
        self._last = now

    def items(self) -> list[str]:
        """损失、学习率、梯度范数、速度、剩余时间、评估，各一段文字。"""
        report = self._report
        if report is None:
            return self._evaluation()
        loss = sum(self._losses) / len(self._losses) if self._losses else math.nan
        pace = sum(self._seconds) / len(self._seconds) if self._seconds else 0.0
        others = max(0.0, self.seconds - self._training) / self.counted
        rate = report.tokens / max(pace or others, 1e-9)
        items = [
            f"损失 {loss:.3f}",
            f"学习率 {report.lr:.1e}",
            f"梯度范数 {report.grad_norm:{'.2f' if report.grad_norm < 1000 else '.1e'}}",
            f"{round(rate):,} {self.unit}/秒",
        ]
        if self.total is not None:
            items.append(f"剩余 {duration((self.total - self.done) * (pace + others))}")
        if self._state.skipped:
            items.append(f"跳过 {self._state.skipped} 步")
        return items + self._evaluation()

    def _evaluation(self) -> list[str]:
        best = self._state.best
        if best is None:
            return []
        last = self._state.evaluations[-1]
        if best == last:
            return [f"评估 {last[1]:.3f}（最低）"]
        return [f"评估 {last[1]:.3f}（第 {best[0]} 步最低 {best[1]:.3f}）"]


def duration(seconds: float) -> str:
    """`1:05` 或 `2:03:04`。"""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
