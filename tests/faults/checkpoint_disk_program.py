"""在一个很小的磁盘上训练，写满了又腾出来：由 test_checkpoint_disk_full.py 在刚挂载的 tmpfs 里运行

python checkpoint_disk_program.py 文件夹
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from faults.small_disk import fill, free_pages
from training.runs import assert_same, chars, gpt_trainer, scheduler

from gptcore import Callback, Checkpoints, DataError, Evaluate, GPTTrainer, MetricsFile

STEPS, FIRST = 18, 6


class FillAt(Callback):
    """做完第几步时写满磁盘。"""

    def __init__(self, step: int, filler: Path, pages: int) -> None:
        self.step, self.filler, self.pages = step, filler, pages

    def on_step(self, trainer: Any, report: Any) -> None:
        if trainer.state.step == self.step:
            fill(self.filler, self.pages)


class Disk:
    """磁盘上的一次训练，与没有遇到麻烦的那一次。"""

    def __init__(self, disk: Path) -> None:
        self.disk, self.filler, self.folder = disk, disk / "filler", disk / "run"
        self.metrics = disk / "metrics.jsonl"
        self.dataset = chars(disk)
        self.whole = gpt_trainer(self.dataset)
        self.train(self.whole, STEPS, [Evaluate(3, 4)])
        self.expected = np.random.get_state(legacy=False)
        self.failures = 0
        np.random.seed(0)

    def train(self, trainer: GPTTrainer, steps: int, callbacks: list[Any]) -> None:
        for _ in trainer.steps(
            self.dataset, steps, scheduler(60), shuffle=True, callbacks=callbacks
        ):
            pass

    def go_on(self, steps: int, *more: Any, metrics: bool = False) -> str:
        """接着训练到第 `steps` 步；磁盘满了就返回错误的消息。"""
        trainer = gpt_trainer(self.dataset, seed=8)
        if any(self.folder.glob("step-*")):
            trainer.resume(self.folder)
        else:
            trainer = gpt_trainer(self.dataset)
        callbacks: list[Any] = [Evaluate(3, 4), Checkpoints(self.folder, 3, keep=2), *more]
        callbacks += [MetricsFile(self.metrics)] * metrics
        message = ""
        try:
            self.train(trainer, steps, callbacks)
        except DataError as error:
            message = str(error)
        if message:
            assert "磁盘满了" in message, message
            assert "空间" in message, message
            self.failures += 1
        elif steps == STEPS:
            assert_same(self.whole, trainer)
            np.testing.assert_equal(np.random.get_state(legacy=False), self.expected)
        return message

    def names(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))

    def first_save(self) -> None:
        """第一次保存就写不下：什么也没有留下。"""
        fill(self.filler, 3)
        assert self.go_on(FIRST)
        assert self.names() == []
        assert free_pages(self.disk) == 3
        self.filler.unlink()

    def every_amount(self) -> None:
        """剩下的从 0 页起一页一页地多：旧的检查点完好，没有留下东西，直到写得下。"""
        assert not self.go_on(FIRST)
        before, pages = self.names(), 0
        fill(self.filler, pages)
        while self.go_on(FIRST + 3):
            assert self.names() == before
            assert free_pages(self.disk) == pages
            assert gpt_trainer(self.dataset).resume(self.folder).step == FIRST
            pages += 1
            fill(self.filler, pages)
        assert pages > 10
        assert gpt_trainer(self.dataset).resume(self.folder).step == FIRST + 3
        self.filler.unlink()

    def half_way(self) -> None:
        """训练途中写满，有记录：腾出地方，从检查点接着训练，记录也接得上。"""
        for pages in range(4):
            message = self.go_on(STEPS, FillAt(FIRST + 5, self.filler, pages), metrics=True)
            assert message, pages
            assert gpt_trainer(self.dataset).resume(self.folder).step == FIRST + 3
            self.filler.unlink()

    def metrics_alone(self) -> None:
        """只是记录写不下：说的是记录，不是关闭文件时的错误。"""
        messages = set[str]()
        for i in range(40):  # 记录占满一页时才会写不下
            message = self.go_on(FIRST + 5, FillAt(FIRST + 4, self.filler, 0), metrics=True)
            messages.add(message.partition("：")[0])
            self.filler.unlink()
            if "MetricsFile" in messages:
                return
            assert i < 39

    def finish(self) -> None:
        """腾出地方之后做到底，与没有遇到麻烦的那一次逐位相同。"""
        assert not self.go_on(STEPS, metrics=True)
        lines = self.metrics.read_text(encoding="utf-8").splitlines()
        steps = {record["step"] for record in map(parsed, lines) if "loss" in record}
        assert steps >= set(range(FIRST + 3, STEPS)), steps


def parsed(line: str) -> dict[str, Any]:
    """一行记录；磁盘满时写了一半的是空的。"""
    try:
        return json.loads(line)
    except ValueError:
        return {}


if __name__ == "__main__":
    warnings.simplefilter("error")
    small = Disk(Path(sys.argv[1]))
    for step in (
        small.first_save,
        small.every_amount,
        small.half_way,
        small.metrics_alone,
        small.finish,
    ):
        step()
    print(json.dumps({"失败": small.failures}, ensure_ascii=False))
