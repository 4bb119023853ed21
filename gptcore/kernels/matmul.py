r"""矩阵乘法的反向传播

$Y = AB$ 时，$\mathrm{d}A = \mathrm{d}Y\,B^\top$，$\mathrm{d}B = A^\top\,\mathrm{d}Y$。
记法：$Y_{ij}=\sum_k A_{ik}B_{kj}$，于是 $\partial L/\partial A_{ik} = \sum_j \mathrm{d}Y_{ij} B_{kj}$，另一个同理。
"""

import numpy as np

from gptcore.kernels.arithmetic import unbroadcast
from gptcore.kernels.array import Array


def matmul_backward(dy: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """`a @ b` 的反向传播，含批量、广播与一维向量。

    Args:
        dy: 结果的梯度。
        a: 左因子，形状 (…, M, K) 或 (K,)
        b: 右因子，形状 (…, K, N) 或 (K,)

    Returns:
        两个因子的梯度，形状分别与 `a`、`b` 相同。
    """
    a2 = a[None, :] if a.ndim == 1 else a  # (…, M, K)
    b2 = b[:, None] if b.ndim == 1 else b  # (…, K, N)
    if a.ndim == 1:
        dy = np.expand_dims(dy, -2) if b.ndim > 1 else dy.reshape(1, 1)
    if b.ndim == 1 and a.ndim > 1:
        dy = np.expand_dims(dy, -1)
    da = dy @ b2.swapaxes(-1, -2)  # (…, M, N) @ (…, N, K) → (…, M, K)
    db = a2.swapaxes(-1, -2) @ dy  # (…, K, M) @ (…, M, N) → (…, K, N)
    return unbroadcast(da, a2.shape).reshape(a.shape), unbroadcast(db, b2.shape).reshape(b.shape)
