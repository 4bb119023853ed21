"""层：梯度、数值、参数的查找、状态的保存与读回、训练与评估模式"""

import contextlib
import copy
import pickle
from typing import Any

import numpy as np
import pytest
from gradcheck import check_gradients, check_layer, distinct
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

import gptcore
from gptcore import (
    GELU,
    Composite,
    Dropout,
    Embedding,
    Layer,
    LayerNorm,
    Linear,
    MeanPool,
    ReLU,
    RMSNorm,
    Sequential,
    Softmax,
    Tensor,
    Tril,
)

SEED = st.integers(0, 2**32 - 1)
SIZE = st.integers(1, 5)
LEAD = array_shapes(min_dims=0, max_dims=3, max_side=3)
SHAPE = array_shapes(min_dims=0, max_dims=4, max_side=4)


# 梯度


@given(LEAD, SIZE, SIZE, st.booleans(), SEED)
def test_linear(lead: Any, inputs: int, outputs: int, bias: bool, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(*lead, inputs))
    layer = Linear(inputs, outputs, bias)
    check_layer(layer, x, seed=seed)
    expected = x @ layer.weight.data.T + (0 if layer.bias is None else layer.bias.data)
    np.testing.assert_allclose(layer(Tensor(x)).data, expected, atol=1e-12)


@given(LEAD, SIZE, SIZE, SEED)
def test_embedding(lead: Any, vocab: int, size: int, seed: int) -> None:
    ids = np.random.default_rng(seed).integers(0, vocab, lead)
    layer = Embedding(vocab, size)
    check_layer(layer, ids, seed=seed)
    np.testing.assert_array_equal(layer(Tensor(ids)).data, layer.weight.data[ids])


@given(LEAD, st.integers(2, 6), SEED)
@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
def test_normalization(kind: Any, lead: Any, size: int, seed: int) -> None:
    x = distinct(np.random.default_rng(seed), *lead, size, gap=0.7)
    check_layer(kind(size), x, seed=seed)


@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
def test_normalization_of_one_number(kind: Any) -> None:
    check_layer(kind(1, eps=0.5), np.array([[0.7], [-1.3]]))


def test_what_normalization_does() -> None:
    x = Tensor(np.random.default_rng(0).normal(3, 5, (4, 64)))
    y = LayerNorm(64).astype(np.float64)(x).data
    np.testing.assert_allclose(y.mean(-1), 0, atol=1e-12)
    np.testing.assert_allclose(y.var(-1), 1, atol=1e-5)  # 有偏的方差
    y = RMSNorm(64).astype(np.float64)(x).data
    np.testing.assert_allclose((y * y).mean(-1), 1, atol=1e-5)


@given(SHAPE, SEED)
def test_elementwise_layers(shape: Any, seed: int) -> None:
    x = distinct(np.random.default_rng(seed), *shape)
    check_layer(ReLU(), x, seed=seed)
    check_layer(GELU(), x, seed=seed)


@given(array_shapes(min_dims=1, max_dims=4, max_side=4), st.data(), SEED)
def test_softmax(shape: Any, data: Any, seed: int) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = np.random.default_rng(seed).normal(size=shape)
    check_layer(Softmax(axis), x, seed=seed)
    np.testing.assert_allclose(Softmax(axis)(Tensor(x)).data.sum(axis), 1, atol=1e-14)


@given(array_shapes(min_dims=2, max_dims=4, max_side=4), SEED)
def test_tril(shape: Any, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=shape)
    check_layer(Tril(-7), x, seed=seed)
    y = Tril(0)(Tensor(x)).data
    np.testing.assert_array_equal(y, np.tril(x))
    assert Tril()(Tensor(np.zeros((2, 2), np.float32))).data[0, 1] == np.float32(-1e9)


@given(array_shapes(min_dims=2, max_dims=4, max_side=4), SEED)
def test_mean_pool(shape: Any, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=shape)
    check_layer(MeanPool(), x, seed=seed)
    np.testing.assert_allclose(MeanPool()(Tensor(x)).data, x.mean(1), atol=1e-14)


@given(SHAPE, st.sampled_from([0.0, 0.25, 0.9]), SEED)
def test_dropout(shape: Any, p: float, seed: int) -> None:
    x = Tensor(np.random.default_rng(seed).normal(1, 0.1, shape))
    # 每次前向都从同一个种子开始，好让掩码相同
    check_gradients(lambda: Dropout(p, np.random.default_rng(seed))(x), [x])
    assert Dropout(p).eval()(x) is x


