"""没有人处理的错误：说清楚，然后结束全部进程，不让别的进程等下去"""

from __future__ import annotations

import atexit
import sys
import time
from types import TracebackType
from typing import Any

from gptcore.distributed.channel import Channel
from gptcore.distributed.launch import load_mpi

PATIENCE = 3.0
"""出错之后，等别的进程也来结束，至多多少秒"""


class Exits:
    """进程结束时与别的进程会合；自己出了错而别的进程没有来，就结束全部进程。

    大家都知道的错误只由一个进程写出 Traceback。

    Args:
        channel: 与别的进程商量的办法。
    """

    def __init__(self, channel: Channel) -> None:
        self._channel, self._comm = channel, channel.comm.Dup()
        self._failed = False
        self._previous = sys.excepthook

    def install(self) -> None:
        """从现在起留意。"""
        sys.excepthook = self._report
        atexit.register(self._meet)

    def _report(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        self._failed = True
        if self._channel.speaker in (None, self._channel.rank):
            if self._channel.rank and not issubclass(kind, KeyboardInterrupt):
                sys.stderr.write(f"第 {self._channel.rank} 个进程出错：\n")
            self._previous(kind, error, trace)

    def _meet(self) -> None:
        mpi: Any = load_mpi()
        if mpi.Is_finalized():
            return
        failed = self._failed or self._channel.speaker is not None
        deadline = time.monotonic() + PATIENCE
        request = self._comm.Ibarrier()
        while not request.Test():
            if failed and time.monotonic() > deadline:
                sys.stdout.flush()
                sys.stderr.flush()
                mpi.COMM_WORLD.Abort(1)
            time.sleep(0.005)
