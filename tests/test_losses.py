"""损失函数"""

from typing import Any

import numpy as np
import pytest
from gradcheck import check_gradients
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

from gptcore import DtypeError, GPTLoss, Loss, MSELoss, RangeError, Tensor
from gptcore.kernels import loss as kernels

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


# 不算的标签


@given(
    array_shapes(min_dims=1, max_dims=3, max_side=5),
    st.integers(1, 6),
    st.floats(0, 1),
    st.sampled_from([-100, -1, 0, 2, 1000]),
    SEED,
)
def test_ignored_labels_are_as_if_they_were_not_there(
    shape: tuple[int, ...], vocab: int, share: float, ignore: int, seed: int
) -> None:
    """平均等于只有算的那些行时的损失；它们的梯度也相同，其余的梯度是零。"""
    rng = np.random.default_rng(seed)
    p = Tensor(rng.normal(0, 2, (*shape, vocab)))
    labels = rng.integers(0, vocab, shape)
    labels[rng.random(shape) < share] = ignore
    kept, y, loss_fn = labels != ignore, Tensor(labels), GPTLoss(ignore_index=ignore)
    loss = loss_fn(p, y)
    loss.backward(3.0)
    assert loss.shape == ()
    assert loss_fn.count(y) == kept.sum()
    if not kept.any():
        assert loss.item() == 0
        assert not p.grad.any()
        return
    alone = Tensor(p.data[kept])
    expected = GPTLoss(None)(alone, Tensor(labels[kept]))
    expected.backward(3.0)
    np.testing.assert_allclose(loss.data, expected.data, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(p.grad[kept], alone.grad, rtol=1e-12, atol=1e-15)
    assert not p.grad[~kept].any()
    check_gradients(lambda: loss_fn(p * 1, y) * 2, [p], seed)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [0.0, 1e4, -np.inf])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_when_all_are_ignored(dtype: type, value: float) -> None:
    """损失恰好是 0，梯度恰好是零，不是 NaN：哪怕那些行的分数本来就不能用。"""
    p = Tensor(np.full((2, 3), value, dtype))
    y = Tensor(np.full(2, -100))
    loss = GPTLoss()(p, y)
    assert (loss.item(), loss.dtype, GPTLoss().count(y)) == (0.0, dtype, 0)
    loss.backward()
    np.testing.assert_array_equal(p.grad, np.zeros((2, 3), dtype), strict=True)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_useless_logits_at_ignored_places_do_no_harm() -> None:
    p = Tensor(np.array([[np.nan, np.inf], [1.0, 1.0]]))
    loss = GPTLoss()(p, Tensor([-100, 1]))
    assert loss.item() == pytest.approx(np.log(2))
    loss.backward()
    np.testing.assert_allclose(p.grad, [[0, 0], [0.5, -0.5]])


@pytest.mark.parametrize("ignore", [-100, None, 5, 10**12])
def test_nothing_ignored_costs_nothing(ignore: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """没有要跳过的标签时，走的就是原来那条路，结果一位也不变。"""
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(700, 300)).astype(np.float32), rng.integers(6, 300, 700)
    seen: list[Any] = []
    forward = kernels.cross_entropy_forward

    def watch(x: Any, y: Any, kept: Any = None) -> Any:
        seen.append(kept)
        return forward(x, y, kept)

    monkeypatch.setattr("gptcore.losses.cross_entropy_forward", watch)
    p = Tensor(logits)
    loss = GPTLoss(ignore)(p, Tensor(labels))
    loss.backward()
    assert seen == [None]
    value, saved = forward(logits, labels)
    np.testing.assert_array_equal(loss.data, value)
    dx = kernels.cross_entropy_backward(np.float32(1), saved, labels)
    np.testing.assert_array_equal(p.grad, dx)


