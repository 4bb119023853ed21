"""梯度累积：与一大批相同，也算被忽略的标签；一轮末尾不足一组的那几批"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.runs import chars, gpt_trainer

from gptcore import GPT, ArgumentError, Dataset, GPTLoss, GPTTrainer, SGDOptimizer, Tensor

VOCAB, LENGTH = 7, 5


class Ready(Dataset):
    """由测试直接给出训练数据。"""

    def __init__(self, x: Any, y: Any, batch_size: int) -> None:
        self.given = x, y
        super().__init__(batch_size)

    def load(self) -> None:
        self.train_data = self.test_data = self.given


def gradients(x: Any, y: Any, batch_size: int, k: int) -> tuple[list[np.ndarray], float]:
    """一步之后的梯度（不裁剪，学习率 0）与损失。"""
    model = GPT(VOCAB, LENGTH, 6, 3, 2, rng=np.random.default_rng(0)).astype(np.float64)
    optimizer = SGDOptimizer(model.parameters, lr=0.0)
    trainer = GPTTrainer(model, GPTLoss(), optimizer, accumulation_steps=k, max_norm=None)
    report = next(iter(trainer.steps(Ready(x, y, batch_size), 1)))
    return [p.grad.copy() for p in model.parameters], report.loss


def data(samples: int, ignored: list[int]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x, y = rng.integers(VOCAB, size=(2, samples, LENGTH))
    for row, n in enumerate(ignored):
        y[row, :n] = -100
    return x, y


@pytest.mark.parametrize(
    "ignored",
    [[], [0, 1, 2, 3, 4, 5, 0, 0], [5, 5, 0, 0, 0, 0, 0, 3], [5, 5, 5, 5, 5, 5, 5, 4]],
    ids=["none", "unequal", "one batch all ignored", "one label left"],
)
@pytest.mark.parametrize(("batch_size", "k"), [(4, 2), (2, 4), (1, 8)])
def test_accumulation_equals_one_large_batch(ignored: list[int], batch_size: int, k: int) -> None:
    x, y = data(8, ignored)
    whole, loss = gradients(x, y, 8, 1)
    parts, accumulated = gradients(x, y, batch_size, k)
    assert accumulated == pytest.approx(loss, abs=1e-12)
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def test_float32_within_a_millionth(tmp_path: Path) -> None:
    dataset = chars(tmp_path, 8)
    results = []
    for batch_size, k in ((8, 1), (4, 2)):
        dataset.batch_size = batch_size
        trainer = gpt_trainer(dataset, dropout=0.0, accumulation_steps=k, max_norm=None)
        next(iter(trainer.steps(dataset, 1)))
        results.append([p.grad.copy() for p in trainer.model.parameters])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6 * max(1.0, np.abs(a).max()))


@pytest.mark.parametrize("k", [1, 2])
def test_everything_ignored_is_zero_not_nan(k: int) -> None:
    x, y = data(2, [LENGTH, LENGTH])
    grads, loss = gradients(x, y, 2 // k, k)
    assert loss == 0.0
    assert all(not g.any() for g in grads)


def test_the_last_partial_group_steps_with_its_own_scale() -> None:
    """5 批、每组 2 批：一轮更新 3 次，最后一次只有一批，梯度等于那一批自己的。"""
    x, y = data(5, [1, 0, 2, 0, 3])
    model = GPT(VOCAB, LENGTH, 6, 3, 2, rng=np.random.default_rng(0)).astype(np.float64)
    trainer = GPTTrainer(
        model, GPTLoss(), SGDOptimizer(model.parameters, lr=0.0),
        accumulation_steps=2, max_norm=None,
    )  # fmt: skip
    reports = list(trainer.steps(Ready(x, y, 1), 3))
    assert [r.tokens for r in reports] == [10, 10, 5]
    assert (trainer.state.epoch, trainer.state.position) == (1, 0)
    alone, loss = gradients(x[4:], y[4:], 1, 1)
    assert reports[-1].loss == pytest.approx(loss, abs=1e-12)
    for p, g in zip(model.parameters, alone, strict=True):
        np.testing.assert_allclose(p.grad, g, rtol=0, atol=1e-12)
    assert len(trainer.train(Ready(x, y, 1), 2)) == 2
    assert trainer.state.step == 6


def test_a_loss_without_count_uses_the_number_of_labels() -> None:
    from gptcore import Loss

    class Mean(Loss):
        def loss(self, p: Tensor, y: Tensor) -> Tensor:
            return GPTLoss().loss(p, y)

    assert Mean().count(Tensor(np.zeros((3, 4), np.int64))) == 12


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2"])
def test_bad_accumulation(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ArgumentError, match="accumulation_steps"):
        gpt_trainer(chars(tmp_path), dropout=0.0, accumulation_steps=value)
