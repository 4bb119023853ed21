"""GPT 的初值、第一次的损失、参数的个数与共用的矩阵"""

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from gptcore import (
    GPT,
    AdamWOptimizer,
    ArgumentError,
    GPTFeedForward,
    GPTLoss,
    GPTOutput,
    Linear,
    SGDOptimizer,
    Tensor,
    load_model,
    no_grad,
    save_model,
)
from gptcore.data import CharTokenizer
from gptcore.layers import without_values

# 初值


def draws(rng: np.random.Generator, v: int, c: int, e: int, blocks: int) -> list[np.ndarray]:
    """默认的模型应有的初值：按定义的次序，一次抽一个矩阵。"""

    def normal(rows: int, columns: int, std: float) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) * std).astype(np.float32)

    matrices = [normal(v, e, 0.02), normal(c, e, 0.02)]
    for _ in range(blocks):
        shapes = [(3 * e, e), (e, e), (4 * e, e), (e, 4 * e)]
        matrices += [normal(o, i, math.sqrt(2 / i)) for o, i in shapes]
    return [*matrices, normal(v, e, math.sqrt(2 / e))]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("vocab", [11, 3000])
def test_default_initial_values_bit_for_bit(tied: bool, vocab: int) -> None:
    """每一章的结果都从这些数开始：一位也不能变。大的矩阵分段抽取，抽到的数是一样的。"""
    model = GPT(vocab, 8, 48, 3, 2, tied=tied, rng=np.random.default_rng(5))
    expected = draws(np.random.default_rng(5), vocab, 8, 48, 2)
    found = [p.data for p in model.parameters if p.ndim == 2]
    for a, b in zip(found, expected[:-1] if tied else expected, strict=True):
        np.testing.assert_array_equal(a, b)
    for name, p in model.named_parameters():
        if p.ndim == 1:
            assert (p.data == name.endswith("weight")).all()


def test_a_tied_head_draws_nothing() -> None:
    rng, other = np.random.default_rng(5), np.random.default_rng(5)
    GPT(11, 8, 6, 3, 2, tied=True, rng=rng)
    draws(other, 11, 8, 6, 2)
    assert rng.bit_generator.state != other.bit_generator.state
    rng, other = np.random.default_rng(5), np.random.default_rng(5)
    GPT(11, 8, 6, 3, 2, rng=rng)
    draws(other, 11, 8, 6, 2)
    assert rng.bit_generator.state == other.bit_generator.state


def test_gpt2_initial_values() -> None:
    blocks = 8
    model = GPT(500, 100, 120, 3, blocks, init="gpt2", rng=np.random.default_rng(0))
    for name, p in model.named_parameters():
        if p.ndim == 1:
            assert (p.data == name.endswith("weight")).all()
            continue
        last = name.endswith(("attention.output.weight", "feed_forward.output.weight"))
        std = 0.02 / math.sqrt(2 * blocks) if last else 0.02
        assert p.data.std() == pytest.approx(std, rel=0.05), name
        assert abs(p.data.mean()) < 0.05 * std * 3, name
    alone = GPTFeedForward(120, init="gpt2", blocks=2)
    assert alone.output.weight.data.std() == pytest.approx(0.01, rel=0.05)
    head = GPTOutput(120, 500, init="gpt2")
    assert head.linear.weight.data.std() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize(
    ("vocab", "size", "blocks", "options", "tolerance"),
    [
        (65, 64, 2, {}, 0.05),
        (65, 128, 4, {"head_bias": False, "tied": True}, 0.05),
        (65, 64, 6, {"norm": "RMSNorm", "bias": False}, 0.05),
        (65, 64, 2, {"norm_position": "post"}, 0.05),
        (6400, 64, 2, {}, 0.05),
        (6400, 128, 4, {"head_bias": False, "tied": True}, 0.05),
        (50257, 16, 2, {"head_bias": False, "tied": True}, 0.05),
    ],
)
def test_first_loss_with_gpt2_initial_values_is_near_the_uniform_one(
    vocab: int, size: int, blocks: int, options: dict[str, Any], tolerance: float
) -> None:
    rng = np.random.default_rng(0)
    model = GPT(vocab, 32, size, 2, blocks, init="gpt2", **options, rng=rng)
    ids, labels = rng.integers(0, vocab, (2, 8, 32))
    with no_grad():
        loss = GPTLoss()(model(ids), Tensor(labels)).item()
    assert loss == pytest.approx(math.log(vocab), abs=tolerance)


def test_first_loss_with_he_initial_values_is_higher() -> None:
    rng = np.random.default_rng(0)
    model = GPT(65, 32, 64, 2, 2, rng=rng)
    ids, labels = rng.integers(0, 65, (2, 8, 32))
    with no_grad():
        loss = GPTLoss()(model(ids), Tensor(labels)).item()
    assert 0.5 < loss - math.log(65) < 2


# 参数的个数


