"""是不是由 `mpiexec` 启动的；导入 mpi4py"""

import os
from importlib import import_module
from typing import Any

from gptcore.errors import DistributedError

VARIABLES = (
    ("PMI_RANK", "PMI_SIZE"),  # MPICH、Intel MPI、MS-MPI，Slurm 的 srun --mpi=pmi2
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),  # MVAPICH2
    ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"),  # Slurm 的 srun --mpi=pmix
    ("PALS_RANKID", ""),  # HPE Cray
)
"""各种 MPI 启动进程时设的环境变量：第几个进程，一共几个进程"""

EXAMPLE = "mpiexec -n 2 python 程序.py"


def launched_rank() -> int | None:
    """环境变量说自己是第几个进程；不是由 `mpiexec` 启动的，是 `None`。"""
    found = [os.environ[rank] for rank, _ in VARIABLES if os.environ.get(rank, "").isdigit()]
    return int(found[0]) if found else None


def launched_size() -> int | None:
    """环境变量说一共有几个进程；没有说是 `None`。"""
    for rank, size in VARIABLES:
        if os.environ.get(rank, "").isdigit() and os.environ.get(size, "").isdigit():
            return int(os.environ[size])
    return None


def load_mpi() -> Any:
    """导入 `mpi4py.MPI`；第一次导入时 MPI 就启动了。

    Raises:
        DistributedError: 没有安装 mpi4py，或者找不到 MPI 的运行库。
    """
    try:
        return import_module("mpi4py.MPI")
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
