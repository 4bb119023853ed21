r"""数据并行：每个进程各算一部分样本，梯度合在一起

见 [`DataParallel`][gptcore.distributed.DataParallel]。
"""

from __future__ import annotations

import json
import signal
import time
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gptcore.data import Dataset
from gptcore.distributed.agreement import (
    different,
    differing,
    dump_loaded,
    dump_settings,
    parameters_checksum,
    parse_loaded,
    require_equal_parameters,
    require_same,
    shared_arrays,
    text_checksum,
)
from gptcore.distributed.channel import Phase
from gptcore.distributed.gradients import GradientBuffer
from gptcore.distributed.ranks import Ranks
from gptcore.models.generation import require_count
from gptcore.tensor import Tensor
from gptcore.training import Callback
from gptcore.training.accumulation import backward
from gptcore.training.checkpoints import save_checkpoint
from gptcore.training.evaluation import batch_losses, mean_loss
from gptcore.training.generators import States, capture, derive, restore
from gptcore.training.resuming import adopt, read_newest

if TYPE_CHECKING:
    from gptcore.training import Trainer


class Command(IntEnum):
    """回调运行时，第 0 个进程要别的进程做什么。"""

    DONE = 0
    EVALUATE = 1
    SAVE = 2


class DataParallel(Ranks):
    r"""数据并行：几个进程各有一份模型，各算一部分样本，每一步把梯度合在一起，参数因此处处相同。

    每个进程运行同一个程序，由 `mpiexec -n 2 python 程序.py` 启动；进程之间的通信由 MPI 完成。
    需要 mpi4py：`pip install "gptcore[mpi]"`，系统里没有 MPI 时再 `pip install mpich`。

    Note: 梯度
        一步的样本排成一列，第 $r$ 个进程取其中的一段（见[分法][gptcore.training.sharing]），算出自己那一段的平均损失
        $L_r$ 与梯度 $g_r$，其中有 $n_r$ 个计入损失的标签。合在一起是

        $$L=\sum_r\frac{n_r}{n}L_r,\qquad g=\sum_r\frac{n_r}{n}g_r,\qquad n=\sum_r n_r$$

        正是一个进程、一批有这么多样本时的平均损失与梯度；各个进程的标签数不同，或者有的没有分到样本（$n_r=0$），都一样。
        裁剪用的范数是合起来之后的。全部参数的梯度排在一段连续的内存里，一次求和（`MPI_Allreduce`），不经过 pickle。

    Note: 批的大小
        数据集的 `batch_size` 是每个进程的：$N$ 个进程、`batch_size=b`、累积 $k$ 次，一步就有 $N\cdot b\cdot k$ 个样本，
        与一个进程、`batch_size=N*b` 相同：次序、每一轮的步数、丢弃的尾巴都相同，没有随机失活时，梯度只差舍入误差。

    Note: 接着训练
        检查点由第 0 个进程写，里面有每个进程的随机数生成器。进程数、线程数与机器都相同时，
        结果与不中断的那一次逐位相同。
        换了进程数也可以接着训练：一步的样本照旧（开始时的 $N\cdot b\cdot k$ 个），由现在的进程均分，
        没有随机失活时只差舍入误差；有随机失活时，多出来的进程用新的随机数，结果不同，但同样合理。

    Note: 回调
        回调（包括 `close`）只在第 0 个进程上运行；其中调用 `trainer.evaluate`、`trainer.save_checkpoint` 时，
        别的进程自动跟着做。循环里自己写的代码在每个进程上都运行：显示与写文件之前请看 `parallel.is_main`，
        `trainer.evaluate` 等则要由全部进程一起调用。每一步的结果（损失、范数、词元数）是全部进程的，处处相同。

    Note: 出错与中断
        一个进程出错，别的进程在下一次通信时得知，抛出 `DistributedError`，写出是第几个进程、什么错误；
        没有人处理，就结束全部进程。
        Ctrl-C 到达每个进程的时刻不同，所以在下一步之前互相通告，做完那一步，由第 0 个进程保存。

    Args:
        comm: mpi4py 的通信器；不给时是全部进程，即 `MPI.COMM_WORLD`。
        threads: 每个进程用几个 BLAS 线程；不给时，几个进程在同一台机器上就是 1，否则照旧。
        check_every: 每隔多少步核对一次各个进程的参数。

    Attributes:
        comm: 通信器，它的副本。
        rank: 这是第几个进程，从 0 数起。
        size: 一共几个进程。
        local_size: 这台机器上有几个。
        threads_each: 每个进程用几个 BLAS 线程；`None` 表示照旧。
        allreduce_seconds: 求梯度的和用去的秒数，包括等别的进程。

    Raises:
        DistributedError: 没有安装 mpi4py，找不到 MPI 的运行库，或者不是由 `mpiexec` 启动的。

    Examples:
        >>> parallel = DataParallel()
        >>> trainer = GPTTrainer(model, GPTLoss(), optimizer, distributed=parallel)
        >>> for report in trainer.steps(dataset, 1000):
        ...     if parallel.is_main and report.step % 100 == 0:
        ...         print(report.step, report.loss)
    """

    def __init__(
        self, comm: Any = None, *, threads: int | None = None, check_every: int = 100
    ) -> None:
        super().__init__(comm, threads)
        require_count("DataParallel", "check_every", check_every, 1)
        self.check_every = check_every
        self.allreduce_seconds = 0.0
        self._gradients = GradientBuffer()
        self._leading = False
        self._culprit = -1

    # ---------------------------------------------------------------- 开始与结束

    def start(self, trainer: Trainer, fresh: bool) -> None:
        """核对设置，把参数与优化器的状态统一成第 0 个进程的；从头训练时，给每个进程一串自己的随机数。"""
        self.channel.restart()
        text, what = dump_settings(trainer), ""
        with self.channel.unbroken():
            records = self.channel.exchange(Phase.START, checksum=text_checksum(text))
            if different(records):
                texts = self.channel.gather_texts(text)
                what = self.channel.send_text(differing(texts) if texts else "")
            else:
                self._send_arrays(trainer)
        require_same(records, what, "请让各个进程运行同样的程序，读同样的数据")
        if fresh and self.rank:
            restore(trainer, derive(capture(trainer), self.rank))
        if not self._savers(trainer):
            self.interrupts.watch()

    def stopping(self, trainer: Trainer) -> bool:
        """互相通告有没有要停下的、收到信号的，到时候核对参数。"""
        step, received = trainer.state.step, self.interrupts.received
        check = 0 if step % self.check_every else parameters_checksum(trainer)
        stopping, number = trainer.stop_reason is not None, received or 0
        with self.channel.unbroken():
            records = self.channel.exchange(
                Phase.NEXT, step=step, flag=stopping, signal=number, checksum=check
            )
            stopped = np.flatnonzero(records["flag"])
            if len(stopped):
                reason = trainer.stop_reason or ""
                trainer.stop_reason = self.channel.send_text(reason, int(stopped[0]))
        require_equal_parameters(records, step)
        if signals := records["signal"][records["signal"] != 0].tolist():
            self.interrupts.received = None
            self._pass_on(trainer, int(signals[0]))
        return len(stopped) > 0

    def finish(self, trainer: Trainer) -> None:
        """最后再核对一次参数。"""
        step = trainer.state.step
        check = parameters_checksum(trainer)
        records = self.channel.exchange(Phase.FINISH, checksum=check, step=step)
        require_equal_parameters(records, step)

    def _send_arrays(self, trainer: Trainer) -> None:
        for array in shared_arrays(trainer):
            self.channel.send_array(array)

    def _pass_on(self, trainer: Trainer, number: int) -> None:
        """哪个进程收到的信号，都由第 0 个进程来处理：先保存，再中断。"""
        if self.rank:
            return
        savers = self._savers(trainer)
        for saver in savers:
            saver.interrupt(number)
        if not savers:
            self.interrupts.release()
            signal.raise_signal(number)

    def _savers(self, trainer: Trainer) -> list[Any]:
        """收到信号会先保存的回调。"""
        return [c for c in trainer.callbacks if hasattr(c, "interrupt")]

    # ---------------------------------------------------------------- 一步

    def agree(self, seed: int) -> int:
        """以第 0 个进程抽到的为准。"""
        return int(self.channel.exchange(Phase.ORDER, count=seed)["count"][0])

    def backward(self, trainer: Trainer, group: list[tuple[Tensor, Tensor]]) -> tuple[float, int]:
        """各算各的，再按标签数加权求和。"""
        if self.size == 1:
            return super().backward(trainer, group)
        count = sum(trainer.loss_fn.count(y) for _, y in group)
        loss = backward(trainer.model, trainer.loss_fn, group) if count else 0.0
        tokens = sum(y.size for _, y in group)
        with self.channel.unbroken():
            records = self.channel.exchange(Phase.REDUCE, count=count, value=loss, tokens=tokens)
            total = int(records["count"].sum())
            start = time.perf_counter()
            weight = count / total if total else 0.0
            self._gradients.reduce(trainer.optimizer.parameters, weight, self.channel.add)
        self.allreduce_seconds += time.perf_counter() - start
        losses, counts = records["value"].tolist(), records["count"].tolist()
        wrong = np.flatnonzero(~np.isfinite(records["value"]))
        self._culprit = int(wrong[0]) if len(wrong) else -1
        mean = sum(x * (n / total) for x, n in zip(losses, counts, strict=True) if n)
        return float(mean), int(records["tokens"].sum())

    def first_nonfinite(self, trainer: Trainer, group: list[tuple[Tensor, Tensor]]) -> str:
        """由损失不是有限数的那个进程来找；都是有限数时，问题在梯度里，第 0 个进程来找。"""
        root = max(self._culprit, 0)
        found = super().first_nonfinite(trainer, group) if self.rank == root else ""
        if self.size == 1:
            return found
        with self.channel.unbroken():
            self.channel.exchange(Phase.DIAGNOSE)
            found = self.channel.send_text(found, root)
        return f"第 {root} 个进程：{found}" if self._culprit >= 0 else found

    # ---------------------------------------------------------------- 回调

    def own(self, callbacks: list[Callback]) -> list[Callback]:
        """只有第 0 个进程运行回调。"""
        return callbacks if self.is_main else []

    def notify(self, trainer: Trainer, moment: str, *given: Any) -> None:
        """第 0 个进程运行回调，别的进程等着，它要评估或保存时跟着做。"""
        if self._leading:  # 在回调里评估，通知 on_evaluation
            super().notify(trainer, moment, *given)
        elif self.is_main:
            self._lead(trainer, moment, *given)
        else:
            self._follow(trainer)

    def _lead(self, trainer: Trainer, moment: str, *given: Any) -> None:
        state, reason = trainer.state, trainer.stop_reason
        known = len(state.evaluations)
        self._leading = True
        try:
            super().notify(trainer, moment, *given)
        finally:
            self._leading = False
        news = len(state.evaluations) > known or trainer.stop_reason != reason
        text = json.dumps([trainer.stop_reason, state.evaluations[known:]])
        with self.channel.unbroken():
            self.channel.exchange(Phase.CALLBACKS, command=Command.DONE, flag=news)
            if news:
                self.channel.send_text(text)

    def _follow(self, trainer: Trainer) -> None:
        command = None
        while command != Command.DONE:
            with self.channel.unbroken():
                first = self.channel.exchange(Phase.CALLBACKS)[0]
                command, limit = first["command"], int(first["count"])
                if command == Command.SAVE:
                    self._gather_states(trainer)
                elif command == Command.DONE and first["flag"]:
                    reason, evaluations = json.loads(self.channel.send_text(""))
                    trainer.stop_reason = reason
                    trainer.state.evaluations += [(step, loss) for step, loss in evaluations]
            if command == Command.EVALUATE and trainer.dataset is not None:
                with np.errstate(all="ignore"):
                    trainer.evaluate(trainer.dataset, None if limit < 0 else limit)

    # ---------------------------------------------------------------- 评估与检查点

    def evaluate(self, trainer: Trainer, dataset: Dataset, limit: int | None) -> tuple[float, int]:
        """各个进程轮流各算一批；结果与一个进程的逐位相同。

        回调里评估别的数据集时，别的进程没有它，由第 0 个进程自己算完。
        """
        if self._leading:
            if dataset is not trainer.dataset:
                return super().evaluate(trainer, dataset, limit)
            self.channel.exchange(
                Phase.CALLBACKS, command=Command.EVALUATE, count=-1 if limit is None else limit
            )
        self._require_ready(trainer)
        rows, check = batch_losses(
            trainer.model, trainer.loss_fn, dataset, limit, self.rank, self.size
        )
        with self.channel.unbroken():
            records = self.channel.exchange(Phase.EVALUATE, checksum=check, step=len(rows))
            if not different(records):
                self.channel.add(rows)
        require_same(records, "测试集", "请让各个进程读同样的数据，评估同样多的样本")
        return mean_loss(rows)

    def _require_ready(self, trainer: Trainer) -> None:
        """评估之前，参数要处处相同；还没有训练过的，先统一成第 0 个进程的。"""
        step = trainer.state.step
        check = parameters_checksum(trainer)
        with self.channel.unbroken():
            records = self.channel.exchange(Phase.EVALUATE, checksum=check, step=step)
            if trainer.dataset is None and different(records):
                self._send_arrays(trainer)
                return
        require_equal_parameters(records, step)

    def save(self, trainer: Trainer, folder: Path) -> Path:
        """第 0 个进程保存，别的进程交出自己的随机数生成器，等它写完。"""
        if self.is_main:
            save_checkpoint(trainer, folder)
        else:
            self.other_states(trainer)
        if not self._leading:
            self.channel.exchange(Phase.SAVED)
        return folder

    def other_states(self, trainer: Trainer) -> list[States]:
        """收集各个进程的随机数生成器的状态。"""
        with self.channel.unbroken():
            if self._leading:
                self.channel.exchange(Phase.CALLBACKS, command=Command.SAVE)
            else:
                self.channel.exchange(Phase.SAVE)
            return self._gather_states(trainer)

    def _gather_states(self, trainer: Trainer) -> list[States]:
        texts = self.channel.gather_texts(json.dumps(capture(trainer)))
        return [json.loads(text) for text in texts[1:]]

    def resume(self, trainer: Trainer, folder: Path, missing_ok: bool) -> None:
        """第 0 个进程读检查点，传给大家。"""
        loaded = read_newest(trainer, folder, missing_ok) if self.is_main else None
        text = dump_loaded(loaded)
        with self.channel.unbroken():
            self.channel.exchange(Phase.RESUME)
            found = parse_loaded(self.channel.send_text(text))
            if found is None:
                return
            self._send_arrays(trainer)
        adopt(trainer, found)
        if self.rank:
            saved = found.generators
            extra = self.rank >= len(saved)
            restore(trainer, derive(saved[0], self.rank) if extra else saved[self.rank])
