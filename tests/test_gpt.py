"""GPT：梯度、严格的因果性、各种形状、注意力权重、损失里没有 NaN"""

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from gradcheck import check_gradients, check_layer
from hypothesis import given, settings
from hypothesis import strategies as st

import gptcore
from gptcore import (
    GPT,
    DtypeError,
    GPTAttention,
    GPTEmbedding,
    GPTFeedForward,
    GPTLoss,
    GPTOutput,
    GPTTransformer,
    Layer,
    Tensor,
    no_grad,
)

SEED = st.integers(0, 2**32 - 1)
SMALL = st.integers(1, 3)


# 梯度


@settings(max_examples=15, deadline=None)
@given(SMALL, st.integers(1, 5), SMALL, SMALL, SEED)
@pytest.mark.parametrize("kind", [GPTAttention, GPTTransformer])
def test_attention_and_block(
    kind: Any, batch: int, length: int, heads: int, size: int, seed: int
) -> None:
    x = np.random.default_rng(seed).normal(size=(batch, length, (size + 1) * heads))
    check_layer(kind((size + 1) * heads, heads), x, seed=seed)


@settings(max_examples=25, deadline=None)
@given(SMALL, st.integers(1, 5), st.integers(2, 5), st.integers(1, 7), SEED)
def test_other_parts(batch: int, length: int, size: int, vocab: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 2, (batch, length, size))
    check_layer(GPTFeedForward(size), x, seed=seed)
    check_layer(GPTOutput(size, vocab), x, seed=seed)
    check_layer(GPTEmbedding(vocab, length + 1, size), rng.integers(0, vocab, (batch, length)))


