"""评估：测试集上的平均损失、困惑度与比特数"""

import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from gptcore.data import Dataset
from gptcore.errors import DataError
from gptcore.layers import Layer
from gptcore.losses import Loss
from gptcore.tensor import no_grad


@dataclass(frozen=True)
class Evaluation:
    r"""在测试集上评估的结果。

    Attributes:
        loss: 每个词元的平均损失 $L$，单位奈特。
        tokens: 预测了多少个词元 $N$。
        step: 做完多少步之后评估的。
    """

    loss: float
    tokens: int
    step: int = 0

    @property
    def perplexity(self) -> float:
        r"""困惑度 $e^{L}$：相当于每次在多少个词元里均匀地猜。"""
        return math.exp(min(self.loss, 709.0))  # e^710 超出双精度

    def bits_per(self, count: int) -> float:
        r"""总的信息量分摊到 `count` 个单位上：$\dfrac{N L}{\ln 2\cdot\text{count}}$ 比特。

        `count` 是字符数时得到每字符比特（bits per character），是 UTF-8 字节数时得到每字节比特；
        换了分词器，损失不能直接比较，每字节比特可以。

        Args:
            count: 被预测的那段文本有多少个单位。
        """
        return self.tokens * self.loss / (math.log(2) * count)


def evaluate(
    model: Layer, loss_fn: Loss, dataset: Dataset, limit: int | None = None
) -> tuple[float, int]:
    """[`Trainer.evaluate`][gptcore.training.trainer.Trainer.evaluate] 的做法：按计入损失的标签数加权平均。

    Args:
        model: 模型。
        loss_fn: 损失函数。
        dataset: 数据集。
        limit: 至多评估多少个样本。

    Returns:
        平均损失与标签数。
    """
    rows, _ = batch_losses(model, loss_fn, dataset, limit)
    return mean_loss(rows)


def batch_losses(
    model: Layer,
    loss_fn: Loss,
    dataset: Dataset,
    limit: int | None = None,
    rank: int = 0,
    size: int = 1,
) -> tuple[npt.NDArray[np.float64], int]:
    """测试集每一批的损失与标签数；几个进程轮流各算一批，别的进程的那些行是零。

    Args:
        model: 模型。
        loss_fn: 损失函数。
        dataset: 数据集。
        limit: 至多评估多少个样本。
        rank: 第几个进程。
        size: 一共几个进程。

    Returns:
        形状 `(批数, 2)`，每一行是损失乘标签数、标签数；以及几个进程时，全部批的数据的 CRC-32，用来核对。
    """
    batches: Any = getattr(dataset, "evaluation_batches", None)
    rows: list[tuple[float, int]] = []
    checksum = 0
    with testing(dataset), model.evaluating(), no_grad():
        for i, (x, y) in enumerate(batches(limit) if batches else dataset):
            if size > 1:
                for array in (x.data, y.data):
                    checksum = crc32(np.ascontiguousarray(array).data, checksum)
            if i % size == rank:
                n = loss_fn.count(y)
                rows.append((float(loss_fn(model(x), y)) * n, n))
            else:
                rows.append((0.0, 0))
    return np.array(rows, np.float64).reshape(-1, 2), checksum


def mean_loss(rows: npt.NDArray[np.float64]) -> tuple[float, int]:
    """按计入损失的标签数加权平均；依次相加，结果与由几个进程算出无关。

    Args:
        rows: `batch_losses` 的结果；几个进程时是各个进程的逐项之和。

    Returns:
        平均损失与标签数。
    """
    total, count = 0.0, 0
    for loss, n in rows.tolist():
        total, count = total + loss, count + int(n)
    if not count:
        raise DataError("evaluate：测试集里没有计入损失的标签；请检查数据")
    return total / count, count


@contextmanager
def testing(dataset: Dataset) -> Generator[None]:
    """在一段代码里取测试集，离开时换回原来的那一份。"""
    training = dataset.training
    dataset.eval()
    try:
        yield
    finally:
        if training:
            dataset.train()
