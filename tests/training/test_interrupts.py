"""几个训练同时留意信号：各自先保存，结束的次序不限，最后 Ctrl-C 恢复原样"""

import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from training.runs import chars, gpt_trainer

from gptcore import Callback, Checkpoints, MetricsFile, StepReport, Trainer
from gptcore.training.interrupts import SIGNALS


@pytest.fixture(autouse=True)
def unchanged_handlers() -> Any:
    before = [signal.getsignal(n) for n in SIGNALS]
    yield
    after = [signal.getsignal(n) for n in SIGNALS]
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)
    assert after == before


def steps(folder: Path, *callbacks: Callback, count: int = 6) -> Any:
    dataset = chars(folder)
    return gpt_trainer(dataset).steps(dataset, count, callbacks=callbacks)


@pytest.mark.parametrize("first", [0, 1])
def test_side_by_side_in_any_order(tmp_path: Path, first: int) -> None:
    """并排训练两个模型，先结束哪一个都可以。"""
    runs = [steps(tmp_path, Checkpoints(tmp_path / name)) for name in "ab"]
    for run in runs:
        next(run)
    list(runs.pop(first))
    runs.pop().close()


def test_side_by_side_both_save(tmp_path: Path) -> None:
    runs = [steps(tmp_path, Checkpoints(tmp_path / name), count=99) for name in "ab"]
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        for i, _ in enumerate(zip(*runs, strict=True)):
            if i == 3:
                signal.raise_signal(signal.SIGINT)
    assert all(list((tmp_path / name).glob("step-*")) for name in "ab")


def test_two_in_one_run(tmp_path: Path) -> None:
    often, seldom = Checkpoints(tmp_path / "a", 2), Checkpoints(tmp_path / "b", 100)
    list(steps(tmp_path, often, seldom, often))


def test_a_signal_after_the_first_of_two_has_ended(tmp_path: Path) -> None:
    runs = [steps(tmp_path, Checkpoints(tmp_path / name)) for name in "ab"]
    for run in runs:
        next(run)
    list(runs[0])
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        list(runs[1])
    assert list((tmp_path / "b").glob("step-00000002"))


def test_closed_in_another_thread(tmp_path: Path) -> None:
    """例如垃圾回收碰巧发生在别的线程里：那里换不回原来的，留着的只是转交。"""
    run = steps(tmp_path, Checkpoints(tmp_path / "a"))
    next(run)
    thread = threading.Thread(target=run.close)
    thread.start()
    thread.join()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    again = steps(tmp_path, Checkpoints(tmp_path / "b"))
    list(again)  # 结束时跳过已不再留意的，换回最初的


def test_ignored_stays_ignored(tmp_path: Path) -> None:
    heard: list[str] = []

    class Interrupt(Callback):
        def on_step(self, trainer: Trainer, report: StepReport) -> None:
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        checkpoints = Checkpoints(tmp_path / "a", announce=lambda: heard.append("正在保存"))
        list(steps(tmp_path, Interrupt(), checkpoints))
    finally:
        signal.signal(signal.SIGINT, before)
    assert (heard, len(list((tmp_path / "a").iterdir()))) == ([], 1)


def test_one_broken_close_does_not_keep_the_others_open(tmp_path: Path) -> None:
    class Broken(Callback):
        def close(self, trainer: Trainer) -> None:
            raise ZeroDivisionError

    metrics = MetricsFile(tmp_path / "m.jsonl")
    with pytest.raises(ZeroDivisionError):
        list(steps(tmp_path, Broken(), metrics, Checkpoints(tmp_path / "a")))
    assert metrics._file is None
