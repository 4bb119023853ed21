"""测速里 PyTorch 的一方与 gptcore 算的是同一个模型：同样的权重，同样的损失与梯度的范数"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptcore import GPT, AdamWOptimizer, GPTLoss, Tensor

torch = pytest.importorskip("torch", reason="没有安装 torch")
BENCHMARKS = Path(__file__).resolve().parent / "benchmarks"
HELPERS = ("pairing", "sizes", "step_torch", "worker")


@pytest.fixture
def step_torch() -> Iterator[Any]:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import step_torch

        yield step_torch
    finally:
        sys.path.remove(str(BENCHMARKS))
        for name in HELPERS:
            sys.modules.pop(name, None)


def copy(theirs: Any, mine: Tensor) -> None:
    with torch.no_grad():
        theirs.copy_(torch.from_numpy(np.array(mine.data)))


def copy_weights(theirs: Any, mine: GPT) -> None:
    copy(theirs.tokens.weight, mine.embedding.embedding.weight)
    copy(theirs.positions.weight, mine.embedding.positional_embedding.weight)
    for block, ours in zip(theirs.blocks, mine.transformers, strict=True):
        for layer, source in (
            (block.norm1, ours.attention.normalize),
            (block.c_attn, ours.attention.c_attn),
            (block.output, ours.attention.output),
            (block.norm2, ours.feed_forward.normalize),
            (block.up, ours.feed_forward.input),
            (block.down, ours.feed_forward.output),
        ):
            copy(layer.weight, source.weight)
            copy(layer.bias, source.bias)
    copy(theirs.norm.weight, mine.output.normalize.weight)
    copy(theirs.norm.bias, mine.output.normalize.bias)
    if theirs.head.bias is not None:
        copy(theirs.head.weight, mine.output.linear.weight)
        copy(theirs.head.bias, mine.output.linear.bias)


@pytest.mark.reference
@pytest.mark.parametrize("vocab", [65, 50257])
def test_same_loss_and_gradients(step_torch: Any, vocab: int) -> None:
    size = sys.modules["sizes"].Size(2, 8, 12, 3, 2, vocab)
    ids, labels = size.random_batch()
    _, context, embedding, heads, blocks, _ = size
    rng = np.random.default_rng(0)
    mine = GPT(
        vocab, context, embedding, heads, blocks, tied=size.tied, head_bias=not size.tied, rng=rng
    )
    gradients, _, theirs = step_torch.torch_training(size, ids, labels)
    copy_weights(theirs, mine)
    assert sum(p.numel() for p in theirs.parameters()) == mine.num_parameters == size.parameters
    loss = GPTLoss()(mine(Tensor(ids)), Tensor(labels))
    loss.backward()
    norm = AdamWOptimizer(mine.parameters).clip_grad_norm(1.0)
    other = gradients().item()
    other_norm = float(torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0))
    assert float(loss.data) == pytest.approx(other, rel=1e-5)
    assert norm == pytest.approx(other_norm, rel=1e-4)
