"""训练的进度：数对不对，终端、Jupyter 与日志三种样子，出错时不影响训练"""

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from training.runs import chars, gpt_trainer, weights

from gptcore import Callback, Evaluate, ProgressDisplay
from gptcore.progress import LineView, LiveView
from gptcore.progress.display import LOG_SECONDS
from gptcore.progress.meter import Meter, duration
from gptcore.training import RunState, StepReport


def report(step: int, loss: float = 2.5, **values: Any) -> StepReport:
    given: dict[str, Any] = {"lr": 1e-3, "grad_norm": 0.5, "tokens": 1200, **values}
    return StepReport(step, loss, **given)


class Clock:
    """听指挥的钟。"""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class FakeTrainer:
    """只有显示用得到的两项。"""

    def __init__(self, total: int | None = 10, state: RunState | None = None) -> None:
        self.total_steps, self.state = total, state or RunState()


def feed(display: ProgressDisplay, trainer: Any, clock: Clock, steps: range, each: float) -> None:
    for i in steps:
        clock.now += each
        trainer.state.step = i + 1
        display.on_step(trainer, report(i))


def lines_of(trainer: Any, clock: Clock, **options: Any) -> tuple[ProgressDisplay, list[str]]:
    written: list[str] = []
    display = ProgressDisplay(view=LineView(written.append), clock=clock, **options)
    display.on_start(trainer)
    return display, written


# ---------------------------------------------------------------- 数


def test_meter_averages_recent_steps() -> None:
    clock = Clock()
    meter = Meter(100, "字符", clock, RunState())
    for i in range(30):
        clock.now += 1.0 if i < 5 else 2.0
        meter.record(report(i, loss=100.0 if i < 5 else float(i)))
    items = meter.items()
    assert items[0] == f"损失 {np.mean(range(5, 30)):.3f}"
    assert items[1:] == ["学习率 1.0e-03", "梯度范数 0.50", "600 字符/秒", "剩余 2:20"]
    assert meter.seconds == 55.0


def test_speed_counts_training_only_and_remaining_time_counts_everything() -> None:
    clock = Clock()
    meter = Meter(40, "词元", clock, RunState())
    for i in range(20):
        clock.now += 1.0
        if i % 5 == 4:  # 评估了 6 秒：在这一步之前或之后，都一样
            clock.now += 6.0
            meter.disturb()
        meter.record(report(i))
    assert "1,200 词元/秒" in meter.items()
    # 16 步各 1 秒，另外 4 步共 28 秒：每步平均 1 秒的训练，加上 28/20 秒别的事
    assert "剩余 0:48" in meter.items()


def test_every_step_disturbed_still_has_a_speed() -> None:
    clock = Clock()
    meter = Meter(4, "词元", clock, RunState())
    for i in range(2):
        clock.now += 2.0
        meter.disturb()
        meter.record(report(i))
    assert "600 词元/秒" in meter.items()
    assert "剩余 0:04" in meter.items()


def test_skipped_steps_and_nan_do_not_spoil_the_loss() -> None:
    state = RunState(skipped=2)
    meter = Meter(10, "词元", Clock(), state)
    meter.record(report(0, 1.0))
    meter.record(report(1, float("nan"), skipped=True, grad_norm=float("inf")))
    meter.record(report(2, 3.0))
    assert meter.items()[0] == "损失 2.000"
    assert "跳过 2 步" in meter.items()


