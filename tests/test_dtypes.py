"""类型：float32 自始至终是 float32，整数还是整数；NumPy 1.26 与 2.x 一样"""

from typing import Any

import numpy as np
import pytest

import gptcore
from gptcore import GPT, AdamWOptimizer, GPTLoss, MSELoss, SGDOptimizer, Tensor

SCALARS: dict[str, Any] = {
    "int": 3,
    "float": 0.5,
    "bool": True,
    "np.float64": np.float64(0.5),
    "np.float32": np.float32(0.5),
    "np.int64": np.int64(3),
    "0 维数组": np.array(0.5),
    "0 维整数": np.array(3),
    "0 维张量": Tensor(np.array(0.5), requires_grad=False),
    "0 维整数张量": Tensor(np.array(3)),
    "列表": [0.5],
    "整数列表": [3],
    "嵌套": [[0.1], [0.2]],
}
SHAPES = [(), (1,), (2, 3)]


def operations(x: Tensor, c: Any) -> list[Tensor]:
    return [x + c, c + x, x - c, c - x, x * c, c * x, x / c, c / x]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scalars_follow_the_tensor(shape: Any, name: str, dtype: Any) -> None:
    c = SCALARS[name]
    if shape == () and isinstance(c, Tensor) and c.dtype != dtype and c.dtype.kind == "f":
        return  # 两个 0 维张量：由 NumPy 决定
    x = Tensor(np.ones(shape, dtype))
    for i in range(8):
        x.zero_grad()
        y = operations(x, c)[i]
        assert y.dtype == dtype
        y.sum().backward()
        assert x.grad.dtype == dtype
        assert isinstance(x.grad, np.ndarray)


def test_a_list_keeps_the_precision_of_the_other_side() -> None:
    x = Tensor(np.zeros(2))
    np.testing.assert_array_equal(([0.1, 0.2] * (x + 1)).data, [0.1, 0.2])
    np.testing.assert_array_equal((Tensor(np.eye(2)) @ [0.1, 0.2]).data, [0.1, 0.2])


def test_two_arrays_of_different_types() -> None:
    a, b = Tensor(np.ones(3, np.float32)), Tensor(np.ones(3))
    y = a * b  # 两个数组都不是 0 维：由 NumPy 决定
    assert y.dtype == np.float64
    y.sum().backward()
    assert (a.grad.dtype, b.grad.dtype) == (np.float32, np.float64)


METHODS: dict[str, Any] = {
    "neg": lambda x: -x,
    "pow2": lambda x: x**2,
    "pow3.0": lambda x: x**3.0,
    "pow4": lambda x: x**4,
    "pow-1": lambda x: x**-1,
    "pow0.5": lambda x: x ** np.float64(0.5),
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "sqrt": lambda x: x.sqrt(),
    "tanh": lambda x: x.tanh(),
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "max": lambda x: x.max(),
    "reshape": lambda x: x.reshape(-1),
    "transpose": lambda x: x.T,
    "getitem": lambda x: x[None],
    "getitem2": lambda x: x[...],
    "matmul": lambda x: x.reshape(-1, 1) @ [[0.5, 2]],
    "relu": gptcore.ReLU(),
    "gelu": gptcore.GELU(),
    "dropout": gptcore.Dropout(0.5),
    "softmax": lambda x: gptcore.Softmax()(x.reshape(-1)),
    "tril": lambda x: gptcore.Tril()(x.reshape(-1, 1)),
    "mse": lambda x: MSELoss()(x, x * 2),
    "mse2": lambda x: MSELoss()(x, Tensor(np.zeros(x.shape, np.int64))),
    "cross_entropy": lambda x: GPTLoss()(x.reshape(1, -1), Tensor([0])) * np.float64(2),
    "detach": lambda x: x.detach() * x,
    "mean_pool": lambda x: gptcore.MeanPool()(x.reshape(1, -1, 1)),
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", METHODS)
def test_operations_keep_the_type(shape: Any, dtype: Any, name: str) -> None:
    x = Tensor(np.full(shape, 0.7, dtype))
    y = METHODS[name](x)
    assert y.dtype == dtype
    assert isinstance(y.data, np.ndarray)
    y.sum().backward()
    assert x.grad.dtype == dtype
    assert isinstance(x.grad, np.ndarray)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_layers_with_parameters_keep_the_type(dtype: Any) -> None:
    layers = [
        (gptcore.Linear(4, 3), (2, 4)),
        (gptcore.Linear(4, 3, bias=False), (4,)),
        (gptcore.LayerNorm(4), (2, 4)),
        (gptcore.RMSNorm(4), (4,)),
        (gptcore.GPTAttention(4, 2), (2, 3, 4)),
        (gptcore.GPTFeedForward(4), (2, 3, 4)),
        (gptcore.GPTOutput(4, 5), (2, 3, 4)),
    ]
    for layer, shape in layers:
        layer.astype(dtype)
        x = Tensor(np.ones(shape, dtype))
        y = layer(x)
        assert y.dtype == dtype
        y.sum().backward()
        assert {t.grad.dtype for t in (x, *layer.parameters)} == {np.dtype(dtype)}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [SGDOptimizer, AdamWOptimizer])
