r"""softmax

$$y_i = \frac{e^{x_i - m}}{\sum_j e^{x_j - m}},\qquad m = \max_j x_j$$

减去最大值不改变结果，却使指数不会溢出。
由 $\partial y_i/\partial x_j = y_i(\delta_{ij} - y_j)$ 得反向：

$$\mathrm{d}x_j = \sum_i \mathrm{d}y_i\,y_i(\delta_{ij} - y_j)
= y_j\Big(\mathrm{d}y_j - \sum_i \mathrm{d}y_i\,y_i\Big)$$
"""

import numpy as np

from gptcore.kernels.array import Array, row_blocks, row_maxima, row_sums, rows
from gptcore.kernels.buffers import empty_like


def softmax_forward(x: Array, axis: int = -1, out: Array | None = None) -> Array:
    """沿 `axis` 的 softmax；结果为正，和为 1。"""
    y = empty_like(x) if out is None else out
    if axis not in (-1, x.ndim - 1) or not y.flags.c_contiguous:
        np.subtract(x, x.max(axis, keepdims=True), out=y)
        np.exp(y, out=y)
        y /= y.sum(axis, keepdims=True)
        return y
    x2, y2 = rows(x), rows(y)
    for block in row_blocks(*x2.shape):
        yb = y2[block]
        np.subtract(x2[block], row_maxima(x2[block]), out=yb)
        np.exp(yb, out=yb)
        yb *= (1 / row_sums(yb))[:, None]
    return y


def softmax_backward(dy: Array, y: Array, axis: int = -1) -> Array:
    """softmax 的反向传播；`y` 是前向的结果。"""
    dx = np.multiply(dy, y, out=empty_like(y))
    if axis not in (-1, y.ndim - 1):
        np.subtract(dx, y * dx.sum(axis, keepdims=True), out=dx)
        return dx
    dy2, y2, dx2 = rows(dy), rows(y), rows(dx)
    for block in row_blocks(*y2.shape):
        np.subtract(dy2[block], row_sums(dx2[block])[:, None], out=dx2[block])
        dx2[block] *= y2[block]
    return dx
