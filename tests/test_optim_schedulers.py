"""学习率调度"""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gptcore
from gptcore import ArgumentError, ConstantScheduler, LinearScheduler, WarmupCosineScheduler
from gptcore.optim import DecayScheduler, WarmupScheduler

DECAYS = [LinearScheduler, WarmupCosineScheduler]
STEPS = st.integers(0, 30)


def test_warmup_then_cosine() -> None:
    scheduler = WarmupCosineScheduler(1.0, 110, 10, 0.1)
    assert [scheduler.step(i) for i in (0, 4, 9)] == pytest.approx([0.1, 0.5, 1.0])
    assert [scheduler.step(i) for i in (10, 60, 110, 10_000)] == pytest.approx([1, 0.55, 0.1, 0.1])
    assert scheduler.step(35) == pytest.approx(0.1 + 0.45 * (1 + math.sqrt(0.5)))
    rates = [scheduler.step(i) for i in range(10, 111)]
    assert rates == sorted(rates, reverse=True)


def test_warmup_then_a_straight_line() -> None:
    scheduler = LinearScheduler(1.0, 110, 10, 0.1)
    assert [scheduler.step(i) for i in (0, 4, 9)] == pytest.approx([0.1, 0.5, 1.0])
    assert [scheduler.step(i) for i in (10, 60, 110, 10_000)] == pytest.approx([1, 0.55, 0.1, 0.1])
    assert scheduler.step(35) == pytest.approx(0.775)
    np.testing.assert_allclose(np.diff([scheduler.step(i) for i in range(10, 111)]), -0.009)


def test_constant_with_and_without_warmup() -> None:
    assert {ConstantScheduler(0.3).step(i) for i in (0, 1, 10**9)} == {0.3}
    scheduler = ConstantScheduler(0.4, 4)
    assert [scheduler.step(i) for i in (0, 1, 2, 3, 4, 999)] == pytest.approx(
        [0.1, 0.2, 0.3, 0.4, 0.4, 0.4]
    )


@pytest.mark.parametrize("kind", DECAYS)
@pytest.mark.parametrize(("total", "warmup"), [(0, 0), (1, 0), (1, 1), (10, 10), (5, 8), (10, 0)])
def test_scheduler_edges(kind: type[DecayScheduler], total: int, warmup: int) -> None:
    scheduler = kind(0.5, total, warmup, 0.05)
    rates = [scheduler.step(i) for i in range(12)]
    assert rates[0] > 0
    assert all(map(math.isfinite, rates))
    assert min(rates[warmup:]) == pytest.approx(0.05)
    assert max(rates) <= 0.5
    assert rates[max(total, warmup)] == 0.05


@pytest.mark.parametrize("kind", DECAYS)
@given(total=st.integers(1, 30), warmup=STEPS, share=st.floats(0, 1))
def test_up_then_down(kind: type[DecayScheduler], total: int, warmup: int, share: float) -> None:
    """第 0 步大于零，先升到最高再降到最低，从不越界。"""
    scheduler = kind(0.5, total, warmup, 0.5 * share)
    rates = [scheduler.step(i) for i in range(total + warmup + 2)]
    assert all(type(r) is float and 0 <= r <= 0.5 for r in rates)
    assert rates[0] > 0
    up, down = rates[:warmup], rates[warmup:]
    assert up == sorted(up)
    assert down == sorted(down, reverse=True)
    assert not up or up[-1] == 0.5
    assert rates[-1] == 0.5 * share
    if warmup < total:
        assert down[0] == 0.5


@given(warmup=st.integers(1, 30))
def test_all_warm_up_alike(warmup: int) -> None:
    schedulers = [
        ConstantScheduler(0.7, warmup),
        LinearScheduler(0.7, 100, warmup),
        WarmupCosineScheduler(0.7, 100, warmup),
    ]
    for i in range(warmup):
        assert {s.step(i) for s in schedulers} == {0.7 * (i + 1) / warmup}


def test_numpy_numbers_become_python_floats() -> None:
    schedulers: list[WarmupScheduler] = [
        ConstantScheduler(np.float32(0.5), np.int64(2)),  # type: ignore[arg-type]
        LinearScheduler(np.float32(0.5), np.int64(9), np.int64(2), np.float32(0.1)),  # type: ignore[arg-type]
        WarmupCosineScheduler(np.float64(0.5), 9.0, 2.0),  # type: ignore[arg-type]
    ]
    for scheduler in schedulers:
        assert {type(scheduler.step(i)) for i in (0, 1, 2, 5, 9, 20)} == {float}


WRONG: dict[str, tuple[Any, str]] = {
    "常数：学习率": (lambda: ConstantScheduler(-1), r"ConstantScheduler：lr .*-1"),
    "常数：升温": (lambda: ConstantScheduler(1, -1), r"ConstantScheduler：warmup_steps .*-1"),
    "常数：小数步": (lambda: ConstantScheduler(1, 2.5), r"warmup_steps 必须是整数，这里是 2\.5"),  # type: ignore[arg-type]
    "常数：第几步": (lambda: ConstantScheduler(1).step(-1), r"ConstantScheduler：i .*-1"),
    "直线：学习率": (lambda: LinearScheduler(math.nan, 5), r"LinearScheduler：lr .*nan"),
    "直线：总步数": (lambda: LinearScheduler(1, -5), r"LinearScheduler：total_steps .*-5"),
    "直线：无穷": (lambda: LinearScheduler(1, math.inf), r"total_steps .*inf"),  # type: ignore[arg-type]
    "直线：文字": (lambda: LinearScheduler(1, "5"), r"total_steps .*'5'"),  # type: ignore[arg-type]
    "直线：升温": (lambda: LinearScheduler(1, 5, -2), r"LinearScheduler：warmup_steps .*-2"),
    "直线：最低": (lambda: LinearScheduler(1, 5, 1, 2), r"LinearScheduler：min_lr=2 .*lr=1.*十分之一"),
    "直线：第几步": (lambda: LinearScheduler(1, 5).step(-1), r"LinearScheduler：i .*-1"),
    "余弦：最低": (lambda: WarmupCosineScheduler(1, 5, 1, -1), r"WarmupCosineScheduler：min_lr .*-1"),
}  # fmt: skip


@pytest.mark.parametrize(("build", "message"), WRONG.values(), ids=WRONG)
def test_wrong_settings(build: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        build()


def test_a_schedule_of_ones_own() -> None:
    class Root(DecayScheduler):
        def remaining(self, progress: float) -> float:
            return 1 - math.sqrt(progress)

    scheduler = Root(1.0, 18, 2)
    assert [scheduler.step(i) for i in (0, 1, 2, 6, 18)] == [0.5, 1.0, 1.0, 0.5, 0.0]
    with pytest.raises(ArgumentError, match="Root：lr"):
        Root(-1, 5)


def test_public_names() -> None:
    assert {"ConstantScheduler", "LinearScheduler", "WarmupCosineScheduler"} <= set(gptcore.__all__)
