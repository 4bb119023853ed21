"""数据集：评估时每个词元恰好一次，按编号取样本，认出是不是同一份数据"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptcore.data import CharDataset, Dataset, NextCharDataset
from gptcore.errors import ArgumentError


def test_evaluation_windows_cover_the_test_part_once(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("甲乙丙丁戊己庚辛壬癸" * 23, encoding="utf-8")
    dataset = CharDataset(path, batch_size=3, context_size=7, split=0.5)
    labels = np.concatenate([y.data.ravel() for _, y in dataset.evaluation_batches()])
    np.testing.assert_array_equal(labels, dataset.test_tokens[1:])
    for x, y in dataset.evaluation_batches():
        np.testing.assert_array_equal(x.data[:, 1:], y.data[:, :-1])
    assert dataset.training


def test_limited_evaluation_is_fixed_and_spread_out(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("甲乙丙丁戊己庚辛壬癸" * 40, encoding="utf-8")
    dataset = CharDataset(path, context_size=4, split=0.5)
    first, second = ([x.data for x, _ in dataset.evaluation_batches(limit=5)] for _ in range(2))
    rows = np.concatenate(first)
    np.testing.assert_array_equal(rows, np.concatenate(second))
    starts = [0, 9, 19, 29, 39]  # 49 个窗口里均匀的 5 个
    expected = [dataset.test_tokens[4 * i : 4 * i + 4] for i in starts]
    np.testing.assert_array_equal(rows, expected)
    everything = sum(y.size for _, y in dataset.evaluation_batches(limit=10**6))
    assert everything == len(dataset.test_tokens) - 1


def test_base_evaluation_includes_the_tail() -> None:
    class Numbers(Dataset):
        def load(self) -> None:
            self.train_data = [[0.0]], [[0.0]]
            self.test_data = [[float(i)] for i in range(7)], [[float(i)] for i in range(7)]

    batches = [x.data.ravel().tolist() for x, _ in Numbers(batch_size=3).evaluation_batches()]
    assert batches == [[0, 1, 2], [3, 4, 5], [6]]
    with pytest.raises(ArgumentError, match="limit"):
        list(Numbers().evaluation_batches(limit=0))


def test_take_picks_rows(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("甲乙丙丁戊己庚辛壬癸" * 9, encoding="utf-8")
    for kind in (CharDataset, NextCharDataset):
        dataset = kind(path, batch_size=1, context_size=5)
        x, y = dataset.take(np.array([3, 0]))
        for row, i in enumerate((3, 0)):
            np.testing.assert_array_equal(x.data[row], dataset[i][0].data[0])
            np.testing.assert_array_equal(y.data[row], dataset[i][1].data[0])


def test_fingerprint_tells_any_data_apart() -> None:
    """自己写的数据集也是：形状相同，任何一份里有一个数不同，就是另一份数据。"""

    class Numbers(Dataset):
        def __init__(self, split: int = 0, part: int = 0, dtype: Any = np.int64) -> None:
            self.changed, self.dtype = (split, part), dtype
            super().__init__(batch_size=2)

        def load(self) -> None:
            arrays = np.zeros((2, 2, 5, 3), self.dtype)
            arrays[self.changed] += np.arange(15, dtype=self.dtype).reshape(5, 3)
            self.train_data, self.test_data = map(tuple, arrays)

    settings: list[Any] = [(0, 0), (0, 1), (1, 0), (1, 1), (0, 0, np.float32)]
    prints = [str(Numbers(*setting).fingerprint()) for setting in settings]
    assert len(set(prints)) == len(settings)
    assert str(Numbers(0, 0).fingerprint()) == prints[0]


def test_fingerprint_tells_texts_apart(tmp_path: Path) -> None:
    prints = []
    for i, text in enumerate(("甲乙丙丁" * 20, "甲乙丁丙" * 20)):
        path = tmp_path / f"{i}.txt"
        path.write_text(text, encoding="utf-8")
        prints.append(CharDataset(path, context_size=4).fingerprint())
    assert prints[0]["samples"] == prints[1]["samples"]
    assert prints[0] != prints[1]
