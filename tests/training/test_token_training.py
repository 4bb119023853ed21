"""用磁盘上的词元训练：与在内存里逐位相同，中断之后可以从一种接到另一种；很多样本时的次序"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from training.runs import TEXT, assert_same, gpt_trainer

from gptcore import ArgumentError, Evaluate, TextDataset, TokenDataset, write_tokens
from gptcore.data import BPETokenizer
from gptcore.training import orders
from gptcore.training.orders import FeistelOrder, shuffled_order

STEPS = 60


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Any, Any]:
    """同样的词元，在内存里与在磁盘上。"""
    tokenizer = BPETokenizer.train(TEXT, 290)
    file = write_tokens(tmp_path / "tokens.npy", [TEXT, TEXT[::-1]], tokenizer)
    memory = TextDataset([TEXT, TEXT[::-1]], tokenizer, 4, 8)
    return memory, TokenDataset(file, 4, 8)


def run(trainer: Any, dataset: Any, steps: int) -> list[float]:
    return [r.loss for r in trainer.steps(dataset, steps, shuffle=True, callbacks=[Evaluate(20)])]


@pytest.mark.parametrize("stored", [2**22, 0])
def test_disk_is_bit_identical_to_memory(
    pair: tuple[Any, Any], stored: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "STORED", stored)
    trainers, losses = [], []
    for dataset in pair:  # 随机失活用全局的生成器，所以建立一个，训练一个
        trainers.append(gpt_trainer(dataset))
        losses.append(run(trainers[-1], dataset, STEPS))
    assert losses[0] == losses[1]
    assert losses[0][-1] < losses[0][0]
    assert_same(*trainers)
    evaluations = [t.evaluate(d).loss for t, d in zip(trainers, pair, strict=True)]
    assert evaluations[0] == evaluations[1]


@pytest.mark.parametrize("stored", [2**22, 0])
def test_resume_from_memory_to_disk(
    pair: tuple[Any, Any], tmp_path: Path, stored: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """一半在内存里训练，另一半在磁盘上，与一次训练完逐位相同；打乱的次序在一轮中间接上。"""
    monkeypatch.setattr(orders, "STORED", stored)
    memory, disk = pair
    whole = gpt_trainer(memory)
    losses = run(whole, memory, STEPS)
    first = gpt_trainer(memory)
    before = run(first, memory, STEPS // 2)
    first.save_checkpoint(tmp_path / "here")
    again = gpt_trainer(disk, seed=9)
    again.resume(tmp_path / "here")
    assert before + run(again, disk, STEPS) == losses
    assert_same(whole, again)


def test_another_token_file_is_refused(pair: tuple[Any, Any], tmp_path: Path) -> None:
    trainer = gpt_trainer(pair[1])
    run(trainer, pair[1], 5)
    trainer.save_checkpoint(tmp_path / "here")
    other = write_tokens(tmp_path / "other.npy", [TEXT[::-1], TEXT], pair[0].tokenizer)
    again = gpt_trainer(pair[1])
    again.resume(tmp_path / "here")
    with pytest.raises(ArgumentError, match="tokens 原来是"):
        run(again, TokenDataset(other, 4, 8), 10)


# ------------------------------------------------------------------- 算出来的次序


@given(st.integers(0, 3000), st.integers(0, 2**63 - 1))
def test_it_is_a_permutation(count: int, seed: int) -> None:
    order = FeistelOrder(seed, count)
    whole = order[:]
    assert len(order) == len(whole) == count
    assert whole.dtype == np.int64
    np.testing.assert_array_equal(np.sort(whole), np.arange(count))
    middle = count // 3
    np.testing.assert_array_equal(order[middle : middle + 7], whole[middle : middle + 7])
    np.testing.assert_array_equal(FeistelOrder(seed, count)[:], whole)


def test_large_orders_are_computed_in_parts() -> None:
    count = 2**31 + 12_345
    order = shuffled_order(1, count)
    assert isinstance(order, FeistelOrder)
    parts = np.concatenate([order[i : i + 10_000] for i in (0, 5 * 10**8, count - 10_000)])
    assert len(np.unique(parts)) == 30_000
    assert 0 <= parts.min() < 0.001 * count
    assert 0.999 * count < parts.max() < count
    assert np.mean(shuffled_order(2, count)[:1000] == parts[:1000]) < 0.01
    small = shuffled_order(1, 1000)
    np.testing.assert_array_equal(small, np.random.default_rng(1).permutation(1000))


@pytest.mark.parametrize("seed", range(4))
def test_it_looks_random(seed: int) -> None:
    """与均匀随机的排列相比：相邻的样本、位置与编号都不相关，一批里的样本散布在各处。"""
    count = 2**18
    places = FeistelOrder(seed, count)[:]
    noise = 1 / math.sqrt(count)
    for other in (np.arange(count), np.roll(places, 1), FeistelOrder(seed + 1, count)[:]):
        assert abs(np.corrcoef(places, other)[0, 1]) < 5 * noise
    # 位置分成 64 段，编号分成 64 段：每格的期望是 64
    cells = np.histogram2d(np.arange(count), places, bins=64)[0]
    chi2 = float(((cells - 64) ** 2 / 64).sum())
    freedom = 63**2
    assert abs(chi2 - freedom) < 5 * math.sqrt(2 * freedom)
    # 相邻两个编号恰好相差 1 的次数近似泊松分布，期望是 2
    assert np.count_nonzero(np.abs(np.diff(places)) == 1) < 12
