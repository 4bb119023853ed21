"""把保存的状态写回各个张量"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gptcore.errors import DtypeError, ShapeError
from gptcore.kernels.array import Array
from gptcore.tensor import Tensor

LISTED = 50
"""错误消息里最多列出几处"""


def load_state(
    tensors: list[tuple[str, Tensor]],
    names: dict[str, Tensor],
    state: Mapping[str, Any],
    strict: bool,
    assign: bool = False,
    copy: bool = True,
) -> None:
    """[`Layer.load_state_dict`][gptcore.layers.base.Layer.load_state_dict] 的做法：先全部检查，再写入。

    Args:
        tensors: 每个张量一次，连同它的第一个名字。
        names: 每个名字对应的张量；共用的张量有几个名字。
        state: 名字与数组。
        strict: 是否要求名字恰好一致。
        assign: 用数组的副本代替张量原来的数组，类型随数组；否则写进原来的数组。
        copy: `assign` 时是否复制；只读的、没有对齐的总是复制。

    Raises:
        ShapeError: 有张量缺少、多出、形状不符，或者同一个张量的两个名字数值不同。
        DtypeError: 给出的不是数；`assign` 时不是 float32 或 float64。
    """
    given: Any = state
    if not isinstance(given, Mapping):
        raise DtypeError(
            f"load_state_dict：state 必须是从名字到数组的字典，这里是 {type(state).__name__}；"
            "请给出 state_dict() 的结果"
        )
    arrays = {name: _to_array(name, value) for name, value in state.items()}
    if assign:
        _require_floats(arrays)
    own = {id(tensor) for _, tensor in tensors}
    known = {name: names[name] for name in arrays if id(names.get(name)) in own}
    values: dict[int, Array] = {}
    problems: list[str] = []
    for name, tensor in known.items():
        first = values.setdefault(id(tensor), arrays[name])
        if problem := _mismatch(tensor, arrays[name], first, assign):
            problems.append(f"{name}：{problem}")
    if strict:
        problems += [f"缺少 {n}，形状 {t.shape}" for n, t in tensors if id(t) not in values]
        problems += [f"多出 {n}，形状 {arrays[n].shape}" for n in arrays if n not in known]
    if problems:
        raise ShapeError(
            "load_state_dict：参数对不上，请检查模型的设置是否与保存时相同：\n  "
            + _listed(problems)
        )
    for _, tensor in tensors:
        if id(tensor) in values:
            if assign:
                value = values[id(tensor)]
                usable = value.flags.writeable and value.flags.aligned
                tensor.data = np.array(value) if copy or not usable else value
                tensor.zero_grad()
            else:
                tensor.data[...] = values[id(tensor)]


def _listed(problems: list[str]) -> str:
    """逐行列出；太多时只写前面的。"""
    rest = len(problems) - LISTED
    shown = [problem[:300] for problem in problems[:LISTED]]
    return "\n  ".join([*shown, f"……另有 {rest} 处"] if rest > 0 else shown)


def _require_floats(arrays: dict[str, Array]) -> None:
    wrong = [
        f"{name}：{a.dtype}" for name, a in arrays.items() if a.dtype.str[1:] not in ("f4", "f8")
    ]
    if wrong:
        raise DtypeError(
            "load_state_dict：参数只能是浮点类型 float32 或 float64，这里有\n  " + _listed(wrong)
        )


def _mismatch(tensor: Tensor, array: Array, first: Array, assign: bool) -> str:
    """一个数组与张量有什么对不上，没有时是空的；`first` 是同一个张量的另一个名字给出的数组。"""
    if array.shape != tensor.shape:
        return f"参数形状 {tensor.shape}，给出的形状 {array.shape}"
    if not (assign or tensor.data.flags.writeable):
        return "参数的数组是只读的，不能写入"
    if first is not array and not np.array_equal(first, array, equal_nan=True):
        return "它与另一个名字是同一个张量，给出的数值却不同"
    return ""


def _to_array(name: str, value: Any) -> Array:
    """`load_state_dict` 得到的一个值，必须是数的数组。"""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise DtypeError(f"load_state_dict：{name} 不能变成数组，请给出 NumPy 数组") from error
    if array.dtype.kind not in "fiub":
        raise DtypeError(
            f"load_state_dict：{name} 的类型是 {array.dtype}，必须是数；请给出 state_dict() 里的数组"
        )
    return array
