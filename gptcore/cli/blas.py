"""BLAS 的线程数

NumPy 的矩阵乘法由 BLAS 完成，它默认每个核一个线程。这里的矩阵很小，一次乘法不到几毫秒，线程之间互相等待的时间
往往比省下的还多；机器上有别的程序在跑时，等待的线程空转，一步会慢上好几倍。所以命令行默认用一个线程；
在你的机器上比一比：`python tests/benchmarks/blas_threads.py`。模型大得多时，可以试试 `gptcore train --threads 2`。

线程数不同，浮点求和的次序就不同，结果的末位会变：逐位重现要求机器、BLAS 与线程数都相同，因此它会打印出来，
也记在模型文件夹的 `training.json` 里。
"""

from collections.abc import Generator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]


@contextmanager
def blas_threads(count: int) -> Generator[None]:
    """在一段代码里限定 BLAS 的线程数。

    Args:
        count: 线程数。
    """
    with threadpool_limits(count, user_api="blas"):
        yield
