"""参数与参数组：检查，整理"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from gptcore.errors import ArgumentError, DtypeError
from gptcore.optim.checks import require_number
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


def parameter_groups(
    name: str, parameters: Iterable[Any], weight_decay: float
) -> list[ParameterGroup]:
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
        require_number(name, "weight_decay", decay)
        members = {id(p): _require_parameter(name, p) for p in _to_list(name, item["parameters"])}
        for key, p in members.items():
            if seen.setdefault(key, i) != i:
                raise ArgumentError(
                    f"{name}：形状 {p.shape} 的参数同时在第 {seen[key]} 组与第 {i} 组；请只放在一组里"
                )
        if members:
            groups.append(ParameterGroup(list(members.values()), float(decay)))
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
