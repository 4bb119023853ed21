"""Ctrl-C、SIGTERM 与 SIGHUP：逐层退出，这样终端的光标会还原；只用标准库，导入很快"""

import signal
from types import FrameType

_HANGUP = getattr(signal, "SIGHUP", None)
"""终端关掉了，例如远程登录断线；Windows 没有它"""
_HANDLED = (signal.SIGINT, signal.SIGTERM, *((_HANGUP,) if _HANGUP is not None else ()))

_received: list[int] = []


def install() -> None:
    """从现在起，Ctrl-C 抛出 `KeyboardInterrupt`，SIGTERM 与 SIGHUP 抛出 `SystemExit`。

    退出码按惯例是 143 与 129。启动时就被忽略的（例如 `nohup`、脚本里的后台任务）仍然忽略。
    """
    _received.clear()
    for number in _HANDLED:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupt)


def leave_to_system() -> None:
    """收到信号就立即结束，不等 Python：`mpiexec` 由此得知，结束其余的进程。

    几个进程还没有连上时用：一个自己退出了，`mpiexec` 不会知道，其余的就一直等它。
    """
    for number in _HANDLED:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def check() -> None:
    """收到过信号，而抛出的错误被吞掉了，就再抛出一次。

    在弱引用与 ctypes 的回调里抛出的错误，Python 只打印出来，然后继续；导入模块与认出 BLAS 时都用到它们。
    """
    if _received:
        _interrupt(_received[-1], None)


def name_of(code: object) -> str:
    """退出码对应的信号，例如 143 → SIGTERM；SIGHUP 另有说明。"""
    if _HANGUP is not None and code == 128 + _HANGUP:
        return "SIGHUP，终端关闭了"
    return "SIGTERM"


def _interrupt(number: int, frame: FrameType | None) -> None:
    del frame
    _received.append(number)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)
