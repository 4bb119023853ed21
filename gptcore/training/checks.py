"""训练器的参数检查"""

from typing import Any

from gptcore.errors import ArgumentError, DtypeError
from gptcore.layers import Layer
from gptcore.optim import Optimizer


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
