"""AdamW"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from gptcore.errors import ArgumentError
from gptcore.kernels.adamw import adamw_update
from gptcore.kernels.array import BLOCK, Array
from gptcore.kernels.buffers import empty
from gptcore.kernels.convert import brief
from gptcore.optim.checks import as_float, require_number
from gptcore.optim.optimizer import Optimizer
from gptcore.tensor import Tensor


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
        require_number("AdamWOptimizer", "eps", eps)
        if not eps:
            raise ArgumentError("AdamWOptimizer：eps 必须是正数，这里是 0；通常用 1e-8")
        self.betas, self.eps = (float(betas[0]), float(betas[1])), float(eps)
        self._steps = np.zeros((), np.int64)
        self._layout = self._current_layout()
        self._buckets = self._arrange(
            [(np.zeros(p.shape, p.dtype), np.zeros(p.shape, p.dtype)) for p in self.parameters]
        )

    @property
    def steps(self) -> int:
        """已经更新了多少次。"""
        return int(self._steps)

    def step(self) -> None:
        """更新一次参数。"""
        self._follow_parameters()
        self._steps += 1
        for bucket in self._buckets:
            if not bucket.tensors[0].requires_grad:
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

    @property
    def settings(self) -> dict[str, Any]:
        r"""不随训练改变的设置：各组的权重衰减，另有 $\beta_1,\beta_2$ 与 $\varepsilon$。"""
        return super().settings | {"betas": list(self.betas), "eps": self.eps}

    def state_arrays(self) -> dict[str, Array]:
        """学习率、步数与各个参数的两个矩；矩的形状与类型就是参数的。"""
        self._follow_parameters()
        arrays = super().state_arrays() | {"steps": self._steps}
        for i, (m, v) in enumerate(self._moments()):
            arrays |= {f"m.{i}": m, f"v.{i}": v}
        return arrays

    def _current_layout(self) -> list[tuple[Any, bool]]:
        return [(p.data.dtype, p.requires_grad) for p in self.parameters]

    def _follow_parameters(self) -> None:
        """参数换了类型、冻结或放开之后，重新分配；矩换成参数的类型，冻结的参数的矩不动。"""
        if (layout := self._current_layout()) != self._layout:
            self._layout, self._buckets = layout, self._arrange(self._moments())

    def _moments(self) -> list[tuple[Array, Array]]:
        """每个参数的两个矩，形状与参数相同，与 `_Bucket` 共用内存。"""
        found = {id(t): pair for b in self._buckets for t, pair in b.moments()}
        return [found[id(p)] for p in self.parameters]

    def _arrange(self, moments: list[tuple[Array, Array]]) -> list["_Bucket"]:
        """把参数分成一起更新的几份。"""
        given = {id(p): pair for p, pair in zip(self.parameters, moments, strict=True)}
        return [
            _Bucket(tensors, group.weight_decay, [given[id(t)] for t in tensors])
            for group in self.groups
            for tensors in _partition(group.parameters)
        ]


class _Bucket:
    """一起更新的几个参数：许多小张量首尾相接成一个长向量，省去一次次调用的开销；大张量独自一个，不复制。"""

    def __init__(
        self, tensors: list[Tensor], weight_decay: float, moments: list[tuple[Array, Array]]
    ) -> None:
        self.tensors, self.weight_decay = tensors, weight_decay
        ends = accumulate(t.size for t in tensors)
        self._parts = [(t, slice(end - t.size, end)) for t, end in zip(tensors, ends, strict=True)]
        dtype = tensors[0].dtype
        self.m, self.v = (
            _joined(arrays).astype(dtype, copy=False) for arrays in zip(*moments, strict=True)
        )

    def gather(self) -> tuple[Array, Array]:
        """参数与梯度，各为一维连续数组。"""
        return _joined([t.data for t in self.tensors]), _joined([t.grad for t in self.tensors])

    def scatter(self, theta: Array) -> None:
        """把更新后的值写回各个参数。"""
        if np.may_share_memory(theta, self.tensors[0].data):  # 独自一个，就地更新过了
            return
        for t, part in self._parts:
            t.data[...] = theta[part].reshape(t.shape)

    def moments(self) -> Iterator[tuple[Tensor, tuple[Array, Array]]]:
        """每个参数与它的两个矩。"""
        for t, part in self._parts:
            yield t, (self.m[part].reshape(t.shape), self.v[part].reshape(t.shape))


def _joined(arrays: Sequence[Array]) -> Array:
    """首尾相接成一维；只有一个时不复制。"""
    if len(arrays) == 1:
        return arrays[0].reshape(-1)
    out = empty((sum(array.size for array in arrays),), arrays[0].dtype)
    return np.concatenate(arrays, axis=None, out=out)


def _partition(tensors: list[Tensor]) -> list[list[Tensor]]:
    """小张量按类型、是否冻结合在一起，大张量各自一组。"""
    small: dict[Any, list[Tensor]] = {}
    large: list[list[Tensor]] = []
    for t in tensors:
        if t.size < BLOCK:
            small.setdefault((t.dtype, t.requires_grad), []).append(t)
        else:
            large.append([t])
    return [*small.values(), *large]


def _is_beta(value: Any) -> bool:
    return 0 <= as_float(value) < 1
