"""独热行的检查；取批时的错误不会悄悄结束一轮"""

from typing import Any

import numpy as np
import pytest

from gptcore import GPTLoss, GPTTrainer, Linear, MSELoss, SGDOptimizer, Trainer
from gptcore.data import CharDataset, CharTokenizer, Dataset, OneHotRows
from gptcore.errors import ArgumentError, DataError, DtypeError, RangeError


@pytest.mark.parametrize(
    ("indices", "size", "kind", "message"),
    [
        ([0, 1], 3, DtypeError, r"indices 得到 \[0, 1\].*np\.array\(indices\)"),
        (None, 3, DtypeError, "indices 得到 None"),
        (np.array([0.0]), 3, DtypeError, r"整数数组.*astype\(np\.int64\)"),
        (np.array([True]), 3, DtypeError, "整数数组"),
        (np.array([0, 3]), 3, RangeError, "0 到 3，应在 0 到 2"),
        (np.array([-1, 0]), 3, RangeError, "-1 到 0，应在 0 到 2"),
        (np.array([0]), 0, ArgumentError, "size 得到 0"),
        (np.array([0]), 2.5, ArgumentError, r"size 得到 2\.5"),
    ],
)
def test_what_cannot_be_one_hot(indices: Any, size: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        OneHotRows(indices, size)


def test_no_rows_at_all() -> None:
    assert OneHotRows(np.array([], np.int64), 3).shape == (0, 3)


class Broken(Dataset):
    """第 2 批出错，用的正是 `for` 循环拿来当作结束的那种错误。"""

    def load(self) -> None:
        x = np.ones((4, 1), np.float32)
        self.train_data = self.test_data = x, x

    def __getitem__(self, index: Any) -> Any:
        if index == 2:
            raise IndexError("下标写错了")
        return super().__getitem__(index)


def trainer(kind: Any = Trainer) -> Any:
    model = Linear(1, 1)
    return kind(model, MSELoss(), SGDOptimizer(model.parameters, 0.1))


def test_errors_inside_a_batch_come_out() -> None:
    data = Broken()
    for run in (
        lambda: list(data),
        lambda: trainer().train(data, 1),
        lambda: trainer(GPTTrainer).train(data, 1),
        lambda: trainer(GPTTrainer).test(data),
    ):
        with pytest.raises(IndexError, match="下标写错了"):
            run()
    assert len(list(iter(Broken(batch_size=2)))) == 2


def test_a_dataset_without_batches() -> None:
    class Nothing(Broken):
        def __len__(self) -> int:
            return 0

    data = Nothing()
    for run in (
        lambda: trainer().train(data, 1),
        lambda: trainer(GPTTrainer).train(data, 1),
        lambda: list(trainer(GPTTrainer).steps(data, 1)),
        lambda: trainer(GPTTrainer).test(data),
    ):
        with pytest.raises(DataError, match="__len__"):
            run()


def test_a_batch_size_that_was_changed() -> None:
    data = Broken()
    data.batch_size = 0
    for run in (lambda: len(data), lambda: data[0], lambda: list(data)):
        with pytest.raises(ArgumentError, match="batch_size 得到 0"):
            run()


@pytest.mark.parametrize("given", [[1, 2], None, CharDataset, "abc"])
def test_what_is_not_a_dataset(given: Any) -> None:
    for run in (
        lambda: trainer().train(given, 1),
        lambda: trainer().test(given),
        lambda: trainer(GPTTrainer).steps(given, 1),
        lambda: trainer(GPTTrainer).test(given),
    ):
        with pytest.raises(DtypeError, match=r"dataset 必须是数据集.*CharDataset"):
            run()


def test_an_optimizer_of_another_model() -> None:
    model, other = Linear(2, 2), Linear(2, 2)
    with pytest.raises(ArgumentError, match=r"GPTTrainer：.*别的模型.*model\.parameters"):
        GPTTrainer(model, GPTLoss(), SGDOptimizer(other.parameters, 0.1))
    with pytest.raises(DtypeError, match="optimizer 不能是 None"):
        Trainer(model, MSELoss(), None)  # type: ignore[arg-type]
    Trainer(model, MSELoss(), SGDOptimizer([model.bias], 0.1))  # type: ignore[list-item]
    Trainer(model, MSELoss(), SGDOptimizer([model.weight.rows(0, 1)], 0.1))


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble, object, "U1"])
def test_arrays_the_library_cannot_use(dtype: Any) -> None:
    class Data(Dataset):
        def load(self) -> None:
            self.train_data = self.test_data = np.ones(2, dtype), np.ones(2)

    with pytest.raises(DtypeError, match=r"float32|必须是数"):
        Data()


def test_a_split_that_is_too_large(tmp_path: Any) -> None:
    with pytest.raises(ArgumentError, match="split 得到 2 的 16609 次方以上"):
        CharDataset(tmp_path / "a.txt", split=10**5000)


def test_a_tokenizer_from_nothing() -> None:
    for bad in (None, 5):
        with pytest.raises(DtypeError, match="CharTokenizer：vocab"):
            CharTokenizer(bad)  # type: ignore[arg-type]
        with pytest.raises(DataError, match=r"from_dict：vocab.*to_dict\(\)"):
            CharTokenizer.from_dict(bad)  # type: ignore[arg-type]
