"""线性层"""

from __future__ import annotations

import math

import numpy as np

from gptcore.errors import ShapeError
from gptcore.kernels.array import Array
from gptcore.kernels.linear import linear_backward, linear_forward
from gptcore.layers.base import Layer
from gptcore.layers.checks import require_flag, require_floats, require_number, require_size
from gptcore.layers.initial import constant, normal
from gptcore.random import resolve_rng
from gptcore.tensor import Tensor


class Linear(Layer):
    r"""线性变换 $y = xW^\top + b$。

    权重默认取自 $\mathcal N(0, 2/\text{输入尺寸})$（He 等 2015，<https://arxiv.org/abs/1502.01852>），偏置为零。

    Note: 前向与反向
        $$y_o = \sum_i x_i W_{oi} + b_o$$

        $$\mathrm{d}x_i = \sum_o \mathrm{d}y_o W_{oi},\quad
        \mathrm{d}W_{oi} = \sum_n \mathrm{d}y_{no} x_{ni},\quad
        \mathrm{d}b_o = \sum_n \mathrm{d}y_{no}$$

    Args:
        in_size: 输入尺寸。
        out_size: 输出尺寸。
        bias: 是否有偏置。
        rng: 随机数生成器。
        std: 权重初值的标准差；不给时是 $\sqrt{2/\text{输入尺寸}}$。
        weight: 与别的层共用的权重；给出时不再抽取。

    Raises:
        ArgumentError: 尺寸不是正整数，或标准差不是非负的有限数。
        ShapeError: 共用的权重不是 `(输出尺寸, 输入尺寸)`。

    Attributes:
        weight: 权重，形状 `(输出尺寸, 输入尺寸)`
        bias: 偏置，形状 `(输出尺寸,)`，或 `None`

    教程：第 3 章 线性层与激活。
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        bias: bool = True,
        rng: np.random.Generator | None = None,
        *,
        std: float | None = None,
        weight: Tensor | None = None,
    ) -> None:
        in_size = require_size("Linear", "in_size", in_size)
        out_size = require_size("Linear", "out_size", out_size)
        std = math.sqrt(2 / in_size) if std is None else std
        require_number("Linear", "std", std, 0, math.inf)
        resolve_rng("Linear", rng)
        if weight is not None and weight.shape != (out_size, in_size):
            raise ShapeError(
                f"Linear：共用的权重形状 {weight.shape}，应为 (out_size, in_size)={(out_size, in_size)}"
            )
        self.weight = normal((out_size, in_size), std, rng) if weight is None else weight
        self.bias = constant(out_size, 0) if require_flag("Linear", "bias", bias) else None

    def rows(self, start: int, stop: int) -> Linear:
        """输出的第 `start` 到 `stop` 个单独成为一个线性层；数值与梯度都与这一层共用。"""
        view = object.__new__(Linear)
        view.weight = self.weight.rows(start, stop)
        view.bias = None if self.bias is None else self.bias.rows(start, stop)
        return view

    def forward(self, x: Tensor) -> Tensor:
        """线性变换。

        Args:
            x: 形状 `(…, 输入尺寸)`

        Returns:
            形状 `(…, 输出尺寸)`

        Raises:
            ShapeError: 最后一轴不是输入尺寸。
            DtypeError: `x` 是整数。
        """
        w, b = self.weight, self.bias
        require_floats("Linear", x)
        if not x.ndim or x.shape[-1] != w.shape[1]:
            raise ShapeError(
                f"Linear：输入的形状 {x.shape}，最后一轴应为 in_size={w.shape[1]}；"
                f"请检查上一层的输出尺寸，或改用 Linear({x.shape[-1] if x.ndim else 1}, {w.shape[0]})"
            )
        xd = x.data
        y = Tensor(linear_forward(xd, w.data, None if b is None else b.data))

        def vjp(dy: Array) -> tuple[Array | None, ...]:
            return linear_backward(dy, xd, w.data, x.requires_grad)[: 2 + (b is not None)]

        return y.record((x, w) if b is None else (x, w, b), vjp)

    def infer(self, x: Array) -> Array:
        """推理：见 [`Layer.infer`][gptcore.layers.base.Layer.infer]。"""
        return linear_forward(x, self.weight.data, None if self.bias is None else self.bias.data)
