"""几个进程连在一起：一共几个，在不在同一台机器上，每个用几个线程"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from gptcore.distributed.channel import Channel, Phase
from gptcore.distributed.exits import Exits
from gptcore.distributed.launch import load_mpi, world
from gptcore.errors import DtypeError
from gptcore.kernels.convert import brief
from gptcore.models.generation import require_count
from gptcore.threads import blas_threads
from gptcore.training.interrupts import Interrupts
from gptcore.training.strategy import SingleProcess


class Ranks(SingleProcess):
    """连在一起的几个进程；怎样训练由 `DataParallel` 决定，参数与属性见那里。

    Args:
        comm: mpi4py 的通信器。
        threads: 每个进程用几个 BLAS 线程。
    """

    def __init__(self, comm: Any, threads: int | None) -> None:
        mpi = load_mpi()
        if comm is None:
            comm = world()
            Channel(comm).exchange(Phase.CONNECT)  # 有的也许在连上之前就出了错，见 report_early
        elif not hasattr(comm, "Dup"):
            raise DtypeError(
                f"DataParallel：comm 必须是 mpi4py 的通信器，这里是 {brief(comm)}；通常不用给"
            )
        self.comm = comm.Dup()
        self.channel = Channel(self.comm)
        self.interrupts = Interrupts()
        self.rank, self.size = self.channel.rank, self.channel.size
        local = self.comm.Split_type(mpi.COMM_TYPE_SHARED)
        self.local_size = int(local.Get_size())
        local.Free()
        self.threads_each = 1 if threads is None and self.local_size > 1 else threads
        if self.size > 1:
            Exits(self.channel).install()
        if threads is not None:  # 连上之后才检查：只有一个进程写错时，别的也会知道
            require_count("DataParallel", "threads", threads, 1)

    @property
    def is_main(self) -> bool:
        """是不是第 0 个进程：由它显示、记录与保存。"""
        return self.rank == 0

    def __str__(self) -> str:
        where = "，都在这台机器上" if self.local_size == self.size else ""
        each = f"，每个 {self.threads_each} 个 BLAS 线程" if self.threads_each else ""
        return f"{self.size} 个进程{where}{each}"

    @contextmanager
    def guard(self) -> Generator[None]:
        """其中的错误要让别的进程也知道。"""
        try:
            with self.channel.guard():
                yield
        finally:
            if not self.channel.depth:
                self.interrupts.release()

    @contextmanager
    def together(self) -> Generator[None]:
        """一段各个进程都要做的事：有一个出错，全部停下。"""
        with self.guard():
            if self.rank:  # 由第 0 个进程来中断
                self.interrupts.watch()
            yield
            self.channel.exchange(Phase.TOGETHER)

    def share_text(self, text: str) -> str:
        """第 0 个进程的一段文字传给大家；全部进程一起调用。

        Args:
            text: 文字；别的进程给出的不看。
        """
        with self.guard(), self.channel.unbroken():
            self.channel.exchange(Phase.TOGETHER)
            return self.channel.send_text(text)

    def threads(self, parameters: int) -> Any:
        """几个进程在同一台机器上时，每个一个 BLAS 线程。"""
        return blas_threads(self.threads_each) if self.threads_each else super().threads(parameters)

    def environment(self) -> dict[str, Any]:
        """另外记下进程数与每个进程的线程数。"""
        found = super().environment()
        if self.threads_each:
            found["threads"] = self.threads_each
        return found | ({"processes": self.size} if self.size > 1 else {})
