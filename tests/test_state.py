"""状态的保存与读回：冻结的参数、常量、共用的张量；模型的设置"""

import json
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from gptcore import (
    GPT,
    AdamWOptimizer,
    ArgumentError,
    Dropout,
    DtypeError,
    Embedding,
    GPTAttention,
    GPTLoss,
    Layer,
    LayerNorm,
    Linear,
    ReLU,
    RMSNorm,
    Sequential,
    ShapeError,
    Tensor,
)
from gptcore.models.generation import generate_ids, sample
from gptcore.random import resolve_rng

TIED = "output.linear.weight"


def model(seed: int = 0, **settings: Any) -> GPT:
    return GPT(7, 4, 6, 3, 1, rng=np.random.default_rng(seed), **settings)


def same(a: Layer, b: Layer) -> bool:
    x, y = a.state_dict(), b.state_dict()
    return x.keys() == y.keys() and all(np.array_equal(x[n], y[n]) for n in x)


def test_frozen_parameters_are_state_but_not_parameters() -> None:
    a, b = model(0), model(1)
    for m in (a, b):
        m.embedding.embedding.weight.requires_grad = False
    assert set(a.state_dict()) == set(model().state_dict())
    assert len(a.parameters) == len(model().parameters) - 1
    assert len(list(a.named_parameters())) == len(a.parameters)
    b.load_state_dict({n: x.copy() for n, x in a.state_dict().items()})
    assert same(a, b)
    ids = Tensor([[1, 2, 3]])
    assert_array_equal(a(ids).data, b(ids).data)
    model(1).load_state_dict(a.state_dict())  # 没有冻结的模型读得回来
    a.astype(np.float64)
    assert {x.dtype for x in a.state_dict().values()} == {np.dtype(np.float64)}


def test_constants_are_state() -> None:
    class Shift(Layer):
        def __init__(self, value: float) -> None:
            self.table = {"shift": Tensor([value], requires_grad=False)}
            self.ids = Tensor(np.arange(3))  # 整数不是

        def forward(self, x: Tensor) -> Tensor:
            return x + self.table["shift"]

    a, b = Shift(1), Shift(2)
    assert a.parameters == []
    assert set(a.state_dict()) == {"table.shift"}
    b.load_state_dict(a.state_dict())
    assert b(Tensor([0.0])).data == 1


def test_tied_weights_are_saved_once_and_tied_again() -> None:
    a = model(0)
    a.output.linear.weight = a.embedding.embedding.weight
    assert TIED not in a.state_dict()
    b = GPT(**a.config)
    assert b.output.linear.weight is b.embedding.embedding.weight
    assert b.num_parameters == a.num_parameters == model().num_parameters - 7 * 6
    b.load_state_dict(a.state_dict())
    assert same(a, b)
    assert model(tied=True).config["tied"]
    optimizer = AdamWOptimizer(b.parameter_groups())
    GPTLoss()(b(Tensor([[1, 2]])), Tensor([[2, 3]])).backward()
    optimizer.step()
    assert b.output.linear.weight is b.embedding.embedding.weight


def test_an_alias_of_a_tied_weight_is_optional() -> None:
    tied = model(tied=True)
    table = np.random.default_rng(0).normal(size=(7, 6)).astype(np.float32)
    state = {**tied.state_dict(), "embedding.embedding.weight": table}
    tied.load_state_dict({**state, TIED: table.copy()})
    assert_array_equal(tied.output.linear.weight.data, table)
    del state["embedding.embedding.weight"]
    tied.load_state_dict({**state, TIED: 2 * table})  # 只给出另一个名字
    assert_array_equal(tied.embedding.embedding.weight.data, 2 * table)
    with pytest.raises(ShapeError, match=r"output\.linear\.weight：.*同一个张量.*不同"):
        tied.load_state_dict({**state, "embedding.embedding.weight": table, TIED: 2 * table})
    with pytest.raises(ShapeError, match=r"缺少 output\.linear\.weight"):
        model().load_state_dict(tied.state_dict())  # 没有共用的模型，两个都要


