"""库的层与书里最直白的写法：同样的输入和参数，输出与梯度在 float64 里一致"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import chapter07, chapter15
from oracles.pairs import copy_weights, pairs, randomize

import gptcore
from gptcore import Tensor

BATCH = st.integers(1, 3)
LENGTH = st.integers(1, 5)
HEADS = st.integers(1, 3)
HEAD_SIZE = st.integers(1, 4)
VOCAB = st.integers(2, 7)
SEED = st.integers(0, 2**32 - 1)


def close(actual: Any, expected: Any, name: str = "") -> None:
    assert actual.dtype == expected.dtype == np.float64, name
    assert actual.shape == expected.shape, name
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-10, err_msg=name)


def agree(mine: Any, theirs: Any, rng: np.random.Generator, *arrays: np.ndarray) -> None:
    """同样的输入，比输出；用同一个随机方向反向传播，比输入和每个参数的梯度。"""
    if isinstance(theirs, gptcore.Layer):
        randomize(theirs, rng)
        mine.astype(np.float64)
        copy_weights(mine, theirs)
    ours, others = [Tensor(a.copy()) for a in arrays], [Tensor(a.copy()) for a in arrays]
    y, expected = mine(*ours), theirs(*others)
    close(y.data, expected.data, "输出")

    dy = rng.normal(size=expected.shape)
    y.backward(dy)
    expected.backward(dy)
    for i, (a, b) in enumerate(zip(ours, others, strict=True)):
        if b.grad is not None:
            close(a.grad, b.grad, f"第 {i} 个输入的梯度")
    for name, a, b in pairs(mine, theirs):
        close(a.grad, b.grad, f"{name} 的梯度")


# 第 7 章的程序有自己的 Tensor，每一层是计算图里的一个节点


def agree07(mine: Any, theirs: Any, rng: np.random.Generator, array: np.ndarray) -> None:
    parameters = [n for n in ("weight", "bias") if hasattr(theirs, n)]
    for name in parameters:
        parameter = getattr(theirs, name)
        parameter.data[...] = rng.normal(0.3, 0.7, parameter.data.shape)
    mine.astype(np.float64)
    for name in parameters:
        getattr(mine, name).data[...] = getattr(theirs, name).data
    x, other = Tensor(array.copy()), chapter07.Tensor(array.copy())
    y, expected = mine(x), theirs(other)
    close(y.data, expected.data, "输出")

    expected.grad = rng.normal(size=expected.data.shape)
    y.backward(expected.grad)
    expected.gradient_fn()
    if x.grad is not None:
        close(x.grad, other.grad, "输入的梯度")
    for name in parameters:
        close(getattr(mine, name).grad, getattr(theirs, name).grad, f"{name} 的梯度")


@given(BATCH, LENGTH, LENGTH, SEED)
def test_linear(batch: int, inputs: int, outputs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mine, theirs = gptcore.Linear(inputs, outputs), chapter07.Linear(inputs, outputs)
    agree07(mine, theirs, rng, rng.normal(size=(batch, inputs)))


@given(BATCH, LENGTH, VOCAB, LENGTH, SEED)
def test_embedding_adds_up_repeated_ids(
    batch: int, length: int, vocab: int, size: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    mine, theirs = gptcore.Embedding(vocab, size), chapter07.Embedding(vocab, size)
    agree07(mine, theirs, rng, rng.integers(0, vocab, (batch, length)))


@given(BATCH, LENGTH, HEAD_SIZE, SEED)
def test_mean_pool(batch: int, length: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(batch, length, size))
    agree07(gptcore.MeanPool(), chapter07.MeanPool(), rng, x)


@given(BATCH, LENGTH, SEED)
def test_relu(batch: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    agree07(gptcore.ReLU(), chapter07.ReLU(), rng, rng.normal(size=(batch, size)))


@given(BATCH, LENGTH, VOCAB, st.sampled_from([-1, 0, 1, 2]), SEED)
def test_softmax(batch: int, length: int, vocab: int, axis: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 3, (batch, length, vocab))
    agree07(gptcore.Softmax(axis), chapter07.Softmax(axis), rng, x)


@given(BATCH, VOCAB, SEED)
def test_mse_loss(batch: int, vocab: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, y = rng.normal(size=(batch, vocab)), np.eye(vocab)[rng.integers(0, vocab, batch)]
    ours, other = Tensor(p.copy()), chapter07.Tensor(p.copy())
    loss = gptcore.MSELoss()(ours, Tensor(y, requires_grad=False))
    expected = chapter07.MSELoss()(other, chapter07.Tensor(y))
    close(loss.data, expected.data)
    loss.backward()
    expected.backward()
    close(ours.grad, other.grad)


# 第 15 章的层建在库的 Tensor 上


@given(BATCH, LENGTH, st.integers(1, 7), SEED)
def test_layer_norm(batch: int, length: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(1, 2, (batch, length, size))
    agree(gptcore.LayerNorm(size), chapter15.LayerNorm(size), rng, x)


@given(BATCH, LENGTH, SEED)
def test_gelu(batch: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    agree(gptcore.GELU(), chapter15.GELU(), rng, rng.normal(0, 3, (batch, size)))


@given(BATCH, LENGTH, LENGTH, SEED)
def test_tril(batch: int, rows: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(batch, rows, columns))
    agree(gptcore.Tril(), chapter15.Tril(), rng, x)


@given(BATCH, LENGTH, VOCAB, SEED)
def test_gpt_loss(batch: int, length: int, vocab: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, (batch, length, vocab))
    labels = rng.integers(0, vocab, (batch, length))
    agree(gptcore.GPTLoss(), chapter15.GPTLoss(), rng, logits, labels)


@given(BATCH, LENGTH, VOCAB, HEAD_SIZE, SEED)
def test_gpt_embedding(batch: int, length: int, vocab: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mine = gptcore.GPTEmbedding(vocab, length + 1, size)
    theirs = chapter15.GPTEmbedding(vocab, length + 1, size)
    agree(mine, theirs, rng, rng.integers(0, vocab, (batch, length)))


@given(BATCH, LENGTH, HEADS, HEAD_SIZE, SEED)
def test_attention(batch: int, length: int, heads: int, head_size: int, seed: int) -> None:
    rng, size = np.random.default_rng(seed), heads * head_size
    mine, theirs = gptcore.GPTAttention(size, heads), chapter15.GPTAttention(size, heads)
    agree(mine, theirs, rng, rng.normal(size=(batch, length, size)))


@given(BATCH, LENGTH, HEAD_SIZE, SEED)
def test_feed_forward(batch: int, length: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mine, theirs = gptcore.GPTFeedForward(size), chapter15.GPTFeedForward(size)
    agree(mine, theirs, rng, rng.normal(size=(batch, length, size)))


@given(BATCH, LENGTH, HEADS, HEAD_SIZE, SEED)
def test_transformer(batch: int, length: int, heads: int, head_size: int, seed: int) -> None:
    rng, size = np.random.default_rng(seed), heads * head_size
    mine, theirs = gptcore.GPTTransformer(size, heads), chapter15.GPTTransformer(size, heads)
    agree(mine, theirs, rng, rng.normal(size=(batch, length, size)))


@given(BATCH, LENGTH, HEAD_SIZE, VOCAB, SEED)
def test_output(batch: int, length: int, size: int, vocab: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mine, theirs = gptcore.GPTOutput(size, vocab), chapter15.GPTOutput(size, vocab)
    agree(mine, theirs, rng, rng.normal(size=(batch, length, size)))


@settings(max_examples=30)
@given(BATCH, LENGTH, HEADS, HEAD_SIZE, VOCAB, st.integers(1, 2), SEED)
def test_gpt(
    batch: int, length: int, heads: int, head_size: int, vocab: int, blocks: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    config = (vocab, length + 2, heads * head_size, heads, blocks)
    mine, theirs = gptcore.GPT(*config), chapter15.GPT(*config)
    agree(mine, theirs, rng, rng.integers(0, vocab, (batch, length)))


# 核函数一块一块地算：下面的尺寸跨过块的边界


@pytest.mark.parametrize(("batch", "length", "heads"), [(2, 65, 3), (7, 130, 3), (1, 128, 1)])
def test_attention_across_blocks(batch: int, length: int, heads: int) -> None:
    rng, size = np.random.default_rng(length), heads * 2
    mine, theirs = gptcore.GPTAttention(size, heads), chapter15.GPTAttention(size, heads)
    agree(mine, theirs, rng, rng.normal(size=(batch, length, size)))


def test_layer_norm_and_gelu_across_blocks() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3, 337, 100))
    agree(gptcore.LayerNorm(100), chapter15.LayerNorm(100), rng, x)
    agree(gptcore.GELU(), chapter15.GELU(), rng, x)


def test_gpt_loss_across_blocks() -> None:
    rng = np.random.default_rng(2)
    logits, labels = rng.normal(size=(5, 331, 97)), rng.integers(0, 97, (5, 331))
    agree(gptcore.GPTLoss(), chapter15.GPTLoss(), rng, logits, labels)


@pytest.mark.parametrize("vocab", [97, 512, 513, 3000])
def test_embedding_of_small_and_large_vocabularies(vocab: int) -> None:
    rng = np.random.default_rng(vocab)
    mine, theirs = gptcore.Embedding(vocab, 3), chapter07.Embedding(vocab, 3)
    agree07(mine, theirs, rng, rng.integers(0, vocab, (7, 150)))


def test_gpt_pairs_cover_every_parameter() -> None:
    config = (7, 5, 6, 3, 2)
    mine, theirs = gptcore.GPT(*config), chapter15.GPT(*config)
    found = list(pairs(mine, theirs))
    assert len(found) == len(theirs.parameters)
    assert sum(b.size for _, _, b in found) == mine.num_parameters
