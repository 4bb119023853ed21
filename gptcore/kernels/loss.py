r"""损失：均方误差与交叉熵

**均方误差**：$L = \frac1n\sum_i (p_i-y_i)^2$，$\mathrm{d}p_i = \frac2n (p_i - y_i)\,\mathrm{d}L$。

**交叉熵**（与 softmax 合在一起）。$N$ 行分数 $x_n\in\mathbb R^V$，标签 $y_n$：

$$L = \frac1N\sum_n\Big(\ln\sum_v e^{x_{nv}-m_n} - (x_{n y_n}-m_n)\Big),\qquad m_n = \max_v x_{nv}$$

先取对数再相减，概率小到下溢时损失仍然正确；分数为 $\pm10^4$ 也得到有限的值。
softmax 的雅可比与 $-\ln p_{y}$ 的导数相乘，只剩一个减法：

$$\mathrm{d}x_{nv} = \frac{\mathrm{d}L}{N}\big(p_{nv} - [v = y_n]\big)$$
"""

import numpy as np

from gptcore.kernels.array import Array, row_blocks, row_sums


def mse_forward(p: Array, y: Array) -> tuple[Array, Array]:
    """均方误差；返回 0 维的损失，与反向要用的差 `p - y`。"""
    difference = p - y
    flat = difference.reshape(-1)
    return np.asarray(np.dot(flat, flat) / flat.size, difference.dtype), difference


def mse_backward(dy: Array, difference: Array) -> Array:
    r"""$\mathrm{d}p = \frac2n (p - y)\,\mathrm{d}L$"""
    return difference * (dy * (2 / difference.size))


def cross_entropy_forward(logits: Array, labels: Array) -> tuple[Array, Array]:
    """softmax 与交叉熵。

    Args:
        logits: 分数，形状 (N, V)
        labels: 标签，形状 (N,) 的整数，调用者已经检查过范围。

    Returns:
        0 维的平均损失（奈特），与 softmax 的概率 (N, V)
    """
    probabilities = np.empty(logits.shape, logits.dtype)
    total = 0.0
    for block in row_blocks(*logits.shape):
        p = probabilities[block]
        np.subtract(logits[block], logits[block].max(-1, keepdims=True), out=p)
        target = p[np.arange(len(p)), labels[block]]
        np.exp(p, out=p)
        sums = row_sums(p)
        p *= (1 / sums)[:, None]
        total += float((np.log(sums) - target).sum(dtype=np.float64))
    return np.asarray(total / len(logits), logits.dtype), probabilities


def cross_entropy_backward(dy: Array, probabilities: Array, labels: Array) -> Array:
    """交叉熵的反向传播；就地把概率变成分数的梯度。"""
    probabilities[np.arange(len(labels)), labels] -= 1
    probabilities *= dy / len(labels)
    return probabilities
