"""显示训练进度的回调"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gptcore.models.generation import require_count
from gptcore.progress.meter import Meter
from gptcore.progress.views import View, open_view
from gptcore.training import Callback

if TYPE_CHECKING:
    from gptcore.training import Evaluation, StepReport, Trainer

REFRESH = 0.2
"""原地刷新的间隔，单位秒"""
LOG_LINES = 10
"""写成日志时，整个训练大约写几行"""
LOG_SECONDS = 60.0
"""写成日志时，至多隔多少秒写一行"""


class ProgressDisplay(Callback):
    """显示训练进度：步数、损失、学习率、梯度范数、速度、剩余时间、评估的结果与最低的一次。

    在终端与 Jupyter 里原地刷新，别处（管道、文件）写成一行一行的日志：大约十行，但至少每分钟一行，每次评估另有一行。
    损失与速度是最近 25 步的平均。显示出错时（例如管道被关闭）不再显示，错误记在 `error` 里，训练照常进行。

    Args:
        steps: 总步数；不给时由训练器得知。
        unit: 速度的单位，即一个词元叫什么；字符数据集可以写 `字符`。
        view: 显示在哪里；不给时按标准输出选择。
        clock: 计时的函数，单位秒。

    Attributes:
        seconds: 训练到最近一步为止用了多少秒，不含 `paused` 的时间。
        error: 显示时出的错；没有出错是 `None`。

    Examples:
        >>> history = trainer.train(dataset, epochs=2, callbacks=[ProgressDisplay()])
    """

    def __init__(
        self,
        steps: int | None = None,
        *,
        unit: str = "词元",
        view: View | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if steps is not None:
            require_count("ProgressDisplay", "steps", steps)
        self._steps, self._unit, self._given, self._clock = steps, unit, view, clock
        self.error: Exception | None = None
        self._meter: Meter | None = None
        self._view: View | None = None
        self._notice = ""
        self._pending = self._busy = False
        self._drawn = -1
        self._shown = 0.0

    @property
    def seconds(self) -> float:
        """训练到最近一步为止用了多少秒。"""
        return self._meter.seconds if self._meter else 0.0

    def on_start(self, trainer: Trainer) -> None:
        """选定显示在哪里。"""
        total = trainer.total_steps if self._steps is None else self._steps
        self._meter = Meter(total, self._unit, self._clock, trainer.state)
        self._notice, self._drawn, self.error = "", -1, None
        self._pending = self._busy = False
        self._shown = self._clock()
        with self._guarded():
            self._view = self._given or open_view()
            self._view.open()

    def on_step(self, trainer: Trainer, report: StepReport) -> None:
        """记下这一步，到时候就显示。"""
        if self._meter is not None:
            now = self._meter.record(report)
            if self._due(now):
                self._draw(now)

    def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
        """显示评估的结果。"""
        if self._meter is None:
            return
        self._meter.disturb()
        with self._guarded():
            if self._view is not None and not self._view.live:
                best = trainer.state.best or (evaluation.step, evaluation.loss)
                lowest = "目前最低" if best[0] == evaluation.step else f"最低 {best[1]:.4f}"
                self._view.say(
                    f"第 {evaluation.step} 步的评估：损失 {evaluation.loss:.4f}（{lowest}）"
                )
        if self._view is not None and self._view.live:
            self._draw(self._clock())

    def close(self, trainer: Trainer) -> None:
        """留下最后的样子。"""
        if self._meter and self._meter.counted and self._drawn != self._meter.done:
            self._draw(self._clock())
        view, self._view = self._view, None
        if view is not None:
            with self._guarded():
                view.close()

    def notice(self, text: str) -> None:
        """显示一句话，直到训练结束；可以在信号处理函数里调用。

        Args:
            text: 例如“正在保存……”。
        """
        self._notice, self._pending = text, True
        if not self._busy:  # 信号在画到一半时到来，画完再说
            self._show_notice()

    @contextmanager
    def paused(self) -> Generator[None]:
        """这一段时间不算训练，例如停下来生成一段样本。"""
        yield
        if self._meter is not None:
            self._meter.resume()

    def _show_notice(self) -> None:
        self._pending = False
        if self._view is None:
            return
        if self._view.live:
            self._draw(self._clock())
        else:
            with self._guarded():
                self._view.say(self._notice)

    def _due(self, now: float) -> bool:
        meter, view = self._meter, self._view
        if meter is None or view is None:
            return False
        if meter.done == meter.total or (self._notice and view.live):
            return True
        if view.live:
            return now - self._shown >= REFRESH
        every = max(1, (meter.total or 1000) // LOG_LINES)
        return self._drawn < 0 or meter.done % every == 0 or now - self._shown >= LOG_SECONDS

    def _draw(self, now: float) -> None:
        meter, view = self._meter, self._view
        if meter is None or view is None:
            return
        self._drawn, self._shown = meter.done, now
        items = meter.items()
        if self._notice and view.live:
            items.append(self._notice)
        with self._guarded():
            view.draw(meter.done, meter.total, items)

    @contextmanager
    def _guarded(self) -> Generator[None]:
        """显示出错时记下错误，不再显示；训练不受影响。"""
        self._busy = True
        try:
            yield
        except Exception as error:  # noqa: BLE001 显示的问题，无论是什么，不能毁掉训练
            view, self._view = self._view, None
            if view is not None:
                with contextlib.suppress(Exception):
                    view.close()
            self.error = error
            if not isinstance(error, OSError | ValueError):  # 管道关闭、编码写不出，不必多说
                warnings.warn(f"进度显示出错，不再显示：{error!r}", stacklevel=2)
        finally:
            self._busy = False
        if self._pending:
            self._show_notice()
