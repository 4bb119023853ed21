"""损失函数"""

import numpy as np
import pytest
from gradcheck import check_gradients
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

from gptcore import GPTLoss, Loss, MSELoss, Tensor

SEED = st.integers(0, 2**32 - 1)


@given(array_shapes(min_dims=0, max_dims=4, max_side=4), SEED)
def test_mse(shape: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, y = Tensor(rng.normal(size=shape)), Tensor(rng.normal(size=shape))
    loss = MSELoss()(p, y)
    assert loss.shape == ()
    np.testing.assert_allclose(loss.data, ((p.data - y.data) ** 2).mean(), rtol=1e-13)
    check_gradients(lambda: MSELoss()(p, y), [p, y], seed)
    check_gradients(lambda: MSELoss()(p, y) * 3 + MSELoss()(p, p), [p, y], seed)


def test_mse_with_integer_labels_stays_float32() -> None:
    p = Tensor([[0.5, 0.5]])
    loss = MSELoss()(p, Tensor(np.array([[0, 1]])))
    assert (loss.dtype, loss.item()) == (np.float32, 0.25)
    loss.backward()
    np.testing.assert_array_equal(p.grad, [[0.5, -0.5]])


@given(array_shapes(min_dims=0, max_dims=3, max_side=4), st.integers(1, 6), SEED)
def test_cross_entropy(shape: tuple[int, ...], vocab: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = Tensor(rng.normal(0, 2, (*shape, vocab)))
    y = Tensor(rng.integers(0, vocab, shape))
    log_p = p.data - np.log(np.exp(p.data).sum(-1, keepdims=True))
    picked = np.take_along_axis(log_p, np.asarray(y.data)[..., None], -1)
    loss = GPTLoss()(p, y)
    assert loss.shape == ()
    np.testing.assert_allclose(loss.data, -picked.mean(), atol=1e-13)
    check_gradients(lambda: GPTLoss()(p, y), [p], seed)
    check_gradients(lambda: GPTLoss()(p * 1, y) * 2, [p], seed)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_huge_logits_give_a_finite_loss(dtype: type) -> None:
    logits = np.array([[1e4, -1e4, 0], [-1e4, 1e4, 1e4]], dtype)
    p = Tensor(logits)
    loss = GPTLoss()(p, Tensor(np.array([1, 0])))
    np.testing.assert_allclose(loss.data, 2e4 + np.log(2) / 2, rtol=1e-6)
    loss.backward()
    np.testing.assert_allclose(p.grad, [[0.5, -0.5, 0], [-0.5, 0.25, 0.25]], atol=1e-6)


def test_uniform_logits_cost_the_logarithm_of_the_vocabulary() -> None:
    for vocab, nats in ((65, 4.174), (6400, 8.764), (50257, 10.825)):
        loss = GPTLoss()(Tensor(np.zeros((2, vocab), np.float32)), Tensor([0, vocab - 1]))
        assert loss.item() == pytest.approx(nats, abs=1e-3)


def test_evaluating_does_not_change_the_logits() -> None:
    p = Tensor(np.arange(6.0).reshape(2, 3))
    GPTLoss()(p, Tensor([0, 1])).backward()
    np.testing.assert_array_equal(p.data, np.arange(6.0).reshape(2, 3))


def test_a_loss_of_ones_own() -> None:
    class Absolute(Loss):
        def loss(self, p: Tensor, y: Tensor) -> Tensor:
            return ((p - y) ** 2).sqrt().mean()

    p = Tensor([1.0, 5.0])
    loss = Absolute()(p, Tensor([2.0, 2.0]))
    assert loss.item() == 2
    loss.backward()
    np.testing.assert_array_equal(p.grad, [-0.5, 0.5])
