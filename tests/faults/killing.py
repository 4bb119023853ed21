"""运行、观察、杀死 kill_program.py 的子进程"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("kill_program.py")
TIMEOUT = 60.0


class Reports:
    """一个任务的报告：各行，以及由它们得知的状态。"""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.lines: list[list[str]] = []
        self._rest = b""

    def read(self, timeout: float) -> bool:
        """等到有新的报告，读进来；超时返回假。"""
        if not select.select([self.descriptor], [], [], timeout)[0]:
            return False
        received = os.read(self.descriptor, 1 << 16)
        *complete, self._rest = (self._rest + received).split(b"\n")
        self.lines += [line.decode().split(" ") for line in complete]
        return bool(received)

    def until(self, test: Callable[[], Any], timeout: float = TIMEOUT) -> None:
        """读到 `test()` 成立，或者任务结束。"""
        deadline = time.monotonic() + timeout
        while not test() and not self.finished:
            if not self.read(max(0.0, deadline - time.monotonic())):
                raise AssertionError(f"{timeout} 秒没有等到报告，已有 {self.lines}")

    def read_for(self, seconds: float) -> None:
        """读这么久，除非任务先结束。"""
        deadline = time.monotonic() + seconds
        while not self.finished and (left := deadline - time.monotonic()) > 0:
            self.read(left)

    def named(self, *start: str) -> list[list[str]]:
        """以这几个词开头的报告。"""
        return [line for line in self.lines if line[: len(start)] == list(start)]

    @property
    def finished(self) -> bool:
        return bool(self.named("F") or self.named("X"))

    @property
    def saving(self) -> str:
        """最后一次报告之后正在保存什么；没有时是空的。"""
        started = [line[1] for line in self.lines if line[0] == "S"]
        open_saves = [n for n in set(started) if len(self.named("S", n)) > len(self.named("E", n))]
        return "checkpoint" if "checkpoint" in open_saves else "".join(open_saves)

    @property
    def resumed(self) -> int:
        """从哪一步接着训练。"""
        return int(self.named("R")[0][1])

    @property
    def saved(self) -> int:
        """存好的最新的检查点。"""
        return max([int(line[2]) for line in self.named("E", "checkpoint")], default=0)


class Child:
    """一个正在做任务的进程。"""

    def __init__(
        self, pid: int, descriptor: int, wait: Callable[[], int], owns: bool = False
    ) -> None:
        self.pid, self.reports, self._wait, self._owns = pid, Reports(descriptor), wait, owns

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """等它结束，读完它的全部报告；返回退出码，被信号杀死时是负数。"""
        code = self._wait()
        while self.reports.read(0):
            pass
        if self._owns:
            os.close(self.reports.descriptor)
        errors = self.reports.named("X")
        assert not errors, " ".join(errors[0]).replace(" | ", "\n")
        return code

    def finish(self) -> Reports:
        """等它正常做完。"""
        self.reports.until(lambda: False)
        assert self.wait() == 0
        return self.reports


def task(folder: Path, steps: int, die: int) -> str:
    return json.dumps({"folder": str(folder), "steps": steps, "die": die})


class Server:
    """导入一次，之后每个任务 fork 一个进程。"""

    def __init__(self) -> None:
        self._reading, writing = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, PROGRAM, "serve", str(writing)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[writing],
            encoding="utf-8",
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        )
        os.close(writing)

    def start(self, folder: Path, steps: int, die: int = 0) -> Child:
        return Child(int(self._ask(task(folder, steps, die))), self._reading, self._reap)

    def close(self) -> None:
        self._process.communicate()
        os.close(self._reading)

    def _reap(self) -> int:
        return int(self._ask(""))

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


def start_fresh(folder: Path, steps: int) -> Child:
    """在新的解释器里做一个任务。"""
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, PROGRAM, "run", str(writing), task(folder, steps, 0)],
        pass_fds=[writing],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )
    os.close(writing)
    return Child(process.pid, reading, process.wait, owns=True)