def test_dropout_keeps_the_mean_and_follows_the_seed() -> None:
    x = Tensor(np.ones(20_000, np.float32))
    np.random.seed(1)
    y = Dropout(0.3)(x)
    assert y.data.mean() == pytest.approx(1, abs=0.02)
    assert (y.data == 0).mean() == pytest.approx(0.3, abs=0.02)
    np.testing.assert_allclose(np.unique(y.data), [0, 1 / 0.7], rtol=1e-6)
    np.random.seed(1)
    np.testing.assert_array_equal(Dropout(0.3)(x).data, y.data)


def test_initial_values() -> None:
    rng = np.random.default_rng(0)
    w = Linear(200, 300, rng=rng)
    assert w.weight.shape == (300, 200)
    assert w.weight.data.std() == pytest.approx(np.sqrt(2 / 200), rel=0.02)
    assert w.bias is not None
    assert not w.bias.data.any()
    assert Embedding(300, 200, rng=rng).weight.data.std() == pytest.approx(0.02, rel=0.02)
    np.random.seed(5)
    a = Linear(3, 2).weight.data
    np.random.seed(5)
    np.testing.assert_array_equal(Linear(3, 2).weight.data, a)


# 参数的查找


class Everything(Layer):
    """张量与子层放在各处；没有调用 super().__init__()"""

    def __init__(self) -> None:
        self.b = Tensor([1.0])
        self.a = Linear(2, 3)
        self.items = [Tensor([2.0]), (Linear(1, 1, bias=False), {"x": Tensor([3.0])})]
        self.table = {"k": LayerNorm(2), "self": self}
        self.again = self.a  # 共用的层
        self.tied = self.a.weight
        self.constant = Tensor([4.0], requires_grad=False)
        self.ids = Tensor(range(3))
        self.array = np.ones(3)
        self.name = "名字"

    def forward(self, x: Tensor) -> Tensor:
        return x


NAMES = ["b", "a.weight", "a.bias", "items.0", "items.1.0.weight", "items.1.1.x"]
NAMES += ["table.k.weight", "table.k.bias"]


def test_parameters_are_found_once_in_definition_order() -> None:
    layer = Everything()
    assert [name for name, _ in layer.named_parameters()] == NAMES
    assert len({id(p) for p in layer.parameters}) == len(NAMES)
    assert layer.num_parameters == 1 + 6 + 3 + 1 + 1 + 1 + 2 + 2
    assert layer.parameters[1] is layer.a.weight
    assert [name for name, _ in Sequential([layer]).named_parameters()] == [
        f"layers.0.{name}" for name in NAMES
    ]
    assert len(list(layer.sublayers())) == 4


def test_modes_reach_every_layer_despite_the_cycle() -> None:
    layer = Everything()
    layer.eval()
    assert not any(inner.training for inner in layer.sublayers())
    layer.train()
    assert all(inner.training for inner in layer.sublayers())


class Chosen(Layer):
    """自己说出哪些是参数：有一个只在闭包里，属性里找不到"""

    def __init__(self) -> None:
        self.weight, self.frozen = Tensor([1.0, 2.0]), Tensor([3.0])
        hidden = Tensor([[4.0]])
        self.hidden = lambda: hidden

    @property
    def parameters(self) -> list[Tensor]:
        return [self.hidden(), self.weight]

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def test_a_layer_may_override_parameters() -> None:
    chosen = Chosen()
    assert [n for n, _ in chosen.named_parameters()] == ["0", "weight"]
    model = Sequential([Linear(2, 2), chosen])
    assert [n for n, _ in model.named_parameters()] == [
        "layers.0.weight",
        "layers.0.bias",
        "layers.1.0",
        "layers.1.weight",
    ]
    assert model.parameters[2:] == chosen.parameters
    assert set(chosen.state_dict()) == {"0", "weight", "frozen"}  # 不训练的也要保存
    groups = model.parameter_groups(0.1)
    assert [[p.ndim for p in g["parameters"]] for g in groups] == [[2, 2], [1, 1]]


def test_super_parameters_may_be_extended() -> None:
    class More(Composite):
        @property
        def parameters(self) -> list[Tensor]:
            return [*super().parameters, self.layers[0].weight]

        def forward(self, x: Tensor) -> Tensor:
            return self.layers[0](x)

    layer = More([Linear(2, 2)])
    assert len(layer.parameters) == 3
    assert [n for n, _ in layer.named_parameters()] == ["layers.0.weight", "layers.0.bias"]


def test_a_layer_may_override_train() -> None:
    class Frozen(Sequential):
        def train(self) -> Any:
            return self.eval()

    model = Sequential([Frozen([Dropout()]), Dropout()])
    model.train()
    frozen, free = model.layers
    assert (frozen.training, frozen.layers[0].training, free.training) == (False, False, True)  # type: ignore[attr-defined]


