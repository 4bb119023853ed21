"""优化器的状态：存下来再读回去，一位也不差；有一处不符就什么也不写"""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from gptcore import (
    AdamWOptimizer,
    ArgumentError,
    DtypeError,
    Optimizer,
    SGDOptimizer,
    ShapeError,
    Tensor,
)
from gptcore.kernels.array import BLOCK, Array

State = dict[str, Any]


def parameters(dtype: Any = np.float32) -> list[Tensor]:
    """小的合在一起，大的独自一个；有 0 维的、空的与不连续的。"""
    rng = np.random.default_rng(0)
    arrays = [
        rng.normal(size=(2, 3)),
        np.asarray(rng.normal()),
        rng.normal(size=(0, 3)),
        rng.normal(size=(4, 5, 2)).transpose(2, 0, 1),
        rng.normal(size=BLOCK + 5),
        rng.normal(size=(300, 250)).T,
    ]
    return [Tensor(a.astype(dtype)) for a in arrays]


def groups(given: list[Tensor]) -> list[dict[str, Any]]:
    return [
        {"parameters": given[::2], "weight_decay": 0.1},
        {"parameters": given[1::2], "weight_decay": 0.0},
    ]


def train(optimizer: Optimizer, steps: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for i in range(steps):
        for p in optimizer.parameters:
            g = rng.normal(size=p.shape)
            if p.requires_grad:
                p.grad = g
        optimizer.lr = 0.01 / (i + 1)
        optimizer.step()


def assert_same(a: State, b: State) -> None:
    assert list(a) == list(b)
    for name in a:
        assert a[name].dtype == b[name].dtype
        assert_array_equal(a[name], b[name], err_msg=name, strict=True)


def test_names_shapes_and_types() -> None:
    given = [Tensor(np.ones((2, 3), np.float32)), Tensor(np.ones(()))]
    adamw = AdamWOptimizer(given, lr=0.25)
    adamw.step()
    state = adamw.state_dict()
    assert {n: (a.shape, a.dtype) for n, a in state.items()} == {
        "lr": ((), np.float64),
        "steps": ((), np.int64),
        "m.0": ((2, 3), np.float32),
        "v.0": ((2, 3), np.float32),
        "m.1": ((), np.float64),
        "v.1": ((), np.float64),
    }
    assert (float(state["lr"]), int(state["steps"]), adamw.steps) == (0.25, 1, 1)
    assert SGDOptimizer(given, 0.5).state_dict() == {"lr": 0.5}


def test_moments_are_those_of_their_parameter() -> None:
    """第一步之后 m 是 0.1 g，v 是 0.001 g²：不会张冠李戴。"""
    optimizer = AdamWOptimizer(groups(parameters(np.float64)))
    for i, p in enumerate(optimizer.parameters):
        p.grad = np.full(p.shape, i + 1.0)
    optimizer.step()
    state = optimizer.state_dict()
    for i, p in enumerate(optimizer.parameters):
        np.testing.assert_allclose(state[f"m.{i}"], np.full(p.shape, 0.1 * (i + 1)), rtol=1e-12)
        np.testing.assert_allclose(
            state[f"v.{i}"], np.full(p.shape, 0.001 * (i + 1) ** 2), rtol=1e-12
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [SGDOptimizer, AdamWOptimizer])
def test_resuming_is_bit_exact(kind: Any, dtype: Any) -> None:
    through = kind(groups(parameters(dtype)), lr=0.5)
    train(through, 3, 1)
    first = kind(groups(parameters(dtype)), lr=0.5)
    train(first, 3, 1)
    again = kind(groups(parameters(dtype)), lr=0.125)
    for p, q in zip(again.parameters, first.parameters, strict=True):
        p.data[...] = q.data
    again.load_state_dict(first.state_dict())
    assert again.lr == through.lr
    assert_same(again.state_dict(), first.state_dict())
    train(through, 70, 2)
    train(again, 70, 2)
    assert_same(again.state_dict(), through.state_dict())
    for p, q in zip(again.parameters, through.parameters, strict=True):
        assert_array_equal(p.data, q.data)


def test_copies_are_independent() -> None:
    optimizer = AdamWOptimizer(parameters())
    train(optimizer, 1, 0)
    state = optimizer.state_dict()
    kept = copy.deepcopy(state)
    train(optimizer, 2, 0)
    assert_same(state, kept)
    optimizer.load_state_dict(state)
    for array in state.values():
        array[...] = 77
    assert_same(optimizer.state_dict(), kept)
    train(optimizer, 1, 0)
    assert all((array == 77).all() for array in state.values())


def test_saving_changes_nothing() -> None:
    one, other = (AdamWOptimizer(parameters()) for _ in range(2))
    for _ in range(3):
        train(one, 1, 0)
        train(other, 1, 0)
        one.state_dict()
    assert_same(one.state_dict(), other.state_dict())


def test_after_the_parameters_changed_their_type() -> None:
    optimizer = AdamWOptimizer(parameters())
    train(optimizer, 2, 0)
    before = optimizer.state_dict()
    for p in optimizer.parameters[:5:2]:
        p.data = p.data.astype(np.float64)
    state = optimizer.state_dict()
    for i, p in enumerate(optimizer.parameters):
        assert state[f"m.{i}"].dtype == state[f"v.{i}"].dtype == p.dtype
        assert_array_equal(state[f"m.{i}"], before[f"m.{i}"])
    again = AdamWOptimizer([Tensor(p.data.copy()) for p in optimizer.parameters])
    again.load_state_dict(state)
    for one in (optimizer, again):
        train(one, 3, 1)
    assert_same(optimizer.state_dict(), again.state_dict())
    for p, q in zip(optimizer.parameters, again.parameters, strict=True):
        assert p.dtype == q.dtype
        assert_array_equal(p.data, q.data)


def test_mixed_types_are_updated_each_in_its_own() -> None:
    """其中一个换成 float64 之后，它按 float64 更新，别的仍按 float32。"""
    mixed = [Tensor(np.full(3, 1 / 3, np.float32)) for _ in range(2)]
    alone = [Tensor(np.full(3, 1 / 3, np.float32)) for _ in range(2)]
    optimizers = [AdamWOptimizer(mixed), *(AdamWOptimizer([p]) for p in alone)]
    for p in (mixed[1], alone[1]):
        p.data = p.data.astype(np.float64)
    for i in range(3):
        for p in (*mixed, *alone):
            p.grad = np.full(3, 0.1 * (i + 1))
        for optimizer in optimizers:
            optimizer.step()
    for p, q in zip(mixed, alone, strict=True):
        assert p.dtype == q.dtype
        assert_array_equal(p.data, q.data)


def test_frozen_parameters_keep_their_moments() -> None:
    """冻结的参数，合在一起的与独自一个的一样：矩不动，存得下也读得回。"""
    optimizer = AdamWOptimizer(parameters())
    train(optimizer, 2, 0)
    before = optimizer.state_dict()
    frozen = [0, 3, 4]
    for i in frozen:
        optimizer.parameters[i].requires_grad = False
    train(optimizer, 2, 1)
    state = optimizer.state_dict()
    for i in range(6):
        if optimizer.parameters[i].size:
            same = np.array_equal(state[f"m.{i}"], before[f"m.{i}"])
            assert same == (i in frozen)
    again = AdamWOptimizer([Tensor(p.data.copy()) for p in optimizer.parameters])
    for i in frozen:
        again.parameters[i].requires_grad = False
    again.load_state_dict(state)
    for one in (optimizer, again):
        train(one, 1, 2)
        for i in frozen:
            one.parameters[i].requires_grad = True
        train(one, 2, 3)
    assert_same(optimizer.state_dict(), again.state_dict())
    for p, q in zip(optimizer.parameters, again.parameters, strict=True):
        assert_array_equal(p.data, q.data)


def changed(name: str, value: Any) -> Callable[[State], State]:
    return lambda state: {**state, name: value}


WRONG: dict[str, tuple[Callable[[State], Any], Any, str]] = {
    "缺少": (lambda s: {n: a for n, a in s.items() if n != "v.1"}, ShapeError, r"缺少 v\.1，形状 \(\)"),
    "缺少步数": (lambda s: {n: a for n, a in s.items() if n != "steps"}, ShapeError, r"缺少 steps"),
    "多出": (changed("m.6", np.ones(2)), ShapeError, r"多出 m\.6，形状 \(2,\)"),
    "形状": (changed("m.0", np.ones((3, 2), np.float32)), ShapeError, r"m\.0：.*\(2, 3\).*\(3, 2\)"),
    "步数的形状": (changed("steps", np.ones(1, np.int64)), ShapeError, r"steps：.*\(\).*\(1,\)"),
    "类型": (changed("m.0", np.ones((2, 3))), DtypeError, r"m\.0：.*float32.*float64"),
    "字节序": (changed("m.0", np.ones((2, 3), ">f4")), DtypeError, r"m\.0：.*float32.*>f4"),
    "文字": (changed("v.0", np.full((2, 3), "a")), DtypeError, r"v\.0：.*float32.*<U1"),
    "对象": (changed("v.0", np.full((2, 3), None)), DtypeError, r"v\.0：.*object"),
    "不是数组": (changed("v.5", [1.0]), DtypeError, r"v\.5 不是数组，是 list"),
    "小数的步数": (changed("steps", np.array(3.0)), DtypeError, r"steps：.*int64.*float64"),
    "负的步数": (changed("steps", np.array(-1)), ArgumentError, r"steps 必须是非负.*-1"),
    "负的学习率": (changed("lr", np.array(-0.5)), ArgumentError, r"lr 必须是非负.*-0\.5"),
    "学习率 NaN": (changed("lr", np.array(np.nan)), ArgumentError, r"lr 必须是非负的有限数.*nan"),
    "学习率无穷": (changed("lr", np.array(np.inf)), ArgumentError, r"lr 必须是非负的有限数.*inf"),
    "不是字典": (lambda s: list(s.items()), DtypeError, r"从名字到数组的字典，这里是 list"),
    "SGD 的": (lambda s: {"lr": s["lr"]}, ShapeError, r"缺少 steps.*\n.*缺少 m\.0"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "kind", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_state_writes_nothing(
    change: Callable[[State], Any], kind: type[Exception], message: str
) -> None:
    optimizer, other = AdamWOptimizer(parameters()), AdamWOptimizer(parameters(), lr=0.5)
    train(optimizer, 2, 0)
    before = optimizer.state_dict()
    with pytest.raises(kind, match="(?s)AdamWOptimizer.load_state_dict：.*" + message) as caught:
        optimizer.load_state_dict(change(other.state_dict()))
    assert type(caught.value) is kind
    assert_same(optimizer.state_dict(), before)


def test_all_problems_are_listed_at_once() -> None:
    optimizer = AdamWOptimizer([Tensor([1.0])])
    state: State = {**optimizer.state_dict(), "m.0": np.ones(2), "x": np.ones(1), "v.0": None}
    del state["steps"]
    with pytest.raises(ShapeError) as caught:
        optimizer.load_state_dict(state)
    assert all(word in str(caught.value) for word in ("m.0", "多出 x", "v.0", "缺少 steps"))


def test_an_optimizer_of_ones_own_saves_its_own_arrays() -> None:
    class Momentum(Optimizer):
        def __init__(self, parameters: list[Tensor], lr: float) -> None:
            super().__init__(parameters, lr)
            self.velocity = [np.zeros_like(p.data) for p in self.parameters]

        def step(self) -> None:
            for p, u in zip(self.parameters, self.velocity, strict=True):
                u *= 0.9
                u += p.grad
                p.data -= p.dtype.type(self.lr) * u

        def state_arrays(self) -> dict[str, Array]:
            own = {f"velocity.{i}": u for i, u in enumerate(self.velocity)}
            return super().state_arrays() | own

    optimizer, again = Momentum(parameters(), 0.1), Momentum(parameters(), 0.2)
    train(optimizer, 2, 0)
    again.load_state_dict(optimizer.state_dict())
    assert_same(again.state_dict(), optimizer.state_dict())
    assert len(again.state_dict()) == 7


def test_a_copy_of_the_optimizer_goes_its_own_way() -> None:
    optimizer = AdamWOptimizer(parameters())
    train(optimizer, 2, 0)
    other = copy.deepcopy(optimizer)
    before = other.state_dict()
    train(optimizer, 1, 1)
    assert_same(other.state_dict(), before)
    train(other, 1, 1)
    assert_same(other.state_dict(), optimizer.state_dict())
