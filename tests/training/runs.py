"""训练测试共用的：小数据、小模型、一次可以接着训练的运行"""

from pathlib import Path
from typing import Any

import numpy as np

from gptcore import (
    GPT,
    AdamWOptimizer,
    CharDataset,
    GPTLoss,
    GPTTrainer,
    WarmupCosineScheduler,
)

TEXT = "春眠不觉晓，处处闻啼鸟。夜来风雨声，花落知多少。" * 12
SIZE = {"context_size": 8, "embedding_size": 12, "heads": 3, "blocks": 2}


def write_text(folder: Path, text: str = TEXT) -> Path:
    path = folder / "poem.txt"
    path.write_text(text, encoding="utf-8")
    return path


def chars(folder: Path, batch_size: int = 4) -> CharDataset:
    return CharDataset(write_text(folder), batch_size=batch_size, context_size=8)


def gpt_trainer(
    dataset: CharDataset,
    seed: int = 0,
    *,
    dropout: float = 0.1,
    dtype: Any = np.float32,
    lr: float = 3e-3,
    **options: Any,
) -> GPTTrainer:
    """全局种子决定初始参数；随机失活用默认的生成器，打乱用自己的。"""
    np.random.seed(seed)
    model = GPT(dataset.vocab_size, **SIZE, dropout=dropout).astype(dtype)
    optimizer = AdamWOptimizer(model.parameter_groups(0.1), lr=lr)
    return GPTTrainer(model, GPTLoss(), optimizer, rng=np.random.default_rng(seed + 1), **options)


def scheduler(steps: int) -> WarmupCosineScheduler:
    return WarmupCosineScheduler(3e-3, steps, 5, 3e-4)


def weights(trainer: Any) -> list[np.ndarray]:
    return [p.data.copy() for p in trainer.model.parameters]


def moments(trainer: Any) -> dict[str, np.ndarray]:
    return {name: np.array(value) for name, value in trainer.optimizer.state_dict().items()}


def assert_same(a: GPTTrainer, b: GPTTrainer) -> None:
    """两个训练器的全部状态逐位相同。"""
    for x, y in zip(weights(a), weights(b), strict=True):
        np.testing.assert_array_equal(x, y)
    first, second = moments(a), moments(b)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], name)
    assert a.state == b.state
    assert a.rng is not None
    assert b.rng is not None
    assert a.rng.bit_generator.state == b.rng.bit_generator.state
