"""没有人处理的错误：只说一遍，然后结束全部进程，不让别的进程等下去"""

from __future__ import annotations

import atexit
import sys
from types import TracebackType

from gptcore.distributed.channel import Channel
from gptcore.distributed.launch import load_mpi

PATIENCE = 5.0
"""出错之后，等别的进程也知道、也结束，至多多少秒"""


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
        if channel.speaker is None:  # 别的进程还不知道
            met = channel.report(error, PATIENCE)
        if not met or channel.speaker == channel.rank:
            if channel.rank:
                sys.stderr.write(f"第 {channel.rank} 个进程出错：\n")
            self._previous(kind, error, trace)
        if not met:
            self._abort()

    def _meet(self) -> None:
        failed = self._channel.speaker is not None
        if not self._channel.exit(PATIENCE if failed else None):
            self._abort()

    def _abort(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        load_mpi().COMM_WORLD.Abort(1)
