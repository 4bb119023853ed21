"""优化器的基类与随机梯度下降"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from gptcore.errors import ArgumentError
from gptcore.kernels.array import Array
from gptcore.kernels.convert import brief
from gptcore.optim.checks import as_float, require_number
from gptcore.optim.groups import parameter_groups
from gptcore.optim.state import require_state
from gptcore.tensor import Tensor


class Optimizer(ABC):
    """优化器的基类：按梯度就地更新参数。冻结的参数（`requires_grad=False`）跳过，随时可以冻结或放开。

    Args:
        parameters: 参数的列表，或者分组：`[{"parameters": […], "weight_decay": 0.1}, …]`。同一个张量只更新一次。
        lr: 学习率，随时可以改：`optimizer.lr = 1e-4`。
        weight_decay: 没有写明的组用的权重衰减。

    Raises:
        ArgumentError: 没有参数，同一参数分在两组，或设置不合要求。

    教程：第 4 章 均方误差与随机梯度下降，第 9 章 AdamW、学习率调度与梯度裁剪。
    """

    def __init__(
        self,
        parameters: Iterable[Tensor] | Iterable[Mapping[str, Any]],
        lr: float,
        weight_decay: float = 0.0,
    ) -> None:
        self.groups = parameter_groups(type(self).__name__, parameters, weight_decay)
        self.parameters = [p for group in self.groups for p in group.parameters]
        self.lr = lr

    @property
    def lr(self) -> float:
        """学习率。"""
        return float(self._lr)

    @lr.setter
    def lr(self, value: float) -> None:
        require_number(type(self).__name__, "lr", value)
        self._lr = np.array(value, np.float64)

    def zero_grad(self) -> None:
        """清除所有参数的梯度。"""
        for p in self.parameters:
            p.zero_grad()

    def clip_grad_norm(self, max_norm: float = 1.0) -> float:
        r"""梯度裁剪：把所有梯度看成一个长向量，范数超过 `max_norm` 时按比例缩短。

        $$g \leftarrow g\cdot\min\Big(1, \frac{\text{max\_norm}}{\lVert g\rVert_2 + 10^{-6}}\Big)$$

        来源：Pascanu 等 2013，<https://arxiv.org/abs/1211.5063>。

        Args:
            max_norm: 范数的上限。

        Returns:
            裁剪之前的范数。
        """
        limit = as_float(max_norm)
        if not 0 < limit < math.inf:
            raise ArgumentError(
                f"clip_grad_norm：max_norm 必须是正数，这里是 {brief(max_norm)}；不想裁剪就不要调用"
            )
        grads = [p.grad for p in self.parameters if p.requires_grad]
        with np.errstate(over="ignore"):
            norm = math.sqrt(sum(map(_squared_norm, grads)))
        scale = limit / (norm + 1e-6)
        if scale < 1:
            for grad in grads:
                grad *= scale
        return norm

    @abstractmethod
    def step(self) -> None:
        """按当前梯度更新一次参数。"""

    @property
    def settings(self) -> dict[str, Any]:
        """不随训练改变的设置，可以写成 JSON；接着训练时用来核对。"""
        return {
            "optimizer": type(self).__name__,
            "weight_decay": [float(g.weight_decay) for g in self.groups],
        }

    def state_arrays(self) -> dict[str, Array]:
        """随训练改变的数组本身，不是副本。

        自己写的优化器如果有别的状态，在子类里加上：`super().state_arrays() | {"名字": 数组}`，
        `state_dict` 与 `load_state_dict` 就会带上它。

        Returns:
            名字与数组；标量是 0 维的。
        """
        return {"lr": self._lr}

    def state_dict(self) -> dict[str, Array]:
        """优化器的状态；连同参数一起存下来，以后就能接着训练，一位也不差。

        Returns:
            名字与数组的副本，标量是 0 维的：`lr`；AdamW 另有 `steps`，以及第 $i$ 个参数的两个矩 `m.i`、`v.i`。
        """
        return {name: array.copy() for name, array in self.state_arrays().items()}

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """读回 `state_dict` 给出的状态。先全部检查，有一处不符就什么也不写。

        参数的顺序、形状与类型要与保存时相同；参数的值不在里面，由模型自己保存。

        Args:
            state: 名字与数组，写入的是副本。

        Raises:
            ShapeError: 有名字缺少或多出，或者形状不符。
            DtypeError: 不是字典，有的值不是数组，或者类型不符。
            ArgumentError: 学习率或步数是负数，或者学习率不是有限数。
        """
        own = self.state_arrays()
        given = require_state(f"{type(self).__name__}.load_state_dict", state, own)
        for name, array in given.items():
            own[name][...] = array


class SGDOptimizer(Optimizer):
    r"""随机梯度下降（stochastic gradient descent）：$\theta\leftarrow\theta-\eta g$。

    Args:
        parameters: 参数。
        lr: 学习率 $\eta$。

    教程：第 4 章 均方误差与随机梯度下降。
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        super().__init__(parameters, lr)

    def step(self) -> None:
        """更新一次参数。"""
        for p in self.parameters:
            if p.requires_grad:
                p.data -= p.data.dtype.type(self.lr) * p.grad


def _squared_norm(g: Array) -> float:
    """平方和；float32 里溢出时换成 float64 再算。"""
    total = float(np.vdot(g, g))
    if math.isinf(total):
        wide = g.astype(np.float64)
        total = float(np.vdot(wide, wide))
    return total
