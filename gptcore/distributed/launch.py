"""导入 mpi4py，与由 `mpiexec` 一起启动的进程连上"""

import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from gptcore.errors import DistributedError
from gptcore.mpiexec import launched_rank, launched_size

MODULE = "mpi4py.MPI"
EXAMPLE = "mpiexec -n 2 python 程序.py"


def is_started() -> bool:
    """MPI 是不是已经启动。"""
    return MODULE in sys.modules


def load_mpi() -> Any:
    """导入 `mpi4py.MPI`；第一次导入时 MPI 就启动了，要等全部进程都来。

    Raises:
        DistributedError: 没有安装 mpi4py，或者找不到 MPI 的运行库。
    """
    if is_started():
        return sys.modules[MODULE]
    try:
        with _interruptible():
            return import_module(MODULE)
    except ModuleNotFoundError as error:
        raise DistributedError(
            '没有安装 mpi4py；请运行 pip install "gptcore[mpi]"，MPI 用系统里的，'
            "没有时再 pip install mpich"
        ) from error
    except (ImportError, RuntimeError, OSError) as error:
        raise DistributedError(
            f"mpi4py 找不到 MPI 的运行库（{str(error).splitlines()[0]}）；"
            "请安装系统的 MPI，或者 pip install mpich"
        ) from error


@contextmanager
def _interruptible() -> Generator[None]:
    """在 MPI 里等别的进程时，轮不到 Python 处理信号：照系统的办法，Ctrl-C 立即结束。"""
    changed: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if callable(signal.getsignal(number)):
                changed[number] = signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in changed.items():
            signal.signal(number, handler)


def world() -> Any:
    """全部进程的通信器。

    Raises:
        DistributedError: 不是由 `mpiexec` 启动的，或者 `mpiexec` 与 mpi4py 用的不是同一个 MPI。
    """
    if launched_rank() is None:
        raise DistributedError(
            f"几个进程的训练要由 mpiexec 启动，例如 {EXAMPLE}；"
            "只想在一个进程里试一试，请给出通信器：DataParallel(MPI.COMM_SELF)"
        )
    comm = load_mpi().COMM_WORLD
    expected = launched_size() or comm.Get_size()
    if comm.Get_size() != expected:
        raise DistributedError(
            f"mpiexec 启动了 {expected} 个进程，mpi4py 却只看到 {comm.Get_size()} 个："
            "两者用的不是同一个 MPI；请用同一处安装的 mpiexec，或者重新安装 mpi4py"
        )
    return comm
