"""数据集：窗口的算术、标签、分批与错误"""

import math
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcore.data import CharDataset, Dataset, NextCharDataset, OneHotRows
from gptcore.errors import ArgumentError, DataError, DtypeError, RangeError, ShapeError
from gptcore.tensor import DTYPE, Tensor


def write(folder: Path, text: str) -> Path:
    file = folder / "text.txt"
    file.write_bytes(text.encode("utf-8"))
    return file


@pytest.fixture
def hundred(tmp_path: Path) -> Path:
    """100 个字符，10 种，看得出位置。"""
    return write(tmp_path, "0123456789" * 10)


class Pairs(Dataset):
    """由测试直接给出数据的数据集。"""

    def __init__(self, train: Any, test: Any, batch_size: int = 1) -> None:
        self.given = train, test
        super().__init__(batch_size)

    def load(self) -> None:
        self.train_data, self.test_data = self.given


def numbers(n: int) -> tuple[list[list[int]], list[float]]:
    return [[i, i + 1] for i in range(n)], [i / 2 for i in range(n)]


# --------------------------------------------------------------------- 基类


def test_lists_become_arrays() -> None:
    dataset = Pairs(numbers(3), (np.zeros((1, 2), np.float64), np.ones(1, np.float32)))
    x, y = dataset.train_data
    assert (x.dtype, y.dtype) == (np.int64, DTYPE)
    assert [a.dtype for a in dataset.test_data] == [np.float64, np.float32]
    dataset = Pairs((Tensor([1, 2]), Tensor([0.5, 1.5])), ([True], [1]))
    assert [a.dtype for a in dataset.train_data] == [np.int64, DTYPE]
    assert [a.dtype for a in dataset.test_data] == [np.bool_, np.int64]


@given(st.integers(1, 20), st.integers(1, 20))
def test_batches(n: int, batch_size: int) -> None:
    dataset = Pairs(numbers(n), numbers(1), batch_size)
    if batch_size > n:
        with pytest.raises(DataError):
            list(dataset)
        return
    batches = list(dataset)
    assert len(batches) == len(dataset) == n // batch_size
    x, y = (np.array(part) for part in numbers(n))
    for i, (bx, by) in enumerate(batches):
        rows = slice(i * batch_size, (i + 1) * batch_size)
        np.testing.assert_array_equal(bx.data, x[rows])
        np.testing.assert_array_equal(by.data, y[rows].astype(DTYPE))
        again = dataset[i - len(dataset)]
        np.testing.assert_array_equal(again[0].data, bx.data)


def test_batches_are_contiguous_copies_without_gradient() -> None:
    dataset = Pairs((np.arange(12.0).reshape(2, 6).T, np.arange(6)), numbers(1), 2)
    x, y = dataset[1]
    assert x.data.flags.c_contiguous
    assert not x.requires_grad
    assert not y.requires_grad
    x.data[:] = -1
    assert dataset[1][0].data.min() == 2.0
    whole = dataset.all()[0]
    whole.data[:] = -1
    assert dataset.all()[0].data.min() == 0.0


def test_train_and_eval_switch_the_split() -> None:
    dataset = Pairs(numbers(4), numbers(2))
    assert dataset.training
    assert len(dataset) == 4
    assert dataset.eval() is dataset
    assert not dataset.training
    assert len(dataset) == 2
    assert dataset.all()[0].shape == (2, 2)
    assert dataset.train().training
    assert dataset.all()[1].shape == (4,)


def test_subclass_may_set_attributes_first_and_replace_data_later() -> None:
    class Powers(Dataset):
        def __init__(self, exponent: int, batch_size: int = 1) -> None:
            self.exponent = exponent
            super().__init__(batch_size)

        def load(self) -> None:
            x = [[float(i)] for i in range(4)]
            self.train_data = x, [[v**self.exponent] for [v] in x]
            self.test_data = x, x

    dataset = Powers(2, batch_size=4)
    np.testing.assert_array_equal(dataset[0][1].data.ravel(), [0, 1, 4, 9])
    dataset.train_data = [[5], [6]], [[1], [2]]
    dataset.batch_size = 2
    assert dataset[0][0].dtype == np.int64


