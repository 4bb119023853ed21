"""随机失活：注意力核函数里的、层的、整个 GPT 的；评估时与没有一样，同一个种子抽到同样的"""

import copy
import math
from typing import Any

import numpy as np
import pytest
from gradcheck import check_gradients
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore import GPT, Dropout, GPTAttention, GPTLoss, Tensor, no_grad
from gptcore.kernels.attention import QUERY_BLOCK, attention_backward, attention_forward
from gptcore.kernels.dropout import dropout

SEED = st.integers(0, 2**32 - 1)


def drawing(seed: int, p: float) -> Any:
    rng = np.random.default_rng(seed)
    return lambda shape: rng.random(shape, np.float32) >= p


def whole_mask(blocks: Any, batch: int, heads: int, length: int) -> np.ndarray:
    """把各块的掩码拼成 (B, H, T, T)；将来的位置没有抽，当作留下。"""
    mask = np.ones((batch, heads, length, length), bool)
    for b, i, e, _, keep in blocks:
        assert keep.dtype == bool
        assert keep.shape == e.shape
        mask[b, :, i, : i.stop] = keep
    return mask


def oracle(qkv: np.ndarray, heads: int, mask: np.ndarray, p: float) -> np.ndarray:
    """直白的写法：softmax 之后，留下的权重除以 1 − p，其余为零。"""
    batch, length, width = qkv.shape
    q, k, v = (
        part.reshape(batch, length, heads, -1).transpose(0, 2, 1, 3)
        for part in np.split(qkv, 3, -1)
    )
    scores = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])
    scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    c = (weights * mask / (1 - p)) @ v
    return c.transpose(0, 2, 1, 3).reshape(batch, length, width // 3)


def check_attention(x: np.ndarray, heads: int, p: float, seed: int) -> None:
    context, blocks = attention_forward(x, heads, p, drawing(seed, p))
    mask = whole_mask(blocks, x.shape[0], heads, x.shape[1])
    np.testing.assert_allclose(context, oracle(x, heads, mask, p), atol=1e-12)

    def fused(t: Tensor) -> Tensor:
        array = t.data
        y, saved = attention_forward(array, heads, p, drawing(seed, p))

        def vjp(dy: np.ndarray) -> tuple[np.ndarray]:
            return (attention_backward(dy, array, y, saved, heads, p),)

        return Tensor(y).record((t,), vjp)

    t = Tensor(x)
    check_gradients(lambda: fused(t), [t], seed)


# 注意力的核函数


@settings(deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from([0.1, 0.5, 0.9]),
    SEED,
)
def test_attention(batch: int, length: int, heads: int, size: int, p: float, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(batch, length, 3 * heads * size))
    check_attention(x, heads, p, seed)


@pytest.mark.parametrize("length", [QUERY_BLOCK - 1, QUERY_BLOCK + 1, 130])
@pytest.mark.parametrize(("batch", "heads"), [(1, 1), (2, 3), (30, 2)])
def test_attention_over_several_blocks(length: int, batch: int, heads: int) -> None:
    x = np.random.default_rng(length).normal(size=(batch, length, 3 * heads * 2))
    check_attention(x, heads, 0.3, seed=length)


def test_attention_may_lose_every_weight_of_a_row() -> None:
    x = np.random.default_rng(0).normal(size=(1, 4, 6))
    nothing = lambda shape: np.zeros(shape, bool)  # noqa: E731
    context, blocks = attention_forward(x, 1, 0.5, nothing)
    assert not context.any()
    assert not attention_backward(np.ones_like(context), x, context, blocks, 1, 0.5).any()


def test_attention_keeps_its_expectation() -> None:
    x = np.random.default_rng(0).normal(size=(1, 5, 6)).astype(np.float32)
    expected, _ = attention_forward(x, 1)
    total, kept, count = np.zeros(expected.shape), 0, 0
    for seed in range(4000):
        context, blocks = attention_forward(x, 1, 0.3, drawing(seed, 0.3))
        assert context.dtype == np.float32
        total += context
        kept += int(blocks[0][4].sum())  # type: ignore[union-attr]
        count += blocks[0][4].size  # type: ignore[union-attr]
    np.testing.assert_allclose(total / 4000, expected, atol=0.06)
    assert kept / count == pytest.approx(0.7, abs=0.005)


def test_the_kernel_is_one_function_forward_and_backward() -> None:
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    keep = x > 0
    before = x.copy()
    y = dropout(x, keep, 0.75)
    np.testing.assert_array_equal(y, np.where(keep, 4 * before, 0))
    assert y.dtype == np.float32
    np.testing.assert_array_equal(x, before)


# 层


def test_the_saved_mask_takes_one_byte_an_element() -> None:
    x = Tensor(np.ones((64, 64), np.float32))
    y = Dropout(0.5, np.random.default_rng(0))(x)
    saved = [c.cell_contents for c in y._vjp.__closure__]  # type: ignore[union-attr]
    arrays = [a for a in saved if isinstance(a, np.ndarray)]
    assert [a.dtype for a in arrays] == [np.dtype(bool)]


def test_the_default_generator_is_resolved_at_each_draw() -> None:
    layer, x = Dropout(0.5), Tensor(np.ones((50, 50), np.float32))
    np.random.seed(1)
    first, second = layer(x).data, layer(x).data
    assert (first != second).any()
    np.random.seed(1)
    np.testing.assert_array_equal(layer(x).data, first)
    np.testing.assert_array_equal(layer(x).data, second)


# 整个 GPT


class Recorder(np.random.Generator):
    """记下每次抽取的形状与结果。"""

    def __init__(self, seed: int) -> None:
        super().__init__(np.random.PCG64(seed))
        self.draws: list[np.ndarray] = []

    def random(self, *args: Any, **kwargs: Any) -> Any:
        self.draws.append(super().random(*args, **kwargs))
        return self.draws[-1]


SIZES = (11, 8, 6, 3, 2)
IDS = np.random.default_rng(0).integers(0, 11, (4, 8))


def test_dropout_acts_where_gpt2_has_it() -> None:
    rng = Recorder(0)
    model = GPT(*SIZES, dropout=0.25, rng=rng)
    model(IDS)
    stream, weights = (4, 8, 6), (4, 3, 8, 8)
    assert [d.shape for d in rng.draws] == [stream, *[weights, stream, stream] * 2]
    layers = [layer for layer in model.sublayers() if isinstance(layer, Dropout)]
    assert len(layers) == 1 + 3 * 2
    assert all(layer.p == 0.25 and layer.rng is rng for layer in layers)


def test_without_a_generator_the_default_one_is_used_at_the_draw() -> None:
    model = GPT(*SIZES, dropout=0.25)
    assert all(layer.rng is None for layer in model.sublayers() if isinstance(layer, Dropout))
    np.random.seed(3)
    first = model(IDS).data
    assert (model(IDS).data != first).any()
    np.random.seed(3)
    np.testing.assert_array_equal(model(IDS).data, first)


def test_evaluation_is_the_model_without_dropout_and_draws_nothing() -> None:
    rng = Recorder(0)
    model, plain = GPT(*SIZES, dropout=0.25, rng=rng), GPT(*SIZES, rng=Recorder(0))
    expected = plain(IDS).data
    for _ in range(2):
        np.testing.assert_array_equal(model.eval()(IDS).data, expected)
    assert rng.draws == []
    assert (model.train()(IDS).data != expected).any()


def test_the_same_seed_trains_the_same_model() -> None:
    def gradients(seed: int) -> list[np.ndarray]:
        model = GPT(*SIZES, dropout=0.25, rng=np.random.default_rng(seed))
        GPTLoss()(model(IDS), Tensor(IDS)).backward()
        return [p.grad for p in model.parameters]

    for a, b in zip(gradients(1), gradients(1), strict=True):
        np.testing.assert_array_equal(a, b)
    assert any((a != b).any() for a, b in zip(gradients(1), gradients(2), strict=True))


def test_a_copy_draws_what_the_original_draws() -> None:
    model = GPT(*SIZES, dropout=0.25, rng=np.random.default_rng(1))
    other = copy.deepcopy(model)
    with no_grad():
        for _ in range(2):
            np.testing.assert_array_equal(model(IDS).data, other(IDS).data)
    generators = {id(d.rng) for d in other.sublayers() if isinstance(d, Dropout)}
    assert len(generators) == 1  # 仍然共用一个


def test_the_mean_over_many_draws_is_the_attention_without_dropout() -> None:
    layer = GPTAttention(6, 3, np.random.default_rng(0), dropout=0.2)
    x = Tensor(np.random.default_rng(1).normal(size=(1, 4, 6)).astype(np.float32))
    with no_grad():
        mean = np.mean([layer(x).data for _ in range(6000)], 0)
        expected = layer.eval()(x).data
    np.testing.assert_allclose(mean, expected, atol=0.08)


def test_attention_weights_for_maps_have_no_dropout() -> None:
    rng = Recorder(0)
    layer = GPTAttention(6, 3, rng, dropout=0.5)
    x = Tensor(np.random.default_rng(1).normal(size=(2, 5, 6)).astype(np.float32))
    p = layer.weights(x)
    assert rng.draws == []
    np.testing.assert_allclose(p.data.sum(-1), 1, rtol=1e-6)
    np.testing.assert_array_equal(layer.eval().weights(x).data, p.data)


def count_nodes(y: Tensor) -> int:
    seen: set[int] = set()
    pending: list[Any] = [y]
    while pending:
        t = pending.pop()
        if id(t) not in seen and t.parents:
            seen.add(id(t))
            pending += t.parents
    return len(seen)


@pytest.mark.parametrize("blocks", [0, 1, 3])
def test_no_dropout_adds_no_node(blocks: int) -> None:
    expected = 3 + 10 * blocks + 2  # 两次查表与相加；每块两个分支各五个；归一化与线性层
    sizes = (*SIZES[:4], blocks)
    assert count_nodes(GPT(*sizes)(IDS)) == expected
    assert count_nodes(GPT(*sizes, dropout=0.5).eval()(IDS)) == expected
    assert count_nodes(GPT(*sizes, dropout=0.5)(IDS)) == expected + 1 + 2 * blocks
