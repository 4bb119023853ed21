"""BLAS 用一个线程还是两个：在演示与教程的模型大小上各比一次

两种设置交替运行，比较每一对的比值，取中位数；机器忙时两个线程会慢得多，所以也写出负载。

    python tests/benchmarks/blas_threads.py
"""

import argparse
import os
import statistics
import time

import numpy as np

from gptcore import blas_threads
from gptcore.cli.demo import DemoSettings
from gptcore.losses import GPTLoss
from gptcore.models import GPT
from gptcore.optim import AdamWOptimizer
from gptcore.tensor import Tensor


def step_time(model: GPT, optimizer: AdamWOptimizer, x: Tensor, y: Tensor, steps: int) -> float:
    """一步的时间，几步里取最快的，单位毫秒。"""
    best = float("inf")
    for _ in range(steps):
        start = time.perf_counter()
        loss = GPTLoss()(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description="BLAS 线程数与一步的时间")
    parser.add_argument("--rounds", type=int, default=7, help="成对运行的次数")
    parser.add_argument("--steps", type=int, default=5, help="每次运行多少步")
    options = parser.parse_args()
    demo = DemoSettings()
    sizes = {
        "教程": (4, 32, 64, 2, 2, 65),
        "演示": (
            demo.batch_size,
            demo.context_size,
            demo.embedding_size,
            demo.heads,
            demo.blocks,
            370,
        ),
    }
    print(
        f"负载 {os.getloadavg() if hasattr(os, 'getloadavg') else '未知'}，CPU 数 {os.cpu_count()}"
    )
    for name, (batch, context, embedding, heads, blocks, vocab) in sizes.items():
        rng = np.random.default_rng(0)
        model = GPT(vocab, context, embedding, heads, blocks, head_bias=False, rng=rng)
        optimizer = AdamWOptimizer(model.parameter_groups())
        x = Tensor(rng.integers(0, vocab, (batch, context)))
        y = Tensor(rng.integers(0, vocab, (batch, context)))
        pairs: list[dict[int, float]] = []
        for index in range(options.rounds):
            times: dict[int, float] = {}
            for threads in (1, 2) if index % 2 == 0 else (2, 1):
                with blas_threads(threads):
                    times[threads] = step_time(model, optimizer, x, y, options.steps)
            pairs.append(times)
        one, two = (statistics.median(p[n] for p in pairs) for n in (1, 2))
        ratio = statistics.median(p[2] / p[1] for p in pairs)
        print(f"{name}：1 个线程 {one:.1f} 毫秒，2 个线程 {two:.1f} 毫秒，比值的中位数 {ratio:.2f}")


if __name__ == "__main__":
    main()
