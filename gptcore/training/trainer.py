"""训练器：一步一步地训练、评估、存取检查点"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from gptcore.data import Dataset, WindowDataset
from gptcore.errors import ArgumentError, NonFiniteError, ShapeError
from gptcore.layers import Layer
from gptcore.losses import Loss
from gptcore.models.generation import require_count, require_prompt, sample
from gptcore.optim import Optimizer
from gptcore.random import resolve_rng
from gptcore.serialization.single import as_path
from gptcore.tensor import Tensor, no_grad
from gptcore.training.batches import Batches, data_record, require_same_data, updates_per_epoch
from gptcore.training.callbacks import Callback, close_all
from gptcore.training.checks import (
    require_arguments,
    require_current,
    require_dataset,
    require_max_norm,
    require_objects,
    require_parameters,
    require_strategy,
)
from gptcore.training.evaluation import Evaluation, testing
from gptcore.training.nonfinite import nonfinite_error, nonfinite_parameter
from gptcore.training.state import RunState, Scheduler, StepReport
from gptcore.training.steps import Steps
from gptcore.training.strategy import SINGLE, SingleProcess

NO_CLIPPING = sys.float_info.max


class Trainer:
    r"""训练器：模型、损失函数与优化器合在一起。

    模型不满五十万个参数时，只用一个 BLAS 线程，见 [`blas_threads`][gptcore.threads.blas_threads]。

    Note: 梯度累积
        `accumulation_steps=k` 时，每 $k$ 批更新一次，好像一批有 $k$ 倍大。第 $i$ 批有 $n_i$ 个计入损失的标签，
        平均损失是 $L_i$，则

        $$L = \sum_i \frac{n_i}{N} L_i,\qquad N = \sum_i n_i$$

        正是合成一大批的平均损失，各批的标签数不同（例如忽略了一些）也一样；
        一轮末尾不足 $k$ 批时，$N$ 只数实际的几批。

    Args:
        model: 模型。
        loss_fn: 损失函数。
        optimizer: 优化器。
        accumulation_steps: 几批更新一次。
        max_norm: 梯度范数的上限，超过时按比例裁剪；`None` 表示不裁剪。
        skip_nonfinite: 损失或梯度里有 NaN 或无穷时，至多跳过几步；默认一步也不跳过，立即报错。
        rng: 打乱数据用的生成器；不给时用默认的。
        distributed: 在几个进程上训练，见 [`DataParallel`][gptcore.distributed.DataParallel]；不给时就是这一个进程。

    Attributes:
        state: 训练的状态：做完多少步、取到哪一批、评估的历史。
        dataset: 正在训练的数据集；还没有开始时是 `None`。
        checkpoint: 最近保存或读入的检查点；没有时是 `None`。
        stop_reason: 为什么提前停止；没有提前停止时是 `None`。
        total_steps: 这次训练的总步数；还没有开始时是 `None`。
        callbacks: 这次训练的各个回调，按调用的次序；几个进程时，只有第 0 个进程上有。
        resuming: 下一次训练是不是接着读入的检查点。
        parts: 数据集的几批合成训练的一批：开始训练时有几个进程，就是几。

    Examples:
        >>> trainer = Trainer(model, MSELoss(), SGDOptimizer(model.parameters, lr=0.01))
        >>> losses = trainer.train(dataset, epochs=10)
        >>> prediction, loss = trainer.test(dataset)

    教程：第 5 章 数据集与训练器。
    """

    def __init__(
        self,
        model: Layer,
        loss_fn: Loss,
        optimizer: Optimizer,
        *,
        accumulation_steps: int = 1,
        max_norm: float | None = None,
        skip_nonfinite: int = 0,
        rng: np.random.Generator | None = None,
        distributed: SingleProcess | None = None,
    ) -> None:
        name = type(self).__name__
        require_objects(name, model=model, loss_fn=loss_fn, optimizer=optimizer)
        require_parameters(name, model, optimizer)
        require_count(name, "accumulation_steps", accumulation_steps, 1)
        require_count(name, "skip_nonfinite", skip_nonfinite)
        require_max_norm(name, max_norm)
        resolve_rng(name, rng)
        require_strategy(name, distributed)
        self.model = model
        self.loss_fn = loss_fn
        self.optimizer = optimizer
        self.accumulation_steps = accumulation_steps
        self.max_norm = max_norm
        self.skip_nonfinite = skip_nonfinite
        self.rng = rng
        self.dataset: Dataset | None = None
        self.state = RunState()
        self.checkpoint: Path | None = None
        self.saved_data: Any = None
        self.data_record: dict[str, Any] | None = None
        self.resuming, self.parts = False, 1
        self.stop_reason: str | None = None
        self.total_steps: int | None = None
        self.callbacks: list[Callback] = []
        self.strategy = SINGLE if distributed is None else distributed

    # ---------------------------------------------------------------- 训练

    def steps(
        self,
        dataset: Dataset,
        count: int,
        scheduler: Scheduler | None = None,
        *,
        shuffle: bool = False,
        callbacks: Iterable[Callback] = (),
    ) -> Iterator[StepReport]:
        """一步一步地训练：每取一个结果，训练一步。数据用完就从头再来。

        它是迭代器，要在循环里取用；单独一行 `trainer.steps(dataset, 100)` 什么也不做，会有警告。
        `resume` 之后的第一次调用接着原来的那一次：`count` 仍是总步数，只做剩下的。再调用则从第 0 步数起。

        Args:
            dataset: 数据集。
            count: 总步数。
            scheduler: 学习率调度；不给时学习率不变。
            shuffle: 每一轮打乱样本的次序。
            callbacks: 回调，见 [`Callback`][gptcore.training.callbacks.Callback]。

        Returns:
            迭代器，逐步交出每一步的结果。

        Examples:
            >>> for report in trainer.steps(dataset, 300):
            ...     if report.step % 100 == 0:
            ...         print(report.step, report.loss)

        Raises:
            ArgumentError: 步数不是非负整数；接着训练时数据与原来的不同。
            NonFiniteError: 损失、梯度或参数里有 NaN 或无穷；出问题的那一步不更新参数。
        """
        require_count("steps", "count", count)
        ordered = require_arguments("steps", dataset, scheduler, callbacks)
        return Steps(count, self._loop(dataset, count, scheduler, shuffle, ordered, self._threads))

    def train(
        self,
        dataset: Dataset,
        epochs: int,
        scheduler: Scheduler | None = None,
        *,
        shuffle: bool = False,
        callbacks: Iterable[Callback] = (),
    ) -> list[float]:
        """在训练集上训练若干轮。

        `resume` 之后的第一次调用接着原来的那一次：`epochs` 仍是总轮数，只做剩下的。

        Args:
            dataset: 数据集。
            epochs: 轮数。
            scheduler: 学习率调度；不累积梯度时共 `epochs * len(dataset)` 步。不给时学习率不变。
            shuffle: 每一轮打乱样本的次序。
            callbacks: 回调，见 [`Callback`][gptcore.training.callbacks.Callback]。

        Returns:
            每一轮的平均损失；提前停止时，只有完成的各轮。
        """
        require_count("train", "epochs", epochs)
        if not epochs:
            raise ArgumentError("train：epochs 必须是正整数，这里是 0；请写例如 epochs=10")
        ordered = require_arguments("train", dataset, scheduler, callbacks)
        dataset.train()
        batches = len(dataset) // (self.parts if self.resuming else self.strategy.size)
        count = epochs * updates_per_epoch(batches, self.accumulation_steps)
        with self._threads():
            for _ in self._loop(dataset, count, scheduler, shuffle, ordered, nullcontext):
                pass
        return list(self.state.epoch_losses)

    def stop(self, reason: str) -> None:
        """做完手里的这一步就停止训练；通常由回调调用。

        Args:
            reason: 为什么停下。
        """
        self.stop_reason = reason

    def _loop(
        self,
        dataset: Dataset,
        count: int,
        scheduler: Scheduler | None,
        shuffle: bool,
        callbacks: list[Callback],
        threads: Callable[[], Any],
    ) -> Generator[StepReport, None, None]:
        strategy = self.strategy
        with strategy.guard():
            batches, fresh = self._begin(dataset, shuffle), not self.resuming
            callbacks = strategy.own(callbacks)
            state, self.total_steps, self.callbacks = self.state, count, callbacks
            try:
                strategy.start(self, fresh)
                strategy.notify(self, "on_start")
                self.resuming = False  # 在这之前出错，可以改正了再来
                while state.step < count and not strategy.stopping(self):
                    report = self._advance(batches, scheduler, threads)
                    if state.step == count and (found := nonfinite_parameter(self.model)):
                        raise self._nonfinite(f"最后一步之后{found}", report)
                    strategy.notify(self, "on_step", report)
                    yield report
                    require_current(self.state, state)
                strategy.finish(self)
                strategy.notify(self, "on_end")
            finally:
                close_all(self, callbacks)

    def _advance(
        self, batches: Batches, scheduler: Scheduler | None, threads: Callable[[], Any]
    ) -> StepReport:
        """取几批，训练一步，记下它的损失。"""
        state = self.state
        self.model.train()
        if scheduler is not None:
            self.optimizer.lr = scheduler.step(state.step)
        epoch, group = state.epoch, batches.take(self.accumulation_steps)
        with threads():  # 不跨越 yield：使用者的代码不受影响
            report = self._step(group)
        state.step += 1
        state.record_loss(report, epoch_done=state.epoch > epoch)
        return report

    def _begin(self, dataset: Dataset, shuffle: bool) -> Batches:
        """新的一次训练从头数起；`resume` 之后接着数。"""
        if self.resuming:
            require_same_data(self.saved_data, dataset, shuffle)
        else:
            self.state, self.parts = RunState(), self.strategy.size
        self.stop_reason, self.dataset = None, dataset
        batches = Batches(dataset, shuffle, self.rng, self.state, self.parts, self.strategy)
        self.data_record = data_record(dataset, shuffle)
        return batches

    def _step(self, group: list[tuple[Tensor, Tensor]]) -> StepReport:
        """前向、反向、裁剪、更新一次；损失是更新之前的。"""
        self.optimizer.zero_grad()  # 前向之前：旧的梯度不与这一步的中间结果同时占着内存
        with np.errstate(all="ignore"):  # NaN 与无穷由下面的检查说清楚
            loss, tokens = self.strategy.backward(self, group)
            norm = self.optimizer.clip_grad_norm(self.max_norm or NO_CLIPPING)
            finite = math.isfinite(loss) and math.isfinite(norm)
            if finite:
                self.optimizer.step()
        report = StepReport(self.state.step, loss, self.optimizer.lr, norm, tokens, not finite)
        if not finite:
            self._skip(report, group)
        return report

    def _skip(self, report: StepReport, group: list[tuple[Tensor, Tensor]]) -> None:
        """这一步不更新；跳过的次数用完时报错。"""
        self.state.skipped += 1
        if self.state.skipped > self.skip_nonfinite:
            where = self.strategy.first_nonfinite(self, group)
            what = f"损失是 {report.loss:g}，梯度的范数是 {report.grad_norm:g}；{where}"
            raise self._nonfinite(what, report)

    def _nonfinite(self, what: str, report: StepReport) -> NonFiniteError:
        return nonfinite_error(what, report, self.skip_nonfinite, self.checkpoint)

    # ---------------------------------------------------------------- 评估

    def evaluate(self, dataset: Dataset, limit: int | None = None) -> Evaluation:
        """在测试集上评估：每个样本恰好一次，按计入损失的标签数加权平均。

        `CharDataset` 的窗口首尾相接、互不重叠，所以每个词元恰好预测一次；
        `test` 用的是教程里那些重叠的窗口，两者的损失略有不同。

        Args:
            dataset: 数据集；不改变它与模型的模式。
            limit: 至多评估多少个样本，每次都是同样的几个。

        Returns:
            平均损失与词元数。
        """
        require_dataset("evaluate", dataset)
        with self.strategy.guard(), self._threads():
            loss, tokens = self.strategy.evaluate(self, dataset, limit)
        return Evaluation(loss, tokens, self.state.step)

    def evaluate_now(self, limit: int | None = None) -> Evaluation:
        """训练途中评估一次，记进 `state.evaluations`，并通知各个回调。

        Args:
            limit: 至多评估多少个样本。

        Raises:
            NonFiniteError: 损失是 NaN 或无穷。
        """
        if self.dataset is None:
            raise ArgumentError("evaluate_now：还没有开始训练；请用 evaluate(dataset)")
        with np.errstate(all="ignore"):
            evaluation = self.evaluate(self.dataset, limit)
        if not math.isfinite(evaluation.loss):
            found = nonfinite_parameter(self.model) or "参数都是有限的"
            raise NonFiniteError(
                f"第 {self.state.step} 步之后，测试集上的损失是 {evaluation.loss:g}；{found}；请减小学习率"
            )
        self.state.evaluations.append((evaluation.step, evaluation.loss))
        self.strategy.notify(self, "on_evaluation", evaluation)
        return evaluation

    def test(self, dataset: Dataset) -> Any:
        """一次算完整个测试集。

        Returns:
            预测与损失，两个张量。
        """
        require_dataset("test", dataset)
        with testing(dataset), self.model.evaluating(), no_grad(), self._threads():
            x, y = dataset.all()
            p = self.model(x)
            return p, self.loss_fn(p, y)

    # ---------------------------------------------------------------- 检查点

    def save_checkpoint(self, folder: str | os.PathLike[str]) -> None:
        """把此刻的全部状态存成检查点；定期保存请用 [`Checkpoints`][gptcore.training.checkpoints.Checkpoints]。

        Args:
            folder: 检查点的文件夹；已有检查点时原子地替换。
        """
        with self.strategy.guard():
            self.checkpoint = self.strategy.save(self, as_path("save_checkpoint", "folder", folder))

    def resume(self, folder: str | os.PathLike[str], *, missing_ok: bool = False) -> RunState:
        """读入检查点；下一次 `steps` 或 `train` 接着那一次训练。

        参数、优化器、数据的位置与各个随机数生成器（包括 NumPy 全局的）都恢复原样。
        在同一台机器上，BLAS 与线程数也相同时，结果与不中断的那一次逐位相同；环境变了会给出警告。

        Args:
            folder: 一个检查点，或者装着几个检查点的文件夹：取其中最新的；最新的损坏时给出警告，取前一个。
            missing_ok: 一个检查点也没有时不报错，从头训练：同一个程序，运行几次都行。

        Returns:
            训练的状态。

        Raises:
            DataError: 没有检查点，或者全都损坏。
            ArgumentError: 训练器的设置与保存时不同。
        """
        with self.strategy.guard():
            self.strategy.resume(self, as_path("resume", "folder", folder), missing_ok)
        return self.state

    # ---------------------------------------------------------------- 生成

    def generate(self, dataset: WindowDataset, prompt: str, steps: int = 256) -> str:
        """接着提示往下写：模型的输出是下一个字符的概率。

        Args:
            dataset: 提供词表与上下文尺寸的数据集。
            prompt: 提示，至少一个字符。
            steps: 写多少个字符。

        Returns:
            提示与续写。
        """
        ids = require_prompt(dataset.encode(prompt), steps)
        with self.model.evaluating(), no_grad(), self._threads():
            for _ in range(steps):
                p = self.model(Tensor([ids[-dataset.context_size :]]))
                if p.ndim != 2:
                    raise ShapeError(
                        f"Trainer.generate：模型的输出 {p.shape} 应为 (1, 词表大小)，即下一个字符的概率；"
                        "每个位置都有输出的模型请用 GPTTrainer"
                    )
                ids.append(sample(p.data[0]))
        return dataset.decode(ids)

    def _threads(self) -> Any:
        return self.strategy.threads(sum(p.size for p in self.optimizer.parameters))
