"""用一个线程还是全部的核：在几种模型大小上，一步训练各比一次

两种设置轮流运行，比较每一轮的比值；机器忙时几个线程会慢得多，所以也写出负载。

    python tests/benchmarks/blas_threads.py
"""

import argparse
import os

from pairing import Times, alternate, paired, totals
from plan import cpu_count
from sizes import SIZES, Size
from step import gptcore_step
from worker import Once, timed

from gptcore import blas_threads
from gptcore.cli.demo import DemoSettings


class Threads:
    """同一个模型，限定线程数。"""

    def __init__(self, once: Once, count: int) -> None:
        self._once, self._count = once, count

    def run(self, repeats: int) -> list[Times]:
        with blas_threads(self._count):
            return [self._once() for _ in range(repeats)]


def main() -> None:
    parser = argparse.ArgumentParser(description="线程数与一步的时间")
    parser.add_argument("--rounds", type=int, default=15, help="轮数")
    options = parser.parse_args()
    demo = DemoSettings()
    sizes = {
        "教程（S）": SIZES["S"],
        "演示": Size(
            demo.batch_size,
            demo.context_size,
            demo.embedding_size,
            demo.heads,
            demo.blocks,
            370,
        ),
        "M": SIZES["M"],
    }
    print(f"负载 {os.getloadavg() if hasattr(os, 'getloadavg') else '未知'}，CPU 数 {cpu_count()}")
    for name, size in sizes.items():
        once = timed(gptcore_step(size, *size.random_batch()))
        sides = {"1": Threads(once, 1), "全部": Threads(once, cpu_count())}
        times = {side: totals(runs) for side, runs in alternate(sides, options.rounds).items()}
        ratio = paired(times["全部"], times["1"])
        print(
            f"{name}，{size.parameters:,} 个参数：全部的核 ÷ 1 个线程 = {ratio.median:.2f}"
            f"（{ratio.low:.2f}–{ratio.high:.2f}），大于 1 表示一个线程更快"
        )


if __name__ == "__main__":
    main()
