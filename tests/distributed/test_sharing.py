"""分法：不重叠，不遗漏；不需要 MPI"""

import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcore import DataError, Dataset, Tensor
from gptcore.distributed.gradients import GradientBuffer
from gptcore.random import generator_state, set_generator_state
from gptcore.training.batches import Batches
from gptcore.training.generators import derive
from gptcore.training.sharing import share
from gptcore.training.state import RunState
from gptcore.training.strategy import SingleProcess

COUNTS = st.integers(1, 7)


class Rows(Dataset):
    """样本就是自己的编号。"""

    def __init__(self, count: int, batch_size: int) -> None:
        self.count = count
        super().__init__(batch_size)

    def load(self) -> None:
        x = np.arange(self.count)[:, None]
        self.train_data, self.test_data = (x, x), (x, x)


class OnlyBatches:
    """只能按批取用的数据集。"""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.batch_size = rows, rows.batch_size

    def train(self) -> None: ...

    def eval(self) -> None: ...

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Any:
        return self.rows[i]


def rank_of(rank: int, size: int) -> SingleProcess:
    strategy = SingleProcess()
    strategy.rank, strategy.size = rank, size
    return strategy


@given(st.integers(0, 50), st.integers(0, 200), st.integers(1, 70))
def test_shares_are_a_partition(start: int, length: int, size: int) -> None:
    shares = [share(start, start + length, rank, size) for rank in range(size)]
    assert [i for part in shares for i in part] == list(range(start, start + length))
    lengths = [len(part) for part in shares]
    assert max(lengths) - min(lengths) <= 1


@given(COUNTS, COUNTS, COUNTS, COUNTS, st.integers(1, 60), st.booleans(), st.booleans())
def test_batches_of_all_ranks_are_the_single_process_ones(
    parts: int, size: int, width: int, k: int, count: int, shuffle: bool, whole: bool
) -> None:
    """开始时 `parts` 个进程、现在 `size` 个：各步合起来就是一个进程、批有 `parts` 倍大时的样本。"""
    if count < parts * width:
        return
    states = [RunState() for _ in range(size + 1)]
    rows: Any = Rows(count, width)
    data: Any = OnlyBatches(rows) if whole and not shuffle else rows
    single = Batches(Rows(count, parts * width), shuffle, np.random.default_rng(3), states[-1])
    ranks = [
        Batches(data, shuffle, np.random.default_rng(3), state, parts, rank_of(rank, size))
        for rank, state in enumerate(states[:-1])
    ]
    for _ in range(2 * single.count + 1):
        expected = [x.data.ravel().tolist() for x, _ in single.take(k)]
        groups = [batches.take(k) for batches in ranks]
        got = [x.data.ravel().tolist() for group in groups for x, _ in group]
        assert list(chain(*got)) == list(chain(*expected))
        assert all(len(piece) <= width for piece in got)
        assert all(state == states[-1] for state in states)


def test_too_few_batches_for_the_ranks() -> None:
    with pytest.raises(DataError, match="批数是 2，不够 3 个进程各取一批；请减小 batch_size"):
        Batches(Rows(10, 5), False, None, RunState(), 3, rank_of(0, 3))


@given(st.sampled_from(["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"]), st.integers(0, 99))
def test_derived_streams_differ_and_repeat(kind: str, seed: int) -> None:
    rng = np.random.Generator(getattr(np.random, kind)(seed))
    states = {"a": generator_state(rng)}
    drawn = []
    for rank in (0, 1, 2, 1):
        set_generator_state(rng, derive(states, rank)["a"])
        drawn.append(tuple(rng.random(4)))
    assert len(set(drawn)) == 3
    assert drawn[1] == drawn[3]


def test_gradients_are_added_in_one_buffer_per_dtype() -> None:
    parameters = [Tensor(np.ones(s, d)) for s, d in [((2, 3), "f4"), (4, "f4"), (5, "f8")]]
    frozen = Tensor(np.ones(9, np.float32))
    frozen.requires_grad = False
    for p in parameters:
        p.grad = np.full(p.shape, 2.0)
    sizes: list[int] = []

    def add(buffer: np.ndarray) -> None:
        assert buffer.flags.c_contiguous
        sizes.append(buffer.size)
        buffer += 1

    buffer = GradientBuffer()
    buffer.reduce([*parameters, frozen], 0.25, add)
    assert sizes == [10, 5]
    for p in parameters:
        np.testing.assert_array_equal(p.grad, 1.5)
        p.grad[...] = np.nan
    buffer.reduce(parameters, 0.0, add)  # 没有分到样本的，梯度是什么都不看
    for p in parameters:
        np.testing.assert_array_equal(p.grad, 1.0)


def test_nothing_imports_mpi4py(tmp_path: Path) -> None:
    """不用它的时候不导入。"""
    program = (
        "import sys, gptcore; gptcore.DataParallel; import gptcore.cli.app;"
        "sys.exit('mpi4py' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, cwd=tmp_path)
