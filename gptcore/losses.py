"""损失函数"""

from abc import ABC, abstractmethod
from typing import Any, cast

import numpy as np

from gptcore.errors import DtypeError, RangeError, ShapeError
from gptcore.kernels.array import Array
from gptcore.kernels.convert import brief, unify
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

    def count(self, y: Tensor) -> int:
        """`loss(p, y)` 对多少项平均；把几批的损失合成一个平均数时，用它作权重。

        Args:
            y: 标签。

        Returns:
            项数，默认是 `y` 的元素个数。
        """
        return y.size

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
    r"""语言模型的损失：softmax 与交叉熵（cross-entropy）合在一起，对各个位置平均，单位是奈特（nat）。

    Args:
        ignore_index: 标签等于它的位置不算（例如填充的位置，或对话里用户说的话），平均只对其余的位置；
            可以是词表里的编号，例如填充用的 0。`None` 表示全都算。

    Note: 前向与反向
        $$L = \frac1K\sum_{n:\,y_n\ne\text{ignore}}\Big(\ln\sum_v e^{x_{nv}} - x_{n y_n}\Big),\qquad
        \mathrm{d}x_{nv} = \frac{\mathrm{d}L}{K}\big(p_{nv}-[v=y_n]\big)$$

        $p$ 是 $x$ 的 softmax，$K$ 是算的位置数；不算的位置梯度为零。一个也不算时，损失与梯度都恰好是零。
        用对数 softmax 计算，分数再大也不会溢出，概率再小也不会变成无穷。

    Examples:
        >>> logits = Tensor([[2.0, 0.0], [0.0, 2.0], [5.0, 0.0]])
        >>> round(GPTLoss()(logits, Tensor([0, 1, -100])).item(), 4)
        0.1269

    Raises:
        DtypeError: `ignore_index` 不是整数。

    教程：第 8 章 交叉熵。
    """

    def __init__(self, ignore_index: int | None = -100) -> None:
        if not _is_index(ignore_index):
            raise DtypeError(
                f"GPTLoss：ignore_index 必须是整数或 None，这里是 {brief(ignore_index)}；通常用 -100"
            )
        self.ignore_index = None if ignore_index is None else int(ignore_index)

    def count(self, y: Tensor) -> int:
        """有多少个位置算：标签不等于 `ignore_index` 的。"""
        if self.ignore_index is None:
            return y.size
        return int(np.count_nonzero(y.data != self.ignore_index))

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
        labels, kept = self._labels(y.data.reshape(-1), vocab_size)
        value, saved = cross_entropy_forward(p.data.reshape(-1, vocab_size), labels, kept)
        shape = p.shape
        return Tensor(value).record(
            (p,),
            lambda dy: (cross_entropy_backward(dy, saved, labels, kept).reshape(shape),),
        )

    def _labels(self, given: Array, vocab_size: int) -> tuple[Array, Array | None]:
        """检查过范围的标签，与哪些位置算；全都算时是 `None`。"""
        ignore, kept, outside = self.ignore_index, None, _outside(given, vocab_size)
        if ignore is not None and (0 <= ignore < vocab_size or outside):
            kept = given != ignore
            given = np.where(kept, given, 0)
            kept, outside = None if kept.all() else kept, _outside(given, vocab_size)
        if outside:
            wrong = int(given.min() if given.min() < 0 else given.max())
            skip = "" if ignore is None else f"；不算损失的位置请写成 {ignore}"
            raise RangeError(
                f"GPTLoss：标签 {wrong} 超出范围，分数有 {vocab_size} 个，可用的标签是 0 到 {vocab_size - 1}；"
                f"请检查词表与模型的 vocab_size 是否一致{skip}"
            )
        return given.astype(np.int64, copy=False), kept


def _is_index(value: Any) -> bool:
    """是不是 `None`，或者装得进 int64 的整数。"""
    if isinstance(value, bool) or not isinstance(value, int | np.integer | None):
        return False
    return value is None or abs(int(cast("int", value))) < 2**63


def _outside(labels: Array, vocab_size: int) -> bool:
    """有没有标签不在词表里。"""
    return bool(labels.min() < 0 or labels.max() >= vocab_size)


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
