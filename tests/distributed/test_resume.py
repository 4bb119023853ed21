"""接着训练：进程数相同时逐位相同，不同时只差舍入；每个进程有自己的随机数"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from distributed.launching import PROGRAM, needs_mpi, ranks

pytestmark = needs_mpi


def run(folder: Path, count: int, name: str, steps: int, dropout: float, k: int) -> str:
    """几个进程训练到第几步；0 个是没有 MPI。返回标准错误。"""
    arguments = [folder, name, steps, dropout, k]
    if not count:
        command = [sys.executable, PROGRAM, "run", *map(str, arguments)]
        result = subprocess.run(command, check=True, timeout=60, capture_output=True)
        return result.stderr.decode()
    outcome = ranks(count, "run", *arguments)
    assert outcome.code == 0, outcome.err
    return outcome.err


def result(folder: Path, name: str) -> dict[str, np.ndarray]:
    return dict(np.load(folder / f"{name}.npz"))


@pytest.mark.parametrize("count", [2, 3])
def test_same_ranks_are_bit_identical(tmp_path: Path, count: int) -> None:
    """打乱、累积、随机失活都开着；随机数的位置也相同。"""
    run(tmp_path, count, "whole", 40, 0.2, 2)
    run(tmp_path, count, "half", 23, 0.2, 2)
    before = result(tmp_path, "half")["losses"]
    assert run(tmp_path, count, "half", 40, 0.2, 2) == ""
    whole, half = result(tmp_path, "whole"), result(tmp_path, "half")
    half["losses"] = np.concatenate([before, half["losses"]])
    for name in whole:
        np.testing.assert_array_equal(whole[name], half[name], name)
    for rank in range(count):
        files = (np.load(tmp_path / f"{name}-rank{rank}.npz") for name in ("whole", "half"))
        np.testing.assert_array_equal(*(file["next"] for file in files))


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (2, 0), (0, 2)])
def test_another_number_of_ranks_keeps_the_global_batch(
    tmp_path: Path, before: int, after: int
) -> None:
    run(tmp_path, before, "whole", 40, 0, 1)
    run(tmp_path, before, "half", 20, 0, 1)
    warning = run(tmp_path, after, "half", 40, 0, 1)
    assert f"进程数由 {before or 1} 变成 {after or 1}" in warning
    whole, half = result(tmp_path, "whole"), result(tmp_path, "half")
    np.testing.assert_allclose(whole["losses"][20:], half["losses"], rtol=0, atol=1e-4)
    np.testing.assert_allclose(whole["evaluations"], half["evaluations"], rtol=0, atol=1e-4)


def test_more_ranks_with_dropout_have_streams_of_their_own(tmp_path: Path) -> None:
    run(tmp_path, 2, "run", 10, 0.2, 1)
    run(tmp_path, 3, "run", 20, 0.2, 1)
    drawn = {tuple(np.load(tmp_path / f"run-rank{rank}.npz")["next"]) for rank in range(3)}
    assert len(drawn) == 3


def test_streams_depend_on_seed_and_rank_only(tmp_path: Path) -> None:
    drawn = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        assert ranks(3, "streams", folder).code == 0
        drawn.append([json.loads((folder / f"{rank}.json").read_text()) for rank in range(3)])
    assert drawn[0] == drawn[1]
    assert len({tuple(values) for values in drawn[0]}) == 3
