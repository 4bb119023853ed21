"""GPT 的选项：梯度、因果性、初值、参数的个数、第一次的损失、设置的保存与重建"""

import itertools
import json
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from gradcheck import check_gradients, check_layer

from gptcore import (
    GPT,
    AdamWOptimizer,
    ArgumentError,
    DtypeError,
    GPTAttention,
    GPTEmbedding,
    GPTFeedForward,
    GPTLoss,
    GPTOutput,
    GPTTransformer,
    LayerNorm,
    Linear,
    RMSNorm,
    SGDOptimizer,
    ShapeError,
    Tensor,
    load_model,
    no_grad,
    save_model,
)
from gptcore.data import CharTokenizer
from gptcore.layers.initial import without_values

NORMS = [
    {"norm": "LayerNorm", "bias": True},
    {"norm": "LayerNorm", "bias": False},
    {"norm": "RMSNorm", "bias": True},
    {"norm": "RMSNorm", "bias": False},
    {"norm": None, "bias": True},
]
HEADS = [
    {"tied": False, "head_bias": True},
    {"tied": True, "head_bias": False},
    {"tied": True, "head_bias": True},
]
CHOICES = [
    {**norm, "norm_position": position, "dropout": p, **HEADS[i % 3]}
    for i, (norm, position, p) in enumerate(itertools.product(NORMS, ("pre", "post"), (0.0, 0.3)))
]


def name_of(options: dict[str, Any]) -> str:
    return " ".join(str(v) for v in options.values())


every_choice = pytest.mark.parametrize("options", CHOICES, ids=name_of)


# 梯度与因果性


@every_choice
def test_gradients_of_the_whole_model(options: dict[str, Any]) -> None:
    seed = CHOICES.index(options)
    rng = np.random.default_rng(seed)
    ids, labels = rng.integers(0, 7, (2, 2, 4))
    model = GPT(7, 5, 6, 3, 2, **options, rng=rng).astype(np.float64)
    for p in model.parameters:
        p.data[...] = rng.normal(0.2, 0.5, p.shape)
    state = rng.bit_generator.state

    def loss() -> Tensor:
        rng.bit_generator.state = state  # 每次抽到同样的掩码
        return GPTLoss()(model(Tensor(ids)), Tensor(labels))

    check_gradients(loss, model.parameters, seed)


@every_choice
def test_a_later_token_changes_no_bit_of_an_earlier_logit(options: dict[str, Any]) -> None:
    """随机失活时也一样：只要抽到的掩码相同。"""
    for dtype, length in ((np.float32, 70), (np.float64, 5)):
        rng = np.random.default_rng(length)
        model = GPT(11, 70, 6, 3, 2, **options, rng=rng).astype(dtype)
        ids = np.random.default_rng(1).integers(0, 11, (3, length))
        state = rng.bit_generator.state

        def logits(
            ids: np.ndarray, model: GPT = model, rng: Any = rng, state: Any = state
        ) -> np.ndarray:
            rng.bit_generator.state = state
            with no_grad():
                return model(Tensor(ids)).data

        before = logits(ids)
        for t in (1, length // 2, length - 1):
            changed = ids.copy()
            changed[:, t:] = (ids[:, t:] + 1) % 11
            after = logits(changed)
            np.testing.assert_array_equal(after[:, :t], before[:, :t])
            assert (after[:, t] != before[:, t]).any()


@every_choice
def test_evaluation_repeats_itself(options: dict[str, Any]) -> None:
    model = GPT(11, 8, 6, 3, 2, **options).eval()
    ids = Tensor([[1, 2, 3], [4, 5, 6]])
    expected = model(ids).data
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(model(ids).data, expected)
    assert model.train()(ids).requires_grad


@pytest.mark.parametrize("norm", ["LayerNorm", "RMSNorm", None])
@pytest.mark.parametrize("position", ["pre", "post"])
@pytest.mark.parametrize("bias", [True, False])
def test_gradients_of_each_part(norm: Any, position: Any, bias: bool) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 6))
    options: dict[str, Any] = {"norm": norm, "norm_position": position, "bias": bias}
    check_layer(GPTAttention(6, 3, **options), x)
    check_layer(GPTFeedForward(6, **options), x)
    check_layer(GPTTransformer(6, 3, **options), x)
    check_layer(GPTOutput(6, 5, bias, norm=norm, norm_bias=bias), x)


