"""下限：一步必须做的乘加，按一次大的矩阵乘法的速度来做要多久

速度是一个线程做一次 1024×1024×1024 的 float32 乘法量出来的，每一轮都量，再乘以线程数。
真的一步要超过它：小的乘法达不到这个速度，逐元素的运算也不在内；几个核一起做时，每个核还会慢一些。
"""

from functools import partial
from typing import Any

import numpy as np
from plan import use_our_threads
from sizes import SIZES
from worker import Jobs, Once, timed

WIDTH = 1024


def floor_seconds(multiply_adds: int, sgemm_seconds: float, threads: int) -> float:
    """一步的下限，秒。

    Args:
        multiply_adds: 一步的乘加次数。
        sgemm_seconds: 一个线程做一次 `WIDTH` 见方的乘法的秒数。
        threads: 几个线程。
    """
    return multiply_adds * sgemm_seconds / (WIDTH**3 * threads)


def sides() -> Jobs:
    """哪个尺寸都是同一次乘法。"""

    def prepare() -> Once:
        used = use_our_threads(0, threads=1)
        rng = np.random.default_rng(0)
        a, b = (rng.standard_normal((WIDTH, WIDTH), np.float32) for _ in range(2))
        out = np.empty_like(a)
        once: Any = timed(partial(np.matmul, a, b, out=out))
        once.facts = used
        return once

    return dict.fromkeys(SIZES, prepare)
