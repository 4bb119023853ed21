"""速度：矩阵乘法每秒多少次运算，教程的模型每秒训练多少步"""

import statistics
import time
from collections.abc import Callable

import numpy as np

from gptcore.diagnostics.blas import thread_variables
from gptcore.diagnostics.results import CheckResult, check, ok, warning
from gptcore.diagnostics.training import RandomIds
from gptcore.losses import GPTLoss
from gptcore.models import GPT
from gptcore.optim import AdamWOptimizer
from gptcore.threads import blas_info, blas_threads
from gptcore.training import GPTTrainer

SLOW = 1.0
"""每秒不到这么多个十亿次：不是优化过的 BLAS"""
CONTENDED = 0.5
"""几个线程的速度不到一个线程的这么多倍：线程在争抢"""


@check("乘法的速度")
def product_speed(size: int = 512, seconds: float = 0.3) -> CheckResult:
    """float32 的矩阵乘法；先用一个线程，再用现在的线程数。

    Args:
        size: 矩阵的大小。
        seconds: 每种线程数大约量多久。
    """
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(size, size)).astype(np.float32) for _ in range(2))
    out = np.empty_like(a)

    def rate() -> float:
        times = measure(lambda: np.matmul(a, b, out=out), seconds)
        return 2 * size**3 / min(times) / 1e9  # 最快的一次：别的程序偶尔打断，不是它的速度

    with blas_threads(1):
        one = rate()
    value = f"一个线程 {one:.1f} GFLOP/s"
    threads = blas_info()["threads"] or 1
    many = rate() if threads > 1 else one
    if threads > 1:
        value += f"，{threads} 个线程 {many:.1f}"
    if one < SLOW:
        return warning(
            value,
            f"不到 {SLOW:g} GFLOP/s：NumPy 用的可能不是优化过的 BLAS，或者机器正忙",
            "机器空闲时再试一次；仍然这么慢，就重新安装 NumPy：pip install --force-reinstall numpy",
        )
    if many < one * CONTENDED:
        return warning(
            value,
            f"{threads} 个线程反而比一个慢得多：线程之间在争抢，别的程序正占着处理器，或容器限制了它",
            f"机器空闲时再试一次；仍然这样，就用一个线程：设环境变量 {thread_variables()[0]}=1",
        )
    return ok(value, "float32")


@check("训练的速度")
def training_speed(seconds: float = 1.0) -> CheckResult:
    """教程第 15 章的设置：批大小 4，上下文 32，嵌入 64，两头，两块。

    Args:
        seconds: 大约量多久。
    """
    model = GPT(65, 32, 64, 2, 2, rng=np.random.default_rng(0))
    trainer = GPTTrainer(model, GPTLoss(), AdamWOptimizer(model.parameters, lr=1e-3))
    steps = trainer.steps(RandomIds(65, 4, 32), 10**6)
    rate = 1 / statistics.median(measure(lambda: next(steps), seconds))
    return ok(f"每秒 {rate:.0f} 步", f"第 15 章的设置，{model.num_parameters:,} 个参数")


def measure(function: Callable[[], object], seconds: float) -> list[float]:
    """反复运行一个函数，返回每次所用的秒数；开头两次是预热，不算。

    Args:
        function: 要量的函数。
        seconds: 大约量多久；至少量三次。
    """
    times: list[float] = []
    for _ in range(2):
        function()
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        function()
        times.append(max(time.perf_counter() - start, 1e-9))
    return times