def test_layer_norm_without_bias() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 6))
    layer = LayerNorm(6, bias=False)
    assert layer.bias is None
    assert [n for n, _ in layer.named_parameters()] == ["weight"]
    check_layer(layer, x)
    other = LayerNorm(6).astype(np.float64)
    other.weight.data[...] = layer.weight.data
    np.testing.assert_array_equal(layer(Tensor(x)).data, other(Tensor(x)).data)


# 结构


def test_post_norm_normalizes_the_sum_and_has_no_last_norm() -> None:
    model = GPT(11, 8, 6, 3, 2, norm_position="post").eval()
    assert model.output.normalize is None
    names = [n for n, _ in model.named_parameters()]
    assert "output.normalize.weight" not in names
    x = Tensor(np.random.default_rng(0).normal(3, 2, (2, 4, 6)).astype(np.float32))
    for part in (model.transformers[0].attention, model.transformers[0].feed_forward):
        y = part(x).data
        np.testing.assert_allclose(y.mean(-1), 0, atol=1e-6)
        expected = part.normalize(x + part.branch(x)).data  # type: ignore[misc]
        np.testing.assert_array_equal(y, expected)


def test_attention_weights_of_every_kind() -> None:
    x = Tensor(np.random.default_rng(0).normal(size=(2, 4, 6)).astype(np.float32))
    for position in ("pre", "post"):
        layer = GPTAttention(6, 3, norm_position=position, bias=False)
        h = layer.normalize(x) if position == "pre" else x  # type: ignore[misc]
        q, k = (
            f(h).data.reshape(2, 4, 3, 2).transpose(0, 2, 1, 3) for f in (layer.query, layer.key)
        )
        e = np.tril(np.exp(q @ k.swapaxes(2, 3) / math.sqrt(2)))
        np.testing.assert_allclose(layer.weights(x).data, e / e.sum(-1, keepdims=True), rtol=1e-4)
        assert layer.query.bias is None


def test_without_bias_only_the_head_may_have_one() -> None:
    names = [n for n, _ in GPT(11, 8, 6, 3, 2, bias=False).named_parameters()]
    assert [n for n in names if n.endswith("bias")] == ["output.linear.bias"]
    names = [n for n, _ in GPT(11, 8, 6, 3, 2, bias=False, head_bias=False).named_parameters()]
    assert not any(n.endswith("bias") for n in names)


def test_kinds_of_norm() -> None:
    for norm, kind in (("LayerNorm", LayerNorm), ("RMSNorm", RMSNorm)):
        model = GPT(11, 8, 6, 3, 1, norm=norm)  # type: ignore[arg-type]
        found = [layer for layer in model.sublayers() if isinstance(layer, LayerNorm | RMSNorm)]
        assert [type(layer) for layer in found] == [kind] * 3
    model = GPT(11, 8, 6, 3, 1, norm=None)
    assert not any(isinstance(layer, LayerNorm | RMSNorm) for layer in model.sublayers())


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


@every_choice
def test_number_of_parameters(options: dict[str, Any]) -> None:
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


# 设置


@every_choice
@pytest.mark.parametrize("init", ["he", "gpt2"])
def test_config_rebuilds_the_model(options: dict[str, Any], init: Any, tmp_path: Any) -> None:
    model = GPT(11, 8, 6, 3, 2, **options, init=init)
    config = json.loads(json.dumps(model.config))
    for key, value in {**options, "init": init}.items():
        assert config[key] == value
        assert type(config[key]) is type(value)
    other = GPT(**config)
    assert other.config == config
    other.load_state_dict(model.state_dict())
    ids = Tensor([[0, 6, 3, 2, 1]])
    np.testing.assert_array_equal(other.eval()(ids).data, model.eval()(ids).data)
    loaded, _ = load_model(save_model(tmp_path, model, CharTokenizer("abcdefghijk")))
    assert loaded.config == config
    np.testing.assert_array_equal(loaded.eval()(ids).data, model(ids).data)


