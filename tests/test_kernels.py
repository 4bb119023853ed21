"""核函数：跨块的尺寸、缓冲区、边角情形；公式本身由层的梯度检查覆盖"""

import math
from typing import Any

import numpy as np
import pytest
from gradcheck import check_gradients
from hypothesis import given
from hypothesis import strategies as st

from gptcore import Tensor
from gptcore.kernels.activation import gelu, gelu_backward, gelu_forward
from gptcore.kernels.adamw import FLUSH_EVERY, adamw_update
from gptcore.kernels.array import BLOCK, column_sums, row_blocks, row_sums, rows
from gptcore.kernels.attention import QUERY_BLOCK, attention_backward, attention_forward
from gptcore.kernels.embedding import ONE_HOT_LIMIT, embedding_backward, embedding_forward
from gptcore.kernels.linear import linear_backward, linear_forward
from gptcore.kernels.loss import MODERATE, cross_entropy_backward, cross_entropy_forward
from gptcore.kernels.normalization import (
    layer_norm_backward,
    layer_norm_forward,
    rms_norm_backward,
    rms_norm_forward,
)
from gptcore.kernels.softmax import softmax_backward, softmax_forward

SEED = st.integers(0, 2**32 - 1)


@given(st.integers(0, 3 * BLOCK), st.integers(0, 2 * BLOCK))
def test_row_blocks_cover_every_row_once(count: int, width: int) -> None:
    if count * max(1, width) > 100 * BLOCK:
        count = 100
    blocks = list(row_blocks(count, width))
    assert [i for b in blocks for i in (b.start, b.stop)] == sorted(
        i for b in blocks for i in (b.start, b.stop)
    )
    assert sum(b.stop - b.start for b in blocks) == count
    assert all(0 <= b.start < b.stop <= count for b in blocks)


def test_sums_and_rows() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    flat = rows(x)
    assert np.shares_memory(flat, x)
    np.testing.assert_array_equal(row_sums(flat), flat.sum(1))
    np.testing.assert_array_equal(column_sums(flat), flat.sum(0))
    np.testing.assert_array_equal(column_sums(flat[:0]), np.zeros(4))


# 注意力


