r"""逐元素运算、广播与归约的反向传播

广播把较小的数组沿着一些轴重复使用；重复使用的元素，梯度要把每一份加起来。
这就是 [`unbroadcast`][gptcore.kernels.arithmetic.unbroadcast]：前向“复制”，反向“求和”。
"""

import math
from typing import Any, cast

import numpy as np

from gptcore.kernels.array import Array
from gptcore.kernels.buffers import empty_like

Axis = int | tuple[int, ...] | None


def add(x: Array, y: Array) -> Array:
    """两个同类型数组的和，可以广播。"""
    return np.add(x, y, out=empty_like(x)) if x.shape == y.shape else np.add(x, y)


def unbroadcast(dy: Array, shape: tuple[int, ...]) -> Array:
    r"""把广播后的梯度加回原来的形状。

    若 $y_{bi} = x_i$（沿 $b$ 轴重复），则 $\partial L/\partial x_i = \sum_b \partial L/\partial y_{bi}$。

    Args:
        dy: 广播之后的形状上的梯度。
        shape: 广播之前的形状。

    Returns:
        形状为 `shape` 的梯度；没有发生广播时就是 `dy` 本身。
    """
    if dy.shape == shape:
        return dy
    extra = dy.ndim - len(shape)
    stretched = [i for i, n in enumerate(shape, start=extra) if n == 1 and dy.shape[i] != 1]
    return np.sum(dy, axis=(*range(extra), *stretched)).reshape(shape)


def power_forward(x: Array, exponent: float) -> Array:
    r"""$y = x^n$。平方与立方用乘法算：float32 的 `x ** 3` 会调用通用的 `pow`，慢十几倍。"""
    if exponent == 2:
        return x * x
    if exponent == 3:
        return x * x * x
    return np.power(x, exponent, dtype=x.dtype)


def power_backward(dy: Array, x: Array, exponent: float) -> Array:
    r"""$\mathrm{d}x = n\,x^{n-1}\,\mathrm{d}y$"""
    if exponent == 0:
        return np.zeros_like(dy)
    if exponent == 1:
        return dy
    return dy * (power_forward(x, exponent - 1) * exponent)


def spread(dy: Array, shape: tuple[int, ...], axis: Axis, keepdims: bool) -> Array:
    """把归约之后的梯度摊回归约之前的形状（`sum` 的反向传播）。

    Args:
        dy: 归约结果的梯度。
        shape: 归约之前的形状。
        axis: 归约的轴；`None` 表示全部。
        keepdims: 归约时是否保留了长度为 1 的轴。

    Returns:
        形状为 `shape` 的只读视图。
    """
    if axis is not None and not keepdims:
        dy = np.expand_dims(dy, axis)
    return np.broadcast_to(dy, shape)


def reduced_count(shape: tuple[int, ...], axis: Axis) -> int:
    """归约时每个结果由多少个元素算得（`mean` 的分母）。"""
    if axis is None:
        return math.prod(shape)
    axes = axis if isinstance(axis, tuple) else (axis,)
    return math.prod(shape[a] for a in axes)


def max_backward(dy: Array, x: Array, y: Array, axis: Axis, keepdims: bool) -> Array:
    r"""最大值的反向传播：梯度只流向取得最大值的元素；有 $k$ 个并列时各得 $1/k$。"""
    hit = (x == spread(y, x.shape, axis, keepdims)).astype(x.dtype)
    hit /= hit.sum(axis=axis, keepdims=True)
    return hit * spread(dy, x.shape, axis, keepdims)


def getitem_backward(dy: Array, shape: tuple[int, ...], index: Any) -> Array:
    """取下标的反向传播：把梯度放回取出的位置，重复取到的位置逐次累加。"""
    dx = np.zeros(shape, dy.dtype)
    parts = cast("tuple[Any, ...]", index if isinstance(index, tuple) else (index,))
    if any(isinstance(p, np.ndarray | tuple) for p in parts):
        np.add.at(dx, parts, dy)  # 花式下标可能重复取同一处
    else:
        dx[parts] = dy
    return dx