@settings(max_examples=12, deadline=None)
@given(SMALL, st.integers(1, 6), SMALL, st.integers(2, 7), st.integers(0, 2), SEED)
def test_whole_model_with_its_loss(
    batch: int, length: int, heads: int, vocab: int, blocks: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    ids, labels = rng.integers(0, vocab, (2, batch, length))
    model = GPT(vocab, length + 1, 2 * heads, heads, blocks).astype(np.float64)
    for p in model.parameters:
        p.data[...] = rng.normal(0.2, 0.5, p.shape)
    check_gradients(lambda: GPTLoss()(model(Tensor(ids)), Tensor(labels)), model.parameters, seed)


@pytest.mark.parametrize(("batch", "length", "heads"), [(2, 65, 3), (1, 130, 1)])
def test_model_over_several_query_blocks(batch: int, length: int, heads: int) -> None:
    rng = np.random.default_rng(length)
    ids, labels = rng.integers(0, 11, (2, batch, length))
    model = GPT(11, 130, 4 * heads, heads, 2, rng=rng).astype(np.float64)
    for p in model.parameters:
        p.data[...] = rng.normal(0.2, 0.5, p.shape)
    check_gradients(lambda: GPTLoss()(model(Tensor(ids)), Tensor(labels)), model.parameters)


def test_gradients_through_the_named_thirds() -> None:
    layer = GPTAttention(6, 3).astype(np.float64)
    x = Tensor(np.random.default_rng(0).normal(size=(2, 3, 6)))
    tensors = [x, layer.c_attn.weight, layer.c_attn.bias]
    assert all(t is not None for t in tensors)
    check_gradients(lambda: layer.query(x) * layer.key(x) + layer.value(x), tensors)  # type: ignore[arg-type]


# 因果性：一位也不差


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("length", [1, 2, 7, 64, 65, 130])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_later_token_changes_no_bit_of_an_earlier_logit(
    heads: int, length: int, dtype: Any
) -> None:
    rng = np.random.default_rng(length + heads)
    model = GPT(11, 130, 6 * heads, heads, 2, rng=rng).astype(dtype)
    ids = rng.integers(0, 11, (3, length))
    with no_grad():
        before = model(Tensor(ids)).data
        for t in {0, 1, length // 2, length - 2, length - 1} & set(range(length)):
            changed = ids.copy()
            changed[:, t:] = rng.integers(0, 11, (3, length - t))
            changed[:, t] = (ids[:, t] + 1) % 11
            after = model(Tensor(changed)).data
            np.testing.assert_array_equal(after[:, :t], before[:, :t])
            assert (after[:, t] != before[:, t]).any()


def test_rows_of_a_batch_do_not_mix() -> None:
    rng = np.random.default_rng(0)
    model = GPT(11, 70, 6, 3, 2, rng=rng)
    ids = rng.integers(0, 11, (40, 70))  # 注意力里分成几组
    before = model(Tensor(ids)).data
    ids[20] = (ids[20] + 1) % 11
    after = model(Tensor(ids)).data
    np.testing.assert_array_equal(np.delete(after, 20, 0), np.delete(before, 20, 0))


def test_gradients_flow_only_backwards_in_time() -> None:
    rng = np.random.default_rng(0)
    layer = GPTTransformer(6, 3, rng).astype(np.float64)
    x = Tensor(rng.normal(size=(2, 70, 6)))
    layer(x)[:, 40].sum().backward()
    assert not x.grad[:, 41:].any()
    assert x.grad[:, :41].any(axis=(0, 2)).all()


# 其余


def test_training_and_inference_give_the_same_logits() -> None:
    model = GPT(11, 8, 6, 3, 2)
    ids = Tensor([[1, 2, 3], [4, 5, 6]])
    with no_grad():
        expected = model(ids)
    assert not expected.requires_grad
    np.testing.assert_array_equal(model(ids).data, expected.data)
    assert model.num_parameters == sum(p.size for p in model.parameters)
    for form in ([[1, 2, 3], [4, 5, 6]], np.array([[1, 2, 3], [4, 5, 6]], np.uint8)):
        np.testing.assert_array_equal(model(form).data, expected.data)


def test_parameters_of_the_chapters_configuration() -> None:
    assert GPT(65, 32, 64, 2, 2).num_parameters == 110_529
    assert GPT(65, 32, 64, 2, 2, head_bias=False).num_parameters == 110_529 - 65


def test_config_rebuilds_the_model() -> None:
    model = GPT(7, 5, 6, 3, 2, head_bias=False)
    other = GPT(**model.config)
    other.load_state_dict(model.state_dict())
    ids = Tensor([[0, 6, 3, 2, 1]])
    np.testing.assert_array_equal(other(ids).data, model(ids).data)


def test_attention_weights() -> None:
    layer = GPTAttention(6, 3)
    x = Tensor(np.random.default_rng(0).normal(size=(2, 5, 6)).astype(np.float32))
    p = layer.weights(x)
    assert p.shape == (2, 3, 5, 5)
    assert p.dtype == np.float32
    np.testing.assert_allclose(p.data.sum(-1), 1, rtol=1e-6)
    assert not np.triu(p.data, 1).any()
    # 由权重与值重新算出这一层的输出
    v = layer.value(layer.normalize(x)).data.reshape(2, 5, 3, 2).transpose(0, 2, 1, 3)
    context = (p.data @ v).transpose(0, 2, 1, 3).reshape(2, 5, 6)
    np.testing.assert_allclose(
        (x + layer.output(Tensor(context))).data, layer(x).data, rtol=1e-5, atol=1e-6
    )


def test_chapter_names() -> None:
    model = GPT(7, 5, 6, 3, 2)
    block = model.transformers[1]
    assert isinstance(block.attention, GPTAttention)
    for name in ("normalize", "query", "key", "value", "mask", "softmax", "output"):
        assert isinstance(getattr(block.attention, name), Layer)
    for name in ("normalize", "input", "gelu", "output"):
        assert isinstance(getattr(block.feed_forward, name), Layer)
    assert isinstance(model.embedding.embedding, gptcore.Embedding)
    assert isinstance(model.embedding.positional_embedding, gptcore.Embedding)
    assert isinstance(model.output.normalize, gptcore.LayerNorm)
    assert (model.vocab_size, model.context_size) == (7, 5)


def test_a_seed_fixes_the_initial_values() -> None:
    def values(**options: Any) -> list[np.ndarray]:
        return [p.data for p in GPT(7, 5, 6, 3, 2, **options).parameters]

    np.random.seed(42)
    first = values()
    np.random.seed(42)
    for a, b in zip(first, values(), strict=True):
        np.testing.assert_array_equal(a, b)
    a, b = (values(rng=np.random.default_rng(i)) for i in (0, 1))
    assert any((x != y).any() for x, y in zip(a, b, strict=True))


# 不再使用的图立即释放


def build(name: str) -> Tensor:
    x, w = Tensor(np.ones((2, 3, 4), np.float32)), Tensor(np.ones((4, 4), np.float32))
    ids = Tensor([[1, 2, 3], [0, 1, 2]])
    layers: dict[str, Any] = {
        "GELU": gptcore.GELU(),
        "ReLU": gptcore.ReLU(),
        "Softmax": gptcore.Softmax(),
        "Tril": gptcore.Tril(),
        "Dropout": gptcore.Dropout(0.5),
        "MeanPool": gptcore.MeanPool(),
        "LayerNorm": gptcore.LayerNorm(4),
        "RMSNorm": gptcore.RMSNorm(4),
        "Linear": gptcore.Linear(4, 3),
        "GPTTransformer": GPTTransformer(4, 2),
    }
    if name in layers:
        return layers[name](x)
    return {
        "运算": lambda: (x + w[0] - 1) * 2 / (x + 3) @ w,
        "函数": lambda: (-x).exp().log().tanh() ** 3 + x.sqrt() ** 0.5,
        "归约": lambda: x.sum(0).max(1).mean(),
        "形状": lambda: x.reshape(6, 4).transpose(1, 0)[1:, [0, 0]].astype(np.float64),
        "均方误差": lambda: gptcore.MSELoss()(x, x * 2),
        "整个 GPT": lambda: GPTLoss()(GPT(4, 3, 4, 2, 2)(ids), ids),
    }[name]()


EVERYTHING = (
    "GELU ReLU Softmax Tril Dropout MeanPool LayerNorm RMSNorm Linear GPTTransformer".split()
)
EVERYTHING += ["运算", "函数", "归约", "形状", "均方误差", "整个 GPT"]


@pytest.mark.parametrize("name", EVERYTHING)
def test_an_unused_graph_is_freed_at_once(name: str) -> None:
    """没有循环引用：关掉垃圾回收，一丢掉结果，整张图就没有了。"""
    gc.collect()
    gc.disable()
    try:
        y = build(name)
        nodes, pending = [], [y]
        while pending:
            t = pending.pop()
            nodes.append(weakref.ref(t))
            pending += t.parents  # type: ignore[arg-type]
        del t, y, pending
        assert len(nodes) > 1
        assert [ref() for ref in nodes if ref() is not None] == []
    finally:
        gc.enable()


def test_float_ids_are_refused() -> None:
    with pytest.raises(DtypeError, match="float32"):
        GPT(7, 5, 6, 3, 1)(Tensor([[0.0, 1.0]]))
