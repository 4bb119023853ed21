"""用一个读取函数试改坏的文件夹，看它守不守规矩"""

import signal
import tracemalloc
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from faults.mutations import Mutation

from gptcore.errors import GptcoreError

LIMIT = 64 << 20
"""读取时占用的内存，最多比文件的大小多出多少"""
SECONDS = 20.0
"""读一次最多多久"""


def tree_of(folder: Path) -> dict[str, Any]:
    """文件夹里每个东西的种类、大小与修改的时刻。"""
    found = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        found[str(path)] = (info.st_mode, info.st_size, info.st_mtime_ns, info.st_ino)
    return found


class StuckError(BaseException):
    """读了太久。"""


@contextmanager
def time_limit(seconds: float) -> Generator[None]:
    """超过时间就抛出 StuckError。"""

    def stop(*args: object) -> None:
        raise StuckError(f"{seconds} 秒还没有读完")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def examine(
    mutation: Mutation, parent: Path, loader: Callable[[Path], Any], outside: Mapping[str, bytes]
) -> tuple[Any, GptcoreError | None]:
    """把改坏的文件夹写在 `parent` 里，用 `loader` 读，检查它守规矩。

    Args:
        mutation: 改坏的文件夹。
        parent: 放在哪里。
        loader: 读取的函数。
        outside: 旁边的别的文件，`loader` 不得碰它们。

    Returns:
        读出的东西，或错误。
    """
    for name, content in outside.items():
        (parent / name).write_bytes(content)
    folder = parent / "model"
    mutation.write(folder)
    before, random = tree_of(parent), np.random.get_state()[1].tobytes()
    result, refused = None, None
    tracemalloc.start()
    try:
        with time_limit(SECONDS):
            result = loader(folder)
    except GptcoreError as error:
        refused = error
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert tree_of(parent) == before, "读取时动了文件"
    assert np.random.get_state()[1].tobytes() == random, "读取时抽取了随机数"
    assert peak <= sum(map(len, mutation.files.values())) + LIMIT, f"占用了 {peak / 2**20:.0f} MiB"
    return result, refused
