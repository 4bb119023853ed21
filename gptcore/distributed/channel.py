"""各个进程之间的商量：每个集体操作之前，先互相说一声自己在做什么、好不好

集体操作要全部进程一起做；有一个没有来，其余的就永远等下去。所以每一次都先交换一条几十字节的记录：

- 各个进程在做同一件事，才真的去做；做的不是同一件，全部报错，说出谁在做什么；
- 有一个出了错（或者被中断、提前结束），它在离开之前发来的记录说明这件事，其余的随即停下，不会等它。

进程突然死去（例如被系统终止）时，`mpiexec` 会结束其余的进程。通信做到一半被打断（例如第二次 Ctrl-C）时，
已经没有办法再商量，说完就结束全部进程（`MPI_Abort`）。
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gptcore.distributed.launch import load_mpi
from gptcore.errors import DistributedError, GptcoreError

LENGTH = 4000
"""转告别的进程的错误消息至多多少个字符"""


class Phase(IntEnum):
    """在做什么。"""

    START = 0
    NEXT = 1
    ORDER = 2
    REDUCE = 3
    CALLBACKS = 4
    EVALUATE = 5
    SAVE = 6
    SAVED = 7
    RESUME = 8
    DIAGNOSE = 9
    FINISH = 10
    LEAVE = 11
    TOGETHER = 12
    EXIT = 13
    CONNECT = 14


NAMES = {
    Phase.START: "开始训练",
    Phase.NEXT: "训练下一步",
    Phase.ORDER: "打乱次序",
    Phase.REDUCE: "求梯度的和",
    Phase.CALLBACKS: "运行回调",
    Phase.EVALUATE: "评估",
    Phase.SAVE: "保存检查点",
    Phase.SAVED: "保存检查点",
    Phase.RESUME: "读入检查点",
    Phase.DIAGNOSE: "查找 NaN",
    Phase.FINISH: "结束训练",
    Phase.LEAVE: "离开训练",
    Phase.TOGETHER: "等别的进程",
    Phase.EXIT: "结束程序",
    Phase.CONNECT: "连接",
}


class Status(IntEnum):
    """好不好；几种同时发生时，值大的先说。"""

    OK = 0
    INTERRUPTED = 1
    FAILED = 2


RECORD = np.dtype(
    [
        ("phase", np.int32),
        ("status", np.int32),
        ("command", np.int32),  # 回调途中，第 0 个进程要大家做什么
        ("flag", np.int32),
        ("step", np.int64),
        ("count", np.int64),
        ("tokens", np.int64),
        ("value", np.float64),
        ("signal", np.int32),
        ("checksum", np.uint32),
    ]
)
"""每个进程的一条记录"""

Records = npt.NDArray[Any]


class Channel:
    """一个通信器，与在它上面商量的办法。

    Args:
        comm: mpi4py 的通信器。

    Attributes:
        rank: 第几个进程。
        size: 一共几个进程。
        depth: 在几层 `guard` 里面。
        speaker: 出错之后，由第几个进程来说；还没有出错是 `None`。
        broken: 通信做到一半被打断时，结束程序用的退出码；没有被打断是 0。
    """

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.rank, self.size = int(comm.Get_rank()), int(comm.Get_size())
        self.speaker: int | None = None
        self.broken = 0
        self._mpi = load_mpi()
        self._over: BaseException | None = None
        self.depth = 0

    # ---------------------------------------------------------------- 商量

    def exchange(self, phase: Phase, **fields: Any) -> Records:
        """交换一条记录，全部进程都在做同一件事时才返回。

        Args:
            phase: 在做什么。
            fields: 记录里的其余各项，不给的是 0。

        Returns:
            各个进程的记录。

        Raises:
            DistributedError: 有的进程出了错，或者在做别的事。
            KeyboardInterrupt: 有的进程被 Ctrl-C 中断；被别的信号中断、自己要结束程序时是 `SystemExit`。
        """
        if self._over is not None:
            raise self._over
        with self.unbroken():
            records = self._gather(phase, Status.OK, fields)
            heard = self._heard(records) if records["status"].any() else None
        if heard is not None:
            raise heard
        phases = cast("list[int]", records["phase"].tolist())
        if any(other != phase for other in phases):
            raise self._end(
                _mismatch(phases), next(r for r, p in enumerate(phases) if p != Phase.EXIT)
            )
        return records

    @contextmanager
    def unbroken(self) -> Generator[None]:
        """几次通信要么都做，要么都不做：在其中被打断，就再也配不上了。"""
        if self.broken:
            raise DistributedError("通信曾经做到一半被打断，不能继续；请重新启动各个进程")
        try:
            yield
        except BaseException as error:
            if self._over is None:
                self.broken = _described(error)[1] or 1
            raise

    def restart(self) -> None:
        """新的一次训练：以前的错误都过去了。"""
        self._over, self.speaker = None, None

    @contextmanager
    def guard(self) -> Generator[None]:
        """其中的代码无论怎样离开，只要不是正常结束，都告诉别的进程。"""
        if not self.depth:
            self.restart()
        self.depth += 1
        try:
            yield
        except BaseException as error:
            self._leave(error)
            raise
        finally:
            self.depth -= 1

    def report(self, error: BaseException, patience: float | None) -> bool:
        """没有人处理的错误，告诉别的进程。

        Args:
            error: 错误。
            patience: 至多等多少秒；`None` 表示一直等。

        Returns:
            是否等到了别的进程。
        """
        status, code, text = _described(error)
        try:
            with self.unbroken():
                records = self._gather(Phase.EXIT, status, {"flag": code}, patience)
                self._heard(records, text)
        except TimeoutError:
            return False
        return True

    def exit(self, patience: float | None) -> bool:
        """结束程序之前与别的进程会合：大家都要结束了，才真的结束；还在等自己做别的事的，由此得知自己不会来了。

        Args:
            patience: 至多等多少秒；`None` 表示一直等。

        Returns:
            是否等到了。
        """
        while not self._mpi.Is_finalized():
            if self.broken:
                return False
            try:
                records = self._gather(Phase.EXIT, Status.OK, {}, patience)
            except TimeoutError:
                return False
            if records["status"].any():
                self._heard(records)
            elif (records["phase"] == Phase.EXIT).all():
                break
        return True

    def _leave(self, error: BaseException) -> None:
        # 循环提前离开（break，或者使用者的代码出错）不算：接下来做什么，下一次交换时自然知道
        if isinstance(error, GeneratorExit) or self._over is not None or self._mpi.Is_finalized():
            return
        self.speaker = self.rank
        if self.broken:
            return
        status, code, text = _described(error)
        with self.unbroken():
            records = self._gather(Phase.LEAVE, status, {"flag": code})
            self._heard(records, text)

    def _heard(self, records: Records, text: str = "") -> BaseException:
        """有进程出了错：听它说，得到该抛出的错误。"""
        statuses = cast("list[int]", records["status"].tolist())
        speaker = statuses.index(max(statuses))
        text = self.send_text(text, speaker)
        code = int(records["flag"][speaker])
        error: BaseException = DistributedError(f"第 {speaker} 个进程{text}")
        if statuses[speaker] == Status.INTERRUPTED:
            error = KeyboardInterrupt() if code == 130 else SystemExit(code)
        return self._end(error, speaker)

    def _end(self, error: BaseException, speaker: int) -> BaseException:
        self._over, self.speaker = error, speaker
        return error

    def _gather(
        self,
        phase: Phase,
        status: Status,
        fields: dict[str, Any],
        patience: float | None = None,
    ) -> Records:
        mine = np.zeros(1, RECORD)
        mine["phase"], mine["status"] = phase, status
        for name, value in fields.items():
            mine[name] = value
        records = np.empty(self.size, RECORD)
        byte = self._mpi.BYTE
        # 总是用不阻塞的一种：正在结束程序的进程一边等一边看时间，也要能与别的进程配上
        request = self.comm.Iallgather([mine, byte], [records, byte])
        if phase != Phase.EXIT:
            request.Wait()
            return records
        deadline = math.inf if patience is None else time.monotonic() + patience
        while not request.Test():
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(0.005)
        return records

    # ---------------------------------------------------------------- 文字与数组

    def send_text(self, text: str, root: int = 0) -> str:
        """第 `root` 个进程的文字传给大家；全部进程一起调用。"""
        content = _to_bytes(text)
        size = np.array([content.size], np.int64)
        self.comm.Bcast([size, self._mpi.INT64_T], root)
        if self.rank != root:
            content = np.empty(int(size[0]), np.uint8)
        self.comm.Bcast([content, self._mpi.BYTE], root)
        return _to_text(content)

    def gather_texts(self, text: str) -> list[str]:
        """各个进程的文字交给第 0 个；全部进程一起调用，别的进程得到空的列表。"""
        content = _to_bytes(text)
        sizes = np.empty(self.size, np.int64)
        integer, byte = self._mpi.INT64_T, self._mpi.BYTE
        self.comm.Allgather([np.array([content.size], np.int64), integer], [sizes, integer])
        received = np.empty(int(sizes.sum()) if self.rank == 0 else 0, np.uint8)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        counts = (sizes.tolist(), starts.tolist())
        self.comm.Gatherv([content, byte], [received, counts, byte] if self.rank == 0 else None, 0)
        if self.rank:
            return []
        pairs = zip(starts.tolist(), sizes.tolist(), strict=True)
        return [_to_text(received[start : start + size]) for start, size in pairs]

    def add(self, array: npt.NDArray[Any]) -> None:
        """就地变成全部进程的逐项之和；数组要连续。"""
        self.comm.Allreduce(self._mpi.IN_PLACE, array)

    def send_array(self, array: npt.NDArray[Any]) -> None:
        """第 0 个进程的数组写进各个进程的同一个数组。"""
        content = np.ascontiguousarray(array)
        self.comm.Bcast(content.reshape(-1).view(np.uint8), 0)
        if self.rank and content is not array:
            array[...] = content


def _to_bytes(text: str) -> npt.NDArray[np.uint8]:
    """文字的 UTF-8；文件名里不是 UTF-8 的字节，在 Python 里是单独的代理字符，照样传过去。"""
    return np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8).copy()


def _to_text(content: npt.NDArray[np.uint8]) -> str:
    return content.tobytes().decode("utf-8", "surrogatepass")


def _mismatch(phases: list[int]) -> DistributedError:
    doing = "，".join(f"第 {rank} 个进程在{NAMES[Phase(p)]}" for rank, p in enumerate(phases))
    return DistributedError(
        f"各个进程做的不是同一件事：{doing}；训练、评估、保存、读入要由全部进程一起调用，循环要在同一步离开"
    )


def _described(error: BaseException) -> tuple[Status, int, str]:
    """怎样把离开的原因告诉别的进程：种类，退出码，一句话。"""
    if isinstance(error, KeyboardInterrupt):
        return Status.INTERRUPTED, 130, ""
    if isinstance(error, SystemExit) and isinstance(error.code, int | None):
        return Status.INTERRUPTED, error.code or 0, ""
    kind = "" if isinstance(error, GptcoreError) else f"{type(error).__name__}："
    return Status.FAILED, 1, f"出错：{kind}{error}"[:LENGTH]