def test_numpy_index_and_wrong_index() -> None:
    dataset = Pairs(numbers(3), numbers(1))
    assert dataset[np.int64(2)][1].item() == 1.0
    for index in (3, -4):
        with pytest.raises(RangeError, match=f"下标 {index} 越界.*共有 3 批.*请用 -3 到 2"):
            dataset[index]
    with pytest.raises(DtypeError, match=r"slice\(0, 2, None\).*all\(\)"):
        dataset[0:2]  # type: ignore[index]


def test_batch_larger_than_split() -> None:
    dataset = Pairs(numbers(8), numbers(3), batch_size=5)
    assert len(dataset) == 1
    dataset.eval()
    for use in (len, list, lambda d: d[0]):
        with pytest.raises(DataError) as caught:
            use(dataset)
        for part in ("batch_size=5", "测试集", "样本数 3", "请减小 batch_size", "all()"):
            assert part in str(caught.value)
    assert dataset.all()[0].shape == (3, 2)


def test_empty_split() -> None:
    dataset = Pairs(numbers(1), ([], [])).eval()
    for use in (len, list, Dataset.all):
        with pytest.raises(DataError, match=r"测试集的样本数是 0.*请增加数据"):
            use(dataset)


@pytest.mark.parametrize("size", [0, -1, 2.0, "4", None, True])
def test_bad_batch_size(size: Any) -> None:
    with pytest.raises(ArgumentError) as caught:
        Pairs(numbers(1), numbers(1), size)
    assert f"Pairs：batch_size 得到 {size!r}" in str(caught.value)
    assert "请给出 1 或更大" in str(caught.value)


def test_forgotten_data() -> None:
    class Half(Dataset):
        def load(self) -> None:
            self.train_data = [1], [2]

    with pytest.raises(
        DataError, match=r"Half：测试集 test_data 没有赋值.*self.test_data = \(x, y\)"
    ):
        Half()

    class NoInit(Half):
        def __init__(self) -> None: ...

    with pytest.raises(DataError, match=r"train_data 没有赋值.*super\(\).__init__"):
        len(NoInit())


@pytest.mark.parametrize(
    ("train", "error", "expected"),
    [
        (([1, 2, 3], [1, 2]), DataError, ["x 有 3 个样本，y 有 2 个", "train_data", "load()"]),
        ([1, 2, 3], DataError, ["[1, 2, 3]", "一对 (x, y)"]),
        (np.zeros((2, 3)), DataError, ["一对 (x, y)"]),
        ((["ab", "c"], [1, 2]), DtypeError, ["train_data 的 x", "['ab', 'c']", "分词器"]),
        (([[1], [2, 3]], [1, 2]), ShapeError, ["形状不同", "请补齐"]),
        (([1], 3), ShapeError, ["的 y 只有一个数", "[样本]"]),
    ],
)
def test_bad_data(train: Any, error: type[Exception], expected: list[str]) -> None:
    with pytest.raises(error) as caught:
        Pairs(train, numbers(1))
    assert all(part in str(caught.value) for part in expected), str(caught.value)


# ------------------------------------------------------------------- 字符数据集