def test_a_training_step_stays_in_its_type(dtype: Any, kind: Any) -> None:
    model = GPT(7, 5, 6, 3, 2).astype(dtype)
    optimizer = kind(model.parameters, lr=np.float64(1e-3))
    for _ in range(2):
        logits = model(Tensor([[1, 2, 3]]))
        loss = GPTLoss()(logits, Tensor([[2, 3, 4]])) * np.float64(0.5)
        loss.backward()
        optimizer.clip_grad_norm(np.float64(0.1))
        optimizer.step()
    everything = [logits, loss, *model.parameters]
    assert {t.dtype for t in everything} == {np.dtype(dtype)}
    assert {p.grad.dtype for p in model.parameters} == {np.dtype(dtype)}


# 整数


def test_integers_stay_integers() -> None:
    for x in (Tensor(range(1, 4)), Tensor(np.array([1, 2, 3], np.int32))):
        assert not x.requires_grad
        assert x.grad is None
        results = [x + 1, 2 * x, x - x, x**2, -x, x.sum(), x.max(), x[1:], x.reshape(3, 1), x.T]
        results.append(x @ x)
        for y in results:
            assert y.dtype.kind == "i"
            assert not y.requires_grad
    assert Tensor(range(3)).dtype == np.int64
    with pytest.raises(gptcore.DtypeError, match=r"int64.*astype\(np\.float32\)"):
        Tensor(range(3), requires_grad=True)


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i4", "u4", "u8"])
def test_integers_do_not_wrap(dtype: str) -> None:
    x = Tensor(np.array([1, 2], dtype))
    cases = [
        (x + 300, [301, 302]),
        (x + np.array(70_000), [70_001, 70_002]),
        (3 - x, [2, 1]),
        (x - 3, [-2, -1]),
        (x * 10**10, [10**10, 2 * 10**10]),
        (-x, [-1, -2]),
        ((x * 100) ** 2, [10_000, 40_000]),
        (Tensor(np.array([100, 100], dtype)) ** 3, [10**6, 10**6]),
        (x + np.array([300, 300]), [301, 302]),
        (x @ [300, 300], 900),
        (x * 100 + Tensor(np.array([100, 100], dtype)), [200, 300]),
        (Tensor(np.array([100, 100], dtype)) + Tensor(np.array([100, 100], dtype)), [200, 200]),
    ]
    for y, expected in cases:
        assert y.dtype == np.int64
        assert y.data.tolist() == expected


def test_unsigned_integers_beyond_int64() -> None:
    big = Tensor(np.array([2**63], np.uint64))
    for call in (lambda: big + 1, lambda: -big, lambda: big**2):
        with pytest.raises(gptcore.ArgumentError, match=r"9223372036854775808.*np\.float64"):
            call()


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble])
def test_only_float32_and_float64(dtype: Any) -> None:
    """float16 的平均会溢出，层归一化得到 0，裁剪的范数是无穷：不如不支持。"""
    array = np.ones(2, dtype)
    x = Tensor([1.0, 2.0])
    model = gptcore.Linear(2, 2)
    for call in (
        lambda: Tensor(array),
        lambda: Tensor(array, requires_grad=False),
        lambda: x + array,
        lambda: array * x,
        lambda: x.astype(dtype),
        lambda: model.astype(dtype),
    ):
        with pytest.raises(gptcore.DtypeError, match=rf"{np.dtype(dtype)}.*np\.float32"):
            call()
    model.load_state_dict({"weight": np.ones((2, 2), dtype), "bias": array})  # 读回时转换
    assert model.weight.dtype == np.float32
    assert Tensor([dtype(0.5)]).dtype == np.float32


def test_functions_of_integers_are_float32() -> None:
    x = Tensor(range(1, 4))
    results = [x * 0.5, x / 2, 1 / x, x - [0.5], x**-1, x**0.5, x.mean(), x.exp(), x.log()]
    results += [x.sqrt(), x.tanh(), x * np.float64(0.5), x @ [0.5, 1, 1]]
    for y in results:
        assert y.dtype == np.float32
        assert not y.requires_grad


def test_booleans_count_as_integers() -> None:
    x = Tensor(np.array([True, False]))
    for y, expected in ((x + x, [2, 0]), (x - x, [0, 0]), (x * 3, [3, 0]), (-x, [-1, 0])):
        assert y.data.tolist() == expected
    w = Tensor([2.0, 5.0])
    (w * x).sum().backward()
    np.testing.assert_array_equal(w.grad, [1, 0])


def test_integers_with_floats() -> None:
    ids, w = Tensor(np.arange(3)), Tensor(np.ones(3, np.float32))
    for y in (ids * w, w + ids, ids / w, w / (ids + 1), ids @ w):
        assert y.dtype == np.float32
        w.zero_grad()
        y.sum().backward() if y.ndim else y.backward()
        assert w.grad.dtype == np.float32


def test_what_python_values_become() -> None:
    for value in (1, 1.5, True, [1, 2], [1.5], [[1], [2]], (1, 2), [], [np.float64(1)]):
        assert Tensor(value).dtype == np.float32
        assert Tensor(value).requires_grad
    for value in (np.float64(1), np.int8(1), np.ones(2), np.arange(2, dtype="u1")):
        assert Tensor(value).dtype == np.asarray(value).dtype
    array = np.ones(3)
    assert Tensor(array).data is array


def test_astype() -> None:
    x = Tensor([1.0, 2.0])
    y = x.astype(np.float64) * np.array([0.1, 0.2])
    assert y.dtype == np.float64
    y.sum().backward()
    assert x.grad.dtype == np.float32
    assert x.astype("int32").dtype == np.int32
    assert not x.astype(int).requires_grad
