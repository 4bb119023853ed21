"""激活函数与 softmax"""

from typing import Any

import numpy as np

from gptcore.errors import DtypeError, ShapeError
from gptcore.graph import is_grad_enabled
from gptcore.kernels.activation import (
    gelu,
    gelu_backward,
    gelu_forward,
    relu_backward,
    relu_forward,
)
from gptcore.kernels.array import Array
from gptcore.kernels.convert import brief
from gptcore.kernels.softmax import softmax_backward, softmax_forward
from gptcore.layers.base import Layer
from gptcore.layers.checks import require_floats
from gptcore.tensor import Tensor


class ReLU(Layer):
    r"""整流线性单元（rectified linear unit）。

    Note: 前向与反向
        $$y = \max(x, 0),\qquad \mathrm{d}x = \mathrm{d}y\,[x > 0]$$

    教程：第 3 章 线性层与激活。
    """

    def forward(self, x: Tensor) -> Tensor:
        """逐元素，形状不变。"""
        require_floats("ReLU", x)
        y = relu_forward(x.data)
        return Tensor(y).record((x,), lambda dy: (relu_backward(dy, y),))

    def infer(self, x: Array) -> Array:
        """推理：见 [`Layer.infer`][gptcore.layers.base.Layer.infer]。"""
        return relu_forward(x)


class GELU(Layer):
    r"""高斯误差线性单元（Gaussian error linear unit），GPT-2 所用的 tanh 形式。

    Note: 前向与反向
        $$y = x s,\quad s = \tfrac12(1+\tanh u),\quad u = \sqrt{2/\pi}\,(x + 0.044715 x^3)$$

        $$\mathrm{d}x = \big(s + y(1-s)\cdot 2u'\big)\,\mathrm{d}y,\qquad
        u' = \sqrt{2/\pi}\,(1 + 3\cdot 0.044715\,x^2)$$

    来源：Hendrycks 与 Gimpel 2016，<https://arxiv.org/abs/1606.08415>。

    教程：第 15 章 层归一化与 GPT 模型。
    """

    def forward(self, x: Tensor) -> Tensor:
        """逐元素，形状不变。"""
        require_floats("GELU", x)
        if not (x.requires_grad and is_grad_enabled()):
            return Tensor(gelu(x.data), requires_grad=False)
        y, derivative = gelu_forward(x.data)
        return Tensor(y).record((x,), lambda dy: (gelu_backward(dy, derivative),))

    def infer(self, x: Array) -> Array:
        """推理：见 [`Layer.infer`][gptcore.layers.base.Layer.infer]。"""
        return gelu(x)


class Softmax(Layer):
    r"""softmax：变成和为 1 的正数。

    Note: 前向与反向
        $$y_i = \frac{e^{x_i}}{\sum_j e^{x_j}},\qquad
        \mathrm{d}x_j = y_j\Big(\mathrm{d}y_j - \sum_i \mathrm{d}y_i\,y_i\Big)$$

    Args:
        axis: 沿哪一轴。

    教程：第 6 章 独热编码与词袋，第 11 章 自注意力。
    """

    def __init__(self, axis: int = -1) -> None:
        given: Any = axis
        if isinstance(given, bool) or not isinstance(given, int | np.integer):
            raise DtypeError(f"Softmax：axis 必须是整数，这里是 {axis!r}；最后一轴请写 axis=-1")
        self.axis = int(axis)

    def forward(self, x: Tensor) -> Tensor:
        """形状不变，沿 `axis` 的和为 1。"""
        require_floats("Softmax", x)
        axis = self.axis
        if not -x.ndim <= axis < x.ndim or not x.shape[axis]:
            raise ShapeError(
                f"Softmax：axis={brief(axis)} 不适合形状 {x.shape} 的输入：没有这一轴，或它是空的；"
                f"请选 0 到 {x.ndim - 1}"
            )
        y = softmax_forward(x.data, axis)
        return Tensor(y).record((x,), lambda dy: (softmax_backward(dy, y, axis),))
