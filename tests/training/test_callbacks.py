"""回调：次序、提前停止、收尾；metrics.jsonl；Ctrl-C 与 SIGTERM；评估"""

import json
import math
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.runs import chars, gpt_trainer, scheduler, weights

from gptcore import (
    ArgumentError,
    Callback,
    Checkpoints,
    DataError,
    DtypeError,
    EarlyStopping,
    Evaluate,
    GPTLoss,
    MetricsFile,
    Trainer,
)
from gptcore.training import Evaluation, StepReport


class Journal(Callback):
    """记下每一次通知。"""

    def __init__(self, fail_at: int = 0) -> None:
        self.events: list[str] = []
        self.fail_at = fail_at

    def on_start(self, trainer: Trainer) -> None:
        self.events.append(f"start {trainer.state.step}")

    def on_step(self, trainer: Trainer, report: StepReport) -> None:
        self.events.append(f"step {report.step}")
        if trainer.state.step == self.fail_at:
            raise ZeroDivisionError

    def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
        self.events.append(f"evaluation {evaluation.step}")

    def on_end(self, trainer: Trainer) -> None:
        self.events.append("end")

    def close(self, trainer: Trainer) -> None:
        self.events.append("close")


def test_order_of_events(tmp_path: Path) -> None:
    dataset, journal = chars(tmp_path), Journal()
    list(gpt_trainer(dataset).steps(dataset, 3, callbacks=[Evaluate(2, limit=2), journal]))
    expected = ["start 0", "step 0", "evaluation 2", "step 1", "step 2", "end", "close"]
    assert journal.events == expected


def test_closed_after_an_error_and_after_an_early_break(tmp_path: Path) -> None:
    dataset, journal = chars(tmp_path), Journal(fail_at=2)
    with pytest.raises(ZeroDivisionError):
        list(gpt_trainer(dataset).steps(dataset, 9, callbacks=[journal]))
    assert journal.events[-2:] == ["step 1", "close"]
    journal = Journal()
    steps = gpt_trainer(dataset).steps(dataset, 9, callbacks=[journal])
    next(steps)
    del steps
    assert journal.events == ["start 0", "step 0", "close"]


def test_stop_ends_normally(tmp_path: Path) -> None:
    class Stop(Callback):
        def on_step(self, trainer: Trainer, report: StepReport) -> None:
            if report.step == 4:
                trainer.stop("够了")

    dataset, journal = chars(tmp_path), Journal()
    trainer = gpt_trainer(dataset)
    history = trainer.train(dataset, 2, callbacks=[Stop(), journal])
    assert history == []
    assert trainer.state.step == 5
    assert trainer.stop_reason == "够了"
    assert journal.events[-2:] == ["end", "close"]
    assert len(trainer.train(dataset, 1)) == 1
    assert trainer.stop_reason is None


def test_early_stopping_waits_for_patience() -> None:
    class Fake:
        def __init__(self) -> None:
            self.state: Any = type("S", (), {"evaluations": []})()
            self.reason = ""

        def stop(self, reason: str) -> None:
            self.reason = reason

    for losses, stops in (
        ([3, 2, 1, 1, 1], True),
        ([3, 2, 1, 1, 0.5], False),
        ([1, 2, 0.5, 2, 3], True),
        ([1, 2], False),
    ):
        fake: Any = Fake()
        for i, loss in enumerate(losses):
            fake.state.evaluations.append((i, loss))
            EarlyStopping(2).on_evaluation(fake, Evaluation(loss, 1, i))
        assert bool(fake.reason) == stops, losses


# 评估


def test_evaluation_is_the_mean_over_every_token(tmp_path: Path) -> None:
    dataset = chars(tmp_path)
    trainer = gpt_trainer(dataset)
    evaluation = trainer.evaluate(dataset)
    assert evaluation.tokens == len(dataset.test_tokens) - 1
    total = 0.0
    with trainer.model.evaluating():
        for x, y in dataset.evaluation_batches():
            total += float(GPTLoss()(trainer.model(x), y)) * y.size
    assert evaluation.loss == pytest.approx(total / evaluation.tokens, abs=1e-6)
    assert evaluation.perplexity == pytest.approx(math.exp(evaluation.loss))
    assert evaluation.bits_per(evaluation.tokens) == pytest.approx(evaluation.loss / math.log(2))
    assert trainer.model.training
    assert dataset.training


