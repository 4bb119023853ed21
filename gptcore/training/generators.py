"""训练用到的各个随机数生成器：取出状态，恢复，给每个进程一串自己的随机数"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gptcore.random import (
    default_generator_state,
    generator_state,
    set_default_generator_state,
    set_generator_state,
)

if TYPE_CHECKING:
    from gptcore.training.trainer import Trainer

States = dict[str, dict[str, Any]]
"""各个生成器的名字与状态，可以写成 JSON"""


def named_generators(trainer: Trainer) -> Iterator[tuple[str, np.random.Generator]]:
    """训练会用到的各个生成器与名字：训练器的与各层的；同一个只列一次，默认的那一个不在内。"""
    owners: list[tuple[str, Any]] = [("trainer", trainer)]
    owners += [(f"model.{n}" if n else "model", v) for n, v in trainer.model.named_sublayers()]
    seen: set[int] = set()
    for prefix, owner in owners:
        for name, value in cast("dict[str, Any]", vars(owner)).items():
            if isinstance(value, np.random.Generator) and id(value.bit_generator) not in seen:
                seen.add(id(value.bit_generator))
                yield f"{prefix}.{name}", value


def capture(trainer: Trainer) -> States:
    """此刻各个生成器的状态，连同默认的那一个；不抽取随机数。"""
    states = {"default": default_generator_state()}
    return states | {name: generator_state(rng) for name, rng in named_generators(trainer)}


def restore(trainer: Trainer, states: Mapping[str, Any]) -> None:
    """恢复 `capture` 取出的状态；默认生成器的状态在写入时检查，所以最先写。"""
    set_default_generator_state(states["default"])
    for name, rng in named_generators(trainer):
        set_generator_state(rng, states[name])


def derive(states: Mapping[str, Any], rank: int) -> States:
    r"""由第 0 个进程的状态得到第 `rank` 个进程的：种类相同，抽出的数互不相干。

    新的种子是原来的状态（写成 JSON）的 SHA-256 与 `rank`，交给 NumPy 的 `SeedSequence`，
    它保证不同的 `spawn_key` 得到独立的序列。所以同样的种子、同样的进程数，每次都得到同样的随机数。

    Args:
        states: 第 0 个进程的各个状态。
        rank: 第几个进程；0 就是原来的状态。

    Returns:
        各个状态。
    """
    return {name: _derived(state, rank) if rank else state for name, state in states.items()}


def _derived(state: dict[str, Any], rank: int) -> dict[str, Any]:
    digest = hashlib.sha256(json.dumps(state, sort_keys=True).encode()).digest()
    seed = np.random.SeedSequence(int.from_bytes(digest), spawn_key=(rank,))
    kind: Any = getattr(np.random, state["bit_generator"])
    new = generator_state(np.random.Generator(kind(seed)))
    if "has_gauss" in state:  # 默认的生成器另有一个留着的正态数
        new |= {"has_gauss": 0, "gauss": 0.0}
    return new
