r"""层归一化与均方根归一化

**层归一化**（Ba 等 2016，<https://arxiv.org/abs/1607.06450>）对每一行 $x\in\mathbb R^C$：

$$\mu = \frac1C\sum_i x_i,\quad \sigma^2 = \frac1C\sum_i (x_i-\mu)^2,\quad
r = \frac{1}{\sqrt{\sigma^2+\varepsilon}},\quad \hat x_i = (x_i-\mu)\,r,\quad y_i = w_i\hat x_i + b_i$$

反向。记 $g_i = w_i\,\mathrm{d}y_i$（即 $\mathrm{d}\hat x_i$）。
$x_j$ 通过三条路影响 $\hat x_i$：分子里的 $x_i$、均值 $\mu$ 与标准差的倒数 $r$。由
$\partial\mu/\partial x_j = 1/C$ 与 $\partial r/\partial x_j = -r^3 (x_j-\mu)/C = -r^2\hat x_j/C$，

$$\frac{\partial \hat x_i}{\partial x_j} = r\Big(\delta_{ij} - \frac1C - \frac{\hat x_i\hat x_j}{C}\Big)$$

$$\mathrm{d}x_j = \sum_i g_i\frac{\partial\hat x_i}{\partial x_j}
= r\Big(g_j - \frac1C\sum_i g_i - \hat x_j\,\frac1C\sum_i g_i\hat x_i\Big)$$

$$\mathrm{d}w_i = \sum_n \mathrm{d}y_{ni}\hat x_{ni},\qquad \mathrm{d}b_i = \sum_n \mathrm{d}y_{ni}$$

**均方根归一化**（Zhang 与 Sennrich 2019，<https://arxiv.org/abs/1910.07467>）不减均值、没有偏置：

$$r = \frac{1}{\sqrt{\frac1C\sum_i x_i^2+\varepsilon}},\quad \hat x_i = x_i r,\quad y_i = w_i \hat x_i,\qquad
\mathrm{d}x_j = r\Big(g_j - \hat x_j\frac1C\sum_i g_i\hat x_i\Big)$$

两者只保存 $\hat x$ 与 $r$。

均值的舍入误差与 $|\mu|$ 成正比：一行全是 10000 时，float32 算出的均值差约 $10^{-3}$，残差再除以 $\sqrt\varepsilon$，
本该是 0 的结果成了 ±0.3。所以先让每行减去自己的第一个元素，再求平均：
$x_i-\mu = (x_i-x_0) - \frac1C\sum_j(x_j-x_0)$。一行相同的元素得到的恰好是 0，相差不大的元素相减也没有舍入。
"""

import numpy as np

from gptcore.kernels.array import Array, column_sums, constants, row_blocks, rows
from gptcore.kernels.buffers import empty, empty_like

Saved = tuple[Array, Array]


def layer_norm_forward(
    x: Array, weight: Array, bias: Array | None, eps: float, out: Array | None = None
) -> tuple[Array, Saved]:
    r"""层归一化。

    Args:
        x: 形状 (…, C)
        weight: 形状 (C,)
        bias: 形状 (C,)；可以没有。
        eps: 加在方差上的小数，防止除以零。
        out: 结果的缓冲区，形状 (N, C)

    Returns:
        形状 (…, C) 的结果，以及反向要用的 $\hat x$ (N, C) 与 $r$ (N,)
    """
    return _normalization_forward(x, weight, bias, eps, out, centred=True)


def layer_norm_backward(dy: Array, saved: Saved, weight: Array) -> tuple[Array, Array, Array]:
    r"""层归一化的反向传播。

    Args:
        dy: 形状 (…, C)
        saved: 前向保存的 $\hat x$ 与 $r$
        weight: 形状 (C,)

    Returns:
        `x`、`weight`、`bias` 的梯度。
    """
    dx, dw, db = _normalization_backward(dy, saved, weight, centred=True)
    return dx, dw, db


def rms_norm_forward(
    x: Array, weight: Array, eps: float, out: Array | None = None
) -> tuple[Array, Saved]:
    """均方根归一化；各参数同 `layer_norm_forward`。"""
    return _normalization_forward(x, weight, None, eps, out, centred=False)


def rms_norm_backward(dy: Array, saved: Saved, weight: Array) -> tuple[Array, Array]:
    """均方根归一化的反向传播：`x` 与 `weight` 的梯度。"""
    dx, dw, _ = _normalization_backward(dy, saved, weight, centred=False)
    return dx, dw


def _normalization_forward(
    x: Array, weight: Array, bias: Array | None, eps: float, out: Array | None, centred: bool
) -> tuple[Array, Saved]:
    """一块一块地从头算到尾：一块的几行都留在二级缓存里。"""
    x2 = rows(x)
    x_hat, r = empty(x2.shape, x.dtype), np.empty(len(x2), x.dtype)
    y = empty(x2.shape, x.dtype) if out is None else out
    average = constants(x2.shape[1], 1 / x2.shape[1], x.dtype.char)  # 与它相乘就是求平均
    for block in row_blocks(*x2.shape):
        xb, hb, yb, rb = x2[block], x_hat[block], y[block], r[block]
        if centred:
            np.subtract(xb, xb[:, :1], out=hb)
            hb -= (hb @ average)[:, None]
        else:
            hb[:] = xb
        np.multiply(hb, hb, out=yb)
        np.matmul(yb, average, out=rb)
        rb += eps
        np.sqrt(rb, out=rb)
        np.divide(1, rb, out=rb)
        hb *= rb[:, None]
        np.multiply(hb, weight, out=yb)
        if bias is not None:
            yb += bias
    return y.reshape(x.shape), (x_hat, r)


def _normalization_backward(
    dy: Array, saved: Saved, weight: Array, centred: bool
) -> tuple[Array, Array, Array]:
    x_hat, r = saved
    dy2 = rows(dy)
    dx = empty(dy.shape, x_hat.dtype)
    dx2 = rows(dx)
    dw, db = np.zeros(weight.shape, weight.dtype), np.zeros(weight.shape, weight.dtype)
    share = weight * (1 / len(weight))
    for block in row_blocks(*x_hat.shape):
        hb, rb, gb, xb = x_hat[block], r[block], dy2[block], dx2[block]
        product = np.multiply(gb, hb, out=empty_like(hb))
        dw += column_sums(product)
        slope = product @ share  # (1/C) Σ g x̂
        np.multiply(gb, weight, out=xb)
        if centred:
            db += column_sums(gb)
            xb -= (gb @ share)[:, None]  # (1/C) Σ g
        np.multiply(hb, slope[:, None], out=product)
        xb -= product
        xb *= rb[:, None]
    return dx, dw, db
