"""损失函数"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from gptcore.errors import DtypeError, RangeError, ShapeError
from gptcore.kernels.array import Array
from gptcore.kernels.convert import unify
from gptcore.kernels.loss import (
    cross_entropy_backward,
    cross_entropy_forward,
    mse_backward,
    mse_forward,
)
from gptcore.tensor import Tensor


class Loss(ABC):
    """损失函数的基类：子类定义 `loss(p, y)`，使用时直接调用。

    教程：第 4 章 均方误差与随机梯度下降。
    """

    @abstractmethod
    def loss(self, p: Tensor, y: Tensor) -> Tensor:
        """由预测与标签算出一个数。

        Args:
            p: 预测。
            y: 标签。

        Returns:
            0 维的损失。
        """

    def __call__(self, p: Tensor, y: Tensor) -> Tensor:
        """同 `loss`。"""
        return self.loss(p, y)


class MSELoss(Loss):
    r"""均方误差（mean squared error）：对所有元素平均。

    Note: 前向与反向
        $$L = \frac1n\sum_i(p_i-y_i)^2,\qquad \mathrm{d}p_i = \frac2n(p_i-y_i)\,\mathrm{d}L$$

    教程：第 4 章 均方误差与随机梯度下降。
    """

    def loss(self, p: Tensor, y: Tensor) -> Tensor:
        """均方误差。

        Args:
            p: 预测，任意形状。
            y: 标签，形状与 `p` 相同。

        Raises:
            ShapeError: 两者形状不同（这里不广播），或者没有元素。
            DtypeError: 预测不是浮点张量，或标签不是张量。
        """
        _require_predictions("MSELoss", p, y)
        if p.shape != y.shape or not p.size:
            raise ShapeError(
                f"MSELoss：预测的形状 {p.shape} 与标签的形状 {y.shape} 要相同且不为空；标签是编号时请先变成独热向量"
            )
        value, difference = mse_forward(*unify(p.data, y.data))

        def vjp(dy: Array) -> tuple[Array, Array | None]:
            dp = mse_backward(dy, difference)
            return dp, -dp if y.requires_grad else None

        return Tensor(value).record((p, y), vjp)


class GPTLoss(Loss):
    r"""语言模型的损失：softmax 与交叉熵（cross-entropy）合在一起，对所有位置平均，单位是奈特（nat）。

    Note: 前向与反向
        $$L = \frac1N\sum_n\Big(\ln\sum_v e^{x_{nv}} - x_{n y_n}\Big),\qquad
        \mathrm{d}x_{nv} = \frac{\mathrm{d}L}{N}\big(p_{nv}-[v=y_n]\big)$$

        $p$ 是 $x$ 的 softmax。用对数 softmax 计算，分数再大也不会溢出，概率再小也不会变成无穷。

    教程：第 8 章 交叉熵。
    """

    def loss(self, p: Tensor, y: Tensor) -> Tensor:
        """交叉熵。

        Args:
            p: 分数（softmax 之前），形状 (…, 词表大小)
            y: 标签，整数，形状是 `p` 去掉最后一轴。

        Raises:
            ShapeError: 形状不符，或者没有标签。
            DtypeError: 标签是小数类型，或分数是整数。
            RangeError: 标签超出词表。
        """
        _require_predictions("GPTLoss", p, y)
        if not p.ndim or p.shape[:-1] != y.shape or not p.size:
            raise ShapeError(
                f"GPTLoss：分数的形状 {p.shape} 去掉最后一轴应是标签的形状 {y.shape}，且不为空；"
                "标签是词元编号，不是独热向量"
            )
        if y.dtype.kind not in "iu" and not y.integral:
            raise DtypeError(
                f"GPTLoss：标签必须是整数，这里的类型是 {y.dtype}；请写 Tensor(y.data.astype(int))"
            )
        vocab_size = p.shape[-1]
        given = y.data.reshape(-1)
        if given.min() < 0 or given.max() >= vocab_size:
            wrong = int(given.min() if given.min() < 0 else given.max())
            raise RangeError(
                f"GPTLoss：标签 {wrong} 超出范围，分数有 {vocab_size} 个，可用的标签是 0 到 {vocab_size - 1}；"
                "请检查词表与模型的 vocab_size 是否一致"
            )
        labels = given.astype(np.int64, copy=False)
        value, probabilities = cross_entropy_forward(p.data.reshape(-1, vocab_size), labels)
        shape = p.shape
        return Tensor(value).record(
            (p,), lambda dy: (cross_entropy_backward(dy, probabilities, labels).reshape(shape),)
        )


def _require_predictions(name: str, p: Any, y: Any) -> None:
    """预测必须是浮点张量，标签必须是张量。"""
    for title, x in (("预测", p), ("标签", y)):
        if not isinstance(x, Tensor):
            raise DtypeError(
                f"{name}：{title}必须是 Tensor，这里是 {type(x).__name__}；请写 Tensor(…, requires_grad=False)"
            )
    if p.dtype.kind != "f":
        raise DtypeError(
            f"{name}：预测必须是浮点张量，这里的类型是 {p.dtype}；请写 p.astype(DTYPE)"
        )