@given(
    st.text(alphabet="甲乙丙abc\n", min_size=2, max_size=120),
    st.integers(1, 12),
    st.integers(1, 15) | st.none(),
    st.sampled_from([0.3, 0.5, 0.9, 1.0]),
)
def test_windows_against_a_plain_loop(
    text: str, context_size: int, stride: int | None, split: float
) -> None:
    cut = int(len(text) * split)
    parts = [text[:cut], text[cut:]]
    with tempfile.TemporaryDirectory() as name:
        file = write(Path(name), text)
        if any(len(part) <= context_size for part in parts if split < 1.0 or part):
            with pytest.raises(DataError, match=f"split={split}.*需要 {context_size + 1} 个"):
                CharDataset(file, context_size=context_size, stride=stride, split=split)
            return
        shifted = CharDataset(file, 1, context_size, stride, split)
        one_hot = NextCharDataset(file, 1, context_size, stride, split)
    assert shifted.vocab == sorted(set(text))
    assert shifted.vocab_size == len(set(text))
    assert shifted.decode(shifted.tokens) == text
    step = stride or max(1, context_size // 2)
    for part, data, labels in zip(
        parts,
        (shifted.train_data, shifted.test_data),
        (one_hot.train_data, one_hot.test_data),
        strict=True,
    ):
        starts = range(0, len(part) - context_size, step)
        ids = [shifted.stoi[c] for c in part]
        x = [ids[s : s + context_size] for s in starts]
        y = [ids[s + 1 : s + context_size + 1] for s in starts]
        assert data[0].tolist() == labels[0].tolist() == x
        assert data[1].tolist() == y
        assert labels[1].shape == (len(x), len(set(text)))
        assert np.asarray(labels[1]).argmax(axis=1).tolist() == [row[-1] for row in y]


@pytest.mark.parametrize("dataset_type", [CharDataset, NextCharDataset])
def test_tiny_shakespeare(dataset_type: type[CharDataset], tinyshakespeare_path: Path) -> None:
    dataset = dataset_type(tinyshakespeare_path, batch_size=4, context_size=32)
    assert dataset.vocab_size == 65
    assert dataset.stride == 16
    assert dataset.tokens.shape == (1_115_394,)
    assert dataset.train_data[0].shape == (62_739, 32)
    assert dataset.test_data[0].shape == (6_970, 32)
    assert (len(dataset), len(dataset.eval())) == (15_684, 1_742)
    width = 32 if dataset_type is CharDataset else 65
    assert dataset.train_data[1].shape == (62_739, width)
    x, y = dataset.all()
    assert (x.shape, y.shape) == ((6_970, 32), (6_970, width))
    assert x.dtype == np.int64
    assert y.dtype == (np.int64 if dataset_type is CharDataset else DTYPE)
    assert dataset.decode(dataset.train()[0][0].data[0]) == "First Citizen:\nBefore we proceed"


def test_context_plus_one_characters_give_one_window(tmp_path: Path) -> None:
    dataset = CharDataset(write(tmp_path, "abcdefgh"), context_size=7, split=1.0)
    assert len(dataset) == 1
    x, y = dataset[0]
    assert (dataset.decode(x.data[0]), dataset.decode(y.data[0])) == ("abcdefg", "bcdefgh")
    with pytest.raises(DataError, match=r"测试集的样本数是 0.*split=1\.0"):
        dataset.eval().all()


def test_default_stride(hundred: Path) -> None:
    assert CharDataset(hundred, context_size=1).stride == 1
    assert CharDataset(hundred, context_size=9).stride == 4
    assert CharDataset(hundred, context_size=9, stride=20).train_data[0].shape == (5, 9)


def test_one_hot_batch(hundred: Path) -> None:
    dataset = NextCharDataset(hundred, batch_size=2, context_size=3, stride=2)
    x, y = dataset[1]
    assert y.dtype == DTYPE
    assert y.shape == (2, 10)
    assert not y.requires_grad
    assert x.data.tolist() == [[4, 5, 6], [6, 7, 8]]
    np.testing.assert_array_equal(y.data, np.eye(10, dtype=DTYPE)[[7, 9]])


def test_attributes(hundred: Path) -> None:
    dataset = CharDataset(str(hundred), context_size=5)
    assert dataset.encode("042") == [0, 4, 2]
    assert dataset.decode(Tensor(np.array([1, 0]))) == "10"
    assert dataset.itos[3] == "3"
    assert dataset.tokenizer.vocab is dataset.vocab
    assert dataset.tokens.ndim == 1
    assert dataset.tokens.dtype == np.int64
    with pytest.raises(DataError, match=r"位置 1.*'x'"):
        dataset.encode("1x")


def test_vocabulary_comes_from_the_whole_file_and_newlines_are_normal(tmp_path: Path) -> None:
    file = write(tmp_path, "\ufeff" + "ab\r\n" * 20 + "z" * 9)
    dataset = CharDataset(file, context_size=4)
    assert dataset.vocab == ["\n", "a", "b", "z"]


def test_batch_larger_than_the_test_split_names_it(hundred: Path) -> None:
    dataset = CharDataset(hundred, batch_size=4, context_size=8)
    assert len(dataset) == 5
    with pytest.raises(DataError, match=r"batch_size=4 大于测试集的样本数 1"):
        len(dataset.eval())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"split": 0.9, "context_size": 32}, ["测试集只有 10 个", "split=0.9", "33 个", "减小"]),
        ({"split": 0.1, "context_size": 10}, ["训练集只有 10 个", "split=0.1", "11 个", "更长"]),
        ({"split": 1.0, "context_size": 100}, ["训练集只有 100 个", "split=1.0", "101 个"]),
    ],
)
def test_split_shorter_than_a_window(
    hundred: Path, arguments: dict[str, Any], expected: list[str]
) -> None:
    with pytest.raises(DataError) as caught:
        CharDataset(hundred, **arguments)
    assert all(part in str(caught.value) for part in expected), str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("context_size", 0, "请给出 1"),
        ("context_size", 8.0, "请给出 1"),
        ("stride", 0, "请给出 1"),
        ("stride", -2, "请给出 1"),
        ("split", 0, "例如 0.9"),
        ("split", 1.1, "例如 0.9"),
        ("split", 90, "例如 0.9"),
        ("split", math.nan, "例如 0.9"),
        ("split", "大半", "例如 0.9"),
        ("split", None, "例如 0.9"),
    ],
)
def test_bad_arguments(hundred: Path, name: str, value: Any, remedy: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        NextCharDataset(hundred, **{"context_size": 4, name: value})
    for part in ("NextCharDataset", f"{name} 得到 {value!r}", remedy):
        assert part in str(caught.value), str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"无.txt.*不存在"):
        CharDataset(tmp_path / "无.txt")