def expected_count(v: int, c: int, e: int, blocks: int, **options: Any) -> int:
    bias, norm = options.get("bias", True), options.get("norm", "LayerNorm")
    one_norm = {"LayerNorm": e + e * bias, "RMSNorm": e, None: 0}[norm]
    block = 12 * e * e + 9 * e * bias + 2 * one_norm
    last = one_norm if options.get("norm_position", "pre") == "pre" else 0
    head = v * options.get("head_bias", True) + v * e * (not options.get("tied", False))
    return v * e + c * e + blocks * block + last + head


@pytest.mark.parametrize("norm", ["LayerNorm", "RMSNorm", None])
@pytest.mark.parametrize("norm_position", ["pre", "post"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_number_of_parameters(norm: Any, norm_position: Any, bias: bool, tied: bool) -> None:
    options: dict[str, Any] = {"norm": norm, "norm_position": norm_position, "bias": bias}
    options |= {"tied": tied, "head_bias": not tied}
    expected = expected_count(11, 8, 6, 2, **options)
    assert GPT(11, 8, 6, 3, 2, **options).num_parameters == expected
    with without_values():
        assert GPT(11, 8, 6, 3, 2, **options).num_parameters == expected


def gpt2() -> GPT:
    return GPT(50257, 1024, 768, 12, 12, head_bias=False, tied=True, init="gpt2")


def test_gpt2_counts_its_parameters_without_allocating_them() -> None:
    tracemalloc.start()
    try:
        with without_values():
            model = gpt2()
        count = model.num_parameters
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 124_439_808
    assert peak < 2**20
    assert expected_count(50257, 1024, 768, 12, head_bias=False, tied=True) == count


@pytest.mark.slow
def test_the_real_gpt2_counts_the_same() -> None:
    model = gpt2()
    assert model.num_parameters == 124_439_808
    assert sum(p.data.nbytes for p in model.parameters) == 4 * 124_439_808
    assert model.output.linear.weight is model.embedding.embedding.weight


def test_outlines_draw_nothing_and_cannot_be_trained() -> None:
    np.random.seed(1)
    before = np.random.get_state()[1].copy()  # type: ignore[union-attr]
    with without_values():
        model = GPT(11, 8, 6, 3, 2)
    np.testing.assert_array_equal(np.random.get_state()[1], before)
    assert not model.embedding.embedding.weight.data.flags.writeable
    assert GPT(11, 8, 6, 3, 2).embedding.embedding.weight.data.any()  # 离开之后照常
    with pytest.raises(ArgumentError, match="只读"):
        SGDOptimizer(model.parameters, 0.1)


# 共用的矩阵


@pytest.mark.parametrize("kind", [SGDOptimizer, AdamWOptimizer])
def test_the_tied_matrix_is_updated_once(kind: Any) -> None:
    model = GPT(11, 8, 6, 3, 1, tied=True, head_bias=False, rng=np.random.default_rng(0))
    weight = model.embedding.embedding.weight
    optimizer = kind(model.parameters, lr=0.1)
    assert sum(p is weight for p in optimizer.parameters) == 1
    groups = model.parameter_groups()
    assert sum(p is weight for g in groups for p in g["parameters"]) == 1
    assert any(p is weight for p in groups[1]["parameters"])  # 嵌入不衰减
    GPTLoss()(model(Tensor([[1, 2, 3]])), Tensor([[2, 3, 4]])).backward()
    before, gradient = weight.data.copy(), weight.grad.copy()
    optimizer.step()
    if kind is SGDOptimizer:
        np.testing.assert_allclose(weight.data, before - 0.1 * gradient, rtol=1e-6)
    else:
        assert np.abs(weight.data - before).max() <= 0.1 * (1 + 0.01)
    assert model.output.linear.weight is weight


def test_the_tied_matrix_stays_tied_after_loading(tmp_path: Any) -> None:
    model = GPT(3, 8, 6, 3, 1, tied=True, init="gpt2", rng=np.random.default_rng(0))
    assert "output.linear.weight" not in model.state_dict()
    other, _ = load_model(save_model(tmp_path, model, CharTokenizer("abc")))
    assert other.output.linear.weight is other.embedding.embedding.weight
    np.testing.assert_array_equal(other.embedding.embedding.weight.data, model.parameters[0].data)
    optimizer = SGDOptimizer(other.parameters, 0.1)
    GPTLoss()(other(Tensor([[0, 1, 2]])), Tensor([[1, 2, 0]])).backward()
    optimizer.step()
    assert other.output.linear.weight is other.embedding.embedding.weight


def test_linear_may_share_a_weight_and_take_a_deviation() -> None:
    a = Linear(30, 40, std=0.5, rng=np.random.default_rng(0))
    assert a.weight.data.std() == pytest.approx(0.5, rel=0.1)
    rng = np.random.default_rng(0)
    b = Linear(30, 40, rng=rng, weight=a.weight)
    assert b.weight is a.weight
    assert rng.bit_generator.state == np.random.default_rng(0).bit_generator.state
    assert not Linear(3, 2, std=0).weight.data.any()
