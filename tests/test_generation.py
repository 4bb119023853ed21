"""生成：几个生成器交错，分数不是数，参数的检查"""

from typing import Any

import numpy as np
import pytest

from gptcore import (
    GPT,
    ArgumentError,
    DataError,
    Dropout,
    DtypeError,
    Layer,
    Sequential,
    Tensor,
    is_grad_enabled,
)
from gptcore.models.generation import generate_ids, sample


class Scores(Layer):
    """分数总是给定的几个，并记下每一步的模式。"""

    def __init__(self, scores: list[float]) -> None:
        self.scores = np.array(scores, np.float32)
        self.dropout = Sequential([Dropout()])
        self.modes: list[bool] = []

    def forward(self, ids: Tensor) -> Tensor:
        self.modes.append(self.training or self.dropout.layers[0].training or is_grad_enabled())
        return Tensor(np.broadcast_to(self.scores, (*ids.shape, len(self.scores))))


def test_generators_may_interleave() -> None:
    model = Scores([0, 1, 2])
    first, second = generate_ids(model, [1], 9, 4), generate_ids(model, [1], 9, 4)
    for stream in (first, second, first, second):
        next(stream)
        assert model.training
        assert model.dropout.layers[0].training
    first.close()  # type: ignore[attr-defined]
    next(second)
    assert model.training
    model.eval()
    list(second)
    assert not model.training  # 中途换了模式，以使用者的为准
    assert not any(model.modes)


def test_modes_are_restored_after_an_error() -> None:
    model = GPT(7, 4, 6, 3, 1)
    stream = generate_ids(model, [1, 99], 3, 4)
    with pytest.raises(ArgumentError, match="编号 99"):
        next(stream)
    assert model.training
    assert is_grad_enabled()


@pytest.mark.parametrize("temperature", [0, 1.0])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_that_are_not_numbers(temperature: float, bad: float) -> None:
    stream = generate_ids(Scores([0, bad, 1]), [1], 3, 4, temperature=temperature)
    with pytest.raises(ArgumentError, match=rf"generate：.*{bad}.*NaN 或无穷.*学习率"):
        next(stream)
    stream = generate_ids(Scores([-np.inf] * 3), [1], 3, 4, temperature=temperature)
    with pytest.raises(ArgumentError, match=r"-inf"):
        next(stream)
    allowed = generate_ids(Scores([-np.inf, 5, -np.inf]), [1], 3, 4, temperature=temperature)
    assert list(allowed) == [1, 1, 1]  # 个别的负无穷：不许出现的词元


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": "a"}, "temperature .*a.*0.8"),
        ({"temperature": None}, "temperature .*None"),
        ({"temperature": 10**5000}, "temperature .*2 的 16609 次方以上"),
        ({"temperature": np.nan}, "temperature .*nan"),
        ({"prompt": None}, "ids 得到 None.*列表"),
        ({"prompt": "abc"}, "'abc'.*encode"),
        ({"prompt": [0.5]}, "0.5.*整数"),
        ({"context_size": 0}, "context_size 必须是正整数，这里是 0"),
        ({"context_size": -1}, "context_size .*-1"),
        ({"steps": 1.5}, "steps .*1.5"),
    ],
)
def test_arguments(arguments: Any, message: str) -> None:
    given = {"prompt": [1], "steps": 2, "context_size": 4, **arguments}
    with pytest.raises((ArgumentError, DtypeError), match=message):
        generate_ids(Scores([0, 1]), **given)


@pytest.mark.parametrize("prompt", [[1, 2], np.array([1, 2]), Tensor([1, 2]), (1, 2)])
def test_prompts(prompt: Any) -> None:
    assert list(generate_ids(Scores([0, 1]), prompt, 2, 4, temperature=0)) == [1, 1]
    with pytest.raises(DataError, match="提示不能为空"):
        generate_ids(Scores([0, 1]), prompt[:0], 2, 4)


def test_sample() -> None:
    rng = np.random.default_rng(0)
    assert sample([0.0, 1.0], rng) == 1  # type: ignore[arg-type]
    assert {sample([1, 1], rng) for _ in range(20)} == {0, 1}  # type: ignore[arg-type]
    for bad in ([], None, "a", [[0.5, 0.5]], 1.0):
        with pytest.raises(DtypeError, match="sample：概率必须是形状"):
            sample(bad)  # type: ignore[arg-type]
