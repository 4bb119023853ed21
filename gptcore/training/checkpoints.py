"""检查点：训练到某一步的全部状态，存成一个文件夹

一个检查点是一个文件夹：

- `model.safetensors`、`config.json`、`tokenizer.json`：与 [`save_model`][gptcore.models.storage.save_model] 相同，
  所以检查点也是模型文件夹，可以直接 `load_model`；
- `training_state.safetensors`：优化器的矩；
- `training_state.json`：步数、轮数、数据取到哪里、各个随机数生成器的状态、评估的历史、环境；
- `manifest.json`：以上各文件的 SHA-256。它出现的那一刻检查点才算存在，对不上的绝不读入。

没有 pickle。保存不抽取随机数，所以存不存、存几次，都不改变训练的结果。
"""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gptcore.data import Tokenizer
from gptcore.errors import ArgumentError, DataError, GptcoreError, NonFiniteError
from gptcore.models import GPT
from gptcore.models.generation import require_count
from gptcore.models.storage import CONFIG, TOKENIZER, WEIGHTS
from gptcore.random import (
    default_generator_state,
    generator_state,
    set_default_generator_state,
    set_generator_state,
)
from gptcore.serialization import (
    MANIFEST,
    dump_arrays,
    dump_json,
    load_folder,
    parse_arrays,
    parse_json,
    save_folder,
)
from gptcore.training.callbacks import Callback
from gptcore.training.environment import changes, environment
from gptcore.training.evaluation import Evaluation
from gptcore.training.interrupts import Interrupts
from gptcore.training.nonfinite import nonfinite_parameter
from gptcore.training.state import RunState, StepReport

if TYPE_CHECKING:
    from gptcore.training.trainer import Trainer

STATE, MOMENTS = "training_state.json", "training_state.safetensors"
BEST = "best"


def save_checkpoint(trainer: Trainer, folder: Path) -> None:
    """把训练器此刻的状态存成检查点。

    Args:
        trainer: 训练器。
        folder: 文件夹，不存在时建立；已有检查点时原子地替换。

    Raises:
        NonFiniteError: 参数里有 NaN 或无穷；这样的状态不保存。
        DataError: 写不进去；已有的检查点不受影响。
    """
    if found := nonfinite_parameter(trainer.model):
        raise NonFiniteError(f"save_checkpoint：第 {trainer.state.step} 步之后{found}，没有保存")
    state = {
        "run": trainer.state.to_dict(),
        "data": trainer.data_record,
        "accumulation_steps": trainer.accumulation_steps,
        "generators": {
            "default": default_generator_state(),
            **{name: generator_state(rng) for name, rng in _generators(trainer)},
        },
        "environment": environment(),
    }
    files = _model_files(trainer)
    files[MOMENTS] = dump_arrays(trainer.optimizer.state_dict())
    files[STATE] = dump_json(state)
    save_folder(folder, files)


def load_checkpoint(trainer: Trainer, folder: Path) -> RunState:
    """把检查点读进训练器：参数、优化器、各个生成器；返回它的训练状态。

    Args:
        trainer: 训练器，模型与优化器的设置要与保存时相同。
        folder: 检查点。

    Raises:
        DataError: 不是完整的检查点，或者由更新的版本写成。
        ShapeError: 模型或优化器与检查点里的对不上。
    """
    files = load_folder(folder, (WEIGHTS, MOMENTS, STATE))
    try:
        state = _parse_state(parse_json(files[STATE], folder / STATE))
        run = RunState.from_dict(state["run"])
        moments = parse_arrays(files[MOMENTS], folder / MOMENTS)
        weights = parse_arrays(files[WEIGHTS], folder / WEIGHTS)
        generators = dict(_generators(trainer))
        saved = state["generators"]
        if set(saved) != {"default", *generators}:
            raise ArgumentError(
                f"resume：检查点里的随机数生成器是 {'、'.join(saved)}，训练器的是 "
                f"{'、'.join(['default', *generators])}；请用与保存时相同的 rng 设置"
            )
        _require_accumulation(state["accumulation_steps"], trainer.accumulation_steps)
        trainer.model.load_state_dict(weights)
        trainer.optimizer.load_state_dict(moments)
        for name, rng in generators.items():
            set_generator_state(rng, saved[name])
        set_default_generator_state(saved["default"])
    except GptcoreError as error:
        error.add_note(f"检查点 {folder}")
        raise
    different = changes(state["environment"], environment())
    if different:
        warnings.warn(
            f"从 {folder} 接着训练：{'；'.join(different)}。训练可以继续，"
            "但结果不再与不中断的那一次逐位相同",
            stacklevel=3,
        )
    trainer.saved_data = state["data"]
    return run


