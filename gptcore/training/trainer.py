"""训练器"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gptcore.data import CharDataset, Dataset
from gptcore.errors import ArgumentError, DataError, DtypeError, ShapeError
from gptcore.layers import Layer
from gptcore.losses import Loss
from gptcore.models.generation import generate_ids, require_count, require_prompt, sample
from gptcore.optim import Optimizer
from gptcore.tensor import Tensor, no_grad
from gptcore.threads import model_threads


class Scheduler(Protocol):
    """学习率调度：由步数得到学习率。"""

    def step(self, i: int) -> float:
        """第 `i` 步（从 0 数起）的学习率。"""
        ...


@dataclass(frozen=True)
class StepReport:
    """一步训练的结果。

    Attributes:
        step: 第几步，从 0 数起。
        loss: 更新之前这一批的损失。
        lr: 这一步的学习率。
        grad_norm: 裁剪之前梯度的范数。
        tokens: 这一批有多少个词元。
    """

    step: int
    loss: float
    lr: float
    grad_norm: float
    tokens: int


class Trainer:
    """训练器：模型、损失函数与优化器合在一起。

    模型不满一百万个参数时，只用一个 BLAS 线程，见 [`blas_threads`][gptcore.threads.blas_threads]。

    Args:
        model: 模型。
        loss_fn: 损失函数。
        optimizer: 优化器。

    Example:
        >>> trainer = Trainer(model, MSELoss(), SGDOptimizer(model.parameters, lr=0.01))
        >>> losses = trainer.train(dataset, epochs=10)
        >>> prediction, loss = trainer.test(dataset)

    教程：第 5 章 数据集与训练器。
    """

    def __init__(self, model: Layer, loss_fn: Loss, optimizer: Optimizer) -> None:
        given: dict[str, Any] = {"model": model, "loss_fn": loss_fn, "optimizer": optimizer}
        for name, value in given.items():
            if isinstance(value, type):
                raise DtypeError(
                    f"{type(self).__name__}：{name} 必须是对象，这里是类 {value.__name__}；请写 {value.__name__}(…)"
                )
            if value is None:
                raise DtypeError(f"{type(self).__name__}：{name} 不能是 None；请给出对象")
        _require_parameters(type(self).__name__, model, optimizer)
        self.model = model
        self.loss_fn = loss_fn
        self.optimizer = optimizer

    def train(self, dataset: Dataset, epochs: int) -> list[float]:
        """在训练集上训练若干轮。

        Args:
            dataset: 数据集。
            epochs: 轮数。

        Returns:
            每一轮的平均损失。
        """
        _require_epochs(epochs)
        _require_dataset("train", dataset)
        history: list[float] = []
        dataset.train()
        self.model.train()
        with self._threads():
            for _ in range(epochs):
                losses = [self._step(x, y) for x, y in dataset]
                if not losses:
                    raise DataError("train：数据集没有给出任何一批；请检查它的 __len__ 与 __iter__")
                history.append(sum(losses) / len(losses))
        return history

    def _threads(self) -> Any:
        """按模型的大小选定 BLAS 的线程数。"""
        return model_threads(sum(p.size for p in self.optimizer.parameters))

    def _step(self, x: Tensor, y: Tensor) -> float:
        """前向、反向、更新一次；返回更新之前的损失。"""
        self.optimizer.zero_grad()  # 前向之前：旧的梯度不与这一步的中间结果同时占着内存
        loss = self.loss_fn(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return float(loss)

    def test(self, dataset: Dataset) -> tuple[Tensor, Tensor]:
        """一次算完整个测试集。

        Returns:
            预测与损失。
        """
        _require_dataset("test", dataset)
        with _testing(dataset), self.model.evaluating(), no_grad(), self._threads():
            x, y = dataset.all()
            p = self.model(x)
            return p, self.loss_fn(p, y)

    def generate(self, dataset: CharDataset, prompt: str, steps: int = 256) -> str:
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


class GPTTrainer(Trainer):
    """GPT 的训练器：每一步都裁剪梯度，学习率可以调度。

    Args:
        model: 模型。
        loss_fn: 损失函数。
        optimizer: 优化器。

    教程：第 15 章 层归一化与 GPT 模型。
    """

    def steps(
        self, dataset: Dataset, count: int, scheduler: Scheduler | None = None
    ) -> Iterator[StepReport]:
        """一步一步地训练：每取一个结果，训练一步。数据用完就从头再来。

        它是迭代器，要在循环里取用；单独一行 `trainer.steps(dataset, 100)` 什么也不做。

        Args:
            dataset: 数据集。
            count: 步数。
            scheduler: 学习率调度；不给时学习率不变。

        Returns:
            迭代器，逐步交出每一步的结果。

        Example:
            >>> for report in trainer.steps(dataset, 300):
            ...     if report.step % 100 == 0:
            ...         print(report.step, report.loss)

        Raises:
            ArgumentError: 步数不是非负整数。
        """
        require_count("steps", "count", count)
        _require_dataset("steps", dataset)
        return self._steps(dataset, count, scheduler)

    def _steps(
        self, dataset: Dataset, count: int, scheduler: Scheduler | None
    ) -> Iterator[StepReport]:
        dataset.train()
        batches = len(dataset)
        if not batches:
            raise DataError("steps：数据集的批数是 0；请检查它的 __len__")
        for i in range(count):
            self.model.train()
            if scheduler is not None:
                self.optimizer.lr = scheduler.step(i)
            x, y = dataset[i % batches]
            with self._threads():  # 不跨越 yield：使用者的代码不受影响
                self.optimizer.zero_grad()
                loss = self.loss_fn(self.model(x), y)
                loss.backward()
                norm = self.optimizer.clip_grad_norm()
                self.optimizer.step()
            yield StepReport(i, float(loss), self.optimizer.lr, norm, y.size)

    def train(
        self, dataset: Dataset, epochs: int, scheduler: Scheduler | None = None
    ) -> list[float]:
        """在训练集上训练若干轮。

        Args:
            dataset: 数据集。
            epochs: 轮数。
            scheduler: 学习率调度，共 `epochs * len(dataset)` 步；不给时学习率不变。

        Returns:
            每一轮的平均损失。
        """
        _require_epochs(epochs)
        _require_dataset("train", dataset)
        dataset.train()
        batches = len(dataset)
        losses = [report.loss for report in self.steps(dataset, epochs * batches, scheduler)]
        return [sum(losses[i * batches : (i + 1) * batches]) / batches for i in range(epochs)]

    def test(self, dataset: Dataset) -> tuple[list[Tensor], float]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """在测试集上逐批评估。

        Returns:
            每一批的预测，与平均损失。
        """
        predictions: list[Tensor] = []
        total = 0.0
        _require_dataset("test", dataset)
        with _testing(dataset), self.model.evaluating(), no_grad(), self._threads():
            for x, y in dataset:
                predictions.append(self.model(x))
                total += float(self.loss_fn(predictions[-1], y))
        if not predictions:
            raise DataError("test：数据集没有给出任何一批；请检查它的 __len__ 与 __iter__")
        return predictions, total / len(predictions)

    def generate(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        dataset: CharDataset,
        prompt: str,
        steps: int = 256,
        *,
        temperature: float = 1.0,
        rng: np.random.Generator | None = None,
    ) -> str:
        """接着提示往下写：由最后一个位置的分数抽取下一个字符。

        Args:
            dataset: 提供词表与上下文尺寸的数据集。
            prompt: 提示，至少一个字符。
            steps: 写多少个字符。
            temperature: 温度，见 [`generate_ids`][gptcore.models.generation.generate_ids]。
            rng: 随机数生成器。

        Returns:
            提示与续写。
        """
        ids = list(dataset.encode(prompt))
        with self._threads():
            ids += generate_ids(
                self.model, ids, steps, dataset.context_size, temperature=temperature, rng=rng
            )
        return dataset.decode(ids)


@contextmanager
def _testing(dataset: Dataset) -> Generator[None]:
    """在一段代码里取测试集，离开时换回原来的那一份。"""
    training = dataset.training
    dataset.eval()
    try:
        yield
    finally:
        if training:
            dataset.train()


def _require_parameters(name: str, model: Layer, optimizer: Optimizer) -> None:
    """优化器里至少有一个参数是这个模型的；视图算它原来的张量。"""
    known, updated = (
        {id(p if p.view_of is None else p.view_of) for p in owner.parameters}
        for owner in (model, optimizer)
    )
    if known and not known & updated:
        raise ArgumentError(
            f"{name}：优化器里没有这个模型的参数，它更新的是别的模型；"
            "请用这个模型的参数建立优化器，例如 AdamWOptimizer(model.parameters)"
        )


def _require_dataset(name: str, dataset: Any) -> None:
    """数据集要能切换训练集与测试集、能按批取用；不必是 `Dataset` 的子类。"""
    needed = ("train", "eval", "__len__", "__getitem__")
    if isinstance(dataset, type) or not all(hasattr(dataset, n) for n in needed):
        raise DtypeError(
            f"{name}：dataset 必须是数据集，这里是 {str(dataset)[:60]}；"
            "请给出 Dataset 的子类的对象，例如 CharDataset(文件名)"
        )


def _require_epochs(epochs: int) -> None:
    require_count("train", "epochs", epochs)
    if not epochs:
        raise ArgumentError("train：epochs 必须是正整数，这里是 0；请写例如 epochs=10")