def test_evaluation_changes_nothing(tmp_path: Path) -> None:
    dataset = chars(tmp_path)
    plain, evaluated = gpt_trainer(dataset), gpt_trainer(dataset)
    runs = []
    for trainer, callbacks in ((plain, []), (evaluated, [Evaluate(1, limit=3)])):
        np.random.seed(3)
        runs.append([r.loss for r in trainer.steps(dataset, 6, shuffle=True, callbacks=callbacks)])
    assert runs[0] == runs[1]


# metrics.jsonl


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_metrics_lines(tmp_path: Path) -> None:
    dataset, path = chars(tmp_path), tmp_path / "深" / "metrics.jsonl"
    trainer = gpt_trainer(dataset)
    callbacks = [MetricsFile(path), Evaluate(2, limit=3)]
    reports = list(trainer.steps(dataset, 3, scheduler(3), callbacks=callbacks))
    lines = read(path)
    assert lines[0]["step"] == 0
    assert {"numpy", "python", "threads"} <= lines[0]["run"].keys()
    steps = [line for line in lines if "loss" in line]
    for line, report in zip(steps, reports, strict=True):
        assert line == {
            "step": report.step, "loss": report.loss, "lr": report.lr,
            "grad_norm": report.grad_norm, "tokens": report.tokens, "seconds": line["seconds"],
        }  # fmt: skip
    (evaluation,) = [line for line in lines if "evaluation" in line]
    assert (evaluation["step"], evaluation["evaluation"]) == trainer.state.evaluations[0]


def test_every_line_is_there_at_once(tmp_path: Path) -> None:
    dataset, path = chars(tmp_path), tmp_path / "m.jsonl"
    for report in gpt_trainer(dataset).steps(dataset, 4, callbacks=[MetricsFile(path)]):
        assert read(path)[-1]["step"] == report.step


def test_metrics_go_on_after_a_resume(tmp_path: Path) -> None:
    dataset, path = chars(tmp_path), tmp_path / "m.jsonl"
    trainer = gpt_trainer(dataset)
    list(trainer.steps(dataset, 3, callbacks=[MetricsFile(path)]))
    trainer.save_checkpoint(tmp_path / "here")
    with path.open("a", encoding="utf-8") as file:
        file.write('{"step": 3, "lo')  # 被杀时写了一半
    again = gpt_trainer(dataset)
    again.resume(tmp_path / "here")
    list(again.steps(dataset, 5, callbacks=[MetricsFile(path)]))
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[4] == '{"step": 3, "lo'
    rest = [json.loads(line) for line in lines[5:]]
    assert [line["step"] for line in rest] == [3, 3, 4]


def test_a_skipped_step_has_no_loss(tmp_path: Path) -> None:
    dataset, path = chars(tmp_path), tmp_path / "m.jsonl"
    trainer = gpt_trainer(dataset, skip_nonfinite=9)
    loss_fn: Any = trainer.loss_fn

    class Broken(type(loss_fn)):
        def loss(self, p: Any, y: Any) -> Any:
            return super().loss(p, y) * np.nan

    trainer.loss_fn = Broken()
    list(trainer.steps(dataset, 2, callbacks=[MetricsFile(path)]))
    assert [line["loss"] for line in read(path)[1:]] == [None, None]


def test_metrics_that_cannot_be_written(tmp_path: Path) -> None:
    dataset = chars(tmp_path)
    with pytest.raises(DataError, match="它是文件夹"):
        list(gpt_trainer(dataset).steps(dataset, 1, callbacks=[MetricsFile(tmp_path)]))


