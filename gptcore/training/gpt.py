"""GPT 的训练器：裁剪梯度，逐批测试，由最后一个位置的分数生成"""

from typing import Any

import numpy as np

from gptcore.data import Dataset, WindowDataset
from gptcore.errors import DataError
from gptcore.layers import Layer
from gptcore.losses import Loss
from gptcore.models.generation import generate_ids
from gptcore.optim import Optimizer
from gptcore.tensor import Tensor, no_grad
from gptcore.training.checks import require_dataset
from gptcore.training.evaluation import testing
from gptcore.training.strategy import SingleProcess
from gptcore.training.trainer import Trainer


class GPTTrainer(Trainer):
    """GPT 的训练器：每一步都裁剪梯度，学习率可以调度。

    Args:
        model: 模型。
        loss_fn: 损失函数。
        optimizer: 优化器。
        accumulation_steps: 几批更新一次，见 [`Trainer`][gptcore.training.trainer.Trainer]。
        max_norm: 梯度范数的上限；`None` 表示不裁剪。
        skip_nonfinite: 损失或梯度里有 NaN 或无穷时，至多跳过几步。
        rng: 打乱数据用的生成器。
        distributed: 在几个进程上训练，见 [`DataParallel`][gptcore.distributed.DataParallel]。

    教程：第 15 章 层归一化与 GPT 模型。
    """

    def __init__(
        self,
        model: Layer,
        loss_fn: Loss,
        optimizer: Optimizer,
        *,
        accumulation_steps: int = 1,
        max_norm: float | None = 1.0,
        skip_nonfinite: int = 0,
        rng: np.random.Generator | None = None,
        distributed: SingleProcess | None = None,
    ) -> None:
        super().__init__(
            model,
            loss_fn,
            optimizer,
            accumulation_steps=accumulation_steps,
            max_norm=max_norm,
            skip_nonfinite=skip_nonfinite,
            rng=rng,
            distributed=distributed,
        )

    def test(self, dataset: Dataset) -> tuple[list[Tensor], float]:
        """在测试集上逐批评估。

        Returns:
            每一批的预测，与平均损失。
        """
        predictions: list[Tensor] = []
        total = 0.0
        require_dataset("test", dataset)
        with testing(dataset), self.model.evaluating(), no_grad(), self._threads():
            for x, y in dataset:
                predictions.append(self.model(x))
                total += float(self.loss_fn(predictions[-1], y))
        if not predictions:
            raise DataError("test：数据集没有给出任何一批；请检查它的 __len__ 与 __iter__")
        return predictions, total / len(predictions)

    def generate(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        dataset: WindowDataset,
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
        ids: list[Any] = list(dataset.encode(prompt))
        with self._threads():
            ids += generate_ids(
                self.model, ids, steps, dataset.context_size, temperature=temperature, rng=rng
            )
        return dataset.decode(ids)
