"""优化器与梯度裁剪"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcore import (
    GPT,
    AdamWOptimizer,
    GPTLoss,
    Layer,
    Linear,
    SGDOptimizer,
    Tensor,
)
from gptcore.kernels.array import BLOCK

SEED = st.integers(0, 2**32 - 1)


def adamw_by_hand(
    p: np.ndarray, grads: list[np.ndarray], lr: float, decay: float, eps: float = 1e-8
) -> np.ndarray:
    """论文里的写法，float64。"""
    p, m, v = p.astype(np.float64), 0.0, 0.0
    for t, g in enumerate(grads, start=1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        p = p - lr * decay * p
        p = p - lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + eps)
    return p


def tensors(rng: np.random.Generator, dtype: Any = np.float64) -> list[Tensor]:
    """各种样子的参数：0 维、空的、小的、不连续的、跨块的。"""
    arrays = [
        np.asarray(rng.normal()),
        rng.normal(size=(0, 3)),
        rng.normal(size=(2, 3)),
        rng.normal(size=(4, 5, 2)).transpose(2, 0, 1),
        rng.normal(size=(3, 8))[:, ::2],
        rng.normal(size=BLOCK + 5),
        rng.normal(size=(300, 250)).T,
    ]
    return [Tensor(a.astype(dtype)) for a in arrays]


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_ten_steps_of_adamw_by_hand(decay: float) -> None:
    rng = np.random.default_rng(0)
    parameters = tensors(rng)
    assert not parameters[3].data.flags.c_contiguous
    grads = [[rng.normal(size=p.shape) for p in parameters] for _ in range(10)]
    expected = [
        adamw_by_hand(p.data.copy(), [g[i] for g in grads], 0.01, decay)
        for i, p in enumerate(parameters)
    ]
    arrays = [p.data for p in parameters]
    optimizer = AdamWOptimizer(parameters, lr=0.01, weight_decay=decay)
    for step in grads:
        optimizer.zero_grad()
        for p, g in zip(parameters, step, strict=True):
            p.grad += g
        optimizer.step()
    for p, array, e in zip(parameters, arrays, expected, strict=True):
        assert p.data is array  # 就地更新
        np.testing.assert_allclose(p.data, e, rtol=1e-11, atol=1e-13)


def test_together_or_one_by_one() -> None:
    """小张量首尾相接一起更新，与各自更新，一位也不差。"""
    together, alone = (tensors(np.random.default_rng(1), np.float32) for _ in range(2))
    optimizers = [AdamWOptimizer(together), *(AdamWOptimizer([p]) for p in alone)]
    rng = np.random.default_rng(2)
    for _ in range(3):
        for p, q in zip(together, alone, strict=True):
            p.grad = q.grad = rng.normal(size=p.shape)
        for optimizer in optimizers:
            optimizer.step()
    for p, q in zip(together, alone, strict=True):
        assert p.dtype == np.float32
        np.testing.assert_array_equal(p.data, q.data)


def test_sgd_by_hand() -> None:
    parameters = tensors(np.random.default_rng(3))
    before = [p.data.copy() for p in parameters]
    optimizer = SGDOptimizer(parameters, lr=0.5)
    for p in parameters:
        p.grad = np.ones(p.shape)
    optimizer.step()
    optimizer.zero_grad()
    optimizer.step()
    for p, b in zip(parameters, before, strict=True):
        np.testing.assert_array_equal(p.data, b - 0.5)


@pytest.mark.parametrize("kind", [SGDOptimizer, AdamWOptimizer])
def test_float32_and_mixed_types_stay_as_they_are(kind: Any) -> None:
    parameters = [Tensor(np.ones(3, t)) for t in (np.float32, np.float64, np.float32)]
    parameters.append(Tensor(np.ones((), np.float32)))
    optimizer = kind(parameters, lr=np.float64(0.01))
    for p in parameters:
        p.grad = np.ones(p.shape)
    optimizer.clip_grad_norm(np.float64(0.5))
    optimizer.lr = np.float64(0.001)
    optimizer.step()
    assert [p.dtype for p in parameters] == [np.float32, np.float64, np.float32, np.float32]
    assert all(p.grad.dtype == p.dtype for p in parameters)
    assert all((p.data < 1).all() for p in parameters)


def test_the_model_may_change_its_type_after_the_optimizer_is_made() -> None:
    layer = Linear(2, 2)
    optimizer = AdamWOptimizer(layer.parameters)
    layer(Tensor(np.ones((1, 2), np.float32))).sum().backward()
    optimizer.step()
    layer.astype(np.float64)
    layer(Tensor(np.ones((1, 2)))).sum().backward()
    optimizer.step()
    assert layer.weight.dtype == np.float64


# 权重衰减


def test_zero_gradients_decay_matrices_only() -> None:
    np.random.seed(0)
    model = GPT(7, 5, 6, 3, 1)
    before = {n: p.data.copy() for n, p in model.named_parameters()}
    optimizer = AdamWOptimizer(model.parameter_groups(0.1), lr=0.01)
    optimizer.zero_grad()
    optimizer.step()
    for name, p in model.named_parameters():
        matrix = p.ndim == 2 and "embedding" not in name
        expected = before[name] * np.float32(1 - 0.01 * 0.1) if matrix else before[name]
        np.testing.assert_allclose(p.data, expected, rtol=1e-7, atol=0, err_msg=name)


def test_zero_gradients_and_a_bare_list_decay_everything() -> None:
    model = GPT(7, 5, 6, 3, 1)
    before = [p.data.copy() for p in model.parameters]
    AdamWOptimizer(model.parameters, lr=0.01, weight_decay=0.1).step()
    for p, b in zip(model.parameters, before, strict=True):
        np.testing.assert_allclose(p.data, b * np.float32(1 - 0.001), rtol=1e-7, atol=0)


def test_a_tied_weight_is_updated_once() -> None:
    class Tied(Layer):
        def __init__(self) -> None:
            self.first, self.second = Linear(2, 2, bias=False), Linear(2, 2, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x))

    layer = Tied().astype(np.float64)
    w = layer.first.weight
    for optimizer in (
        SGDOptimizer(layer.parameters, 0.1),
        SGDOptimizer([w, w], 0.1),
        SGDOptimizer(layer.parameter_groups(), 0.1),
    ):
        optimizer.zero_grad()
        layer(Tensor(np.ones((1, 2)))).sum().backward()
        before, g = w.data.copy(), w.grad.copy()
        optimizer.step()
        np.testing.assert_allclose(w.data, before - 0.1 * g, rtol=1e-15)


# 梯度


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.floats(0.01, 10), SEED)
def test_clipping(sizes: list[int], max_norm: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    parameters = [Tensor(rng.normal(size=n)) for n in sizes]
    for p in parameters:
        p.grad = rng.normal(0, 2, p.shape)
    flat = np.concatenate([p.grad for p in parameters])
    norm = AdamWOptimizer(parameters).clip_grad_norm(max_norm)
    assert isinstance(norm, float)
    assert norm == pytest.approx(np.linalg.norm(flat), rel=1e-12)
    clipped = np.concatenate([p.grad for p in parameters])
    np.testing.assert_allclose(clipped, flat * min(1, max_norm / (norm + 1e-6)), rtol=1e-12)


def test_clipping_after_backward_reaches_the_update() -> None:
    """偏置的梯度是从别处借来的数组，也要裁剪到。"""
    layer = Linear(1, 3).astype(np.float64)
    x = Tensor(np.ones((1, 1)))
    (layer(x) + Tensor(np.zeros(3))).sum().backward()
    layer.weight.zero_grad()
    shift = Tensor(np.zeros(3))
    (shift + 0.0).backward([3.0, 0.0, 4.0])
    optimizer = SGDOptimizer([shift], 1.0)
    assert optimizer.clip_grad_norm() == pytest.approx(5)
    optimizer.step()
    np.testing.assert_allclose(shift.data, [-0.6, 0, -0.8], rtol=1e-6)


def test_parameters_without_a_gradient() -> None:
    p, q = Tensor([1.0]), Tensor([1.0])
    optimizer = SGDOptimizer([p, q], 0.1)
    optimizer.zero_grad()
    (p * 2).sum().backward()
    assert optimizer.clip_grad_norm(100) == 2
    optimizer.step()
    assert (p.item(), q.item()) == (pytest.approx(0.8), 1.0)


def test_accumulating_micro_batches_equals_one_batch() -> None:
    rng = np.random.default_rng(0)
    model = GPT(7, 5, 6, 3, 1, rng=rng).astype(np.float64)
    ids, labels = rng.integers(0, 7, (2, 4, 5))
    GPTLoss()(model(Tensor(ids)), Tensor(labels)).backward()
    whole = [p.grad.copy() for p in model.parameters]
    for p in model.parameters:
        p.zero_grad()
    for part in (slice(0, 2), slice(2, 4)):
        (GPTLoss()(model(Tensor(ids[part])), Tensor(labels[part])) * 0.5).backward()
    for p, g in zip(model.parameters, whole, strict=True):
        np.testing.assert_allclose(p.grad, g, rtol=1e-9, atol=1e-14)


# 学习率


def test_float32_settings_do_not_warn() -> None:
    """与 float64 的最大值相比会溢出；所有的警告在测试里都是错误。"""
    optimizer = AdamWOptimizer([Tensor([1.0])], lr=np.float32(0.5), weight_decay=np.float32(0.5))
    optimizer.lr = np.float32(0.25)
    optimizer.clip_grad_norm(np.float32(1))
    assert type(optimizer.lr) is float
    assert optimizer.lr == 0.25


def test_learning_rate_is_settable() -> None:
    p = Tensor([1.0])
    optimizer = SGDOptimizer([p], 0.1)
    optimizer.lr = 1
    p.grad = [0.5]
    optimizer.step()
    assert (p.item(), optimizer.lr) == (0.5, 1.0)