def test_evaluating_restores_every_layer_to_its_own_mode() -> None:
    model = Sequential([Dropout(), Sequential([Dropout()])])
    model.layers[1].eval()
    before = [layer.training for layer in model.sublayers()]
    with contextlib.suppress(ZeroDivisionError), model.evaluating():
        assert not any(layer.training for layer in model.sublayers())
        _ = 1 / 0
    assert [layer.training for layer in model.sublayers()] == before


def test_decay_groups() -> None:
    model = gptcore.GPT(5, 4, 6, 3, 1)
    decayed, kept = (group["parameters"] for group in model.parameter_groups(0.1))
    named = {id(p): n for n, p in model.named_parameters()}
    assert all(named[id(p)].endswith("weight") and p.ndim == 2 for p in decayed)
    assert {named[id(p)] for p in kept if p.ndim == 2} == {
        "embedding.embedding.weight",
        "embedding.positional_embedding.weight",
    }
    assert len(decayed) + len(kept) == len(model.parameters)


# 状态


def test_state_dict_round_trip() -> None:
    a, b = Everything(), Everything()
    state = {name: array.copy() for name, array in a.state_dict().items()}
    b.load_state_dict(state)
    for p, q in zip(a.parameters, b.parameters, strict=True):
        np.testing.assert_array_equal(p.data, q.data)
    assert b.tied is b.a.weight  # 共用的仍然共用
    before = b.a.weight.data
    b.load_state_dict({name: array.astype(np.float64) for name, array in state.items()})
    assert b.a.weight.data is before
    assert b.a.weight.dtype == np.float32


def test_every_mismatch_is_listed_and_nothing_is_written() -> None:
    layer = Everything()
    state = {name: array + 1 for name, array in layer.state_dict().items()}
    del state["b"], state["a.bias"]
    state["extra"], state["more"] = np.zeros((7, 8)), np.zeros(9)
    state["a.weight"] = np.zeros((2, 3))
    before = copy.deepcopy(layer.state_dict())
    with pytest.raises(gptcore.ShapeError) as caught:
        layer.load_state_dict(state)
    message = str(caught.value)
    for part in (
        "缺少 b，形状 (1,)",
        "缺少 a.bias，形状 (3,)",
        "多出 extra，形状 (7, 8)",
        "多出 more，形状 (9,)",
        "a.weight：参数形状 (3, 2)，给出的形状 (2, 3)",
        "请检查模型的设置",
    ):
        assert part in message
    for bad in (np.array(["x"]), [[1.0], [2.0, 3.0]], None):
        with pytest.raises(gptcore.DtypeError, match=r"load_state_dict：table\.k\.bias"):
            layer.load_state_dict({**before, "table.k.bias": bad})
    for name, array in layer.state_dict().items():
        np.testing.assert_array_equal(array, before[name])
    layer.load_state_dict({"b": np.array([8.0]), "unknown": np.zeros(1)}, strict=False)
    assert layer.b.data == 8


# 复制


def test_deepcopy_keeps_ties_and_views() -> None:
    model = gptcore.GPT(6, 4, 6, 3, 1)
    model.output.linear.weight = model.embedding.embedding.weight
    model.held = model.transformers[0].attention.query  # type: ignore[attr-defined]
    other = copy.deepcopy(model)
    assert other.output.linear.weight is other.embedding.embedding.weight
    assert other.embedding.embedding.weight is not model.embedding.embedding.weight
    attention = other.transformers[0].attention
    attention.c_attn.weight.data[...] = 3
    for view in (attention.query, attention.key, attention.value, other.held):  # type: ignore[attr-defined]
        assert (view.weight.data == 3).all()
    assert not (model.transformers[0].attention.c_attn.weight.data == 3).any()
    # 拿着视图也不会把同一个矩阵算两次
    assert (
        other.num_parameters
        == model.num_parameters
        == other.transformers[0].num_parameters
        + (gptcore.GPT(6, 4, 6, 3, 0).num_parameters - 6 * 6)
    )
    assert other.held.num_parameters == 6 * 6 + 6  # type: ignore[attr-defined]


def test_layers_may_be_pickled() -> None:
    layer = Sequential([Linear(2, 3), Dropout(0.5, np.random.default_rng(0)), LayerNorm(3)])
    other = pickle.loads(pickle.dumps(layer.eval()))  # noqa: S301
    x = Tensor(np.ones((2, 2), np.float32))
    np.testing.assert_array_equal(other(x).data, layer(x).data)
