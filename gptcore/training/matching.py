"""接着训练之前的检查：检查点与训练器是不是处处相符；只看，不写"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from gptcore.errors import ArgumentError, DataError, DtypeError, ShapeError
from gptcore.kernels.array import Array
from gptcore.kernels.convert import brief
from gptcore.layers import Layer
from gptcore.models import GPT
from gptcore.random import set_generator_state

KEYS = {"run", "data", "accumulation_steps", "settings", "generators", "environment"}
OPTIONAL = {"processes"}
"""几个进程的训练才有的"""
LISTED = 10
"""错误消息里最多列出几处"""


def parse_state(value: Any, name: str) -> dict[str, Any]:
    """训练状态的各项是否齐全。

    Args:
        value: 读回的 JSON。
        name: 文件的名字，写进消息。

    Raises:
        DataError: 缺少或多出项目，或者类型不对。
    """
    if not isinstance(value, dict) or set(cast("dict[str, Any]", value)) - OPTIONAL != KEYS:
        raise DataError(f"{name} 里应有 {'、'.join(sorted(KEYS))}；文件可能被改动过")
    state = cast("dict[str, Any]", value)
    if not isinstance(state["generators"], dict):
        raise DataError(f"{name} 里的 generators 不是字典；文件可能被改动过")
    if not isinstance(state["data"], dict | None):
        raise DataError(f"{name} 里的 data 不是字典；文件可能被改动过")
    return state


def parse_processes(value: Any) -> tuple[int, list[Any]]:
    """几批合成训练的一批，与第 0 个之外各个进程的生成器；一个进程的训练没有记，是 1 与空的。

    Args:
        value: 训练状态里的 `processes`。

    Raises:
        DataError: 不合要求。
    """
    if value is None:
        return 1, []
    given = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    parts, others = given.get("parts"), given.get("others")
    if type(parts) is not int or not 0 < parts < 2**31 or not isinstance(others, list):
        raise DataError("训练状态里的 processes 不合要求；文件可能被改动过")
    return parts, cast("list[Any]", others)


def require_accumulation(saved: Any, now: int) -> None:
    """`accumulation_steps` 与保存时相同。"""
    if saved != now:
        raise ArgumentError(
            f"resume：检查点的 accumulation_steps 是 {brief(saved)}，现在是 {now}；"
            "请用与保存时相同的设置，否则数据的位置对不上"
        )


def require_config(saved: Any, model: Layer) -> None:
    """模型的设置与保存时相同；头数、随机失活不同时，参数的形状看不出来。"""
    if not isinstance(saved, dict):
        raise DataError("resume：检查点里模型的设置不是字典；文件可能被改动过")
    before = cast("dict[str, Any]", saved)
    now = model.config if isinstance(model, GPT) else {}
    changed = [
        f"{key} 原来是 {brief(before[key])}，现在是 {value!r}"
        for key, value in now.items()
        if key in before and before[key] != value
    ]
    if changed:
        raise ArgumentError(
            f"resume：模型的设置与检查点里的不同：{'；'.join(changed)}；请用原来的设置建立模型，"
            "或者用 load_model 只读参数，从头训练"
        )


def require_weights(weights: Mapping[str, Array], model: Layer) -> None:
    """参数的名字、形状与类型都与模型的相同。"""
    own = model.state_dict()
    shapes = [f"缺少 {name}，形状 {own[name].shape}" for name in own if name not in weights]
    dtypes: list[str] = []
    for name, array in weights.items():
        if name not in own:
            shapes.append(f"多出 {name[:200]}，形状 {array.shape}")
        elif array.shape != own[name].shape:
            shapes.append(f"{name}：模型的形状 {own[name].shape}，检查点里的形状 {array.shape}")
        elif array.dtype != own[name].dtype:
            dtypes.append(f"{name}：模型的类型 {own[name].dtype}，检查点里的类型 {array.dtype}")
    if problems := [*shapes, *dtypes]:
        more = f"\n  ……共 {len(problems)} 处" if len(problems) > LISTED else ""
        raise (ShapeError if shapes else DtypeError)(
            "resume：模型的参数与检查点里的对不上，请用与保存时相同的设置建立模型：\n  "
            + "\n  ".join(problems[:LISTED])
            + more
        )


def require_generators(saved: Any, generators: Mapping[str, np.random.Generator]) -> None:
    """生成器的名字与种类都与训练器的相同，状态可以读回；默认的那一个留到写入时检查。"""
    names = ["default", *generators]
    if not isinstance(saved, dict):
        raise DataError("训练状态里的生成器不是字典；文件可能被改动过")
    saved = cast("dict[str, Any]", saved)
    if set(saved) != set(names):
        raise ArgumentError(
            f"resume：检查点里的随机数生成器是 {'、'.join(saved)[:200]}，"
            f"训练器的是 {'、'.join(names)}；请用与保存时相同的 rng 设置"
        )
    for name, rng in generators.items():
        trial: Any = type(rng.bit_generator)
        set_generator_state(np.random.Generator(trial(0)), saved[name])


def report_changes(
    folder: Path, different: list[str], settings_before: Any, settings: dict[str, Any]
) -> None:
    """环境或优化器的设置变了就警告：可以接着训练，但与不中断的那一次不再相同。"""
    different = list(different)
    before = cast("dict[str, Any]", settings_before if isinstance(settings_before, dict) else {})
    different += [
        f"{key} 由 {brief(before.get(key))} 变成 {value}"
        for key, value in settings.items()
        if before.get(key) != value
    ]
    if different:
        warnings.warn(
            f"从 {folder} 接着训练：{'；'.join(different)}。训练可以继续，"
            "但结果不再与不中断的那一次逐位相同",
            stacklevel=6,
        )
