"""张量与 NumPy、与 Python 内置函数的相处"""

import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from gptcore import (
    DtypeError,
    GPTTrainer,
    Linear,
    ReLU,
    Sequential,
    ShapeError,
    Tensor,
    blas_threads,
)
from gptcore.layers import Layer
from gptcore.losses import GPTLoss
from gptcore.optim import SGDOptimizer
from gptcore.threads import SMALL_MODEL, model_threads


@pytest.mark.parametrize("left", [np.float32(2), np.float64(2), np.array([2.0, 3.0]), 2, 2.0])
def test_numpy_on_the_left_keeps_the_graph(left: object) -> None:
    x = Tensor(np.array([1.0, 4.0]))
    for y, slope in (
        (left + x, 1),
        (left * x, left),
        (left - x, -1),
        (left / x, -left / x.data**2),
    ):
        assert isinstance(y, Tensor)
        x.zero_grad()
        y.backward()
        np.testing.assert_allclose(x.grad, np.broadcast_to(slope, 2))


def test_numpy_matmul_on_the_left() -> None:
    x = Tensor(np.ones((3, 2)))
    y = np.arange(6.0).reshape(2, 3) @ x
    assert isinstance(y, Tensor)
    y.backward()
    assert_array_equal(x.grad, [[3, 3], [5, 5], [7, 7]])


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        (np.exp, r"np\.exp.*x\.exp\(…\).*x\.data"),
        (np.sum, r"np\.sum.*x\.sum\(…\)"),
        (np.abs, r"np\.absolute.*np\.absolute\(x\.data\)"),
        (lambda x: np.concatenate([x, x]), r"np\.concatenate.*计算图.*x\.data"),
        (lambda x: np.dot(x, x), r"np\.dot.*x\.data"),
        (lambda x: np.where(x, x, x), r"np\.where"),
        (lambda x: np.ones(2) < x, r"np\.less"),
        (np.add.reduce, r"np\.add"),
        (lambda x: Tensor([x, x]), r"列表里有张量.*a \+ b.*\.data"),
        (lambda x: Tensor([[x, 1.0]]), "列表里有张量"),
        (lambda x: x.__setitem__(0, 1.0), r"按下标赋值.*x\.data"),
    ],
)
def test_numpy_functions_say_what_to_write(call: object, remedy: str) -> None:
    with pytest.raises(DtypeError, match=remedy):
        call(Tensor([1.0, 2.0]))  # type: ignore[operator]


def test_asarray_and_formatting() -> None:
    x = Tensor([1.0, 2.0])
    assert_array_equal(np.asarray(x), x.data)
    assert np.asarray(x) is x.data
    assert np.asarray(x, np.float64).dtype == np.float64
    assert f"{x.sum():.2f}" == "3.00"
    assert f"{x}" == str(x)
    assert float(x.sum()) == 3
    assert bool(x.sum())


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda x: 1 if x else 2, r"if：形状 \(2,\) .*x\.data\.any\(\).*is not None"),
        (math.exp, r"float：.*\(2,\).*x\.exp\(\)"),
        (float, r"float：.*\(2,\)"),
        (lambda x: x.rows(0.5, 1), r"rows：.*0\.5.*整数"),
    ],
)
def test_several_elements_are_not_one_number(use: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        use(Tensor([1.0, 2.0]))


def test_layers_show_their_shapes() -> None:
    model = Sequential([Linear(3, 2), ReLU()])
    assert repr(model) == (
        "Sequential(\n  layers.0: Linear(weight (2, 3), bias (2,))\n  layers.1: ReLU()\n)"
    )

    class Loop(Layer):
        def __init__(self) -> None:
            self.again = self

        def forward(self, x: Tensor) -> Tensor:
            return x

    assert repr(Loop()) == "Loop(\n  again: …\n)"


def test_a_class_in_place_of_an_object() -> None:
    model = Linear(2, 2)
    optimizer = SGDOptimizer(model.parameters, 0.1)
    with pytest.raises(DtypeError, match=r"loss_fn.*类 GPTLoss.*GPTLoss\(…\)"):
        GPTTrainer(model, GPTLoss, optimizer)  # type: ignore[arg-type]


def threads() -> list[int]:
    from threadpoolctl import threadpool_info

    return [info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"]


def test_blas_threads_are_limited_and_restored() -> None:
    before = threads()
    with blas_threads(2):
        inside = threads()
        with model_threads(SMALL_MODEL - 1):
            assert all(n == 1 for n in threads())
        with model_threads(SMALL_MODEL):
            assert threads() == inside
    assert threads() == before
