"""张量的运算：数值与 NumPy 一致，梯度与数值梯度一致，在 Python 里用起来顺手"""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from gradcheck import check_gradients, distinct
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, basic_indices, mutually_broadcastable_shapes

from gptcore import DTYPE, DtypeError, Embedding, GraphError, RangeError, Tensor, no_grad

SEED = st.integers(0, 2**32 - 1)
SHAPE = array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=4)

BINARY: dict[str, Any] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}
# 各自的定义域：名字 → (函数, 最小值, 最大值)
UNARY: dict[str, tuple[Any, float, float]] = {
    "exp": (lambda x: x.exp(), -2, 2),
    "log": (lambda x: x.log(), 0.3, 3),
    "sqrt": (lambda x: x.sqrt(), 0.3, 3),
    "tanh": (lambda x: x.tanh(), -2, 2),
    "neg": (lambda x: -x, -2, 2),
    "pow0": (lambda x: x**0, -2, 2),
    "pow1": (lambda x: x**1, -2, 2),
    "pow2": (lambda x: x**2, -2, 2),
    "pow3": (lambda x: x**3, -2, 2),
    "pow5": (lambda x: x ** np.int64(5), -2, 2),
    "pow-1": (lambda x: x**-1, 0.4, 2),
    "pow0.5": (lambda x: x**0.5, 0.3, 2),
    "pow-1.5": (lambda x: x ** np.float32(-1.5), 0.4, 2),
    "rsub": (lambda x: 2 - x, -2, 2),
    "rdiv": (lambda x: 2 / x, 0.4, 2),
    "astype": (lambda x: x.astype(">f8").astype(np.float64), -2, 2),
    "T": (lambda x: x.T * 1, -2, 2),
}


def unpickle(x: Tensor) -> Tensor:
    return pickle.loads(pickle.dumps(x))  # noqa: S301


def numpy_of(function: Any, *arrays: np.ndarray) -> np.ndarray:
    """同一个算式直接用数组算。"""
    return np.asarray(function(*arrays))


@given(mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=4), SEED)
@pytest.mark.parametrize("name", BINARY)
def test_binary_operations_broadcast(name: str, shapes: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.uniform(0.5, 2, s) * rng.choice([-1, 1], s) for s in shapes.input_shapes)
    np.testing.assert_array_equal(
        BINARY[name](Tensor(a), Tensor(b)).data, numpy_of(BINARY[name], a, b)
    )
    x, y = Tensor(a), Tensor(b)
    check_gradients(lambda: BINARY[name](x, y), [x, y], seed)


@given(SHAPE, SEED)
@pytest.mark.parametrize("name", BINARY)
def test_both_sides_the_same_tensor(name: str, shape: Any, seed: int) -> None:
    x = Tensor(np.random.default_rng(seed).uniform(0.5, 2, shape))
    check_gradients(lambda: BINARY[name](x, x), [x], seed)


@given(SHAPE, SEED)
@pytest.mark.parametrize("name", UNARY)
def test_unary_operations(name: str, shape: Any, seed: int) -> None:
    function, low, high = UNARY[name]
    x = Tensor(np.random.default_rng(seed).uniform(low, high, shape))
    check_gradients(lambda: function(x), [x], seed)


def test_powers_at_zero() -> None:
    for n, slope in ((0, 0), (1, 1), (2, 0), (3, 0)):
        x = Tensor(np.zeros(2))
        (x**n).sum().backward()
        np.testing.assert_array_equal(x.grad, [slope, slope])


@st.composite
def matmul_shapes(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    m, k, n = (draw(st.integers(1, 4)) for _ in range(3))
    lead = draw(mutually_broadcastable_shapes(num_shapes=2, max_dims=2, max_side=3)).input_shapes
    left = draw(st.sampled_from([(k,), (*lead[0], m, k)]))
    right = draw(st.sampled_from([(k,), (*lead[1], k, n)]))
    return left, right


@given(matmul_shapes(), SEED)
def test_matmul(shapes: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (Tensor(rng.normal(size=s)) for s in shapes)
    np.testing.assert_array_equal((a @ b).data, a.data @ b.data)
    check_gradients(lambda: a @ b, [a, b], seed)


def test_matmul_with_an_array_on_either_side() -> None:
    x, m = Tensor(np.eye(2)), np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal((m @ x).data, m)
    np.testing.assert_array_equal((x @ m).data, m)
    check_gradients(lambda: m @ x @ [[1.0], [0.1]], [x])


@st.composite
def shape_and_axis(draw: Any) -> tuple[tuple[int, ...], Any]:
    shape = draw(SHAPE)
    n = len(shape)
    if not n:
        return shape, None
    one = st.integers(-n, n - 1)
    some = st.lists(st.integers(0, n - 1), unique=True, max_size=n)
    return shape, draw(st.none() | one | some.map(tuple) | some)


@given(shape_and_axis(), st.booleans(), SEED)
@pytest.mark.parametrize("name", ["sum", "mean", "max"])
def test_reductions(name: str, shape_axis: Any, keepdims: bool, seed: int) -> None:
    shape, axis = shape_axis
    x = Tensor(distinct(np.random.default_rng(seed), *shape))
    expected = getattr(x.data, name)(tuple(axis) if isinstance(axis, list) else axis)
    y = getattr(x, name)(axis, keepdims=keepdims)
    np.testing.assert_allclose(y.data.ravel(), np.ravel(expected), rtol=1e-14, atol=1e-14)
    check_gradients(lambda: getattr(x, name)(axis, keepdims=keepdims), [x], seed)


def test_ties_share_the_gradient_of_max() -> None:
    x = Tensor(np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]))
    x.max(1).sum().backward()
    np.testing.assert_allclose(x.grad, [[0, 1 / 2, 1 / 2], [1 / 3, 1 / 3, 1 / 3]])


