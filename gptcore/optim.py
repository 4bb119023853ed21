"""优化器、梯度裁剪与学习率调度"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from gptcore.errors import ArgumentError, DtypeError
from gptcore.kernels.adamw import adamw_update
from gptcore.kernels.array import BLOCK, Array
from gptcore.kernels.convert import brief
from gptcore.tensor import Tensor

GROUP_KEYS = {"parameters", "weight_decay"}


@dataclass
class ParameterGroup:
    """共用一套设置的参数。

    Attributes:
        parameters: 参数。
        weight_decay: 权重衰减。
    """

    parameters: list[Tensor]
    weight_decay: float


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
        self.groups = _groups(type(self).__name__, parameters, weight_decay)
        self.parameters = [p for group in self.groups for p in group.parameters]
        self.lr = lr

    @property
    def lr(self) -> float:
        """学习率。"""
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        _require_number(type(self).__name__, "lr", value)
        self._lr = float(value)

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
        if not _is_number(max_norm) or not 0 < max_norm <= sys.float_info.max:
            raise ArgumentError(
                f"clip_grad_norm：max_norm 必须是正数，这里是 {brief(max_norm)}；不想裁剪就不要调用"
            )
        grads = [p.grad for p in self.parameters if p.requires_grad]
        with np.errstate(over="ignore"):
            norm = math.sqrt(sum(_squared_norm(g.reshape(-1)) for g in grads))
        scale = max_norm / (norm + 1e-6)
        if scale < 1:
            for grad in grads:
                grad *= scale
        return norm

    @abstractmethod
    def step(self) -> None:
        """按当前梯度更新一次参数。"""


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


class AdamWOptimizer(Optimizer):
    r"""AdamW：按每个参数自己的梯度大小调整步长，权重衰减直接作用于参数。

    $$m\leftarrow\beta_1m+(1-\beta_1)g,\quad v\leftarrow\beta_2v+(1-\beta_2)g^2,\quad
    \theta\leftarrow(1-\eta\lambda)\theta-\eta\frac{m/(1-\beta_1^t)}{\sqrt{v/(1-\beta_2^t)}+\varepsilon}$$

    给一个参数列表时，所有参数都衰减；`model.parameter_groups()` 把偏置、归一化与嵌入分出来，不衰减。

    来源：Loshchilov 与 Hutter 2019，<https://arxiv.org/abs/1711.05101>，算法 2。

    Args:
        parameters: 参数，或参数组。
        lr: 学习率 $\eta$。
        betas: 两个矩的衰减率 $(\beta_1, \beta_2)$。
        eps: 分母上的小数 $\varepsilon$。
        weight_decay: 权重衰减 $\lambda$。

    教程：第 9 章 AdamW、学习率调度与梯度裁剪。
    """

    def __init__(
        self,
        parameters: Iterable[Tensor] | Iterable[Mapping[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(parameters, lr, weight_decay)
        pair: Any = betas
        if not (isinstance(pair, tuple | list) and len(betas) == 2 and all(map(_is_beta, betas))):
            raise ArgumentError(
                f"AdamWOptimizer：betas 必须是两个 0 ≤ β < 1 的数，这里是 {brief(betas)}；通常用 (0.9, 0.999)"
            )
        _require_number("AdamWOptimizer", "eps", eps)
        if not eps:
            raise ArgumentError("AdamWOptimizer：eps 必须是正数，这里是 0；通常用 1e-8")
        self.betas, self.eps = betas, eps
        self.steps = 0
        self._buckets = [
            _Bucket(tensors, group.weight_decay)
            for group in self.groups
            for tensors in _partition(group.parameters)
        ]

    def step(self) -> None:
        """更新一次参数。"""
        self.steps += 1
        for bucket in self._buckets:
            if not any(t.requires_grad for t in bucket.tensors):
                continue
            theta, g = bucket.gather()
            adamw_update(
                theta,
                g,
                bucket.m,
                bucket.v,
                lr=self.lr,
                beta1=self.betas[0],
                beta2=self.betas[1],
                eps=self.eps,
                weight_decay=bucket.weight_decay,
                step=self.steps,
            )
            bucket.scatter(theta)


class _Bucket:
    """一起更新的几个参数：许多小张量首尾相接成一个长向量，省去一次次调用的开销；大张量独自一个，不复制。"""

    def __init__(self, tensors: list[Tensor], weight_decay: float) -> None:
        self.tensors, self.weight_decay = tensors, weight_decay
        self.m = np.zeros(sum(t.size for t in tensors), tensors[0].dtype)
        self.v = np.zeros_like(self.m)

    def gather(self) -> tuple[Array, Array]:
        """参数与梯度，各为一维连续数组。"""
        theta = [t.data.reshape(-1) for t in self.tensors]
        grads = [t.grad.reshape(-1) for t in self.tensors]
        if self.m.dtype != theta[0].dtype:  # 参数后来换了类型
            self.m, self.v = self.m.astype(theta[0].dtype), self.v.astype(theta[0].dtype)
        if len(theta) == 1:
            return theta[0], grads[0]
        return np.concatenate(theta), np.concatenate(grads)

    def scatter(self, theta: Array) -> None:
        """把更新后的值写回各个参数。"""
        start = 0
        for t in self.tensors:
            if t.requires_grad and not np.may_share_memory(theta, t.data):
                t.data[...] = theta[start : start + t.size].reshape(t.shape)
            start += t.size


def _partition(tensors: list[Tensor]) -> list[list[Tensor]]:
    """小张量按类型合在一起，大张量各自一组。"""
    small: dict[str, list[Tensor]] = {}
    large: list[list[Tensor]] = []
    for t in tensors:
        if t.size < BLOCK:
            small.setdefault(t.dtype.str, []).append(t)
        else:
            large.append([t])
    return [*small.values(), *large]


def _groups(name: str, parameters: Iterable[Any], weight_decay: float) -> list[ParameterGroup]:
    """检查参数，整理成组；同一组里重复的张量只留一个。"""
    items = _to_list(name, parameters)
    if items and not isinstance(items[0], Mapping):
        items: list[Any] = [{"parameters": items}]
    groups: list[ParameterGroup] = []
    seen: dict[int, int] = {}
    for i, item in enumerate(items):
        if not _is_group(item):
            raise ArgumentError(
                f"{name}：参数组要写成 {{'parameters': […], 'weight_decay': 0.1}}，"
                f"第 {i} 组是 {str(item)[:60]}"
            )
        decay: float = item.get("weight_decay", weight_decay)
        _require_number(name, "weight_decay", decay)
        members = {id(p): _require_parameter(name, p) for p in _to_list(name, item["parameters"])}
        for key, p in members.items():
            if seen.setdefault(key, i) != i:
                raise ArgumentError(
                    f"{name}：形状 {p.shape} 的参数同时在第 {seen[key]} 组与第 {i} 组；请只放在一组里"
                )
        if members:
            groups.append(ParameterGroup(list(members.values()), decay))
    if not groups:
        raise ArgumentError(f"{name}：没有参数可以更新；请检查 model.parameters 是否为空")
    return groups


def _to_list(name: str, parameters: Any) -> list[Any]:
    if isinstance(parameters, Iterable) and not isinstance(parameters, Tensor | np.ndarray):
        return list(cast("Iterable[Any]", parameters))
    kind = type(cast("object", parameters)).__name__
    raise DtypeError(
        f"{name}：parameters 必须是参数的列表，这里是 {kind}；请写 model.parameters，只有一个时写 [w]"
    )


def _require_parameter(name: str, p: Any) -> Tensor:
    if not isinstance(p, Tensor) or p.dtype.kind != "f":
        raise DtypeError(
            f"{name}：参数必须是浮点张量，这里有 {type(p).__name__}：{str(p)[:60]}；请写 model.parameters"
        )
    if not p.is_leaf:
        raise ArgumentError(
            f"{name}：形状 {p.shape} 的张量是算出来的，更新它没有用；请给出算出它的参数"
        )
    if not p.data.flags.writeable:
        raise ArgumentError(
            f"{name}：形状 {p.shape} 的参数是只读的，不能更新；请复制一份：Tensor(array.copy())"
        )
    return p


def _is_group(item: Any) -> bool:
    return isinstance(item, Mapping) and {"parameters"} <= set(cast("Any", item)) <= GROUP_KEYS


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating)


def _squared_norm(flat: Array) -> float:
    """平方和；float32 里溢出时换成 float64 再算。"""
    total = float(np.dot(flat, flat))
    if math.isinf(total):
        wide = flat.astype(np.float64)
        total = float(np.dot(wide, wide))
    return total


def _is_beta(value: Any) -> bool:
    return _is_number(value) and 0 <= value < 1


def _require_number(name: str, argument: str, value: Any, example: float = 0.001) -> None:
    if not _is_number(value) or not 0 <= value <= sys.float_info.max:
        raise ArgumentError(
            f"{name}：{argument} 必须是非负的有限数，这里是 {brief(value)}；请写例如 {argument}={example}"
        )


class WarmupCosineScheduler:
    r"""先线性升温（warm-up），再按余弦下降的学习率。

    第 $i$ 步（从 0 数起，共 $n$ 步，升温 $w$ 步）：

    $$\eta_i = \begin{cases}
    \eta\,\dfrac{i+1}{w} & i < w\\[2ex]
    \eta_{\min} + \tfrac12(\eta-\eta_{\min})\Big(1+\cos\pi\dfrac{i-w}{n-w}\Big) & w\le i<n\\[1ex]
    \eta_{\min} & i\ge n
    \end{cases}$$

    第 0 步就大于零；升温 0 步或等于总步数都可以。

    来源：Loshchilov 与 Hutter 2017，<https://arxiv.org/abs/1608.03983>，式 (5)；升温见 Goyal 等 2017，
    <https://arxiv.org/abs/1706.02677>，第 2.2 节。

    Args:
        lr: 最高的学习率 $\eta$。
        total_steps: 总步数 $n$。
        warmup_steps: 升温的步数 $w$。
        min_lr: 最后的学习率 $\eta_{\min}$。

    Example:
        >>> scheduler = WarmupCosineScheduler(1e-3, total_steps=100, warmup_steps=10, min_lr=1e-4)
        >>> scheduler.step(0), scheduler.step(9), scheduler.step(100)
        (0.0001, 0.001, 0.0001)

    教程：第 9 章 AdamW、学习率调度与梯度裁剪。
    """

    def __init__(
        self, lr: float, total_steps: int, warmup_steps: int = 0, min_lr: float = 0.0
    ) -> None:
        name = "WarmupCosineScheduler"
        for argument, value in (("total_steps", total_steps), ("warmup_steps", warmup_steps)):
            _require_number(name, argument, value, 100)
            if value != int(value):
                raise ArgumentError(
                    f"{name}：{argument} 必须是整数，这里是 {value}；请写例如 {argument}=int({value})"
                )
        _require_number(name, "lr", lr)
        _require_number(name, "min_lr", min_lr)
        if min_lr > lr:
            raise ArgumentError(f"{name}：min_lr={min_lr} 不能大于 lr={lr}；通常取 lr 的十分之一")
        self.lr, self.total_steps = lr, total_steps
        self.warmup_steps, self.min_lr = warmup_steps, min_lr

    def step(self, i: int) -> float:
        """第 `i` 步（从 0 数起）的学习率。"""
        _require_number("WarmupCosineScheduler", "i", i, 100)
        if i < self.warmup_steps:
            return self.lr * (i + 1) / self.warmup_steps
        if i >= self.total_steps:
            return self.min_lr
        progress = (i - self.warmup_steps) / (self.total_steps - self.warmup_steps)
        return self.min_lr + (self.lr - self.min_lr) * 0.5 * (1 + math.cos(math.pi * progress))
