r"""线性变换 $y = xW^\top + b$

前向与反向（行向量记法，$x$ 是一行，$W$ 形状为 `(输出, 输入)`）：

$$y_o = \sum_i x_i W_{oi} + b_o$$

$$\mathrm{d}x_i = \sum_o \mathrm{d}y_o W_{oi},\qquad
\mathrm{d}W_{oi} = \sum_n \mathrm{d}y_{no}\,x_{ni},\qquad
\mathrm{d}b_o = \sum_n \mathrm{d}y_{no}$$

$n$ 跑遍所有行（批与位置）。前面的轴先合成一轴：一次大矩阵乘法，胜过许多次小的。
"""

import numpy as np

from gptcore.kernels.array import Array, column_sums, rows
from gptcore.kernels.buffers import empty, empty_like


def linear_forward(x: Array, weight: Array, bias: Array | None, out: Array | None = None) -> Array:
    """线性变换。

    Args:
        x: 形状 (…, I)
        weight: 形状 (O, I)
        bias: 形状 (O,)；可以没有。
        out: 结果的缓冲区，形状 (N, O)，N 是 `x` 的行数。

    Returns:
        形状 (…, O)
    """
    x2 = rows(x)
    y = empty((len(x2), len(weight)), np.result_type(x, weight)) if out is None else out
    if len(x2) in (2, 3):  # 矩阵乘法要先重排权重，两三行时不值得：读两三遍权重更快
        for row, result in zip(x2, y, strict=True):
            np.matmul(row, weight.T, out=result)
    else:
        np.matmul(x2, weight.T, out=y)  # (N, I) @ (I, O) → (N, O)
    if bias is not None:
        y += bias
    return y.reshape(*x.shape[:-1], len(weight))


def linear_backward(
    dy: Array, x: Array, weight: Array, needs_dx: bool = True
) -> tuple[Array | None, Array, Array]:
    """线性变换的反向传播。

    Args:
        dy: 形状 (…, O)
        x: 前向的输入，形状 (…, I)
        weight: 形状 (O, I)
        needs_dx: 输入是不是也要梯度；网络的第一层不要，可以省下一次乘法。

    Returns:
        `x`、`weight`、`bias` 的梯度。
    """
    dy2, x2 = rows(dy), rows(x)
    dw = np.matmul(dy2.T, x2, out=empty_like(weight))  # (O, N) @ (N, I) → (O, I)
    db = column_sums(dy2)
    if not needs_dx:
        return None, dw, db
    dx = empty_like(x)
    np.matmul(dy2, weight, out=rows(dx))  # (N, O) @ (O, I) → (N, I)
    return dx, dw, db
