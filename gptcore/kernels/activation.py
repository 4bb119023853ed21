r"""激活函数：ReLU 与 GELU

**ReLU**：$y = \max(x, 0)$，$\mathrm{d}x = \mathrm{d}y\,[x > 0]$。

**GELU**（tanh 形式，Hendrycks 与 Gimpel 2016，<https://arxiv.org/abs/1606.08415>）：

$$y = x\,s,\qquad s = \tfrac12\big(1 + \tanh u\big),\qquad u = c\,(x + a x^3),\quad
c = \sqrt{2/\pi},\ a = 0.044715$$

求导：$\mathrm{d}s/\mathrm{d}u = \tfrac12(1 - \tanh^2 u) = 2s(1-s)$，$u' = c(1 + 3a x^2)$，于是

$$\frac{\mathrm{d}y}{\mathrm{d}x} = s + x\cdot 2s(1-s)\,u' = s + y\,(1-s)\cdot 2u'$$

$|x|>10$ 时，$s$ 已经恰好是 0 或 1（float64 也是），$u$ 与 $u'$ 是多少都不影响结果，
所以 $x^2$ 截到 $10^4$，以免溢出成无穷，乘以 0 得到 NaN。
导数在前向时顺便算好，那时 $x$、$s$、$y$ 都还在缓存里；反向只剩一次乘法，$x$ 也不必保存。
乘方一律写成乘法：float32 的 `x ** 3` 会调用通用的 `pow`，慢十几倍。
"""

import math

import numpy as np

from gptcore.kernels.array import BLOCK, Array, constants, row_blocks
from gptcore.kernels.buffers import empty, empty_like

_C = math.sqrt(2 / math.pi)
_CA = _C * 0.044715
_LARGE = 1e4
"""$x^2$ 的上限"""


def relu_forward(x: Array) -> Array:
    r"""$y = \max(x, 0)$。与一段零逐个比，比与一个标量比快三倍（NumPy 2.4）。"""
    y = empty_like(x)
    xs, ys = np.ascontiguousarray(x).reshape(-1), y.reshape(-1)
    zeros = constants(min(BLOCK, x.size), 0, x.dtype.char)
    for part in row_blocks(x.size, 1):
        np.maximum(xs[part], zeros[: part.stop - part.start], out=ys[part])
    return y


def relu_backward(dy: Array, y: Array) -> Array:
    r"""$\mathrm{d}x = \mathrm{d}y\,[y > 0]$；在 $x=0$ 处取 0。"""
    dx = empty_like(y)
    np.greater(y, 0, out=dx)
    dx *= dy
    return dx


def gelu(x: Array) -> Array:
    """GELU 的值，推理时用。"""
    return _gelu(x, None)


def gelu_forward(x: Array) -> tuple[Array, Array]:
    r"""GELU 的值与导数。

    Args:
        x: 任意形状。

    Returns:
        `y` 与 $\mathrm{d}y/\mathrm{d}x$，形状与 `x` 相同。
    """
    derivative = empty_like(x)
    return _gelu(x, derivative), derivative


def gelu_backward(dy: Array, derivative: Array) -> Array:
    r"""$\mathrm{d}x = \mathrm{d}y \cdot \mathrm{d}y/\mathrm{d}x$；就地把导数变成 `x` 的梯度，省一个大数组。"""
    return np.multiply(dy, derivative, out=derivative)


def _gelu(x: Array, derivative: Array | None) -> Array:
    """一块一块地算：一块的几个中间数组都留在二级缓存里。"""
    y = empty_like(x)
    xs, ys = np.ascontiguousarray(x).reshape(-1), y.reshape(-1)
    scratch = empty((2, min(BLOCK // 2, x.size)), x.dtype)
    with np.errstate(over="ignore"):  # 平方与立方溢出成无穷，不影响结果
        for part in row_blocks(x.size, 2):  # 两个临时数组，块小一半
            xb, yb = xs[part], ys[part]
            square, s = scratch[0, : len(xb)], scratch[1, : len(xb)]
            np.multiply(xb, xb, out=square)
            if np.maximum.reduce(square) > _LARGE:  # 求最大值比逐个截断快得多
                np.minimum(square, _LARGE, out=square)
            np.multiply(square, _CA, out=s)
            s += _C
            s *= xb  # u = (c a x² + c) x
            np.tanh(s, out=s)
            s *= 0.5
            s += 0.5
            np.multiply(xb, s, out=yb)
            if derivative is not None:
                d = derivative.reshape(-1)[part]
                square *= 6 * _CA
                square += 2 * _C  # 2u'
                np.subtract(1, s, out=d)
                d *= yb  # 先乘 y：|x| 很大时，y 与 1 − s 必有一个是 0
                d *= square
                d += s
    return y