def test_what_is_not_a_state() -> None:
    layer = Linear(2, 2)
    with pytest.raises(DtypeError, match=r"load_state_dict：.*list.*state_dict\(\)"):
        layer.load_state_dict([1])  # type: ignore[arg-type]
    layer.weight.data.flags.writeable = False
    before = layer.bias.data.copy()  # type: ignore[union-attr]
    with pytest.raises(ShapeError, match=r"weight：.*只读"):
        layer.load_state_dict({"bias": np.ones(2), "weight": np.ones((2, 2))})
    assert_array_equal(layer.bias.data, before)  # type: ignore[union-attr]


def test_settings_are_plain_python_values() -> None:
    sizes = np.array([7, 4, 6, 3, 1])
    settings = GPT(*sizes, head_bias=np.bool_(False)).config  # type: ignore[arg-type]
    assert json.loads(json.dumps(settings)) == settings
    assert {type(value) for value in settings.values()} == {int, bool, float, str}
    sizes_and_head = [7, 4, 6, 3, 1, False, False]
    assert list(settings.values()) == [*sizes_and_head, True, 0.0, "LayerNorm", "pre", 1e-5, "he"]
    small = np.int8(100)  # 3 × 100 装不进 int8
    assert GPTAttention(small, 2).c_attn.weight.shape == (300, 100)


@pytest.mark.parametrize(
    "build",
    [
        lambda n: Linear(n, 2),
        lambda n: Linear(2, n),
        lambda n: Embedding(n, 2),
        LayerNorm,
        RMSNorm,
        lambda n: GPT(n, 4, 6, 3, 1),
        lambda n: GPT(7, n, 6, 3, 1),
        lambda n: GPT(7, 4, n, 3, 1),
        lambda n: GPT(7, 4, 6, n, 1),
        lambda n: GPT(7, 4, 6, 3, n),
        lambda n: LayerNorm(2, eps=n),
        lambda n: Embedding(2, 2, std=n),
        Dropout,
        lambda n: Tensor([1.0]) ** n,
        lambda n: Tensor([1.0]) + n,
    ],
)
def test_absurd_numbers(build: Any) -> None:
    with pytest.raises((ArgumentError, DtypeError)) as caught:
        build(10**5000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("Linear", lambda rng: Linear(2, 2, rng=rng)),
        ("Embedding", lambda rng: Embedding(2, 2, rng=rng)),
        ("Dropout", lambda rng: Dropout(0.5, rng)),
        ("GPT", lambda rng: GPT(7, 4, 6, 3, 1, rng=rng)),
        ("sample", lambda rng: sample(np.ones(2), rng)),
        ("generate", lambda rng: generate_ids(model(), [1], 2, 4, rng=rng)),
    ],
)
def test_a_seed_is_not_a_generator(name: str, build: Any) -> None:
    with pytest.raises(DtypeError, match=rf"{name}：rng .*int.*rng=np\.random\.default_rng\(7\)"):
        build(7)
    with pytest.raises(DtypeError, match=r"default_rng\(42\)"):
        build("a")
    assert resolve_rng("x", None) is not None


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Sequential(Linear(2, 2)), r"Sequential：各层要写成一个列表.*这里是 Linear"),  # type: ignore[arg-type]
        (lambda: Sequential(Linear(2, 2), ReLU()), r"各层要写成一个列表.*\[Linear\(3, 2\), ReLU\(\)\]"),  # type: ignore[arg-type]
        (lambda: Sequential([3]), r"Sequential：第 0 项不是层，而是 3"),  # type: ignore[list-item]
        (lambda: Sequential([Linear(3, 2), ReLU]), r"第 1 项不是层.*ReLU.*请写 ReLU\(…\)"),  # type: ignore[list-item]
    ],
)  # fmt: skip
def test_what_is_not_a_list_of_layers(build: Any, message: str) -> None:
    with pytest.raises(DtypeError, match=message):
        build()


def test_attention_weights_of_a_list() -> None:
    attention = GPTAttention(2, 1)
    x = [[[1.0, 2.0], [3.0, 4.0]]]
    assert_array_equal(attention.weights(x).data, attention.weights(Tensor(x)).data)  # type: ignore[arg-type]
    assert attention(x).shape == (1, 2, 2)
