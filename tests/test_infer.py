"""推理：`infer` 与评估模式下的 `forward` 逐位相同；改写了 `forward` 的子类由它来算"""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gptcore import (
    GELU,
    GPT,
    Dropout,
    Embedding,
    GPTAttention,
    GPTFeedForward,
    GPTOutput,
    GPTTransformer,
    Layer,
    LayerNorm,
    Linear,
    MeanPool,
    ReLU,
    RMSNorm,
    Sequential,
    Softmax,
    Tensor,
    Tril,
    is_grad_enabled,
    no_grad,
)
from gptcore.kernels.linear import linear_forward

RNG = np.random.default_rng(0)
LAYERS: dict[str, Layer] = {
    "Linear": Linear(6, 5),
    "Linear 没有偏置": Linear(6, 5, bias=False),
    "LayerNorm": LayerNorm(6),
    "LayerNorm 没有偏置": LayerNorm(6, bias=False),
    "RMSNorm": RMSNorm(6),
    "GELU": GELU(),
    "ReLU": ReLU(),
    "Dropout": Dropout(0.5),
    "Softmax": Softmax(),
    "Tril": Tril(),
    "MeanPool": MeanPool(),
    "Sequential": Sequential([Linear(6, 6), Dropout(0.5), GELU()]),
    "GPTAttention": GPTAttention(6, 2, dropout=0.5),
    "GPTAttention post": GPTAttention(6, 2, norm_position="post"),
    "GPTFeedForward": GPTFeedForward(6, norm="RMSNorm"),
    "GPTFeedForward 不归一化": GPTFeedForward(6, norm=None),
    "GPTTransformer": GPTTransformer(6, 3),
    "GPTOutput": GPTOutput(6, 9),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1, 6), (2, 6, 6), (1, 3, 6)])
def test_infer_is_forward(name: str, dtype: Any, shape: tuple[int, ...]) -> None:
    layer = LAYERS[name].astype(dtype)
    x = RNG.standard_normal(shape).astype(dtype)
    before = x.copy()
    with layer.evaluating(), no_grad():
        expected = layer(Tensor(x)).data
        found = layer.infer(x)
    assert type(found) is np.ndarray
    assert found.dtype == dtype
    assert_array_equal(found, expected)
    assert_array_equal(x, before)


def test_embedding() -> None:
    layer = Embedding(7, 3)
    ids = np.array([[1, 6, 0]])
    assert_array_equal(layer.infer(ids), layer(Tensor(ids)).data)


def test_subclass_with_its_own_forward() -> None:
    class Negative(Linear):
        def forward(self, x: Tensor) -> Tensor:
            assert not is_grad_enabled()
            return super().forward(x) * -1.0

    class Bigger(Negative):
        pass

    class Both(Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * -1.0

        def infer(self, x: Any) -> Any:
            return super().infer(x) * -2

    x = RNG.standard_normal((2, 6)).astype(np.float32)
    for kind, factor in ((Negative, -1), (Bigger, -1), (Both, -2)):
        layer = kind(6, 5)
        assert layer.weight.data is not None
        plain = linear_forward(x, layer.weight.data, layer.bias.data)  # type: ignore[union-attr]
        assert_array_equal(layer.infer(x), factor * plain)
    assert is_grad_enabled()


def test_whole_model_through_the_default() -> None:
    model = GPT(7, 5, 6, 2, 1)
    ids = np.array([[1, 2, 3]])
    x = model.transformers[0].infer(model.embedding.infer(ids))
    assert_allclose(model.next_scores(ids), model.output.infer(x[:, -1]), rtol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("dtypes", [("f", "f"), ("d", "d"), ("f", "d")])
def test_a_few_rows_at_a_time(rows: int, dtypes: tuple[str, str]) -> None:
    x = RNG.standard_normal((rows, 30)).astype(dtypes[0])
    weight, bias = (RNG.standard_normal(s).astype(dtypes[1]) for s in ((20, 30), (20,)))
    y = linear_forward(x, weight, bias)
    assert y.dtype == np.result_type(*dtypes)
    assert_allclose(y, x.astype("d") @ weight.T.astype("d") + bias, rtol=2e-4, atol=1e-5)
    if rows in (2, 3):  # 逐行地算：每一行与单独算时逐位相同
        for i in range(rows):
            assert_array_equal(y[i], linear_forward(x[i : i + 1], weight, bias)[0])
    out = np.empty((rows, 20), y.dtype)
    linear_forward(x, weight, bias, out=out)
    assert_array_equal(out, y)
