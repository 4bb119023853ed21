"""层归一化与均方根归一化"""

import numpy as np

from gptcore.kernels.array import Array
from gptcore.kernels.normalization import (
    layer_norm_backward,
    layer_norm_forward,
    rms_norm_backward,
    rms_norm_forward,
)
from gptcore.layers.base import Layer
from gptcore.layers.checks import require_flag, require_last_axis, require_number, require_size
from gptcore.layers.initial import constant
from gptcore.tensor import Tensor


class LayerNorm(Layer):
    r"""层归一化（layer normalization）：每一行变成均值 0、方差 1，再乘以权重、加上偏置。

    方差是有偏的（除以元素个数）。

    Note: 前向与反向
        $$\mu = \frac1C\sum_i x_i,\quad r = \Big(\frac1C\sum_i(x_i-\mu)^2+\varepsilon\Big)^{-1/2},\quad
        \hat x_i = (x_i - \mu)\,r,\quad y_i = w_i\hat x_i + b_i$$

        记 $g_i = w_i\,\mathrm{d}y_i$，

        $$\mathrm{d}x_j = r\Big(g_j - \frac1C\sum_i g_i - \hat x_j\frac1C\sum_i g_i\hat x_i\Big),\quad
        \mathrm{d}w_i = \sum_n\mathrm{d}y_{ni}\hat x_{ni},\quad \mathrm{d}b_i = \sum_n\mathrm{d}y_{ni}$$

    来源：Ba 等 2016，<https://arxiv.org/abs/1607.06450>，式 (4)。

    Args:
        normalized_size: 最后一轴的长度 $C$。
        eps: 加在方差上的小数，防止除以零。
        bias: 是否有偏置。

    Attributes:
        weight: 形状 (C,)，初值 1
        bias: 形状 (C,)，初值 0；或 `None`

    教程：第 15 章 层归一化与 GPT 模型。
    """

    def __init__(self, normalized_size: int, eps: float = 1e-5, bias: bool = True) -> None:
        _require("LayerNorm", normalized_size, eps)
        self.weight = constant(normalized_size, 1)
        self.bias = (
            constant(normalized_size, 0) if require_flag("LayerNorm", "bias", bias) else None
        )
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """对最后一轴归一化，形状不变。

        Raises:
            ShapeError: 最后一轴不是 `normalized_size`。
        """
        w, b = self.weight, self.bias
        require_last_axis("LayerNorm", "normalized_size", x, w.size)
        y, saved = layer_norm_forward(x.data, w.data, None if b is None else b.data, self.eps)
        if b is None:
            return Tensor(y).record((x, w), lambda dy: layer_norm_backward(dy, saved, w.data)[:2])
        return Tensor(y).record((x, w, b), lambda dy: layer_norm_backward(dy, saved, w.data))

    def infer(self, x: Array) -> Array:
        """推理：见 [`Layer.infer`][gptcore.layers.base.Layer.infer]。"""
        bias = None if self.bias is None else self.bias.data
        return layer_norm_forward(x, self.weight.data, bias, self.eps)[0]


class RMSNorm(Layer):
    r"""均方根归一化（root mean square normalization）：只除以均方根，不减均值，没有偏置。

    Note: 前向与反向
        $$r = \Big(\frac1C\sum_i x_i^2+\varepsilon\Big)^{-1/2},\quad \hat x_i = x_i r,\quad y_i = w_i\hat x_i$$

        记 $g_i = w_i\,\mathrm{d}y_i$，

        $$\mathrm{d}x_j = r\Big(g_j - \hat x_j\frac1C\sum_i g_i\hat x_i\Big),\qquad
        \mathrm{d}w_i = \sum_n\mathrm{d}y_{ni}\hat x_{ni}$$

    来源：Zhang 与 Sennrich 2019，<https://arxiv.org/abs/1910.07467>，式 (4)。

    Args:
        normalized_size: 最后一轴的长度 $C$。
        eps: 加在均方上的小数，防止除以零。

    Attributes:
        weight: 形状 (C,)，初值 1

    教程：第 15 章的练习。
    """

    def __init__(self, normalized_size: int, eps: float = 1e-5) -> None:
        _require("RMSNorm", normalized_size, eps)
        self.weight = constant(normalized_size, 1)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """对最后一轴归一化，形状不变。

        Raises:
            ShapeError: 最后一轴不是 `normalized_size`。
        """
        w = self.weight
        require_last_axis("RMSNorm", "normalized_size", x, w.size)
        y, saved = rms_norm_forward(x.data, w.data, self.eps)
        return Tensor(y).record((x, w), lambda dy: rms_norm_backward(dy, saved, w.data))

    def infer(self, x: Array) -> Array:
        """推理：见 [`Layer.infer`][gptcore.layers.base.Layer.infer]。"""
        return rms_norm_forward(x, self.weight.data, self.eps)[0]


def _require(layer: str, size: int, eps: float) -> None:
    require_size(layer, "normalized_size", size)
    require_number(layer, "eps", eps, 0, np.inf)
