"""学习率调度"""

import math

from gptcore.errors import ArgumentError
from gptcore.optim.checks import require_number, require_steps


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
            require_steps(name, argument, value)
        require_number(name, "lr", lr)
        require_number(name, "min_lr", min_lr)
        if min_lr > lr:
            raise ArgumentError(f"{name}：min_lr={min_lr} 不能大于 lr={lr}；通常取 lr 的十分之一")
        self.lr, self.total_steps = lr, total_steps
        self.warmup_steps, self.min_lr = warmup_steps, min_lr

    def step(self, i: int) -> float:
        """第 `i` 步（从 0 数起）的学习率。"""
        require_number("WarmupCosineScheduler", "i", i, 100)
        if i < self.warmup_steps:
            return self.lr * (i + 1) / self.warmup_steps
        if i >= self.total_steps:
            return self.min_lr
        progress = (i - self.warmup_steps) / (self.total_steps - self.warmup_steps)
        return self.min_lr + (self.lr - self.min_lr) * 0.5 * (1 + math.cos(math.pi * progress))
