r"""随机失活

$k_i$ 以概率 $1-p$ 是 1，否则是 0：

$$y_i = \frac{k_i}{1-p}\,x_i,\qquad \mathrm{d}x_i = \frac{k_i}{1-p}\,\mathrm{d}y_i$$

期望 $\mathbb E[y_i]=x_i$，所以评估时什么也不必做。前向与反向是同一个函数；只保存布尔的 $k$，每个元素一个字节。

来源：Srivastava 等 2014，<https://jmlr.org/papers/v15/srivastava14a.html>。
"""

from collections.abc import Callable

import numpy as np

from gptcore.kernels.array import Array
from gptcore.kernels.buffers import empty_like

Draw = Callable[[tuple[int, ...]], Array]
"""由形状抽出“哪些留下”的布尔数组"""


def dropout(x: Array, keep: Array, p: float) -> Array:
    """留下的除以 `1 - p`，其余为零。

    Args:
        x: 前向的输入，或反向的 `dy`，任意形状。
        keep: 哪些留下，布尔，形状与 `x` 相同。
        p: 变成 0 的概率。

    Returns:
        形状与类型同 `x`
    """
    y = np.multiply(x, x.dtype.type(1 / (1 - p)), out=empty_like(x))
    y *= keep
    return y
