"""计算图：重用、长链、attach 的各种写法、再次反向传播、别名"""

import contextlib
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcore import DtypeError, GraphError, ShapeError, Tensor, is_grad_enabled, no_grad


def double(x: Tensor) -> Tensor:
    """教程的写法：闭包往父张量的 grad 里加。"""
    p = Tensor(x.data * 2)

    def gradient_fn() -> None:
        x.grad += p.grad * 2

    return p.attach(gradient_fn, {x})


# 每条路径的梯度加起来


def test_reused_node_counts_every_path_once() -> None:
    for times_two in (lambda x: x * 2, double):
        x = Tensor(1.0)
        h = times_two(x)
        (h * 3 + h * 5).backward()
        assert x.grad == 16  # 递归地一路往回传会得到 22
        assert h.grad == 8


def test_adding_to_itself_twice() -> None:
    a = Tensor(1.0)
    b = a + a
    c = b + b
    c.backward()
    assert (c.data, b.grad, a.grad) == (4, 2, 4)


@pytest.mark.parametrize("step", [lambda x: x + 1, lambda x: double(x) * 0.5])
def test_twenty_thousand_operations_in_a_chain(step: Any) -> None:
    x = Tensor(3.0)
    y = x
    for _ in range(20_000):
        y = step(y)
    y.backward()
    assert x.grad == 1


def test_dropping_a_long_unused_chain() -> None:
    y = Tensor(np.ones(1))
    for _ in range(50_000):
        y = y + 1
    del y


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=12))
def test_random_graphs_against_forward_mode(program: list[tuple[int, int, bool]]) -> None:
    """任意的图：反向传播与前向求导（每个节点带着对 x 的导数）一致；两种写法的节点混在一起。"""
    x = Tensor(np.array(0.9))
    nodes, slopes = [x], [1.0]
    for i, j, attached in program:
        i, j = i % len(nodes), j % len(nodes)
        slope = 0.5 * (slopes[i] + slopes[j])
        if attached:
            nodes.append(halved_sum(nodes[i], nodes[j]))
        else:
            nodes.append((nodes[i] + nodes[j]) * 0.5)
        slopes.append(slope)
    nodes[-1].backward()
    np.testing.assert_allclose(x.grad, slopes[-1], rtol=1e-12)


def halved_sum(a: Tensor, b: Tensor) -> Tensor:
    p = Tensor(0.5 * (a.data + b.data))

    def gradient_fn() -> None:
        a.grad += 0.5 * p.grad
        b.grad += 0.5 * p.grad

    return p.attach(gradient_fn, [a, b])


# attach：与教程各章的写法一样


@pytest.mark.parametrize("collection", [list, tuple, set, frozenset])
def test_attach_takes_any_collection(collection: Any) -> None:
    x = Tensor([1.0, 2.0])
    p = Tensor(x.data * 3)

    def gradient_fn() -> None:
        x.grad += p.grad * 3

    assert p.attach(gradient_fn, collection([x])) is p
    p.backward()
    np.testing.assert_array_equal(x.grad, [3, 3])


def test_attach_reaches_parameters_that_are_not_named_as_parents() -> None:
    table, scale = Tensor(np.zeros((3, 2))), Tensor([2.0])
    ids = np.array([0, 2, 0])

    def embed() -> Tensor:
        p = Tensor(table.data[ids] * scale.data)

        def gradient_fn() -> None:
            np.add.at(table.grad, ids, p.grad * scale.data)
            scale.grad += (p.grad * table.data[ids]).sum()

        return p.attach(gradient_fn, [])

    (embed() * 1.0).sum().backward()
    np.testing.assert_array_equal(table.grad, [[4, 4], [0, 0], [2, 2]])


def test_attach_is_never_pruned() -> None:
    """父张量都不需要梯度，闭包照样运行：它可能往别的参数里加。"""
    x, w = Tensor([1.0, 2.0], requires_grad=False), Tensor([3.0, 4.0])
    p = Tensor(x.data * w.data)

    def gradient_fn() -> None:
        w.grad += p.grad * x.data
        x.grad += p.grad * w.data

    (p.attach(gradient_fn, {x}) + 0.0).sum().backward()
    np.testing.assert_array_equal(w.grad, [1, 2])
    np.testing.assert_array_equal(x.grad, [3, 4])


