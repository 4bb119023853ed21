r"""损失：均方误差与交叉熵

**均方误差**：$L = \frac1n\sum_i (p_i-y_i)^2$，$\mathrm{d}p_i = \frac2n (p_i - y_i)\,\mathrm{d}L$。

**交叉熵**（与 softmax 合在一起）。$N$ 行分数 $x_n\in\mathbb R^V$，标签 $y_n$：

$$L = \frac1N\sum_n\Big(\ln\ell_n - (x_{n y_n}-m_n)\Big),\qquad \ell_n=\sum_v e^{x_{nv}-m_n},\quad m_n = \max_v x_{nv}$$

先取对数再相减，概率小到下溢时损失仍然正确；分数为 $\pm10^4$ 也得到有限的值。
减去 $m_n$ 只为防止溢出：一块分数都在 $\pm16$ 之内时不减（$m_n=0$ 公式照样成立），省下求每行最大值与相减的两遍，
概率也更准，因为减法要舍入。
softmax 的雅可比与 $-\ln p_{y}$ 的导数相乘，只剩一个减法：

$$\mathrm{d}x_{nv} = \frac{\mathrm{d}L}{N}\big(p_{nv} - [v = y_n]\big)$$

**有的行不算**。$k_n\in\{0,1\}$ 表示第 $n$ 行算不算，$K=\sum_n k_n$。平均只对算的 $K$ 行；一行也不算时除以 1，
所以损失与梯度都恰好是零：

$$L = \frac1{\max(K,1)}\sum_n k_n\Big(\ln\sum_v e^{x_{nv}} - x_{n y_n}\Big),\qquad
\mathrm{d}x_{nv} = \frac{\mathrm{d}L\,k_n}{\max(K,1)}\big(p_{nv} - [v = y_n]\big)$$
"""

import numpy as np

from gptcore.kernels.array import Array, positions, row_blocks, row_maxima, row_sums
from gptcore.kernels.buffers import empty_like

MODERATE = 16
"""分数的绝对值不超过它时，指数与它们的和远不会溢出；对数的舍入误差也不比减去最大值时大"""


def mse_forward(p: Array, y: Array) -> tuple[Array, Array]:
    """均方误差；返回 0 维的损失，与反向要用的差 `p - y`。"""
    difference = p - y
    flat = difference.reshape(-1)
    return np.asarray(np.dot(flat, flat) / flat.size, difference.dtype), difference


def mse_backward(dy: Array, difference: Array) -> Array:
    r"""$\mathrm{d}p = \frac2n (p - y)\,\mathrm{d}L$"""
    return difference * (dy * (2 / difference.size))


def cross_entropy_forward(
    logits: Array, labels: Array, kept: Array | None = None
) -> tuple[Array, tuple[Array, Array]]:
    r"""softmax 与交叉熵。

    Args:
        logits: 分数，形状 (N, V)
        labels: 标签，形状 (N,) 的整数，调用者已经检查过范围；不算的行可以是任意一个合法的编号。
        kept: 哪些行算，形状 (N,) 的布尔数组；`None` 表示全部。

    Returns:
        0 维的平均损失（奈特），以及反向要用的 $e_{nv}=e^{x_{nv}-m_n}$ (N, V) 与 $1/\ell_n$ (N,)；
        概率 $p_{nv}=e_{nv}/\ell_n$ 不单独算，反向时连同别的因子一次乘上。
    """
    e, inverse = empty_like(logits), np.empty(len(logits), logits.dtype)
    total = 0.0
    for block in row_blocks(*logits.shape):
        x, eb = logits[block], e[block]
        if not _is_moderate(x):
            x = np.subtract(x, row_maxima(x), out=eb)
        target = x.reshape(-1).take(positions(labels[block], x.shape[1]))
        np.exp(x, out=eb)
        sums = row_sums(eb)
        np.divide(1, sums, out=inverse[block])
        losses = np.log(sums) - target
        total += float((losses if kept is None else losses[kept[block]]).sum(dtype=np.float64))
    return np.asarray(total / _row_count(labels, kept), logits.dtype), (e, inverse)


def cross_entropy_backward(
    dy: Array, saved: tuple[Array, Array], labels: Array, kept: Array | None = None
) -> Array:
    """交叉熵的反向传播；就地把 $e$ 变成分数的梯度，不算的行是零。"""
    dx, inverse = saved
    share = dy / _row_count(labels, kept)
    dx *= (inverse * share)[:, None]
    dx.reshape(-1)[positions(labels, dx.shape[1])] -= share
    if kept is not None:
        dx[~kept] = 0
    return dx


def _is_moderate(x: Array) -> bool:
    """全都在 ±`MODERATE` 之内；有 NaN 时不是。"""
    low, high = np.minimum.reduce(x, axis=None), np.maximum.reduce(x, axis=None)
    return bool(low >= -MODERATE and high <= MODERATE)


def _row_count(labels: Array, kept: Array | None) -> int:
    """平均时除以几。"""
    return len(labels) if kept is None else max(1, int(np.count_nonzero(kept)))
