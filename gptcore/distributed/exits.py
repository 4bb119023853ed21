"""没有人处理的错误：只说一遍，然后结束全部进程，不让别的进程等下去"""

from __future__ import annotations

import atexit
import sys
import time
from types import TracebackType

from gptcore.distributed.channel import Channel
from gptcore.distributed.launch import load_mpi, world

PATIENCE = 5.0
"""出错之后，等别的进程也知道、也结束，至多多少秒"""


def report_early(error: BaseException) -> None:
    """还没有连上就出了错：告诉别的进程，免得它们在 `DataParallel()` 里一直等。

    Args:
        error: 错误。

    Raises:
        DistributedError: 连 MPI 也启动不了。
    """
    Channel(world()).report(error, None)


class Exits:
    """程序结束时与别的进程会合；自己出了错而别的进程没有来，就结束全部进程。

    各个进程都知道的错误，只由一个进程写出 Traceback。

    Args:
        channel: 与别的进程商量的办法。
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._previous = sys.excepthook

    def install(self) -> None:
        """从现在起留意。"""
        sys.excepthook = self._report
        atexit.register(self._meet)

    def _report(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        channel, met = self._channel, True
        if channel.speaker is None and not channel.broken:  # 别的进程还不知道
            try:
                met = channel.report(error, PATIENCE)
            except BaseException:  # noqa: BLE001 又被中断了
                met = False
        if not met or channel.speaker == channel.rank:
            if channel.rank:
                sys.stderr.write(f"第 {channel.rank} 个进程出错：\n")
            self._previous(kind, error, trace)
        if not met:
            self._abort()

    def _meet(self) -> None:
        failed = self._channel.speaker is not None
        try:
            met = self._channel.exit(PATIENCE if failed else None)
        except BaseException:  # noqa: BLE001 又被中断了
            met = False
        if not met:
            self._abort()

    def _abort(self) -> None:
        """结束全部进程；第 0 个也许正要说明原因，等它一会儿。"""
        sys.stdout.flush()
        sys.stderr.flush()
        if self._channel.rank:
            time.sleep(1)
        load_mpi().COMM_WORLD.Abort(self._channel.broken or 1)
