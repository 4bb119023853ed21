r"""softmax

$$y_i = \frac{e^{x_i - m}}{\sum_j e^{x_j - m}},\qquad m = \max_j x_j$$

减去最大值不改变结果，却使指数不会溢出。
由 $\partial y_i/\partial x_j = y_i(\delta_{ij} - y_j)$ 得反向：

$$\mathrm{d}x_j = \sum_i \mathrm{d}y_i\,y_i(\delta_{ij} - y_j)
= y_j\Big(\mathrm{d}y_j - \sum_i \mathrm{d}y_i\,y_i\Big)$$
"""

import numpy as np

from gptcore.kernels.array import Array


def softmax_forward(x: Array, axis: int = -1, out: Array | None = None) -> Array:
    """沿 `axis` 的 softmax；结果为正，和为 1。"""
    y = np.subtract(x, x.max(axis, keepdims=True), out=out)
    np.exp(y, out=y)
    y /= y.sum(axis, keepdims=True)
    return y


def softmax_backward(dy: Array, y: Array, axis: int = -1) -> Array:
    """softmax 的反向传播；`y` 是前向的结果。"""
    dx = dy * y
    np.subtract(dx, y * dx.sum(axis, keepdims=True), out=dx)
    return dx