def test_config_is_the_defaults() -> None:
    model = GPT(11, 8, 6, 3, 2)
    old = {k: v for k, v in model.config.items() if k in ("head_bias", "tied")}
    sizes = {"vocab_size": 11, "context_size": 8, "embedding_size": 6, "heads": 3, "blocks": 2}
    assert GPT(**sizes, **old).config == model.config  # 以前保存的设置没有新的键
    assert GPT(11, 8, 6, 3, 2, dropout=np.float32(0.5)).config["dropout"] == 0.5
    assert type(GPT(11, 8, 6, 3, 2, dropout=0).config["dropout"]) is float


GOOD = (11, 8, 6, 3, 2)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: GPT(*GOOD, dropout=1.0), ArgumentError, r"GPT：dropout .*0 ≤ dropout < 1.*1\.0"),
        (lambda: GPT(*GOOD, dropout=-0.1), ArgumentError, r"dropout .*-0\.1"),
        (lambda: GPT(*GOOD, dropout=math.nan), ArgumentError, "dropout .*nan"),
        (lambda: GPT(*GOOD, dropout=True), ArgumentError, "dropout .*True"),
        (lambda: GPT(*GOOD, dropout="0.1"), ArgumentError, r"dropout .*'0\.1'"),
        (lambda: GPT(*GOOD, norm="layernorm"), ArgumentError, "'LayerNorm'、'RMSNorm'、None"),
        (lambda: GPT(*GOOD, norm=LayerNorm), ArgumentError, "norm .*LayerNorm"),
        (lambda: GPT(*GOOD, norm=["LayerNorm"]), ArgumentError, "norm .*LayerNorm"),
        (lambda: GPT(*GOOD[:4], 0, norm_position="Pre"), ArgumentError, "'pre'、'post'.*'Pre'"),
        (lambda: GPT(*GOOD, norm_position=None), ArgumentError, "norm_position .*None"),
        (lambda: GPT(*GOOD[:4], 0, init="xavier"), ArgumentError, "'he'、'gpt2'.*'xavier'"),
        (lambda: GPT(*GOOD, bias=1), DtypeError, "GPT：bias 必须是 True 或 False，这里是 1"),
        (lambda: GPT(*GOOD, tied="no"), DtypeError, "tied .*'no'"),
        (lambda: GPT(*GOOD, head_bias=None), DtypeError, "GPT：head_bias .*None"),
        (lambda: GPTAttention(6, 3, norm="x"), ArgumentError, "GPTAttention：norm .*'x'"),
        (lambda: GPTAttention(6, 3, blocks=0), ArgumentError, "GPTAttention：blocks .*0"),
        (lambda: GPTFeedForward(6, init="x"), ArgumentError, "GPTFeedForward：init .*'x'"),
        (lambda: GPTFeedForward(6, dropout=2), ArgumentError, "GPTFeedForward：dropout .*2"),
        (lambda: GPTEmbedding(3, 4, 5, dropout=2), ArgumentError, "GPTEmbedding：dropout .*2"),
        (lambda: GPTOutput(6, 3, norm="x"), ArgumentError, "GPTOutput：norm .*'x'"),
        (lambda: LayerNorm(6, bias=None), DtypeError, "LayerNorm：bias .*None"),
        (lambda: Linear(3, 2, np.random.default_rng(0)), DtypeError, "Linear：bias .*Generator"),
        (lambda: Linear(3, 2, std=-1), ArgumentError, "Linear：std .*-1"),
        (
            lambda: Linear(3, 2, weight=Tensor(np.zeros((3, 2)))),
            ShapeError,
            r"Linear：共用的权重形状 \(3, 2\).*\(2, 3\)",
        ),
        (lambda: GPT(2, 2, 10**9, 1, 1), ArgumentError, "不能超过 10 亿，这里是 3000000000"),
    ],
)
def test_bad_options_are_named(build: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message), without_values():
        build()


def test_linear_may_share_a_weight_and_take_a_deviation() -> None:
    a = Linear(30, 40, std=0.5, rng=np.random.default_rng(0))
    assert a.weight.data.std() == pytest.approx(0.5, rel=0.1)
    rng = np.random.default_rng(0)
    b = Linear(30, 40, rng=rng, weight=a.weight)
    assert b.weight is a.weight
    assert rng.bit_generator.state == np.random.default_rng(0).bit_generator.state
    assert not Linear(3, 2, std=0).weight.data.any()
