r"""AdamW 的更新

梯度 $g$ 的一阶矩与二阶矩的滑动平均，除以偏差修正，权重衰减直接作用于参数（Loshchilov 与 Hutter 2019，
<https://arxiv.org/abs/1711.05101>）：

$$m \leftarrow \beta_1 m + (1-\beta_1)g,\qquad v \leftarrow \beta_2 v + (1-\beta_2)g^2$$

$$\theta \leftarrow (1-\eta\lambda)\,\theta - \eta\,\frac{m/(1-\beta_1^t)}{\sqrt{v/(1-\beta_2^t)}+\varepsilon}$$

分子分母同乘 $\sqrt{1-\beta_2^t}$，两个修正就成了标量：
$\theta \leftarrow (1-\eta\lambda)\theta - k\,m/(\sqrt v+\varepsilon')$，其中
$k = \eta\sqrt{1-\beta_2^t}/(1-\beta_1^t)$，$\varepsilon' = \varepsilon\sqrt{1-\beta_2^t}$。
"""

import math

import numpy as np

from gptcore.kernels.array import BLOCK, Array, row_blocks
from gptcore.kernels.buffers import empty

FLUSH_EVERY = 64
"""每隔这么多步，把极小的一阶矩归零：很久没有梯度的行，一阶矩会衰减成非规格化数，运算慢几十倍。"""


def adamw_update(
    theta: Array,
    g: Array,
    m: Array,
    v: Array,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
) -> None:
    r"""就地更新参数与两个矩。

    Args:
        theta: 参数，一维连续数组。
        g: 梯度，同样大小，不改动。
        m: 一阶矩。
        v: 二阶矩。
        lr: 学习率 $\eta$
        beta1: 一阶矩的衰减率。
        beta2: 二阶矩的衰减率。
        eps: 分母上的小数 $\varepsilon$
        weight_decay: 权重衰减 $\lambda$
        step: 这是第几步，从 1 数起。
    """
    correction = math.sqrt(1 - beta2**step)
    k, shifted_eps = lr * correction / (1 - beta1**step), eps * correction
    scratch = empty((min(BLOCK, theta.size),), theta.dtype)
    for part in row_blocks(theta.size, 1):
        tb, gb, mb, vb = theta[part], g[part], m[part], v[part]
        u = scratch[: len(tb)]
        mb *= beta1
        np.multiply(gb, 1 - beta1, out=u)
        mb += u
        vb *= beta2
        np.multiply(gb, gb, out=u)
        u *= 1 - beta2
        vb += u
        if step % FLUSH_EVERY == 0:
            mb[np.abs(mb) < 1e-30] = 0
        np.sqrt(vb, out=u)
        u += shifted_eps
        np.divide(mb, u, out=u)
        u *= k
        if weight_decay:
            tb *= 1 - lr * weight_decay
        tb -= u