def attention(qkv: np.ndarray, heads: int) -> np.ndarray:
    """直白的写法：先算出整个 (T, T) 的分数，再遮住将来。"""
    batch, length, width = qkv.shape
    size = width // 3
    q, k, v = (
        part.reshape(batch, length, heads, size // heads).transpose(0, 2, 1, 3)
        for part in np.split(qkv, 3, -1)
    )
    scores = q @ k.swapaxes(2, 3) / math.sqrt(size // heads)
    scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return (p @ v).transpose(0, 2, 1, 3).reshape(batch, length, size)


def fused(x: Tensor, heads: int) -> Tensor:
    context, blocks = attention_forward(x.data, heads)

    def vjp(dy: np.ndarray) -> tuple[np.ndarray]:
        return (attention_backward(dy, x.data, context, blocks, heads),)

    return Tensor(context).record((x,), vjp)


@given(st.integers(1, 3), st.integers(1, 6), st.integers(1, 3), st.integers(1, 4), SEED)
def test_attention(batch: int, length: int, heads: int, size: int, seed: int) -> None:
    x = Tensor(np.random.default_rng(seed).normal(size=(batch, length, 3 * heads * size)))
    np.testing.assert_allclose(fused(x, heads).data, attention(x.data, heads), atol=1e-13)
    check_gradients(lambda: fused(x, heads), [x], seed)


@pytest.mark.parametrize("length", [1, QUERY_BLOCK - 1, QUERY_BLOCK, QUERY_BLOCK + 1, 130, 193])
@pytest.mark.parametrize(("batch", "heads"), [(1, 1), (2, 3)])
def test_attention_over_several_query_blocks(length: int, batch: int, heads: int) -> None:
    x = Tensor(np.random.default_rng(length).normal(size=(batch, length, 3 * heads * 2)))
    np.testing.assert_allclose(fused(x, heads).data, attention(x.data, heads), atol=1e-13)
    check_gradients(lambda: fused(x, heads), [x])


@pytest.mark.parametrize("batch", [16, 30, 31])
def test_attention_over_several_groups_of_the_batch(batch: int) -> None:
    """批也分组：一组的分数留在缓存里。"""
    length, heads = 65, 2
    _, blocks = attention_forward(np.zeros((batch, length, 6 * heads)), heads)
    assert len({(b[0].start, b[0].stop) for b in blocks}) > 1
    x = Tensor(np.random.default_rng(batch).normal(size=(batch, length, 6 * heads)))
    np.testing.assert_allclose(fused(x, heads).data, attention(x.data, heads), atol=1e-13)
    check_gradients(lambda: fused(x, heads), [x])


def test_attention_with_huge_scores() -> None:
    x = np.random.default_rng(0).normal(size=(1, 5, 6)).astype(np.float32) * 1e4
    context, blocks = attention_forward(x, 1)
    assert np.isfinite(context).all()
    assert np.isfinite(attention_backward(np.ones_like(context), x, context, blocks, 1)).all()


def test_attention_of_an_array_that_is_not_contiguous() -> None:
    x = np.random.default_rng(1).normal(size=(6, 4, 3)).transpose(2, 1, 0)
    context, blocks = attention_forward(x, 2)
    np.testing.assert_allclose(context, attention(x, 2), atol=1e-14)
    dy = np.random.default_rng(2).normal(size=(2, 4, 3)).transpose(2, 1, 0)
    a = attention_backward(dy, x, context, blocks, 2)
    context, blocks = attention_forward(x.copy(), 2)
    b = attention_backward(dy.copy(), x.copy(), context, blocks, 2)
    np.testing.assert_allclose(a, b, atol=1e-14)


# 其余的核函数


@pytest.mark.parametrize("vocab", [3, ONE_HOT_LIMIT // 400, ONE_HOT_LIMIT // 400 + 1, 5000])
@pytest.mark.parametrize("count", [0, 1, 7, 400])
@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_embedding_backward_is_add_at(vocab: int, count: int, dtype: Any) -> None:
    rng = np.random.default_rng(vocab + count)
    ids = rng.integers(0, min(vocab, 256), count).astype(dtype)
    dy = rng.normal(size=(count, 3))
    expected = np.zeros((vocab, 3))
    np.add.at(expected, ids, dy)
    np.testing.assert_allclose(embedding_backward(dy, ids, vocab), expected, atol=1e-13)


def test_out_buffers_are_used() -> None:
    rng = np.random.default_rng(0)
    x, w, b = rng.normal(size=(2, 3, 4)), rng.normal(size=(5, 4)), rng.normal(size=5)
    out = np.empty((6, 5))
    y = linear_forward(x, w, b, out=out)
    assert np.shares_memory(y, out)
    np.testing.assert_allclose(y, x @ w.T + b)
    for forward, extra in ((layer_norm_forward, (b[:4],)), (rms_norm_forward, ())):
        out = np.empty((6, 4))
        y, _ = forward(x, w[0], *extra, 1e-5, out=out)
        assert np.shares_memory(y, out)
        np.testing.assert_array_equal(y, forward(x, w[0], *extra, 1e-5)[0])
    out = np.empty((2, 4))
    assert embedding_forward(np.array([4, 0]), w, out=out) is out
    np.testing.assert_array_equal(out, w[[4, 0]])
    out = np.empty((5, 4))
    assert softmax_forward(w, out=out) is out
    strided = np.empty((4, 5)).T  # 不连续的缓冲区也要写到
    assert softmax_forward(w, out=strided) is strided
    np.testing.assert_allclose(strided, out, rtol=1e-15)


@pytest.mark.parametrize("count", [0, 1, BLOCK // 4 - 1, BLOCK // 4, BLOCK // 4 + 1, 40_001])
def test_normalization_over_several_blocks(count: int) -> None:
    rng = np.random.default_rng(count)
    x, dy = rng.normal(1, 2, (2, count, 4))
    w, b = rng.normal(size=(2, 4))
    y, saved = layer_norm_forward(x, w, b, 1e-5)
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    x_hat = (x - mean) / np.sqrt(var + 1e-5)
    np.testing.assert_allclose(y, x_hat * w + b, atol=1e-12)
    dx, dw, db = layer_norm_backward(dy, saved, w)
    g = dy * w
    slope = (g * x_hat).mean(-1, keepdims=True) if count else g
    centred = g - (g.mean(-1, keepdims=True) if count else g)
    np.testing.assert_allclose(dx, (centred - x_hat * slope) / np.sqrt(var + 1e-5), atol=1e-11)
    np.testing.assert_allclose(dw, (dy * x_hat).sum(0), atol=1e-10)
    np.testing.assert_allclose(db, dy.sum(0), atol=1e-10)
    y, saved = rms_norm_forward(x, w, 1e-5)
    r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, x * r * w, atol=1e-12)
    dx, dw = rms_norm_backward(dy, saved, w)
    slope = (g * x * r).mean(-1, keepdims=True) if count else g
    np.testing.assert_allclose(dx, r * (g - x * r * slope), atol=1e-11)
    np.testing.assert_allclose(dw, (dy * x * r).sum(0), atol=1e-10)


@pytest.mark.parametrize("size", [0, 1, BLOCK // 2 - 1, BLOCK // 2, BLOCK // 2 + 1, BLOCK + 3])
def test_gelu_over_several_blocks(size: int) -> None:
    x = np.random.default_rng(size).normal(0, 3, size)
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    expected = 0.5 * x * (1 + np.tanh(u))
    slope = 0.5 * (1 + np.tanh(u)) + 0.5 * x * (1 - np.tanh(u) ** 2) * math.sqrt(2 / math.pi) * (
        1 + 3 * 0.044715 * x * x
    )
    y, derivative = gelu_forward(x)
    np.testing.assert_allclose(y, expected, atol=1e-14)
    np.testing.assert_array_equal(gelu(x), y)
    np.testing.assert_allclose(gelu_backward(np.ones(size), derivative), slope, atol=1e-13)


def test_gelu_of_a_transposed_array_and_far_away() -> None:
    x = np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_array_equal(gelu(x.T), gelu(x).T)
    np.testing.assert_array_equal(gelu_forward(x.T)[1], gelu_forward(x)[1].T)
    far = np.array([-100.0, 100.0], np.float32)
    np.testing.assert_array_equal(gelu(far), [0, 100])
    np.testing.assert_array_equal(gelu_forward(far)[1], [0, 1])


@pytest.mark.parametrize("scale", [3, 40], ids=["moderate", "large"])
@pytest.mark.parametrize("width", [1, 3, 97])
@pytest.mark.parametrize("count", [1, 5, 1500])
def test_cross_entropy_over_several_blocks(count: int, width: int, scale: float) -> None:
    """分数都不大的块不减最大值，两种块可以在同一批里。"""
    rng = np.random.default_rng(count * width)
    x, labels = rng.normal(0, 3, (count, width)), rng.integers(0, width, count)
    x[count // 2 :] *= scale / 3
    log_p = x - np.log(np.exp(x).sum(-1, keepdims=True))
    value, saved = cross_entropy_forward(x, labels)
    np.testing.assert_allclose(value, -log_p[np.arange(count), labels].mean(), atol=1e-13)
    expected = np.exp(log_p)
    expected[np.arange(count), labels] -= 1
    dx = cross_entropy_backward(np.asarray(2.0), saved, labels)
    np.testing.assert_allclose(dx, 2 * expected / count, atol=1e-14)


@pytest.mark.parametrize("edge", [MODERATE, np.nextafter(np.float32(MODERATE), np.float32(99))])
@pytest.mark.parametrize("sign", [1, -1])
def test_cross_entropy_at_the_edge_of_moderate(edge: float, sign: int) -> None:
    """恰好到界与刚刚越界，结果相同；整行加一个数，损失不变。"""
    x = np.random.default_rng(0).normal(0, 2, (50, 65)).astype(np.float32)
    x[3, 4] = sign * np.float32(edge)
    labels = np.arange(50)
    value, saved = cross_entropy_forward(x, labels)
    wide = x.astype(np.float64)
    log_p = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    np.testing.assert_allclose(value, -log_p[labels, labels].mean(), rtol=3e-7)
    e, inverse = saved
    np.testing.assert_allclose(e * inverse[:, None], np.exp(log_p), rtol=3e-6)
    moved, _ = cross_entropy_forward(x + np.float32(1000), labels)
    np.testing.assert_allclose(moved, value, rtol=1e-4)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), SEED)
def test_linear_without_a_gradient_for_the_input(n: int, i: int, o: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    dy, x, w = rng.normal(size=(n, o)), rng.normal(size=(n, i)), rng.normal(size=(o, i))
    dx, dw, db = linear_backward(dy, x, w)
    none, dw2, db2 = linear_backward(dy, x, w, needs_dx=False)
    assert none is None
    np.testing.assert_array_equal(dw, dw2)
    np.testing.assert_array_equal(db, db2)
    assert dx is not None
    np.testing.assert_allclose(dx, dy @ w, atol=1e-13)


def test_softmax_of_extreme_values() -> None:
    x = np.array([[1e4, -1e4, 0], [-1e4, -1e4, -1e4]], np.float32)
    y = softmax_forward(x)
    np.testing.assert_allclose(y, [[1, 0, 0], [1 / 3] * 3], rtol=1e-6)
    assert np.isfinite(softmax_backward(np.ones_like(y), y)).all()


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1])
@pytest.mark.parametrize("step", [1, 2, FLUSH_EVERY])
def test_adamw_update_follows_the_formula(size: int, step: int) -> None:
    rng = np.random.default_rng(size)
    theta, g, m = rng.normal(size=(3, size))
    v = rng.random(size)
    b1, b2, lr, eps, decay = 0.9, 0.99, 0.01, 1e-8, 0.1
    new_m, new_v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    expected = (1 - lr * decay) * theta - lr * (new_m / (1 - b1**step)) / (
        np.sqrt(new_v / (1 - b2**step)) + eps
    )
    before = g.copy()
    options = {"lr": lr, "beta1": b1, "beta2": b2, "eps": eps, "weight_decay": decay}
    adamw_update(theta, g, m, v, step=step, **options)  # type: ignore[arg-type]
    np.testing.assert_allclose(theta, expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(m, new_m, rtol=1e-14)
    np.testing.assert_allclose(v, new_v, rtol=1e-14)
    np.testing.assert_array_equal(g, before)


def test_tiny_moments_are_flushed() -> None:
    theta, m, v = np.ones(3), np.array([1e-38, -1e-35, 1e-20]), np.zeros(3)
    adamw_update(
        theta,
        np.zeros(3),
        m,
        v,
        lr=0.0,
        beta1=0.9,
        beta2=0.9,
        eps=1e-8,
        weight_decay=0.0,
        step=FLUSH_EVERY,
    )
    np.testing.assert_allclose(m, [0, 0, 0.9e-20])