@given(array_shapes(min_dims=1, max_dims=4, max_side=4), st.data())
def test_indexing_with_slices_and_integers(shape: Any, data: Any) -> None:
    index = data.draw(basic_indices(shape, allow_newaxis=True))
    x = Tensor(np.random.default_rng(len(shape)).normal(size=shape))
    np.testing.assert_array_equal(x[index].data, x.data[index])
    check_gradients(lambda: x[index], [x])


@pytest.mark.parametrize(
    "index",
    [
        [0, 0, 2, 0],
        np.array([[1, 1], [2, 0]]),
        ([0, 0, 1], [1, 1, 2]),
        ((0, 0), (1, 1)),
        ((0, 0),),
        (slice(None), (0, 0, 1)),
        (slice(None), [1, 1], None),
        (..., np.array([2, 2, 2])),
        np.array([True, False, True]),
        ([True, True, False],),
        np.array(1),
        np.int32(2),
        [],
        range(2),
        Tensor([2, 2, 0]),
        (Tensor(np.array([2, 2])), 0),
    ],
    ids=str,
)
def test_fancy_indexing_adds_up_repetitions(index: Any) -> None:
    x = Tensor(np.random.default_rng(0).normal(size=(3, 4)))
    check_gradients(lambda: x[index], [x])


def test_the_index_may_be_changed_before_backward() -> None:
    x, index = Tensor(np.zeros(3)), np.array([0, 1])
    y = x[index]
    index[:] = 2
    y.sum().backward()
    np.testing.assert_array_equal(x.grad, [1, 1, 0])


@given(array_shapes(min_dims=0, max_dims=4, max_side=4), st.data())
def test_transpose_and_reshape(shape: Any, data: Any) -> None:
    x = Tensor(np.random.default_rng(3).normal(size=shape))
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    np.testing.assert_array_equal(x.transpose(order).data, x.data.transpose(order))
    check_gradients(lambda: x.transpose(*order).reshape(-1) * 1, [x])
    check_gradients(lambda: x.transpose().reshape((-1, *shape[:1])), [x])


def test_the_ways_to_write_a_shape() -> None:
    x = Tensor(np.arange(6.0))
    for y in (x.reshape(2, 3), x.reshape((2, 3)), x.reshape([2, -1]), x.reshape((-1, 3))):
        assert y.shape == (2, 3)
    y = x.reshape(1, 2, 3)
    for z in (y.transpose(0, 2, 1), y.transpose((0, 2, 1)), y.transpose([0, -1, -2])):
        assert z.shape == (1, 3, 2)
    assert y.T.shape == (3, 2, 1)


# 在 Python 里


def test_iteration_ends() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert [row.data.tolist() for row in x] == [[1, 2], [3, 4]]
    a, b = x
    (a * b).sum().backward()
    np.testing.assert_array_equal(x.grad, [[3, 4], [1, 2]])
    with pytest.raises(RangeError):
        x[2]
    with pytest.raises(DtypeError, match=r"0 维.*item\(\)"):
        list(Tensor(1.0))


def test_numpy_scalars_and_arrays_on_the_left() -> None:
    x = Tensor([1.0, 2.0])
    for scalar in (np.float32(2), np.float64(2), np.int64(2), np.array(2.0), 2, True):
        for y in (scalar * x, x * scalar, scalar + x, scalar - x, scalar / x, x / scalar):
            assert type(y) is Tensor
            assert y.dtype == np.float32
    assert (np.array([1.0, 2.0], np.float32) + x).data.tolist() == [2, 4]


