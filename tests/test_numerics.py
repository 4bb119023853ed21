"""数值：很大、很小、相差很少的输入，结果仍然正确"""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gptcore import GELU, LayerNorm, RMSNorm, Tensor


@pytest.mark.parametrize("value", [1 / 3, 1e4, -1e10, 3e38])
@pytest.mark.parametrize("size", [1, 2, 7, 768])
def test_layer_norm_of_a_constant_row_is_zero(value: float, size: int) -> None:
    x = Tensor(np.full((3, size), value, np.float32))
    y = LayerNorm(size)(x)
    assert_array_equal(y.data, 0)
    y.backward(np.random.default_rng(0).normal(size=y.shape))
    assert np.isfinite(x.grad).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_layer_norm_of_nearly_constant_rows(dtype: Any) -> None:
    """减去第一个元素之后的这些数没有舍入，用 float64 算；梯度也一样。"""
    rng = np.random.default_rng(0)
    x = (1e4 + rng.normal(0, 0.01, (5, 64))).astype(dtype)
    dy = rng.normal(size=x.shape)
    shifted = (x - x[:, :1]).astype(np.float64)
    centred = shifted - shifted.mean(-1, keepdims=True)
    r = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    x_hat = centred * r
    dx = r * (dy - dy.mean(-1, keepdims=True) - x_hat * (dy * x_hat).mean(-1, keepdims=True))
    tensor, layer = Tensor(x), LayerNorm(64).astype(dtype)
    y = layer(tensor)
    y.backward(dy)
    assert_allclose(y.data, x_hat, rtol=0, atol=20 * np.finfo(dtype).eps)
    assert_allclose(tensor.grad, dx, rtol=0, atol=5e3 * np.finfo(dtype).eps)


def test_layer_norm_with_an_outlier_in_front() -> None:
    """减去的第一个元素比别的大得多，误差仍是舍入的大小。"""
    x = np.random.default_rng(0).normal(size=(4, 768))
    x[:, 0] = 1e4
    y = LayerNorm(768)(Tensor(x.astype(np.float32)))
    exact = x.astype(np.float32).astype(np.float64)
    exact -= exact.mean(-1, keepdims=True)
    exact /= np.sqrt((exact**2).mean(-1, keepdims=True) + 1e-5)
    assert_allclose(y.data, exact, rtol=1e-6, atol=5e-6)


@pytest.mark.parametrize("size", [1e2, 1e14, 1e20, 3e38])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gelu_of_large_numbers(size: float, dtype: Any) -> None:
    x = Tensor(np.array([size, -size, 0.5, 8, -8], dtype))
    y = GELU()(x)
    y.backward()
    assert_array_equal(y.data[:2], np.array([size, 0], dtype))
    assert_array_equal(x.grad[:2], [1, 0])
    small = Tensor(np.array([0.5, 8, -8], dtype))
    z = GELU()(small)
    z.backward()
    assert_array_equal(y.data[2:], z.data)  # 截断不影响同一块里的其余元素
    assert_array_equal(x.grad[2:], small.grad)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_the_gradient_of_division(size: float) -> None:
    x, y = (Tensor(np.array([2 * size, size], np.float32)) for _ in range(2))
    (x / y).backward()
    slope = np.array([0.5, 1]) / size
    assert_allclose(x.grad, slope, rtol=1e-6)
    assert_allclose(y.grad, -slope, rtol=1e-6)


def test_rms_norm_of_a_constant_row() -> None:
    x = Tensor(np.full((2, 5), 1e4, np.float32))
    assert_allclose(RMSNorm(5)(x).data, 1, rtol=1e-6)
