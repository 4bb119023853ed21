"""mpi.py 比较的一方里的一个进程：连上主进程，听一声做几步，其余时间等着读，不占处理器

由 mpi.py 启动：`mpi_worker.py 端口 尺寸 线程数`；由 mpiexec 启动的，各算一批的一份。
"""

import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from sizes import SIZES

from gptcore import (
    GPT,
    AdamWOptimizer,
    DataParallel,
    Dataset,
    GPTLoss,
    GPTTrainer,
    StepReport,
    blas_threads,
)
from gptcore.mpiexec import launched_rank
from gptcore.threads import blas_info
from gptcore.training.strategy import SingleProcess

STEPS = 10**9
BATCHES = 8


class OneProcess(SingleProcess):
    """线程数由这里定，不随模型的大小改变。"""

    def threads(self, parameters: int) -> AbstractContextManager[None]:
        return nullcontext()


class RandomWindows(Dataset):
    """随机的词元，`BATCHES` 批。"""

    def __init__(self, size: str, batch: int) -> None:
        self.shape = SIZES[size]
        super().__init__(batch)

    def load(self) -> None:
        rng = np.random.default_rng(0)
        count = BATCHES * self.shape.batch
        ids = rng.integers(0, self.shape.vocab, (count, self.shape.context + 1))
        self.train_data = self.test_data = ids[:, :-1], ids[:, 1:]


class Rank:
    """一个进程：同样的模型，一批里自己的一份。"""

    def __init__(self, size: str, threads: int) -> None:
        shape = SIZES[size]
        self.parallel = None if launched_rank() is None else DataParallel(threads=threads)
        ranks = self.parallel.size if self.parallel else 1
        if shape.batch % ranks:
            raise SystemExit(f"一批 {shape.batch} 个窗口，不能均分给 {ranks} 个进程")
        rng = np.random.default_rng(0)
        self.model = GPT(
            shape.vocab, shape.context, shape.embedding, shape.heads, shape.blocks,
            tied=shape.tied, head_bias=not shape.tied, rng=rng,
        )  # fmt: skip
        trainer = GPTTrainer(
            self.model,
            GPTLoss(),
            AdamWOptimizer(self.model.parameters, lr=1e-3),
            distributed=self.parallel or OneProcess(),
        )
        dataset = RandomWindows(size, shape.batch // ranks)
        self.steps: Iterator[StepReport] = trainer.steps(dataset, STEPS)

    def facts(self, _: int) -> dict[str, Any]:
        mpi = mpi_version() if self.parallel else None
        return {"parameters": self.model.num_parameters, "blas": blas_info(), "mpi": mpi}

    def run(self, count: int) -> list[dict[str, float]]:
        """走几步；`reduce` 是合并梯度用去的，包括等别的进程。"""
        times: list[dict[str, float]] = []
        for _ in range(count):
            reduced = self.reduced()
            start = time.perf_counter()
            next(self.steps)
            total = time.perf_counter() - start
            reduce = self.reduced() - reduced
            times.append({"rest": total - reduce, "reduce": reduce})
        return times

    def reduced(self) -> float:
        return self.parallel.allreduce_seconds if self.parallel else 0.0

    def reduce(self, count: int) -> list[float]:
        """只求同样长的数组之和；各进程到齐了再开始。"""
        assert self.parallel is not None
        array = np.ones(self.model.num_parameters, np.float32)
        times: list[float] = []
        for _ in range(count):
            array[:] = 1
            self.parallel.comm.Barrier()
            start = time.perf_counter()
            self.parallel.channel.add(array)
            times.append(time.perf_counter() - start)
        return times


def mpi_version() -> str:
    from mpi4py import MPI

    name, (major, minor, micro) = MPI.get_vendor()
    return f"{name} {major}.{minor}.{micro}"


def main() -> None:
    port, size, threads = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    with blas_threads(threads):
        rank = Rank(size, threads)
        with socket.create_connection(("127.0.0.1", port)) as peer:
            lines = peer.makefile("rw", encoding="utf-8")
            for line in lines:
                action, count = json.loads(line)
                lines.write(json.dumps(getattr(rank, action)(count)) + "\n")
                lines.flush()


if __name__ == "__main__":
    main()