def test_attach_runs_even_when_no_gradient_arrives() -> None:
    ran = []
    p = Tensor([1.0]).attach(lambda: ran.append(1), [])
    q = Tensor(p.data * 1).attach(lambda: None, [p])
    q.backward()
    assert ran == [1]
    np.testing.assert_array_equal(p.grad, [0])


def test_assigning_fields_directly() -> None:
    x = Tensor(2.0)
    h = x * 3  # 库的操作
    p = Tensor(h.data * h.data)

    def gradient_fn() -> None:
        h.grad += p.grad * 2 * h.data

    p.gradient_fn = gradient_fn
    p.parents = {h}
    (p * 2).backward()
    assert x.grad == 2 * 2 * 6 * 3


def test_attach_replaces_what_was_recorded() -> None:
    x = Tensor(2.0)
    p = x * 3

    def gradient_fn() -> None:
        x.grad += 100

    p.attach(gradient_fn, [x])
    p.backward()
    assert x.grad == 100


def test_gradient_of_a_closure_may_be_assigned() -> None:
    x = Tensor([1.0, 2.0])
    p = Tensor(x.data * 1)

    def gradient_fn() -> None:
        x.grad = p.grad  # 赋值，而不是累加

    p.attach(gradient_fn, [x])
    p.backward()
    x.grad *= 10
    np.testing.assert_array_equal(p.grad, [1, 1])


@pytest.mark.parametrize("parents", [Tensor([1.0]), [1.0], None, [[Tensor(1.0)]], "x"])
def test_attach_refuses_what_is_not_a_collection_of_tensors(parents: Any) -> None:
    with pytest.raises(DtypeError, match=r"attach：parents.*\[x\]"):
        Tensor([1.0]).attach(lambda: None, parents)
    with pytest.raises(DtypeError, match=r"attach：gradient_fn.*不带参数的函数.*3"):
        Tensor([1.0]).attach(3, [])  # type: ignore[arg-type]


def test_a_cycle_is_reported() -> None:
    a, b = Tensor(1.0), Tensor(2.0)
    a.gradient_fn, a.parents = (lambda: None), [b]
    b.gradient_fn, b.parents = (lambda: None), [a]
    with pytest.raises(GraphError, match="有环"):
        a.backward()


# 图用过就没有了


@pytest.mark.parametrize("times_two", [lambda x: x * 2, double])
def test_second_backward_says_what_to_do(times_two: Any) -> None:
    x = Tensor(1.0)
    h = times_two(x)
    y = h * h
    y.backward()
    for again in (y, h, h + 1):
        with pytest.raises(GraphError, match=r"已经反向传播过.*\(loss1 \+ loss2\)\.backward\(\)"):
            again.backward()
    assert x.grad == 8  # 失败的反向传播什么也没有改


def test_backward_needs_a_gradient_to_compute() -> None:
    with no_grad():
        hidden = Tensor([1.0]) * 2
    for y in (Tensor(range(3)), Tensor([1.0], requires_grad=False) * 2, hidden):
        with pytest.raises(GraphError, match=r"不需要梯度.*requires_grad=True"):
            y.backward()


@pytest.mark.parametrize("gradient", [np.ones(3), 1.0, np.ones((1, 2))])
def test_gradient_of_the_wrong_shape(gradient: Any) -> None:
    y = Tensor([1.0, 2.0]) * 2
    with pytest.raises(ShapeError, match=r"backward：.*\(2,\) 不同"):
        y.backward(gradient)
    with pytest.raises(DtypeError, match="梯度必须是数或数组"):
        y.backward("abc")
    y.backward([1.0, 2.0])  # 报错之后图还在


def test_setting_grad_checks_the_shape() -> None:
    x = Tensor([1.0, 2.0])
    with pytest.raises(ShapeError, match=r"grad：.*\(3,\).*\(2,\)"):
        x.grad = np.ones(3)
    x.grad = 5
    np.testing.assert_array_equal(x.grad, [5, 5])
    x.grad = None
    np.testing.assert_array_equal(x.grad, [0, 0])


def test_a_closure_with_a_wrong_gradient_is_named() -> None:
    x = Tensor([1.0, 2.0])
    y = Tensor([1.0]).record((x,), lambda dy: (dy,))
    with pytest.raises(ShapeError, match=r"backward：梯度的形状 \(1,\) 与张量的形状 \(2,\) 不同"):
        y.backward()


# 梯度数组互不牵连


