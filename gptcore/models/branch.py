"""注意力与前馈网络共同的骨架：归一化、残差连接与随机失活"""

from abc import abstractmethod
from typing import Any

import numpy as np

from gptcore.kernels.array import Array
from gptcore.layers import Dropout, Layer, Linear
from gptcore.layers.checks import require_size
from gptcore.models.options import Init, Norm, NormPosition, make_norm, require_options
from gptcore.tensor import Tensor


class GPTBranch(Layer):
    r"""残差连接、归一化与随机失活：注意力与前馈网络共同的骨架，子类定义分支 $f$。

    Note: 前向
        $$y = x + \mathrm{dropout}\big(f(\mathrm{norm}(x))\big)\quad(\text{pre}),\qquad
        y = \mathrm{norm}\big(x + \mathrm{dropout}(f(x))\big)\quad(\text{post})$$

    Args:
        embedding_size: 嵌入尺寸。
        rng: 随机数生成器。
        bias: 归一化是否有偏置。
        dropout: 随机失活的概率。
        norm: 归一化的种类。
        norm_position: 归一化的位置。
        norm_eps: 归一化里加在方差上的小数。
        init: 初始化。
        blocks: 模型一共有几块。

    教程：第 14 章 前馈网络与残差连接，第 15 章 层归一化与 GPT 模型，第 16 章 过拟合与 Dropout。
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if {"branch", "enter"} & vars(cls).keys() and "infer" not in vars(cls):
            # 继承来的 infer 不知道新的分支
            cls.infer = Layer.infer
        if "branch" in vars(cls) and "forgets" not in vars(cls):
            # 新的分支也许要用自己的结果求导
            cls.forgets = GPTBranch.forgets

    def __init__(
        self,
        embedding_size: int,
        rng: np.random.Generator | None,
        bias: bool,
        dropout: float,
        norm: Norm,
        norm_position: NormPosition,
        norm_eps: float,
        init: Init,
        blocks: int,
    ) -> None:
        name = type(self).__name__
        require_size(name, "blocks", blocks)
        require_options(
            name,
            dropout=dropout,
            norm=norm,
            norm_position=norm_position,
            norm_eps=norm_eps,
            init=init,
        )
        self.norm_position = norm_position
        self.normalize = make_norm(norm, embedding_size, bias, norm_eps)
        self.dropout = Dropout(dropout, rng)

    @abstractmethod
    def branch(self, x: Tensor) -> Tensor:
        """分支：已经归一化的输入（post 时是原来的输入），形状不变。"""

    def forgets(self) -> bool:
        """加进残差流之后，分支的结果的数值能不能放掉：要它的反向函数不读它。"""
        return False

    def ends_linear(self) -> bool:
        """分支以 `output` 结束，它是线性层：线性层与随机失活的反向都不读自己的结果。"""
        return type(getattr(self, "output", None)) is Linear and type(self.dropout) is Dropout

    def enter(self, x: Tensor) -> Tensor:
        """分支的输入。"""
        if self.normalize is None or self.norm_position == "post":
            return x
        return self.normalize(x)

    def forward(self, x: Tensor) -> Tensor:
        """形状 `(…, 嵌入尺寸)`，不变。"""
        result = self.dropout(self.branch(self.enter(x)))
        y = x + result
        if self.forgets():
            result.forget()
        if self.normalize is None or self.norm_position == "pre":
            return y
        return self.normalize(y)

    def enter_infer(self, x: Array) -> Array:
        """推理时分支的输入。"""
        if self.normalize is None or self.norm_position == "post":
            return x
        return self.normalize.infer(x)

    def leave_infer(self, x: Array, y: Array) -> Array:
        """推理时把分支的结果 `y` 并入残差流。"""
        y = x + y
        if self.normalize is None or self.norm_position == "pre":
            return y
        return self.normalize.infer(y)