def test_evaluations_show_the_last_and_the_best() -> None:
    state = RunState(evaluations=[(5, 2.0), (10, 1.5)])
    meter = Meter(10, "词元", Clock(), state)
    assert meter.items() == ["评估 1.500（最低）"]
    state.evaluations.append((15, 1.75))
    assert meter.items() == ["评估 1.750（第 10 步最低 1.500）"]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.2, "0:00"), (65, "1:05"), (3599.6, "1:00:00"), (7384, "2:03:04")]
)
def test_durations(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


# ---------------------------------------------------------------- 一行一行的日志


def test_about_ten_lines() -> None:
    clock, trainer = Clock(), FakeTrainer(1000)
    display, written = lines_of(trainer, clock)
    feed(display, trainer, clock, range(1000), 0.01)
    display.close(trainer)
    assert [line.split("  ")[0] for line in written] == [
        f"步 {i}/1000" for i in (1, *range(100, 1001, 100))
    ]


def test_a_line_a_minute_at_least() -> None:
    clock, trainer = Clock(), FakeTrainer(100_000)
    display, written = lines_of(trainer, clock)
    feed(display, trainer, clock, range(100), LOG_SECONDS / 10)
    assert [int(re.findall(r"\d+", line)[0]) for line in written] == [1, *range(11, 101, 10)]


def test_resumed_runs_count_on() -> None:
    clock, trainer = Clock(), FakeTrainer(1000, RunState(step=537))
    display, written = lines_of(trainer, clock)
    feed(display, trainer, clock, range(537, 600), 1.0)
    assert [line.split("  ")[0] for line in written] == [
        "步 538/1000",
        "步 598/1000",
        "步 600/1000",
    ]
    assert "剩余 6:40" in written[-1]


def test_the_last_step_is_shown_when_training_stops_early() -> None:
    clock, trainer = Clock(), FakeTrainer(1000)
    display, written = lines_of(trainer, clock)
    feed(display, trainer, clock, range(7), 0.1)
    display.close(trainer)
    display.close(trainer)
    assert [line.split("  ")[0] for line in written] == ["步 1/1000", "步 7/1000"]


def test_steps_without_a_total() -> None:
    clock, trainer = Clock(), FakeTrainer(None)
    display, written = lines_of(trainer, clock)
    feed(display, trainer, clock, range(1), 1.0)
    assert written[0].startswith("步 1  损失 2.500")
    assert "剩余" not in written[0]


def test_the_given_total_wins() -> None:
    clock, trainer = Clock(), FakeTrainer(1000)
    display, written = lines_of(trainer, clock, steps=5, unit="字符")
    feed(display, trainer, clock, range(1), 1.0)
    assert written[0].startswith("步 1/5  ")
    assert "1,200 字符/秒" in written[0]


def test_a_pause_is_not_training_time() -> None:
    clock, trainer = Clock(), FakeTrainer(10)
    display, written = lines_of(trainer, clock)
    feed(display, trainer, clock, range(5), 1.0)
    with display.paused():
        clock.now += 1000.0
    feed(display, trainer, clock, range(5, 10), 1.0)
    assert display.seconds == 10.0
    assert "1,200 词元/秒" in written[-1]


def test_a_real_run_logs_steps_and_evaluations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = chars(tmp_path)
    trainer = gpt_trainer(dataset)
    callbacks = [Evaluate(6), ProgressDisplay()]
    losses = [r.loss for r in trainer.steps(dataset, 12, callbacks=callbacks)]
    assert trainer.total_steps == 12
    out = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in out if line.startswith("步")] == [
        f"步 {i}/12" for i in range(1, 13)
    ]
    assert f"损失 {losses[0]:.3f}" in out[0]
    step, loss = trainer.state.evaluations[0]
    assert out[5] == f"第 {step} 步的评估：损失 {loss:.4f}（目前最低）"
    assert f"评估 {loss:.3f}" in out[6]


# ---------------------------------------------------------------- 出错


def broken_pipe(_: str) -> None:
    raise BrokenPipeError(32, "Broken pipe")


def trained(tmp_path: Path, callbacks: list[Callback]) -> list[np.ndarray]:
    dataset = chars(tmp_path)
    trainer = gpt_trainer(dataset)
    for _ in trainer.steps(dataset, 8, shuffle=True, callbacks=callbacks):
        pass
    return weights(trainer)


def test_a_closed_pipe_does_not_stop_training(tmp_path: Path) -> None:
    display = ProgressDisplay(view=LineView(broken_pipe))
    for a, b in zip(trained(tmp_path, [display]), trained(tmp_path, []), strict=True):
        np.testing.assert_array_equal(a, b)
    assert isinstance(display.error, BrokenPipeError)


@pytest.mark.parametrize("stream", ["closed", "ascii"])
def test_a_useless_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: str
) -> None:
    streams: dict[str, Callable[[], Any]] = {
        "closed": lambda: closed(io.StringIO()),
        "ascii": lambda: io.TextIOWrapper(io.BytesIO(), encoding="ascii"),
    }
    display = ProgressDisplay()
    monkeypatch.setattr(sys, "stdout", streams[stream]())
    trained(tmp_path, [display])
    assert display.error is not None


def test_no_standard_output_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    display = ProgressDisplay()
    monkeypatch.setattr(sys, "stdout", None)
    trained(tmp_path, [display])
    assert display.error is None


def closed(stream: io.StringIO) -> io.StringIO:
    stream.close()
    return stream


def test_other_errors_are_told_once(tmp_path: Path) -> None:
    def wrong(_: str) -> None:
        raise RuntimeError("坏了")

    with pytest.warns(UserWarning, match="进度显示出错，不再显示：RuntimeError") as caught:
        trained(tmp_path, [ProgressDisplay(view=LineView(wrong))])
    assert len(caught) == 1


def test_an_error_in_training_restores_the_cursor(tmp_path: Path) -> None:
    class Stop(Callback):
        def on_step(self, trainer: Any, report: StepReport) -> None:
            raise KeyboardInterrupt

    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, [ProgressDisplay(view=LiveView(console)), Stop()])
    out = file.getvalue()
    assert out.rindex("\x1b[?25h") > out.rindex("\x1b[?25l")


def test_the_display_can_be_used_again(tmp_path: Path) -> None:
    written: list[str] = []
    display = ProgressDisplay(view=LineView(written.append))
    trained(tmp_path, [display])
    trained(tmp_path, [display])
    assert [line.split("  ")[0] for line in written] == [f"步 {i}/8" for i in range(1, 9)] * 2


def test_a_bad_total() -> None:
    with pytest.raises(ValueError, match=r"ProgressDisplay.*steps"):
        ProgressDisplay(-1)
