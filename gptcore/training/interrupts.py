"""Ctrl-C、SIGTERM 与 SIGHUP：先做完手里的一步，保存之后再中断"""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""SIGHUP 是终端关掉了，例如远程登录断线；Windows 没有它"""


class Interrupts:
    """第一次收到 Ctrl-C（或 SIGTERM、SIGHUP）只记下来，第二次照原来的办法立即中断。

    原来就被忽略的（例如 `nohup`）不管。Python 只允许主线程处理信号；在别的线程里它什么也不做。
    几个训练可以同时留意，各自先保存，再交给前一个；不论以什么次序结束，最后都恢复原样。

    Args:
        announce: 第一次收到时调用，例如告诉用户正在保存。

    Attributes:
        received: 收到的信号，没有时是 `None`。
    """

    def __init__(self, announce: Callable[[], None] | None = None) -> None:
        self.announce = announce
        self.received: int | None = None
        self._handlers: list[_Handler] = []

    def watch(self) -> None:
        """开始留意；已经在留意时什么也不变。"""
        if threading.current_thread() is threading.main_thread() and not self._handlers:
            self.received = None
            wanted = [n for n in SIGNALS if signal.getsignal(n) != signal.SIG_IGN]
            self._handlers = [_Handler(n, self._receive) for n in wanted]

    def release(self) -> None:
        """恢复原来的处理办法。"""
        while self._handlers:
            self._handlers.pop().release()

    def raise_again(self) -> None:
        """按原来的办法处理收到的信号；Ctrl-C 通常抛出 `KeyboardInterrupt`。没有收到时继续留意。"""
        received, self.received = self.received, None
        if received is not None:
            self.release()
            signal.raise_signal(received)

    def receive(self, number: int) -> None:
        """当作收到了信号；已经收到过时什么也不变。

        Args:
            number: 信号的编号。
        """
        if self.received is None:
            self._receive(number)

    def _receive(self, number: int) -> None:
        self.received = number
        self.release()  # 再来一次就不等了
        if self.announce is not None:
            self.announce()


class _Handler:
    """一个信号的处理函数；不再留意之后，若后来的还叠在它上面，就把信号交给原来的那一个。"""

    def __init__(self, number: int, receive: Callable[[int], None]) -> None:
        self._number = number
        self._receive: Callable[[int], None] | None = receive
        self._previous: Any = signal.signal(number, self)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._receive is not None:
            self._receive(number)
        elif callable(self._previous):
            self._previous(number, frame)
        elif self._previous != signal.SIG_IGN:
            self._restore()
            signal.raise_signal(number)

    def release(self) -> None:
        """不再留意；在最上面时换回原来的。别的线程（例如垃圾回收时）换不了，留在那里转交。"""
        self._receive = None
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(self._number) is self:
            self._restore()

    def _restore(self) -> None:
        """换回原来的；它若也已不再留意，就是再前面的。"""
        previous = self._previous
        while isinstance(previous, _Handler) and previous._receive is None:
            previous = previous._previous
        signal.signal(self._number, signal.SIG_DFL if previous is None else previous)
