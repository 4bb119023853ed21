"""`Trainer.steps` 交出的迭代器：取一个，训练一步；一个也没有取就丢掉时，给出警告"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator
from typing import Self

from gptcore.training.state import StepReport


class Steps(Iterator[StepReport]):
    """一步一步的训练。在 Jupyter 里单独写一行，看到的是它的说明，而不是悄悄地什么也没有发生。

    Args:
        count: 总步数。
        loop: 训练循环。
    """

    def __init__(self, count: int, loop: Generator[StepReport, None, None]) -> None:
        self._count, self._loop, self._started = count, loop, count == 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StepReport:
        self._started = True
        return next(self._loop)

    def close(self) -> None:
        """到此为止：收拾各个回调。"""
        self._started = True
        self._loop.close()

    def __repr__(self) -> str:
        state = "" if self._started else "，还没有开始：请写 for report in trainer.steps(…)"
        return f"<{self._count} 步训练{state}>"

    def __del__(self) -> None:
        if not getattr(self, "_started", True):
            warnings.warn(
                f"trainer.steps(…, {self._count})：一步也没有训练：它是迭代器，"
                "请写 for report in trainer.steps(…)",
                stacklevel=2,
            )