def test_ignored_rows_across_blocks() -> None:
    """算与不算的行分在几个行块里，平均仍对全部算的行。"""
    rng = np.random.default_rng(1)
    x, labels = rng.normal(size=(700, 300)), rng.integers(0, 300, 700)
    kept = rng.random(700) < 0.3
    kept[:250] = False  # 整块不算
    value, saved = kernels.cross_entropy_forward(x, labels, kept)
    expected, p = kernels.cross_entropy_forward(x[kept], labels[kept])
    np.testing.assert_allclose(value, expected, rtol=1e-13)
    dx = kernels.cross_entropy_backward(np.asarray(2.0), saved, labels, kept)
    dp = kernels.cross_entropy_backward(np.asarray(2.0), p, labels[kept])
    np.testing.assert_allclose(dx[kept], dp, rtol=1e-12, atol=1e-18)
    assert not dx[~kept].any()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
def test_any_integer_type_of_labels(dtype: type) -> None:
    y = np.array([1, 0, 1], dtype)
    p = Tensor(np.array([[0.0, 0.0], [3.0, 1.0], [0.0, 0.0]]))
    for ignore in (0, -100, 300):
        loss_fn = GPTLoss(ignore)
        expected = loss_fn(p, Tensor(y.astype(np.int64)))
        assert loss_fn(p, Tensor(y)).item() == expected.item()
        assert loss_fn.count(Tensor(y)) == (2 if ignore == 0 else 3)


def test_labels_given_as_a_list_may_be_ignored() -> None:
    p = Tensor([[0.0, 0.0], [50.0, 0.0]])
    assert GPTLoss()(p, Tensor([1, -100])).item() == pytest.approx(np.log(2))
    assert GPTLoss(np.int64(1))(p, Tensor([1, 0])).item() == pytest.approx(0)
    assert GPTLoss().count(Tensor([1, -100])) == 1


def test_minus_hundred_is_not_ignored_when_switched_off() -> None:
    with pytest.raises(RangeError, match=r"标签 -100 超出范围.*0 到 1.*一致$"):
        GPTLoss(None)(Tensor([[0.0, 0.0]]), Tensor([-100]))


def test_a_wrong_label_beside_ignored_ones() -> None:
    with pytest.raises(RangeError, match=r"标签 -1 超出范围.*请写成 -100"):
        GPTLoss()(Tensor(np.zeros((3, 2))), Tensor([0, -100, -1]))
    with pytest.raises(RangeError, match=r"标签 2 超出范围.*请写成 0"):
        GPTLoss(0)(Tensor(np.zeros((3, 2))), Tensor([0, 1, 2]))


@pytest.mark.parametrize("wrong", [0.0, True, "-100", [0], 2**63, np.float64(-100)])
def test_ignore_index_must_be_an_integer(wrong: Any) -> None:
    with pytest.raises(DtypeError, match=r"GPTLoss：ignore_index 必须是整数或 None.*-100"):
        GPTLoss(wrong)


def test_count_of_other_losses() -> None:
    assert MSELoss().count(Tensor(np.zeros((2, 3)))) == 6
    assert GPTLoss(None).count(Tensor([1, -100])) == 2


def test_batches_weighted_by_their_count_make_the_whole() -> None:
    """标签不一样多的几批，按 `count` 加权，等于一整批。"""
    rng = np.random.default_rng(2)
    logits, labels = rng.normal(size=(8, 5)), rng.integers(0, 5, 8)
    labels[[0, 1, 2, 6]] = -100
    loss_fn, whole, parts = GPTLoss(), Tensor(logits), Tensor(logits)
    loss_fn(whole, Tensor(labels)).backward()
    counts = [loss_fn.count(Tensor(labels[i : i + 2])) for i in range(0, 8, 2)]
    assert counts == [0, 1, 2, 1]
    for i, count in enumerate(counts):
        part = slice(2 * i, 2 * i + 2)
        (loss_fn(parts[part], Tensor(labels[part])) * (count / sum(counts))).backward()
    np.testing.assert_allclose(parts.grad, whole.grad, rtol=1e-12, atol=1e-16)
