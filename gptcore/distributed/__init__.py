"""几个进程的训练：数据并行，建立在 MPI（mpi4py）之上"""

from gptcore.distributed.data_parallel import DataParallel

__all__ = ["DataParallel"]
