"""GPT 的选项：梯度、因果性、结构、设置的保存与重建、错误的消息"""

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from gradcheck import check_gradients, check_layer

from gptcore import (
    GPT,
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
    ShapeError,
    Tensor,
    load_model,
    no_grad,
    save_model,
)
from gptcore.data import CharTokenizer
from gptcore.layers import without_values

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


@pytest.mark.parametrize("norm", ["LayerNorm", "RMSNorm"])
@pytest.mark.parametrize("position", ["pre", "post"])
def test_norm_eps_reaches_every_norm(norm: Any, position: Any, tmp_path: Any) -> None:
    model = GPT(11, 8, 6, 3, 2, norm=norm, norm_position=position, norm_eps=0.25)
    for again in (model, load_model(save_model(tmp_path, model, CharTokenizer("abcdefghijk")))[0]):
        norms = [x for x in again.sublayers() if isinstance(x, LayerNorm | RMSNorm)]
        assert [x.eps for x in norms] == [0.25] * (5 if position == "pre" else 4)
        assert again.config["norm_eps"] == 0.25
    assert GPT(11, 8, 6, 3, 2).config["norm_eps"] == 1e-5


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
        (lambda: GPT(*GOOD, norm_eps=-1e-5), ArgumentError, "GPT：norm_eps .*-1e-05"),
        (lambda: GPT(*GOOD, norm_eps="1e-5"), ArgumentError, "GPT：norm_eps .*'1e-5'"),
        (lambda: GPTOutput(6, 3, norm_eps=math.inf), ArgumentError, "GPTOutput：norm_eps .*inf"),
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
