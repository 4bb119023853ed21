"""训练器的参数检查"""

import math
from collections.abc import Iterable
from typing import Any, cast

from gptcore.errors import ArgumentError, DtypeError
from gptcore.kernels.convert import brief
from gptcore.layers import Layer
from gptcore.losses import Loss
from gptcore.optim import Optimizer
from gptcore.optim.checks import as_float
from gptcore.training.callbacks import Callback, in_order
from gptcore.training.state import RunState

ROLES: dict[str, type] = {"model": Layer, "loss_fn": Loss, "optimizer": Optimizer}
"""训练器的三个参数各是什么；不是这几种的（例如自己写的损失函数）不管"""
MOMENTS = ("on_start", "on_step", "on_evaluation", "on_end", "close")
"""回调的各个时刻"""


def require_dataset(name: str, dataset: Any) -> None:
    """数据集要能切换训练集与测试集、能按批取用；不必是 `Dataset` 的子类。"""
    needed = ("train", "eval", "__len__", "__getitem__")
    if isinstance(dataset, type) or not all(hasattr(dataset, n) for n in needed):
        raise DtypeError(
            f"{name}：dataset 必须是数据集，这里是 {str(dataset)[:60]}；"
            "请给出 Dataset 的子类的对象，例如 CharDataset(文件名)"
        )


def require_objects(owner: str, **given: Any) -> None:
    """各个参数必须是对象，不能是类或 `None`。"""
    for name, value in given.items():
        if isinstance(value, type):
            raise DtypeError(
                f"{owner}：{name} 必须是对象，这里是类 {value.__name__}；请写 {value.__name__}(…)"
            )
        if value is None:
            raise DtypeError(f"{owner}：{name} 不能是 None；请给出对象")
        found = next((n for n, wanted in ROLES.items() if isinstance(value, wanted)), name)
        if found != name:
            raise DtypeError(
                f"{owner}：{name} 的位置上是{_named(value)}，它是 {found}；"
                f"次序是 {'、'.join(given)}，写成 {found}=… 就不会错"
            )


def require_max_norm(owner: str, max_norm: Any) -> None:
    """梯度范数的上限是正数，或者 `None`；0 看起来像“不裁剪”，也像“裁剪到 0”，所以不收。"""
    if max_norm is not None and not 0 < as_float(max_norm) < math.inf:
        raise ArgumentError(
            f"{owner}：max_norm 必须是正数，这里是 {brief(max_norm)}；不裁剪请写 max_norm=None"
        )


def require_arguments(name: str, dataset: Any, scheduler: Any, callbacks: Any) -> list[Callback]:
    """`steps` 与 `train` 共同的参数；返回各个回调，按调用的次序。"""
    require_dataset(name, dataset)
    if scheduler is not None:
        _require_scheduler(name, scheduler)
    if not isinstance(callbacks, Iterable):
        raise DtypeError(
            f"{name}：callbacks 必须是一列回调，这里是{_named(callbacks)}；"
            "只有一个也要写成列表，例如 callbacks=[Evaluate(500)]"
        )
    given = list(cast("Iterable[Any]", callbacks))
    for callback in given:
        if isinstance(callback, type) or not all(hasattr(callback, n) for n in MOMENTS):
            raise DtypeError(
                f"{name}：callbacks 里的{_named(callback)} 不是回调；"
                "请给出 Callback 的子类的对象，例如 Evaluate(500)"
            )
    return in_order(given)


def require_current(now: RunState, state: RunState) -> None:
    """训练器手里的还是这一次训练；否则再训练、再保存，都会把两次混在一起。"""
    if now is not state:
        raise ArgumentError(
            "steps：这个训练器在途中又开始了一次训练，或者 resume 过，原来的这一次不能再继续；"
            "请先做完或放弃一次，再开始另一次，在回调里请用另一个训练器"
        )


def _require_scheduler(name: str, scheduler: Any) -> None:
    """学习率调度要有 `step(i)`；优化器也有 `step`，但那是更新参数。"""
    wrong = isinstance(scheduler, type | Optimizer)
    if wrong or not callable(getattr(scheduler, "step", None)):
        raise DtypeError(
            f"{name}：scheduler 必须是学习率调度，这里是{_named(scheduler)}；"
            "请写例如 ConstantScheduler(1e-3)，学习率不变时不必给"
        )


def require_strategy(owner: str, distributed: Any) -> None:
    """`distributed` 是 `None`，或者 `DataParallel` 这样的对象。"""
    needed = ("rank", "size", "guard", "backward", "notify")
    if distributed is not None and (
        isinstance(distributed, type) or not all(hasattr(distributed, n) for n in needed)
    ):
        raise DtypeError(
            f"{owner}：distributed 必须是 DataParallel 的对象，这里是{_named(distributed)}；"
            "请写 distributed=DataParallel()"
        )


def require_parameters(name: str, model: Layer, optimizer: Optimizer) -> None:
    """优化器里至少有一个参数是这个模型的；视图算它原来的张量。"""
    known, updated = (
        {id(p if p.view_of is None else p.view_of) for p in owner.parameters}
        for owner in (model, optimizer)
    )
    if known and not known & updated:
        raise ArgumentError(
            f"{name}：优化器里没有这个模型的参数，它更新的是别的模型；"
            "请用这个模型的参数建立优化器，例如 AdamWOptimizer(model.parameters)"
        )


def _named(value: Any) -> str:
    """错误消息里怎样称呼一个值：类、简单的值，或者某个类的对象。"""
    if isinstance(value, type):
        return f"类 {value.__name__}"
    plain = value is None or isinstance(value, str | int | float)
    return f" {brief(value) if plain else type(value).__name__}"