# 中断


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_step_saves_and_then_interrupts(
    tmp_path: Path, number: signal.Signals
) -> None:
    dataset, folder = chars(tmp_path), tmp_path / "run"
    heard: list[str] = []

    class Interrupt(Callback):
        def on_step(self, trainer: Trainer, report: StepReport) -> None:
            if report.step == 3:
                signal.raise_signal(number)
                heard.append("还在训练")

    def received(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, received)
    try:
        checkpoints = Checkpoints(folder, 100, announce=lambda: heard.append("正在保存"))
        trainer = gpt_trainer(dataset)
        with pytest.raises(KeyboardInterrupt):
            list(trainer.steps(dataset, 9, callbacks=[Interrupt(), checkpoints]))
        assert signal.getsignal(number) is received
    finally:
        signal.signal(number, before)
    assert heard == ["正在保存", "还在训练"]
    assert [p.name for p in folder.iterdir()] == ["step-00000004"]
    again = gpt_trainer(dataset)
    again.resume(folder)
    for a, b in zip(weights(trainer), weights(again), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_signal_after_periodic_saves_still_saves(tmp_path: Path) -> None:
    """平时保存之后，仍在留意信号。"""
    dataset, folder = chars(tmp_path), tmp_path / "run"
    checkpoints = Checkpoints(folder, every=2, keep=9)

    def interrupted_run() -> None:
        for report in gpt_trainer(dataset).steps(dataset, 9, callbacks=[checkpoints]):
            if report.step == 4:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupted_run()
    assert [int(p.name[5:]) for p in sorted(folder.iterdir())] == [2, 4, 6]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_at_the_very_end_is_not_lost(tmp_path: Path) -> None:
    dataset, folder = chars(tmp_path), tmp_path / "run"

    class Late(Callback):
        def on_end(self, trainer: Trainer) -> None:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        list(gpt_trainer(dataset).steps(dataset, 3, callbacks=[Late(), Checkpoints(folder)]))
    assert [p.name for p in folder.iterdir()] == ["step-00000003"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_signal_does_not_wait(tmp_path: Path) -> None:
    dataset, folder = chars(tmp_path), tmp_path / "run"

    class Twice(Callback):
        def on_step(self, trainer: Trainer, report: StepReport) -> None:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        list(gpt_trainer(dataset).steps(dataset, 9, callbacks=[Twice(), Checkpoints(folder)]))
    assert list(folder.iterdir()) == []  # 没有保存
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_handlers_are_restored(tmp_path: Path) -> None:
    dataset = chars(tmp_path)
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    list(gpt_trainer(dataset).steps(dataset, 2, callbacks=[Checkpoints(tmp_path / "run")]))
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


# 参数


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Evaluate(0), "every"),
        (lambda: Evaluate(5, limit=0), "limit"),
        (lambda: EarlyStopping(0), "patience"),
        (lambda: EarlyStopping(2, min_delta=float("nan")), "min_delta"),
        (lambda: EarlyStopping(2, min_delta=-1), "min_delta"),
        (lambda: Checkpoints("x", 0), "every"),
        (lambda: Checkpoints("x", 1, keep=0), "keep"),
        (lambda: MetricsFile("x", every=-1), "every"),
    ],
)
def test_bad_settings(build: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        build()


def test_shuffling_needs_a_dataset_that_can_take(tmp_path: Path) -> None:
    dataset: Any = chars(tmp_path)

    class Plain:
        training = True

        def train(self) -> None: ...
        def eval(self) -> None: ...
        def __len__(self) -> int:
            return len(dataset)

        def __getitem__(self, i: int) -> Any:
            return dataset[i]

    plain: Any = Plain()
    trainer = gpt_trainer(dataset)
    assert len(list(trainer.steps(plain, 2))) == 2
    with pytest.raises(DtypeError, match="take"):
        next(iter(trainer.steps(plain, 2, shuffle=True)))


def test_shuffling_visits_every_sample_once_per_epoch(tmp_path: Path) -> None:
    dataset = chars(tmp_path, batch_size=1)
    trainer = gpt_trainer(dataset)
    seen: list[list[bytes]] = [[], []]
    forward = trainer.model.forward

    def watch(x: Any) -> Any:
        if trainer.model.training:
            seen[trainer.state.step // len(dataset)].append(x.data.tobytes())
        return forward(x)

    trainer.model.forward = watch  # pyright: ignore[reportAttributeAccessIssue]
    trainer.train(dataset, 2, shuffle=True)
    everything = sorted(dataset[i][0].data.tobytes() for i in range(len(dataset)))
    assert sorted(seen[0]) == sorted(seen[1]) == everything
    assert seen[0] != seen[1]