@pytest.mark.parametrize("dataset_type", [CharDataset, NextCharDataset])
def test_windows_take_no_memory(tmp_path: Path, dataset_type: type[CharDataset]) -> None:
    """峰值不随窗口数增长：步长 1 时每个字符一个窗口，也只有文本和编号各一份。"""
    n = 1_000_000
    text = "".join(chr(0x4E00 + i % 3000) for i in range(1000)) * (n // 1000)
    file = write(tmp_path, text)  # 3 MB
    del text
    tracemalloc.start()
    try:
        dataset = dataset_type(file, batch_size=4, context_size=64, stride=1)
        assert len(dataset) == (900_000 - 64) // 4
        dataset[10]
        current, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert current < 9 * n, current  # int64 编号 8 字节
    assert peak < 24 * n, peak


# ---------------------------------------------------------------------- 独热行


def test_one_hot_rows_behave_like_an_array() -> None:
    ids = np.array([2, 0, 1, 2])
    rows, full = OneHotRows(ids, 3), np.eye(3, dtype=DTYPE)[ids]
    assert rows.shape == full.shape
    assert rows.ndim == 2
    assert len(rows) == 4
    assert rows.dtype == DTYPE
    for index in (0, -1, slice(1, 3), slice(None), [3, 0], np.array([1, 1]), ids > 1, slice(0, 0)):
        np.testing.assert_array_equal(rows[index], full[index])
        assert rows[index].dtype == DTYPE
    np.testing.assert_array_equal(np.asarray(rows), full)
    assert np.asarray(rows, dtype=np.float64).dtype == np.float64
    assert repr(rows) == "OneHotRows(shape=(4, 3), dtype=float32)"
    with pytest.raises(ArgumentError, match=r"\(4, 1\).*一维"):
        OneHotRows(ids[:, np.newaxis], 3)
    with pytest.raises(ArgumentError, match=r"copy=None"):
        rows.__array__(copy=False)