OPERATIONS: dict[str, Any] = {
    "加": lambda x, y: x + y,
    "减": lambda x, y: x - y,
    "和": lambda x, y: (x + y).sum(0, keepdims=True) + y,
    "换形": lambda x, y: x.reshape(4) + y.reshape(4),
    "转置": lambda x, y: x.transpose() + y.T,
    "下标": lambda x, y: x[:] + y[...],
    "类型": lambda x, y: x.astype(np.float64) + y,
    "一次方": lambda x, y: x**1 + y**1,
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("scribble", range(4))
def test_changing_one_gradient_changes_no_other(name: str, scribble: int) -> None:
    a, b = Tensor(np.eye(2)), Tensor(np.ones((2, 2)))
    h = a * 2
    out = OPERATIONS[name](h, b)
    seed = np.arange(4.0).reshape(out.shape)
    out.backward(seed)
    tensors = [a, b, h, out]
    tensors[scribble].grad[...] = 77
    seed[...] = 99
    dy = np.arange(4.0).reshape(out.shape)
    x, y = Tensor(np.eye(2)), Tensor(np.ones((2, 2)))
    k = x * 2
    expected = [x, y, k, OPERATIONS[name](k, y)]
    expected[3].backward(dy)
    for i, (t, e) in enumerate(zip(tensors, expected, strict=True)):
        if i != scribble:
            np.testing.assert_array_equal(t.grad, e.grad)


def test_intermediate_gradients_survive_later_accumulation() -> None:
    x = Tensor(np.ones(3))
    h = x + 1
    (h + h * 2 + h * 3).sum().backward()
    before = h.grad.copy()
    (x * 100).sum().backward()
    np.testing.assert_array_equal(h.grad, before)
    np.testing.assert_array_equal(x.grad, [106, 106, 106])


def test_one_array_returned_for_two_parents() -> None:
    a, b = Tensor(np.zeros(2)), Tensor(np.zeros(2))

    def vjp(dy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        same = dy * 3
        return same, same

    h, k = a * 1, b * 1
    y = Tensor(np.zeros(2)).record((h, k), vjp)
    (y + h).sum().backward()  # h 还会再收到一份
    np.testing.assert_array_equal(k.grad, [3, 3])
    np.testing.assert_array_equal(h.grad, [4, 4])


def test_two_backwards_add_up() -> None:
    x = Tensor(np.array([1.0, -2.0, 3.0]))
    x.exp().sum().backward()
    first = x.grad.copy()
    (x * x).sum().backward()
    y = Tensor(x.data)
    (y.exp().sum() + (y * y).sum()).backward()
    np.testing.assert_allclose(x.grad, y.grad, rtol=1e-15)
    np.testing.assert_array_equal(first, np.exp(x.data))


# no_grad


def test_no_grad_nests_and_is_restored() -> None:
    x = Tensor([1.0])
    with no_grad():
        with Tensor.no_grad():
            assert not is_grad_enabled()
        assert not (x * 2).requires_grad
        assert (x * 2).parents == ()
        p = Tensor([1.0]).attach(lambda: None, [x])
        assert (p.gradient_fn, p.requires_grad) == (None, False)
    assert (x * 2).requires_grad
    with contextlib.suppress(ZeroDivisionError), no_grad():
        _ = 1 / 0
    assert is_grad_enabled()


def test_no_grad_decorates_functions_and_generators() -> None:
    @no_grad()
    def scale(x: Tensor, depth: int) -> Tensor:
        """说明"""
        return scale(x, depth - 1) if depth else x * 2

    assert not scale(Tensor([1.0]), 3).requires_grad
    assert (scale.__name__, scale.__doc__) == ("scale", "说明")

    @no_grad()
    def powers(x: Tensor) -> Any:
        for _ in range(3):
            x = x * 2
            yield x
        return "完"

    seen = []
    for p in powers(Tensor([1.0])):
        assert is_grad_enabled()  # 使用者的代码不受影响
        seen.append(p.requires_grad)
    assert seen == [False] * 3
    assert is_grad_enabled()


def test_interleaved_generators_leave_the_mode_as_it_was() -> None:
    def hold() -> Any:
        with no_grad():
            yield

    first, second = hold(), hold()
    next(first)
    next(second)
    first.close()
    assert not is_grad_enabled()
    second.close()
    assert is_grad_enabled()


def test_each_thread_has_its_own_mode() -> None:
    seen: list[bool] = []
    with no_grad():
        thread = threading.Thread(target=lambda: seen.append(is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]
