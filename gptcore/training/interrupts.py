"""Ctrl-C 与 SIGTERM：先做完手里的一步，保存之后再中断"""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class Interrupts:
    """第一次收到 Ctrl-C（或 SIGTERM）只记下来，第二次照原来的办法立即中断。

    Python 只允许主线程处理信号；在别的线程里它什么也不做。

    Args:
        announce: 第一次收到时调用，例如告诉用户正在保存。

    Attributes:
        received: 收到的信号，没有时是 `None`。
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self, announce: Callable[[], None] | None = None) -> None:
        self.announce = announce
        self.received: int | None = None
        self._previous: dict[int, Any] = {}

    def watch(self) -> None:
        """开始留意。"""
        if threading.current_thread() is threading.main_thread():
            self.received = None
            self._previous = {n: signal.signal(n, self._receive) for n in self.SIGNALS}

    def release(self) -> None:
        """恢复原来的处理办法。"""
        while self._previous:
            number, handler = self._previous.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def raise_again(self) -> None:
        """按原来的办法处理收到的信号；Ctrl-C 通常抛出 `KeyboardInterrupt`。没有收到时继续留意。"""
        received, self.received = self.received, None
        if received is not None:
            self.release()
            signal.raise_signal(received)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.received = number
        self.release()  # 再来一次就不等了
        if self.announce is not None:
            self.announce()
