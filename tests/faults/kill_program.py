"""被杀的程序：训练几十步，每三步存一个检查点；由 killing.py 运行

    kill_program.py serve 描述符         逐行读入任务，每个任务 fork 一个子进程，免去导入的时间
    kill_program.py run 描述符 任务      在这个进程里做一个任务

任务是 JSON：文件夹 `folder`、步数 `steps`、调用文件系统到第几次时自杀 `die`（0 表示不）。
有检查点就接着训练。往描述符里逐行报告走到了哪里，一行一次写入，父进程由此知道被杀时是不是正在保存：

    R 步数 时刻        读回了检查点，或者从头开始
    S 名字 步数 时刻   开始保存；名字是 checkpoint 或 folder，后者在前者之中，或者是最好的模型
    E 名字 步数 时刻   保存完了
    C 次数             调用了文件系统多少次
    F                  训练完了，结果写在 result.npz
    X 说明             出错了
"""

import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from training.runs import gpt_trainer, moments, scheduler

import gptcore.training.checkpoints as module
from gptcore import CharDataset, Checkpoints, Evaluate, MetricsFile
from gptcore.random import default_generator_state, generator_state
from gptcore.training.checkpoints import find_checkpoints

SYSTEM_CALLS = ("open", "write", "fsync", "replace", "rename", "unlink", "rmdir", "mkdir")


class Program:
    """一个任务。"""

    def __init__(self, descriptor: int, task: dict[str, Any]) -> None:
        self.descriptor, self.steps, self.die = descriptor, int(task["steps"]), int(task["die"])
        self.folder = Path(task["folder"])
        self.saving = self.calls = 0
        self.trainer: Any = None

    def run(self) -> None:
        warnings.simplefilter("error")  # 连“最新的检查点损坏”这样的警告也不许有
        dataset = CharDataset(self.folder / "poem.txt", batch_size=4, context_size=8)
        trainer = self.trainer = gpt_trainer(dataset)
        checkpoints = Checkpoints(self.folder / "run", every=3, keep=2)
        if find_checkpoints(checkpoints.folder):
            trainer.resume(checkpoints.folder)
        self.tell(f"R {trainer.state.step} {time.monotonic()}")
        self.watch_saves()
        if self.die:
            self.watch_calls()
        callbacks = [checkpoints, MetricsFile(self.folder / "metrics.jsonl"), Evaluate(4, limit=6)]
        for _ in trainer.steps(
            dataset, self.steps, scheduler(60), shuffle=True, callbacks=callbacks
        ):
            pass
        self.tell(f"C {self.calls}")
        arrays = {f"p{i}": p.data for i, p in enumerate(trainer.model.parameters)}
        states = [default_generator_state(), generator_state(trainer.rng)]
        run = json.dumps(trainer.state.to_dict())
        np.savez(
            self.folder / "result.npz", **arrays, **moments(trainer), run=run, states=str(states)
        )

    def tell(self, line: str) -> None:
        os.write(self.descriptor, f"{line}\n".encode())

    def watch_saves(self) -> None:
        """保存开始与结束时报告。"""
        for name in ("save_checkpoint", "save_folder"):
            setattr(
                module, name, self._reporting(name.removeprefix("save_"), getattr(module, name))
            )

    def _reporting(self, name: str, save: Callable[..., Any]) -> Callable[..., Any]:
        def reporting(*args: Any) -> None:
            self.tell(f"S {name} {self.trainer.state.step} {time.monotonic()}")
            self.saving += 1
            save(*args)
            self.saving -= 1
            self.tell(f"E {name} {self.trainer.state.step} {time.monotonic()}")

        return reporting

    def watch_calls(self) -> None:
        """数一数检查点那个回调里改动文件系统的调用，到第 `die` 次时自杀；写文件只写一半。"""
        inside = [False]

        def counting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
            def counted(*args: Any, **options: Any) -> Any:
                if not inside[0] or (name == "write" and args[0] == self.descriptor):
                    return call(*args, **options)
                self.calls += 1
                if self.calls == self.die:
                    if name == "write":
                        call(args[0], bytes(args[1])[: len(args[1]) // 2])
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*args, **options)

            return counted

        def within(method: Callable[..., Any]) -> Callable[..., Any]:
            def limited(*args: Any) -> Any:
                inside[0] = True
                try:
                    return method(*args)
                finally:
                    inside[0] = False

            return limited

        for name in SYSTEM_CALLS:
            setattr(os, name, counting(name, getattr(os, name)))
        for name in ("save", "on_evaluation"):
            setattr(Checkpoints, name, within(getattr(Checkpoints, name)))


def work(descriptor: int, task: str) -> None:
    """做一个任务，报告结果。"""
    program, done = Program(descriptor, json.loads(task)), False
    try:
        program.run()
        done = True
    finally:
        error = traceback.format_exc()[-3000:].replace("\n", " | ")
        program.tell("F" if done else f"X {error}")


def serve(descriptor: int) -> None:
    """读入一个任务，fork，写出进程号；再读入一行，等它结束，写出它怎样结束。

    父进程说了才收尸：在那之前进程号不会被别的进程拿去，可以放心地杀。
    """
    for task in sys.stdin:
        child = os.fork()
        if not child:
            try:
                work(descriptor, task)
            finally:
                os._exit(0)
        print(child, flush=True)
        sys.stdin.readline()
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    else:
        work(int(sys.argv[2]), sys.argv[3])