class Checkpoints(Callback):
    """每隔若干步存一个检查点 `step-步数`，只留最近几个；另把评估最好的模型存进 `best`。

    训练正常结束、被 Ctrl-C 或 SIGTERM 中断时也保存一个：第一次 Ctrl-C 先做完手里的一步、保存，再抛出
    `KeyboardInterrupt`；第二次立即中断。接着训练用 [`Trainer.resume`][gptcore.training.trainer.Trainer.resume]。

    Args:
        folder: 检查点放在哪个文件夹里。
        every: 每隔多少步保存一次。
        keep: 留最近几个。
        announce: 收到 Ctrl-C、开始保存时调用，例如告诉用户稍等。

    Example:
        >>> checkpoints = Checkpoints("run", every=500)
        >>> history = trainer.train(dataset, epochs=2, callbacks=[checkpoints])
    """

    def __init__(
        self,
        folder: str | Path,
        every: int = 500,
        keep: int = 3,
        announce: Callable[[], None] | None = None,
    ) -> None:
        require_count("Checkpoints", "every", every, 1)
        require_count("Checkpoints", "keep", keep, 1)
        self.folder, self.every, self.keep = Path(folder), every, keep
        self._interrupts = Interrupts(announce)
        self._saved: int | None = None

    def on_start(self, trainer: Trainer) -> None:
        """从头训练时，文件夹里不能已有检查点：新的步数小，会与旧的混在一起。"""
        step, found = trainer.state.step, find_checkpoints(self.folder)
        if found and step == 0:
            raise ArgumentError(
                f"Checkpoints：{self.folder} 里已有检查点 {found[-1].name}；"
                f"要接着训练，请先 trainer.resume({str(self.folder)!r})；要从头训练，请换一个文件夹，或删去旧的"
            )
        for path in found:
            if step_of(path) > step:  # 从较早的一个接着训练：后面的属于另一次，让开，不删
                path.rename(path.with_name(f"old-{os.urandom(4).hex()}-{path.name}"))
        self._saved = step if any(step_of(path) == step for path in found) else None
        self._interrupts.watch()

    def on_step(self, trainer: Trainer, report: StepReport) -> None:
        """到时候、或者收到信号时保存。"""
        if trainer.state.step % self.every == 0 or self._interrupts.received is not None:
            self.save(trainer)
            self._interrupts.raise_again()

    def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
        """目前最好的模型另存一份。"""
        if trainer.state.best == (evaluation.step, evaluation.loss):
            save_folder(self.folder / BEST, _model_files(trainer))

    def on_end(self, trainer: Trainer) -> None:
        """保存最后的状态。"""
        if trainer.state.step not in (0, self._saved):
            self.save(trainer)

    def close(self, trainer: Trainer) -> None:
        """恢复原来处理信号的办法。"""
        self._interrupts.release()

    def save(self, trainer: Trainer) -> Path:
        """立即保存一个检查点，并删去最旧的几个。

        Returns:
            检查点的文件夹。
        """
        path = self.folder / f"step-{trainer.state.step:08d}"
        save_checkpoint(trainer, path)
        self._saved = trainer.state.step
        trainer.checkpoint = path
        for old in find_checkpoints(self.folder)[: -self.keep]:
            (old / MANIFEST).unlink(missing_ok=True)  # 先使它不再是检查点，删到一半也不会被误认
            shutil.rmtree(old, ignore_errors=True)
        return path


def find_checkpoints(folder: Path) -> list[Path]:
    """文件夹里的检查点，从旧到新；写到一半的（还没有清单）不算。"""
    if not folder.is_dir():
        return []
    found = [p for p in folder.iterdir() if re.fullmatch(r"step-\d{8,}", p.name)]
    complete = [p for p in found if (p / MANIFEST).is_file()]
    return sorted(complete, key=step_of)


def step_of(path: Path) -> int:
    """检查点的文件夹名 `step-00000500` → 500。"""
    return int(path.name.removeprefix("step-"))


def newest_first(folder: Path) -> list[Path]:
    """可以从哪里接着训练：它自己是检查点就是它，否则是里面的各个检查点，从新到旧。

    Raises:
        DataError: 里面没有检查点。
    """
    if (folder / MANIFEST).is_file() and (folder / STATE).is_file():
        return [folder]
    found = find_checkpoints(folder)
    if not found:
        raise DataError(
            f"resume：{folder} 里没有检查点；请给出 Checkpoints 写成的文件夹，"
            "里面应有 step-00000500 这样的文件夹"
        )
    return found[::-1]


def _model_files(trainer: Trainer) -> dict[str, bytes]:
    """模型的各个文件；不是 GPT 的模型只有参数。"""
    files = {WEIGHTS: dump_arrays(trainer.model.state_dict())}
    tokenizer: Any = getattr(trainer.dataset, "tokenizer", None)
    if isinstance(trainer.model, GPT):
        files[CONFIG] = dump_json(trainer.model.config)
    if isinstance(tokenizer, Tokenizer):
        files[TOKENIZER] = dump_json(tokenizer.to_dict())
    return files


def _generators(trainer: Trainer) -> Iterator[tuple[str, np.random.Generator]]:
    """训练会用到的各个生成器与名字：训练器的与各层的；同一个只列一次。"""
    owners: list[tuple[str, Any]] = [("trainer", trainer)]
    owners += [(f"model.{n}" if n else "model", v) for n, v in trainer.model.named_sublayers()]
    seen: set[int] = set()
    for prefix, owner in owners:
        for name, value in cast("dict[str, Any]", vars(owner)).items():
            if isinstance(value, np.random.Generator) and id(value.bit_generator) not in seen:
                seen.add(id(value.bit_generator))
                yield f"{prefix}.{name}", value


def _parse_state(value: Any) -> dict[str, Any]:
    keys = {"run", "data", "accumulation_steps", "generators", "environment"}
    if not isinstance(value, dict) or set(cast("dict[str, Any]", value)) != keys:
        raise DataError(f"{STATE} 里应有 {'、'.join(sorted(keys))}；文件可能被改动过")
    state = cast("dict[str, Any]", value)
    if not isinstance(state["generators"], dict):
        raise DataError(f"{STATE} 里的 generators 不是字典；文件可能被改动过")
    return state


def _require_accumulation(saved: Any, now: int) -> None:
    if saved != now:
        raise ArgumentError(
            f"resume：检查点的 accumulation_steps 是 {saved}，现在是 {now}；"
            "请用与保存时相同的设置，否则数据的位置对不上"
        )
