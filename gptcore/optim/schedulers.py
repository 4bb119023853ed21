"""学习率调度：由步数得到学习率"""

import math
from abc import ABC, abstractmethod

from gptcore.errors import ArgumentError
from gptcore.optim.checks import require_number, require_steps


class WarmupScheduler(ABC):
    r"""先线性升温（warm-up），之后由子类决定。

    升温 $w$ 步，步数 $i$ 从 0 数起：$\eta_i = \eta\,\dfrac{i+1}{w}$，$i < w$。第 0 步就大于零，最后一步恰好是 $\eta$。

    来源：Goyal 等 2017，<https://arxiv.org/abs/1706.02677>，第 2.2 节。

    Args:
        lr: 最高的学习率 $\eta$。
        warmup_steps: 升温的步数 $w$，可以是 0。

    Raises:
        ArgumentError: 学习率不是非负的有限数，或者步数不是非负整数。
    """

    def __init__(self, lr: float, warmup_steps: int = 0) -> None:
        require_number(type(self).__name__, "lr", lr)
        require_steps(type(self).__name__, "warmup_steps", warmup_steps)
        self.lr, self.warmup_steps = float(lr), int(warmup_steps)

    def step(self, i: int) -> float:
        """第 `i` 步（从 0 数起）的学习率。"""
        require_number(type(self).__name__, "i", i, 100)
        if i < self.warmup_steps:
            return self.lr * (i + 1) / self.warmup_steps
        return self.after_warmup(i)

    @abstractmethod
    def after_warmup(self, i: int) -> float:
        """升温之后第 `i` 步（仍从头数起）的学习率。"""


class ConstantScheduler(WarmupScheduler):
    r"""不变的学习率：升温之后一直是 $\eta$。

    Args:
        lr: 学习率 $\eta$。
        warmup_steps: 升温的步数，可以是 0。

    Examples:
        >>> scheduler = ConstantScheduler(0.5, warmup_steps=2)
        >>> [scheduler.step(i) for i in range(4)]
        [0.25, 0.5, 0.5, 0.5]

    教程：第 9 章 AdamW、学习率调度与梯度裁剪。
    """

    def after_warmup(self, i: int) -> float:  # noqa: ARG002 - 与步数无关
        """总是 `lr`。"""
        return self.lr


class DecayScheduler(WarmupScheduler):
    r"""升温之后，在总步数之内从 $\eta$ 降到 $\eta_{\min}$，以后一直是 $\eta_{\min}$。

    进度 $t=\dfrac{i-w}{n-w}$ 从 0 到 1，子类定义剩下的比例 $r(t)$：

    $$\eta_i = \begin{cases}
    \eta_{\min} + (\eta-\eta_{\min})\,r(t) & w\le i<n\\
    \eta_{\min} & i\ge n
    \end{cases}$$

    升温 0 步，升温等于或超过总步数，总步数为 0，都可以。

    Args:
        lr: 最高的学习率 $\eta$。
        total_steps: 总步数 $n$，包括升温。
        warmup_steps: 升温的步数 $w$。
        min_lr: 最后的学习率 $\eta_{\min}$。

    Raises:
        ArgumentError: 学习率不是非负的有限数，步数不是非负整数，或者 `min_lr` 大于 `lr`。
    """

    def __init__(
        self, lr: float, total_steps: int, warmup_steps: int = 0, min_lr: float = 0.0
    ) -> None:
        super().__init__(lr, warmup_steps)
        name = type(self).__name__
        require_steps(name, "total_steps", total_steps)
        require_number(name, "min_lr", min_lr)
        if min_lr > lr:
            raise ArgumentError(f"{name}：min_lr={min_lr} 不能大于 lr={lr}；通常取 lr 的十分之一")
        self.total_steps, self.min_lr = int(total_steps), float(min_lr)

    def after_warmup(self, i: int) -> float:
        """按进度下降。"""
        if i >= self.total_steps:
            return self.min_lr
        progress = (i - self.warmup_steps) / (self.total_steps - self.warmup_steps)
        return self.min_lr + (self.lr - self.min_lr) * self.remaining(progress)

    @abstractmethod
    def remaining(self, progress: float) -> float:
        """下降了 `progress`（0 到 1）之后，还剩多少：开始是 1，最后是 0。"""


class LinearScheduler(DecayScheduler):
    r"""先升温，再沿直线下降：$r(t) = 1-t$。

    $$\eta_i = \begin{cases}
    \eta\,\dfrac{i+1}{w} & i < w\\[2ex]
    \eta_{\min} + (\eta-\eta_{\min})\dfrac{n-i}{n-w} & w\le i<n\\[1ex]
    \eta_{\min} & i\ge n
    \end{cases}$$

    Args:
        lr: 最高的学习率 $\eta$。
        total_steps: 总步数 $n$。
        warmup_steps: 升温的步数 $w$。
        min_lr: 最后的学习率 $\eta_{\min}$。

    Examples:
        >>> scheduler = LinearScheduler(1.0, total_steps=6, warmup_steps=2)
        >>> [scheduler.step(i) for i in range(7)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]

    教程：第 9 章 AdamW、学习率调度与梯度裁剪。
    """

    def remaining(self, progress: float) -> float:
        r"""$1-t$"""
        return 1 - progress


class WarmupCosineScheduler(DecayScheduler):
    r"""先升温，再按余弦下降：$r(t) = \tfrac12(1+\cos\pi t)$。

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

    Examples:
        >>> scheduler = WarmupCosineScheduler(1e-3, total_steps=100, warmup_steps=10, min_lr=1e-4)
        >>> scheduler.step(0), scheduler.step(9), scheduler.step(100)
        (0.0001, 0.001, 0.0001)

    教程：第 9 章 AdamW、学习率调度与梯度裁剪。
    """

    def remaining(self, progress: float) -> float:
        r"""$\tfrac12(1+\cos\pi t)$"""
        return 0.5 * (1 + math.cos(math.pi * progress))