def test_conversions() -> None:
    x = Tensor([[1.5, 2.5]])
    assert np.asarray(x) is x.data
    assert np.asarray(x, np.float64).dtype == np.float64
    assert x.numpy() is x.data
    copied = np.array(x)
    copied[...] = 0
    assert x.data.tolist() == [[1.5, 2.5]]
    assert float(x.sum()) == x.sum().item() == 4.0
    assert bool(Tensor(1.0)) is True
    assert (len(x), x.ndim, x.size, x.shape) == (1, 2, 2, (1, 2))


def test_repr() -> None:
    assert repr(Tensor(0.5)) == "Tensor(0.5)"
    assert repr(Tensor([[1.0, 2.0], [3.0, 4.0]])) == "Tensor([[1., 2.],\n        [3., 4.]])"
    assert repr(Tensor(range(3))) == "Tensor([0, 1, 2])"
    long = repr(Tensor(np.zeros((100, 100))))
    assert "..." in long
    assert long.endswith("shape=(100, 100))")


def test_lists_and_ranges_serve_as_ids() -> None:
    table = Embedding(5, 2)
    for ids in (Tensor([1, 2]), Tensor(range(1, 3)), Tensor([[1], [2]]), Tensor([range(3)])):
        expected = table.weight.data[np.asarray(ids.data, int)]
        again = unpickle(ids)
        for same in (ids, copy.deepcopy(ids), ids.detach(), ids[:], ids.reshape(ids.shape), again):
            np.testing.assert_array_equal(table(same).data, expected)
    window = Tensor([[1, 2, 3, 4]])[:, -2:]  # 错误消息里建议的写法
    np.testing.assert_array_equal(table(window).data, table.weight.data[[[3, 4]]])
    assert Tensor([1, 2]).dtype == DTYPE
    assert Tensor([]).shape == (0,)
    with pytest.raises(DtypeError):
        table(Tensor([1.0, 2.0]))


def test_detach_shares_values_and_cuts_the_graph() -> None:
    x = Tensor([1.0, 2.0])
    y = (x * 2).detach()
    assert not y.requires_grad
    (x * y).sum().backward()
    np.testing.assert_array_equal(x.grad, [2, 4])
    assert x.detach().data is x.data


def test_zero_grad() -> None:
    x = Tensor([1.0, 2.0])
    x.sum().backward()
    x.zero_grad()
    np.testing.assert_array_equal(x.grad, [0, 0])
    assert Tensor(range(2)).grad is None


def test_deepcopy_is_independent() -> None:
    x = Tensor([1.0, 2.0], requires_grad=False)
    y = x * 2
    for t in (x, y, Tensor(np.arange(3)), Tensor(np.ones(2)) * 2):
        other = copy.deepcopy(t)
        assert other.dtype == t.dtype
        assert other.requires_grad == t.requires_grad
        other.data[...] = 9
        assert not np.any(t.data == 9)
    first, second = copy.deepcopy([x, x])
    assert first is second


def test_pickle_refuses_a_tensor_in_a_graph() -> None:
    x = Tensor([1.0, 2.0])
    restored = unpickle(x)
    assert (restored.data.tolist(), restored.requires_grad) == ([1, 2], True)
    with pytest.raises(GraphError, match=r"pickle：.*请先 detach\(\)"):
        pickle.dumps(x * 2)
    assert unpickle((x * 2).detach()).data.tolist() == [2, 4]


# 视图：给大参数的一段起名字


def test_rows_share_values_and_gradients() -> None:
    w = Tensor(np.arange(6.0).reshape(3, 2))
    top = w.rows(0, 2)
    top.data[0, 0] = 100
    assert w.data[0, 0] == 100
    (top * 2).sum().backward()
    np.testing.assert_array_equal(w.grad, [[2, 2], [2, 2], [0, 0]])
    top.grad += 1
    np.testing.assert_array_equal(w.grad, [[3, 3], [3, 3], [0, 0]])
    w.data = w.data.astype(np.float32)  # Layer.astype 也这样换
    assert top.dtype == np.float32
    top.data -= 1
    assert w.data[0, 0] == 99
    top.zero_grad()
    assert not w.grad.any()


def test_a_copied_view_follows_its_copied_base() -> None:
    w = Tensor(np.zeros((4, 2)))
    base, view = copy.deepcopy([w, w.rows(1, 3)])
    view.data[...] = 5
    np.testing.assert_array_equal(base.data[:, 0], [0, 5, 5, 0])
    assert not w.data.any()
    with no_grad(), pytest.raises(ValueError, match=r"rows：.*x\[start:stop\]"):
        w.rows(2, 5)
    with pytest.raises(ValueError, match=r"rows：.*x\[start:stop\]"):
        (w * 2).rows(0, 1)
