"""各个进程应当处处相同的东西：设置、数据、参数；用一个校验和来比"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gptcore.distributed.channel import Records
from gptcore.errors import DistributedError
from gptcore.kernels.array import Array
from gptcore.training.checkpoints import Loaded
from gptcore.training.state import RunState

if TYPE_CHECKING:
    from gptcore.training import Trainer


def different(records: Records) -> list[int]:
    """哪些进程的校验和或步数与第 0 个的不同。"""
    checks, steps = records["checksum"].tolist(), records["step"].tolist()
    pairs = list(zip(checks, steps, strict=True))
    return [rank for rank, pair in enumerate(pairs) if pair != pairs[0]]


def require_same(records: Records, what: str, remedy: str) -> None:
    """各个进程的记录里，校验和与步数都和第 0 个的相同。

    Args:
        records: 各个进程的记录。
        what: 比的是什么，写进消息。
        remedy: 不同时该怎么办。

    Raises:
        DistributedError: 有的进程不同；消息写出是第几个。
    """
    if wrong := [str(rank) for rank in different(records)]:
        raise DistributedError(
            f"{what}：第 {'、'.join(wrong)} 个进程的与第 0 个进程的不同；{remedy}"
        )


def require_equal_parameters(records: Records, step: int) -> None:
    """各个进程的参数逐位相同。

    Args:
        records: 各个进程的记录，校验和是参数的。
        step: 做完了多少步。

    Raises:
        DistributedError: 有的进程不同。
    """
    require_same(
        records,
        f"做完 {step} 步之后的参数",
        "参数应当处处相同：请检查有没有只在一个进程上改动参数的代码，"
        "各台机器的 NumPy、BLAS 与处理器是否相同",
    )


def parameters_checksum(trainer: Trainer) -> int:
    """参数全部字节的 CRC-32；每秒约一 GB。"""
    return _checksum(trainer.model.state_dict().values())


def dump_settings(trainer: Trainer) -> str:
    """各个进程应当相同的设置，说法与内容，写成 JSON。"""
    parameters: list[Any] = list(trainer.optimizer.parameters)
    found: dict[str, Any] = {
        "参数的形状或类型": [
            [(p.shape, p.dtype.str, p.requires_grad) for p in parameters],
            sorted((name, a.shape) for name, a in trainer.model.state_dict().items()),
        ],
        "优化器的设置": trainer.optimizer.settings,
        "裁剪梯度的上限 max_norm": trainer.max_norm,
        "累积的次数 accumulation_steps": trainer.accumulation_steps,
        "可以跳过的步数 skip_nonfinite": trainer.skip_nonfinite,
        "总步数": trainer.total_steps,
        "合成一批的批数": trainer.parts,
        "数据": trainer.data_record,
        "做完的步数": trainer.state.step,
    }
    return json.dumps(found, sort_keys=True, default=str)


def text_checksum(text: str) -> int:
    """一段文字的 CRC-32。"""
    return zlib.crc32(text.encode())


def differing(texts: list[str]) -> str:
    """有进程与第 0 个进程不同的设置，列出它们的说法。

    Args:
        texts: 各个进程的 `dump_settings`。
    """
    first, *others = [json.loads(text) for text in texts]
    return "、".join(name for name in first if any(other[name] != first[name] for other in others))


def shared_arrays(trainer: Trainer) -> list[Array]:
    """各个进程应当相同的数组：模型的参数与优化器的状态，不是副本。"""
    arrays = list(trainer.model.state_dict().values())
    known = {id(a) for a in arrays}
    arrays += [p.data for p in trainer.optimizer.parameters if id(p.data) not in known]
    return [*arrays, *trainer.optimizer.state_arrays().values()]


def dump_loaded(loaded: Loaded | None) -> str:
    """读入的检查点的状态，写成 JSON，传给别的进程。"""
    if loaded is None:
        return "null"
    path, run = str(loaded.path), loaded.run.to_dict()
    return json.dumps([path, run, loaded.data, loaded.parts, loaded.generators])


def parse_loaded(text: str) -> Loaded | None:
    """`dump_loaded` 的结果变回来。"""
    given: Any = json.loads(text)
    if given is None:
        return None
    path, run, data, parts, generators = given
    return Loaded(Path(path), RunState.from_dict(run), data, parts, generators)


def _checksum(arrays: Iterable[Array]) -> int:
    total = 0
    for array in arrays:
        content: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        total = zlib.crc32(content, total)
    return total
