"""BLAS 的线程数

NumPy 的矩阵乘法由 BLAS 完成，它默认每个核一个线程。模型小的时候，一次乘法不到几毫秒，线程之间互相等待的时间
比省下的还多；机器上有别的程序在跑时，等待的线程空转，一步会慢上好几倍。所以参数不满五十万个时，
训练器只用一个线程；在你的机器上比一比：`python tests/benchmarks/blas_threads.py`。

线程数不同，浮点求和的次序就不同，结果的末位会变：逐位重现要求机器、BLAS 与线程数都相同。
"""

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

SMALL_MODEL = 500_000
"""参数少于这个数的模型用一个 BLAS 线程。"""


@contextmanager
def blas_threads(count: int) -> Generator[None]:
    """在一段代码里限定 BLAS 的线程数，离开时恢复。

    自己写训练循环、模型又不大时，把循环放在 `with blas_threads(1):` 里面。

    Args:
        count: 线程数。

    Examples:
        >>> with blas_threads(1):
        ...     trainer.train(dataset, epochs=1)
    """
    libraries = _libraries()
    before = [library.num_threads for library in libraries]
    try:
        for library in libraries:
            library.set_num_threads(count)
        yield
    finally:
        for library, threads in zip(libraries, before, strict=True):
            library.set_num_threads(threads)


def model_threads(parameters: int) -> Any:
    """按模型的大小选定线程数的上下文：小模型一个线程，大模型不改动现有的设置。

    Args:
        parameters: 参数的个数。

    Returns:
        上下文管理器。
    """
    return blas_threads(1) if parameters < SMALL_MODEL else nullcontext()


def blas_info() -> dict[str, Any]:
    """进程里的 BLAS：名字与版本 `blas`，按处理器选出的核 `blas_kernel`，现在的线程数 `threads`。"""
    found: list[dict[str, Any]] = [
        info for info in _controller().info() if info["user_api"] == "blas"
    ]
    if not found:
        return {"blas": None, "blas_kernel": None, "threads": None}
    info = found[0]
    return {
        "blas": f"{info['internal_api']} {info['version']}",
        "blas_kernel": info.get("architecture"),
        "threads": info["num_threads"],
    }


@cache
def _libraries() -> list[Any]:
    """进程里的各个 BLAS。直接设它们的线程数，来回一次约两微秒：生成时每个词元都要切换。"""
    return [lib for lib in _controller().lib_controllers if lib.user_api == "blas"]


@cache
def _controller() -> Any:
    """认出进程里的 BLAS；只做一次。"""
    from threadpoolctl import (  # pyright: ignore[reportMissingTypeStubs]
        ThreadpoolController,  # pyright: ignore[reportUnknownVariableType]
    )

    return ThreadpoolController()
