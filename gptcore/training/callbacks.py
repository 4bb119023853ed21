"""回调：训练循环在几个时刻通知它们；评估与提前停止就是这样做的"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from gptcore.models.generation import require_count
from gptcore.optim.checks import require_number

if TYPE_CHECKING:
    from gptcore.training.evaluation import Evaluation
    from gptcore.training.state import StepReport
    from gptcore.training.trainer import Trainer


class Callback:
    """回调的基类：改写关心的那几个方法，其余的什么也不做。

    各个回调按给出的次序调用，只有 `Checkpoints` 总在最后。
    方法里可以读 `trainer.state` 与 `trainer.dataset`，可以调用 `trainer.stop(原因)`；抛出的错误会结束训练。
    名字以 `on_` 开头、又不是下面这几个时刻的方法不会被调用，定义时给出警告：多半是写错了名字。

    Examples:
        >>> class PrintLoss(Callback):
        ...     def on_step(self, trainer, report):
        ...         if report.step % 100 == 0:
        ...             print(report.step, report.loss)
        >>> history = trainer.train(dataset, epochs=2, callbacks=[PrintLoss()])
    """

    comes_last: bool = False
    """是否排在别的回调之后。"""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        known = [name for name in vars(Callback) if name.startswith("on_")]
        for name in vars(cls):
            if name.startswith("on_") and not any(hasattr(base, name) for base in cls.__bases__):
                warnings.warn(
                    f"{cls.__name__}：没有 {name} 这个时刻，训练时不会调用它；有 {'、'.join(known)}",
                    stacklevel=2,
                )

    def on_start(self, trainer: Trainer) -> None:
        """第一步之前；接着训练时 `trainer.state.step` 大于 0。"""

    def on_step(self, trainer: Trainer, report: StepReport) -> None:
        """每一步之后，参数已经更新。"""

    def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
        """每次评估之后。"""

    def on_end(self, trainer: Trainer) -> None:
        """训练正常结束，包括提前停止。"""

    def close(self, trainer: Trainer) -> None:
        """无论怎样结束（包括出错、中断）都会调用，最后一次机会收拾文件与屏幕。"""


def in_order(callbacks: Iterable[Callback]) -> list[Callback]:
    """调用的次序。检查点在最后：同一步的评估与记录都做完了才保存，从那里接着训练就不会漏掉它们。"""
    return sorted(callbacks, key=lambda callback: getattr(callback, "comes_last", False))


def close_all(trainer: Trainer, callbacks: list[Callback]) -> None:
    """依次收拾各个回调；有一个出错，其余的照样收拾，错误最后才抛出。"""
    with ExitStack() as stack:
        for callback in reversed(callbacks):
            stack.callback(callback.close, trainer)


class Evaluate(Callback):
    """每隔若干步在测试集上评估一次，并通知各个回调的 `on_evaluation`。

    每次评估的都是同样的窗口，所以先后的损失可以比较，差值比损失自己准得多。第 15 章的模型，128 个窗口的损失
    与整份测试集的相差约 0.04，先后两次的差值约差 0.015；评估它们只花 500 步训练的百分之二，
    整份测试集则要百分之四十。训练完之后请用 `trainer.evaluate(dataset)` 评估整份测试集。

    Args:
        every: 每隔多少步。
        limit: 至多评估多少个样本，均匀地取自整份测试集；`None` 表示全部。
    """

    def __init__(self, every: int = 500, limit: int | None = 128) -> None:
        require_count("Evaluate", "every", every, 1)
        if limit is not None:
            require_count("Evaluate", "limit", limit, 1)
        self.every, self.limit = every, limit

    def on_step(self, trainer: Trainer, report: StepReport) -> None:
        """到时候就评估。"""
        if trainer.state.step % self.every == 0:
            trainer.evaluate_now(self.limit)


class EarlyStopping(Callback):
    """连续若干次评估都没有进步，就停止训练；与 `Evaluate` 一起使用。

    比较的历史在 `trainer.state.evaluations` 里，跟着检查点走：中断后接着训练，数到几还是几。

    Args:
        patience: 连续多少次。
        min_delta: 至少低这么多才算进步。
    """

    def __init__(self, patience: int = 5, min_delta: float = 0.0) -> None:
        require_count("EarlyStopping", "patience", patience, 1)
        require_number("EarlyStopping", "min_delta", min_delta, 0.01)
        self.patience, self.min_delta = patience, min_delta

    def on_start(self, trainer: Trainer) -> None:
        """接着训练时，原来已经该停的，立即停下。"""
        self._check(trainer)

    def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
        """数一数多少次没有进步了。"""
        self._check(trainer)

    def on_end(self, trainer: Trainer) -> None:
        """一次评估也没有，就没有起过作用；不说出来，没有人会发现。"""
        if trainer.state.step and not trainer.state.evaluations:
            warnings.warn(
                f"EarlyStopping：做完了 {trainer.state.step} 步，一次评估也没有，所以没有起作用；"
                "请在 callbacks 里加上 Evaluate(every=…)，every 不大于总步数",
                stacklevel=2,
            )

    def _check(self, trainer: Trainer) -> None:
        best, stale = float("inf"), 0
        for _, loss in trainer.state.evaluations:
            if loss < best - self.min_delta:
                best, stale = loss, 0
            else:
                stale += 1
        if stale >= self.patience:
            trainer.stop(f"连续 {stale} 次评估没有进步（最低 {best:.4f}）")
