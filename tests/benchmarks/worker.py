"""比较的一方，运行在自己的进程里，听一声做一次

为什么不放在同一个进程里：内存分配器与线程的设置是整个进程的，一方会改变另一方。实际量到过一次（Linux，glibc）：
自己的进程里，S 的一步 2.2 毫秒，其中 0.6 毫秒花在 326 次缺页上，几百 KB 的数组每一步都向系统要来、又还回去；
先 `import torch`，它释放过一大块内存，glibc 从此把内存留着，同样的一步没有缺页，1.5 毫秒。与 PyTorch 之比因此
一个是 0.80，一个是 1.48。用户的进程里没有 PyTorch，所以前一个才是真的。

各个进程从不同时运行：主进程叫到谁，谁才运行，其余的都在等着读一行。做完的一方还有线程空转几十毫秒，
这在同一个进程里也一样，所以换一方之前停一停（pairing.py 的 `REST`）。

一方由一个函数给出，写作 `模块:函数`，它返回 `{名字: 准备}`；`准备()` 返回 `once`，`once()` 运行一遍，返回各部分的秒数。
同时只留着一个 `once`，换到别的名字时，前一个的数组就释放了。
"""

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from pairing import ALL, Times

Once = Callable[[], Times]
Jobs = Mapping[str, Callable[[], Once]]


class SideError(Exception):
    """这一方不能运行，例如没有安装。"""


def timed(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> Once:
    """整个地计时。"""

    def once() -> Times:
        start = clock()
        work()
        return {ALL: clock() - start}

    return once


class Local:
    """同一个进程里的一方；与 `Worker` 的用法相同。"""

    def __init__(self, factory: str, *args: Any) -> None:
        module, function = factory.split(":")
        self._jobs: Jobs = getattr(importlib.import_module(module), function)(*args)
        self.facts: dict[str, Any] = {}
        self._name: str | None = None

    def choose(self, name: str) -> Self:
        """接下来做哪一件；同一个名字不重新准备。"""
        if name != self._name:
            self._once, self._name = None, None
            self._once = self._jobs[name]()
            self.facts = getattr(self._once, "facts", {})
            self._name = name
        return self

    def run(self, repeats: int) -> list[Times]:
        assert self._once is not None
        return [self._once() for _ in range(repeats)]

    def close(self) -> None:
        self._once = self._name = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Worker:
    """另一个进程里的一方。"""

    def __init__(self, factory: str, *args: Any) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), factory, json.dumps(args)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self.facts: dict[str, Any] = {}
        try:
            self._read()
        except SideError:
            self.close()
            raise

    def choose(self, name: str) -> Self:
        """接下来做哪一件。"""
        self.facts = self._ask("choose", name)
        return self

    def run(self, repeats: int) -> list[Times]:
        return self._ask("run", repeats)

    def close(self) -> None:
        """不再运行：子进程读到结尾，自己退出。"""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # 它已经不在了
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, *request: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SideError(f"进程中途退出，退出码 {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise SideError(answer["error"])
        return answer["value"]


def serve(factory: str, args: list[Any]) -> None:
    """子进程：读一行，做一次，答一行。"""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # 库里打印的东西不混进回答

    def answer(**content: Any) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    try:
        side = Local(factory, *args)
        answer(value=None)
        for line in sys.stdin:
            action, argument = json.loads(line)
            if action == "choose":
                answer(value=side.choose(argument).facts)
            else:
                answer(value=side.run(argument))
    except Exception as error:  # noqa: BLE001 原样告诉主进程
        answer(error=f"{type(error).__name__}：{error}")


if __name__ == "__main__":
    serve(sys.argv[1], json.loads(sys.argv[2]))
