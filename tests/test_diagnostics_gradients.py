"""check_gradients：对的梯度通过，错的指出哪个张量、哪一处、两边的值；与测试自己的梯度检查互相印证"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gradcheck import check_gradients as independent_check

import gptcore
from gptcore import GPT, DtypeError, GPTLoss, GraphError, Linear, Tensor
from gptcore.diagnostics import GradientReport, check_gradients
from gptcore.errors import ArgumentError

RNG = np.random.default_rng(7)


def normal(*shape: int) -> Tensor:
    return Tensor(RNG.normal(size=shape))


def faulty(x: Tensor, change: Callable[[np.ndarray], np.ndarray]) -> Tensor:
    """x 的平方，梯度被改动过。"""
    return Tensor(x.data**2).record((x,), lambda dy: (change(dy * 2 * x.data),))


FAULTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "两倍": lambda g: 2 * g,
    "变号": lambda g: -g,
    "全零": lambda g: 0 * g,
    "漏了最后一列": lambda g: g * (np.arange(g.shape[-1]) < g.shape[-1] - 1),
    "各行平均": lambda g: np.broadcast_to(g.mean(0), g.shape),
    "差万分之一": lambda g: g * 1.0001,
    "NaN": lambda g: g * np.nan,
    "无穷": lambda g: g + np.inf,
    "转置": lambda g: g.T.reshape(g.shape),
}


def test_correct_layers_pass() -> None:
    layers: list[tuple[Any, tuple[int, ...]]] = [
        (Linear(5, 3), (2, 5)),
        (gptcore.LayerNorm(4), (3, 4)),
        (gptcore.RMSNorm(6), (2, 6)),
        (gptcore.GPTFeedForward(4), (2, 3, 4)),
        (gptcore.GPTAttention(6, 3), (2, 4, 6)),
    ]
    for layer, shape in layers:
        layer.astype(np.float64)
        x = normal(*shape)
        report = check_gradients(
            lambda layer=layer, x=x: layer(x), {"x": x, **dict(layer.named_parameters())}
        )
        assert report.passed, report
        assert report.error < 1e-7
        assert len(report.tensors) == 1 + len(layer.parameters)


@pytest.mark.parametrize("name", FAULTS)
def test_wrong_gradients_are_found_and_located(name: str) -> None:
    x, other = normal(6, 5), normal(6, 5)
    report = check_gradients(lambda: faulty(x, FAULTS[name]) + other * other, {"x": x, "y": other})
    assert not report.passed
    assert [t.name for t in report.wrong] == ["x"]
    assert report.worst.name == "x"
    assert "1 个张量的梯度不对" in str(report)
    assert "反向传播给出" in str(report)
    with pytest.raises(AssertionError), np.errstate(invalid="ignore"):
        independent_check(lambda: faulty(x, FAULTS[name]), [x])


def test_the_report_names_the_place_and_both_values() -> None:
    x = Tensor(np.arange(1.0, 7.0).reshape(2, 3))

    def change(g: np.ndarray) -> np.ndarray:
        g = g.copy()
        g[1, 0] = 0
        return g

    worst = check_gradients(lambda: faulty(x, change).sum(), [x]).worst
    assert worst.where == (1, 0)
    assert worst.backward == 0
    assert worst.numeric == pytest.approx(8)
    assert worst.error == pytest.approx(8 / 12)
    assert "第 0 个 (2, 3) 在 [1, 0] 处：反向传播给出 0，有限差分是 8" in str(worst)


def test_one_wrong_element_among_thousands_is_seen_by_the_random_direction() -> None:
    x = normal(100, 100)

    def change(g: np.ndarray) -> np.ndarray:
        g = g.copy()
        g[50] *= 0.9
        return g

    report = check_gradients(lambda: faulty(x, change), [x])
    assert not report.passed
    assert report.checked == 9


def test_agrees_with_the_independent_oracle() -> None:
    x, w = normal(3, 4), normal(4, 2)
    for function in (
        lambda: (x @ w).tanh().sum(),
        lambda: (x * x).mean(0) / (w.sum(1).exp()),
        lambda: (x.max(1) ** 3) * 2,
    ):
        independent_check(function, [x, w])
        assert check_gradients(function, [x, w]).passed


def test_tensors_are_restored_and_gradients_cleared() -> None:
    x = normal(3, 3)
    before, array = x.data.copy(), x.data
    x.grad += 5
    check_gradients(lambda: x * x, [x])
    assert x.data is array
    np.testing.assert_array_equal(x.data, before)
    np.testing.assert_array_equal(x.grad, 0)


def test_restored_when_the_function_fails_midway() -> None:
    x = normal(4)
    before, calls = x.data.copy(), []

    def function() -> Tensor:
        calls.append(1)
        if len(calls) > 6:
            raise KeyboardInterrupt
        return x * x

    with pytest.raises(KeyboardInterrupt):
        check_gradients(function, [x])
    np.testing.assert_array_equal(x.data, before)


def test_views_of_parameters() -> None:
    layer = gptcore.GPTAttention(4, 2).astype(np.float64)
    x, before = normal(1, 3, 4), layer.c_attn.weight.data.copy()
    key = layer.key.weight
    assert check_gradients(lambda: layer(x), {"key": key}).passed
    np.testing.assert_array_equal(layer.c_attn.weight.data, before)


def test_gradients_that_are_zero_or_tiny() -> None:
    x, y = normal(3), normal(3)
    assert check_gradients(lambda: (x - x) + 7.0, [x]).passed
    assert check_gradients(lambda: gptcore.Softmax()(x).sum(), [x]).passed
    report = check_gradients(lambda: x * 1e-9 + y * 0.0, [x, y])
    assert report.passed
    assert not check_gradients(lambda: faulty(x, lambda g: g * 2) * 1e-6, [x]).passed


def test_scales_and_shapes() -> None:
    for scale in (1e-3, 1.0, 1e6):
        x = normal(2, 3)
        report = check_gradients(lambda x=x, scale=scale: (x * x * scale).sum(), [x])
        assert report.passed, report
        wrong = check_gradients(lambda x=x, s=scale: faulty(x, lambda g: g * 1.01) * s, [x])
        assert not wrong.passed
    scalar, empty = Tensor(np.array(2.0)), Tensor(np.zeros((0, 3)))
    assert check_gradients(lambda: scalar**3, [scalar]).worst.shape == ()
    report = check_gradients(lambda: scalar * scalar + empty.sum(), [scalar, empty])
    assert report.passed
    assert report.tensors[1].checked == 0


def test_the_same_places_every_time_and_no_global_randomness() -> None:
    x = normal(20, 20)
    np.random.seed(1)
    state = np.random.get_state()[1].copy()  # type: ignore[index]
    first = check_gradients(x.tanh, [x])
    assert first == check_gradients(x.tanh, [x])
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # type: ignore[index]
    other = check_gradients(x.tanh, [x], rng=np.random.default_rng(3))
    assert other != first


def test_a_whole_model_reports_the_parameter_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    model = GPT(7, 4, 6, 3, 1, rng=np.random.default_rng(0)).astype(np.float64)
    ids, labels = Tensor([[1, 2, 3]]), Tensor([[2, 3, 4]])

    def report() -> GradientReport:
        return check_gradients(lambda: GPTLoss()(model(ids), labels), model, samples=3)

    good = report()
    assert good.passed
    assert good.tensors[0].name == "embedding.embedding.weight"
    assert str(good).startswith("梯度检查：通过；最大相对误差")
    assert len(str(good).splitlines()) == 1 + len(model.parameters)

    head = model.output.linear
    forward = head.forward
    monkeypatch.setattr(head, "forward", lambda x: forward(x.detach()))  # 切断：前面都没有梯度
    bad = report()
    assert {t.name for t in bad.wrong} == {n for n, _ in model.named_parameters()} - {
        "output.linear.weight",
        "output.linear.bias",
    }


def test_functions_that_change_are_refused() -> None:
    x, dropout = normal(50), gptcore.Dropout(0.5, rng=np.random.default_rng(0))
    with pytest.raises(ArgumentError, match="两次的结果不同") as error:
        check_gradients(lambda: dropout(x), [x])
    assert "layer.eval()" in str(error.value)
    dropout.eval()
    assert check_gradients(lambda: dropout(x), [x]).passed
    lengths = iter([2, 3])
    with pytest.raises(ArgumentError, match="两次的结果不同"):
        check_gradients(lambda: x[: next(lengths)], [x])


def test_bad_arguments() -> None:
    x = normal(3)
    single = Tensor(np.ones(3, np.float32))
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: check_gradients(lambda: single * 1.0, [single]), DtypeError, "float32"),
        (lambda: check_gradients(lambda: x.astype(np.float32), [x]), DtypeError, "float32"),
        (lambda: check_gradients(lambda: 3.0, [x]), DtypeError, "float"),  # type: ignore[arg-type, return-value]
        (lambda: check_gradients(lambda: x * x, x), DtypeError, r"\[x\]"),  # type: ignore[arg-type]
        (lambda: check_gradients(lambda: x * x, 3), DtypeError, "int"),  # type: ignore[arg-type]
        (lambda: check_gradients(lambda: x * x, [x.data]), DtypeError, "ndarray"),  # type: ignore[list-item]
        (lambda: check_gradients(lambda: x * x, []), ArgumentError, "没有张量"),
        (lambda: check_gradients(lambda: x * x, [x * 1.0]), ArgumentError, "算出来"),
        (lambda: check_gradients(lambda: x * x, [x.detach()]), DtypeError, "不需要梯度"),
        (lambda: check_gradients(lambda: x * x, [x], samples=0), ArgumentError, "samples"),
        (lambda: check_gradients(lambda: x * x, [x], tolerance=0), ArgumentError, "tolerance"),
        (lambda: check_gradients(x.detach, [x]), GraphError, "backward"),
    ]
    for call, kind, message in cases:
        with pytest.raises(kind, match=message):
            call()
    array = np.ones(3)
    array.flags.writeable = False
    with pytest.raises(ArgumentError, match="只读"):
        check_gradients(lambda: x * x, [Tensor(array)])
