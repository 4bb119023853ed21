"""是不是由 `mpiexec` 启动的：只看环境变量，不导入 MPI"""

import os

VARIABLES = (
    ("PMI_RANK", "PMI_SIZE"),  # MPICH、Intel MPI、MS-MPI，Slurm 的 srun --mpi=pmi2
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),  # MVAPICH2
    ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"),  # Slurm 的 srun --mpi=pmix
    ("PALS_RANKID", ""),  # HPE Cray
)
"""各种 MPI 启动进程时设的环境变量：第几个进程，一共几个进程"""


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


def launched_together() -> bool:
    """`mpiexec` 启动了不止一个进程。"""
    return (launched_size() or 1) > 1
