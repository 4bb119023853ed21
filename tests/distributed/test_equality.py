"""几个进程与一个进程的结果相同：梯度、损失曲线、评估、数据的位置"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from distributed.launching import PROGRAM, needs_mpi, ranks

pytestmark = needs_mpi


def alone(scenario: str, *arguments: object) -> None:
    """同样的训练，一个进程，没有 MPI。"""
    command = [sys.executable, PROGRAM, scenario, *map(str, arguments)]
    subprocess.run(command, check=True, timeout=60)


def both(folder: Path, count: int, scenario: str, *arguments: object) -> tuple[dict, dict]:
    """一个进程与几个进程的结果。"""
    alone(scenario, folder, "one", *arguments)
    outcome = ranks(count, scenario, folder, "many", *arguments)
    assert (outcome.code, outcome.err) == (0, "")
    one, many = (dict(np.load(folder / f"{name}.npz")) for name in ("one", "many"))
    assert one.keys() == many.keys()
    return one, many


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_gradients(tmp_path: Path, count: int, dtype: str) -> None:
    one, many = both(tmp_path, count, "gradients", dtype)
    error = 1e-6 if dtype == "float32" else 1e-14
    assert one["first"] == many["first"]  # 评估逐位相同；初始参数以第 0 个进程的为准
    names = [name for name in one if name.startswith("g")]
    assert len(names) > 10
    for name in names:
        largest = abs(one[name]).max()
        np.testing.assert_allclose(one[name], many[name], rtol=0, atol=error * max(1, largest))
    assert abs(one["norm"] - many["norm"]) < error * one["norm"]


@pytest.mark.parametrize("count", [2, 3])
def test_loss_curve_in_single_precision(tmp_path: Path, count: int) -> None:
    one, many = both(tmp_path, count, "stories")
    assert len(one["losses"]) == 200
    np.testing.assert_allclose(one["losses"], many["losses"], rtol=0, atol=1e-4)


@pytest.mark.parametrize(("count", "k"), [(2, 1), (3, 1), (2, 3)])
def test_loss_curve_over_several_epochs(tmp_path: Path, count: int, k: int) -> None:
    one, many = both(tmp_path, count, "curve", k)
    for name in ("losses", "evaluations", "final", "where"):
        np.testing.assert_allclose(one[name], many[name], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(one["tokens"], many["tokens"])
    assert one["where"][0] >= 5


def test_one_rank_is_bit_identical_even_with_dropout(tmp_path: Path) -> None:
    one, many = both(tmp_path, 1, "curve", 2, 0.2)
    for name in one:
        np.testing.assert_array_equal(one[name], many[name], name)


@pytest.mark.parametrize(("count", "k"), [(2, 1), (3, 2)])
def test_weighted_by_the_labels_that_count(tmp_path: Path, count: int, k: int) -> None:
    """各个进程的标签数不同，有的步里有的进程一个也没有。"""
    one, many = both(tmp_path, count, "ragged", k)
    for name in ("losses", "final", "p0"):
        np.testing.assert_allclose(one[name], many[name], rtol=1e-8, atol=1e-10)
