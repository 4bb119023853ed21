"""一次训练走到哪里：每一步的结果，可以存进检查点的状态"""

import math
import sys
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Protocol, Self, cast

from gptcore.errors import DataError
from gptcore.kernels.convert import brief


class Scheduler(Protocol):
    """学习率调度：由步数得到学习率。"""

    def step(self, i: int) -> float:
        """第 `i` 步（从 0 数起）的学习率。"""
        ...


@dataclass(frozen=True)
class StepReport:
    """一步训练的结果。

    Attributes:
        step: 第几步，从 0 数起。
        loss: 更新之前这一批的损失。
        lr: 这一步的学习率。
        grad_norm: 裁剪之前梯度的范数。
        tokens: 这一步有多少个词元（标签的个数）。
        skipped: 损失或梯度里有 NaN 或无穷，这一步没有更新。
    """

    step: int
    loss: float
    lr: float
    grad_norm: float
    tokens: int
    skipped: bool = False


@dataclass
class RunState:
    """一次训练的状态：做完多少步，数据取到哪里，评估过几次。它整个存进检查点。

    Attributes:
        step: 做完多少步。
        epoch: 取完了几轮数据。
        position: 这一轮已经取了多少批。
        order_seed: 这一轮打乱次序用的种子；不打乱时是 `None`。
        skipped: 因为 NaN 或无穷跳过了多少步。
        epoch_losses: 完成的每一轮的平均损失。
        evaluations: 每次评估做完的步数与损失。
    """

    step: int = 0
    epoch: int = 0
    position: int = 0
    order_seed: int | None = None
    skipped: int = 0
    epoch_losses: list[float] = field(default_factory=list[float])
    loss_sum: float = 0.0
    loss_steps: int = 0
    evaluations: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])

    @property
    def best(self) -> tuple[int, float] | None:
        """损失最低的那次评估：做完的步数与损失；还没有评估时是 `None`。"""
        finite = [e for e in self.evaluations if math.isfinite(e[1])]
        return min(finite, key=lambda e: e[1]) if finite else None

    def record_loss(self, report: StepReport, epoch_done: bool) -> None:
        """把一步的损失计入这一轮的平均；一轮完成时收进 `epoch_losses`。"""
        if not report.skipped:
            self.loss_sum += report.loss
            self.loss_steps += 1
        if epoch_done:
            mean = self.loss_sum / self.loss_steps if self.loss_steps else math.nan
            self.epoch_losses.append(mean)
            self.loss_sum, self.loss_steps = 0.0, 0

    def to_dict(self) -> dict[str, Any]:
        """可以写成 JSON 的字典。"""
        finite = [x if math.isfinite(x) else None for x in self.epoch_losses]
        return {**asdict(self), "epoch_losses": finite}

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """由 `to_dict` 的结果重建。

        Raises:
            DataError: 缺少或多出项目，或者值不合要求。
        """
        names = {f.name for f in fields(cls)}
        given: dict[str, Any] = cast("Any", values) if isinstance(values, dict) else {}
        if set(given) != names:
            raise DataError(
                f"训练状态应有 {'、'.join(sorted(names))}，这里是 {'、'.join(given)[:200] or brief(values)}；"
                "文件可能被改动过"
            )
        counts = {n: given[n] for n in ("step", "epoch", "position", "skipped", "loss_steps")}
        seed = given["order_seed"]
        wrong = [n for n, v in counts.items() if not _is_count(v)]
        wrong += ["order_seed"] * (seed is not None and not _is_count(seed))
        wrong += ["loss_sum"] * (not _is_number(given["loss_sum"]))
        wrong += ["epoch_losses"] * (not _all(given["epoch_losses"], _is_number_or_none))
        wrong += ["evaluations"] * (not _all(given["evaluations"], _is_evaluation))
        if wrong:
            raise DataError(f"训练状态里的 {'、'.join(wrong)} 不合要求；文件可能被改动过")
        losses = [math.nan if x is None else float(x) for x in given["epoch_losses"]]
        evaluations = [(step, float(loss)) for step, loss in given["evaluations"]]
        rebuilt: dict[str, Any] = {**given, "epoch_losses": losses, "evaluations": evaluations}
        return cls(**rebuilt)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_number(value: Any) -> bool:
    """有限的数；上千位的整数不是，它连小数都变不成。"""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _is_number_or_none(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_evaluation(value: Any) -> bool:
    return _all(value, _is_number) and len(value) == 2 and _is_count(value[0])


def _all(value: Any, check: Any) -> bool:
    return isinstance(value, list) and all(map(check, cast("list[Any]", value)))
