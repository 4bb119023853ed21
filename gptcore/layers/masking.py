"""因果掩码与随机失活"""

import numpy as np

from gptcore.errors import ShapeError
from gptcore.kernels.array import Array
from gptcore.kernels.dropout import Draw, dropout
from gptcore.layers.base import Layer
from gptcore.layers.checks import require_floats, require_number
from gptcore.random import resolve_rng
from gptcore.tensor import Tensor


class Tril(Layer):
    r"""因果掩码（causal mask）：最后两轴的下三角保留，上三角（将来）换成 `value`。

    Note: 前向与反向
        $$y_{tj} = \begin{cases} x_{tj} & j\le t\\ \text{value} & j>t\end{cases},\qquad
        \mathrm{d}x_{tj} = \mathrm{d}y_{tj}\,[j\le t]$$

    Args:
        value: 将来位置的值；softmax 之后应为 0。

    教程：第 12 章 因果掩码。
    """

    def __init__(self, value: float = -1e9) -> None:
        require_number("Tril", "value", value, -np.inf, np.inf)
        self.value = value

    def forward(self, x: Tensor) -> Tensor:
        """形状 `(…, 查询位置, 键位置)`，不变。"""
        require_floats("Tril", x)
        if x.ndim < 2:
            raise ShapeError(f"Tril：输入的形状 {x.shape}，要有至少两轴（查询位置, 键位置）")
        keep = np.tri(*x.shape[-2:], dtype=bool)
        value = np.asarray(self.value, x.dtype)
        return Tensor(np.where(keep, x.data, value)).record((x,), lambda dy: (dy * keep,))


class Dropout(Layer):
    r"""随机失活（dropout）：训练时每个元素以概率 $p$ 变成 0，其余乘以 $1/(1-p)$，使期望不变；评估时什么也不做。

    Note: 前向与反向
        $$y_i = \frac{k_i}{1-p}x_i,\quad k_i\sim\mathrm{Bernoulli}(1-p),\qquad
        \mathrm{d}x_i = \frac{k_i}{1-p}\mathrm{d}y_i$$

    来源：Srivastava 等 2014，<https://jmlr.org/papers/v15/srivastava14a.html>。

    Args:
        p: 变成 0 的概率，$0\le p<1$。
        rng: 随机数生成器。

    Attributes:
        p: 变成 0 的概率。
        rng: 抽取用的生成器；是 `None` 时，每次抽取用那一刻的默认生成器。

    教程：第 16 章 过拟合与 Dropout。
    """

    def __init__(self, p: float = 0.1, rng: np.random.Generator | None = None) -> None:
        require_number("Dropout", "p", p, 0, 1)
        resolve_rng("Dropout", rng)
        self.p = float(p)
        self.rng = rng

    def forward(self, x: Tensor) -> Tensor:
        """逐元素，形状不变。"""
        require_floats("Dropout", x)
        draw, p = self.drawing(), self.p
        if draw is None:
            return x
        keep = draw(x.shape)
        return Tensor(dropout(x.data, keep, p)).record((x,), lambda dy: (dropout(dy, keep, p),))

    def infer(self, x: Array) -> Array:
        """推理时什么也不做。"""
        return x

    def drawing(self) -> Draw | None:
        """这一次前向怎样抽：由形状得到“哪些留下”的布尔数组；不失活时是 `None`。

        注意力权重在核函数里分块算出，由它按块的形状来抽。
        """
        if not self.training or not self.p:
            return None
        rng, p = resolve_rng("Dropout", self.rng), self.p
        return lambda shape: np.asarray(rng.random(shape, np.float32) >= p)
