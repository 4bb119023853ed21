r"""损失：均方误差与交叉熵

**均方误差**：$L = \frac1n\sum_i (p_i-y_i)^2$，$\mathrm{d}p_i = \frac2n (p_i - y_i)\,\mathrm{d}L$。

**交叉熵**（与 softmax 合在一起）。$N$ 行分数 $x_n\in\mathbb R^V$，标签 $y_n$：

$$L = \frac1N\sum_n\Big(\ln\sum_v e^{x_{nv}-m_n} - (x_{n y_n}-m_n)\Big),\qquad m_n = \max_v x_{nv}$$

先取对数再相减，概率小到下溢时损失仍然正确；分数为 $\pm10^4$ 也得到有限的值。
softmax 的雅可比与 $-\ln p_{y}$ 的导数相乘，只剩一个减法：

$$\mathrm{d}x_{nv} = \frac{\mathrm{d}L}{N}\big(p_{nv} - [v = y_n]\big)$$

**有的行不算**。$k_n\in\{0,1\}$ 表示第 $n$ 行算不算，$K=\sum_n k_n$。平均只对算的 $K$ 行；一行也不算时除以 1，
所以损失与梯度都恰好是零：

$$L = \frac1{\max(K,1)}\sum_n k_n\Big(\ln\sum_v e^{x_{nv}} - x_{n y_n}\Big),\qquad
\mathrm{d}x_{nv} = \frac{\mathrm{d}L\,k_n}{\max(K,1)}\big(p_{nv} - [v = y_n]\big)$$
"""

import numpy as np

from gptcore.kernels.array import Array, row_blocks, row_maxima, row_sums
from gptcore.kernels.buffers import empty_like


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
) -> tuple[Array, Array]:
    """softmax 与交叉熵。

    Args:
        logits: 分数，形状 (N, V)
        labels: 标签，形状 (N,) 的整数，调用者已经检查过范围；不算的行可以是任意一个合法的编号。
        kept: 哪些行算，形状 (N,) 的布尔数组；`None` 表示全部。

    Returns:
        0 维的平均损失（奈特），与 softmax 的概率 (N, V)
    """
    probabilities = empty_like(logits)
    total = 0.0
    for block in row_blocks(*logits.shape):
        p = probabilities[block]
        np.subtract(logits[block], row_maxima(logits[block]), out=p)
        target = p[np.arange(len(p)), labels[block]]
        np.exp(p, out=p)
        sums = row_sums(p)
        p *= (1 / sums)[:, None]
        losses = np.log(sums) - target
        total += float((losses if kept is None else losses[kept[block]]).sum(dtype=np.float64))
    return np.asarray(total / _row_count(labels, kept), logits.dtype), probabilities


def cross_entropy_backward(
    dy: Array, probabilities: Array, labels: Array, kept: Array | None = None
) -> Array:
    """交叉熵的反向传播；就地把概率变成分数的梯度，不算的行是零。"""
    probabilities[np.arange(len(labels)), labels] -= 1
    if kept is not None:
        probabilities[~kept] = 0
    probabilities *= dy / _row_count(labels, kept)
    return probabilities


def _row_count(labels: Array, kept: Array | None) -> int:
    """平均时除以几。"""
    return len(labels) if kept is None else max(1, int(np.count_nonzero(kept)))
