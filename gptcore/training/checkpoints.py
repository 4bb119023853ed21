"""检查点：训练到某一步的全部状态，存成一个文件夹

一个检查点是一个文件夹：

- `model.safetensors`、`config.json`、`tokenizer.json`：与 [`save_model`][gptcore.models.storage.save_model] 相同，
  所以检查点也是模型文件夹，可以直接 `load_model`；
- `training_state.safetensors`：优化器的矩；
- `training_state.json`：步数、轮数、数据取到哪里、各个随机数生成器的状态（几个进程时是每个进程的）、评估的历史、
  设置与环境；
- `manifest.json`：以上各文件的 SHA-256。它出现的那一刻检查点才算存在，对不上的绝不读入。

没有 pickle。保存不抽取随机数，所以存不存、存几次，都不改变训练的结果。
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptcore.data import Tokenizer
from gptcore.errors import ArgumentError, DataError, GptcoreError, NonFiniteError
from gptcore.models import GPT
from gptcore.models.generation import require_count
from gptcore.models.storage import CONFIG, TOKENIZER, WEIGHTS
from gptcore.optim.state import require_state
from gptcore.random import default_generator_state, set_default_generator_state
from gptcore.serialization import (
    MANIFEST,
    dump_arrays,
    dump_json,
    load_folder,
    parse_arrays,
    parse_json,
    read_bytes,
    save_folder,
)
from gptcore.serialization.single import as_path, unreadable, unwritable
from gptcore.training.callbacks import Callback
from gptcore.training.environment import changes
from gptcore.training.evaluation import Evaluation
from gptcore.training.generators import States, capture, named_generators, restore
from gptcore.training.interrupts import Interrupts
from gptcore.training.matching import (
    parse_processes,
    parse_state,
    report_changes,
    require_accumulation,
    require_config,
    require_generators,
    require_weights,
)
from gptcore.training.nonfinite import nonfinite_parameter
from gptcore.training.state import RunState, StepReport

if TYPE_CHECKING:
    from gptcore.training.trainer import Trainer

STATE, MOMENTS = "training_state.json", "training_state.safetensors"
BEST = "best"


@dataclass(frozen=True)
class Loaded:
    """读入的检查点里，参数与优化器之外的状态。

    Attributes:
        path: 检查点。
        run: 训练的状态。
        data: 数据的指纹。
        parts: 数据集的几批合成训练的一批，即开始训练时的进程数。
        generators: 保存时每个进程的各个生成器的状态。
    """

    path: Path
    run: RunState
    data: Any
    parts: int
    generators: list[States]


def save_checkpoint(trainer: Trainer, folder: Path) -> Path:
    """把训练器此刻的状态存成检查点。

    Args:
        trainer: 训练器。
        folder: 文件夹，不存在时建立；已有检查点时原子地替换。

    Returns:
        文件夹。

    Raises:
        NonFiniteError: 参数里有 NaN 或无穷；这样的状态不保存。
        DataError: 写不进去；已有的检查点不受影响。
    """
    others = trainer.strategy.other_states(trainer)
    if found := nonfinite_parameter(trainer.model):
        raise NonFiniteError(f"save_checkpoint：第 {trainer.state.step} 步之后{found}，没有保存")
    state = {
        "run": trainer.state.to_dict(),
        "data": trainer.data_record,
        "accumulation_steps": trainer.accumulation_steps,
        "settings": _settings(trainer),
        "generators": capture(trainer),
        "environment": trainer.strategy.environment(),
    }
    if others or trainer.parts > 1:
        state["processes"] = {"parts": trainer.parts, "others": others}
    files = _model_files(trainer)
    files[MOMENTS] = dump_arrays(trainer.optimizer.state_dict())
    files[STATE] = dump_json(state)
    save_folder(folder, files)
    return folder


def load_checkpoint(trainer: Trainer, folder: Path) -> Loaded:
    """把检查点读进训练器：参数、优化器、各个生成器；返回其余的状态。

    先全部检查，再写入：被拒绝的检查点不改动训练器与任何生成器。

    Args:
        trainer: 训练器，模型与优化器的设置要与保存时相同。
        folder: 检查点。

    Raises:
        DataError: 不是完整的检查点，或者由更新的版本写成。
        ArgumentError: 训练器的设置与保存时不同。
        ShapeError: 模型或优化器与检查点里的对不上。
    """
    files = load_folder(folder, _listed(folder))
    try:
        state = parse_state(parse_json(files[STATE], folder / STATE), STATE)
        run = RunState.from_dict(state["run"])
        weights = parse_arrays(files[WEIGHTS], folder / WEIGHTS)
        moments = parse_arrays(files[MOMENTS], folder / MOMENTS)
        generators = dict(named_generators(trainer))
        require_accumulation(state["accumulation_steps"], trainer.accumulation_steps)
        if CONFIG in files:
            require_config(parse_json(files[CONFIG], folder / CONFIG), trainer.model)
        require_weights(weights, trainer.model)
        require_state("resume", moments, trainer.optimizer.state_arrays())
        parts, others = parse_processes(state.get("processes"))
        for saved in (state["generators"], *others):
            require_generators(saved, generators)
        now = trainer.strategy.environment()
        changed = changes(state["environment"], now)
        report_changes(folder, changed, state["settings"], _settings(trainer))
        _restore(trainer, weights, moments, state["generators"])
    except GptcoreError as error:
        error.add_note(f"检查点 {folder}")
        raise
    return Loaded(folder, run, state["data"], parts, [state["generators"], *others])


def _listed(folder: Path) -> list[str]:
    """要读的文件：必有的三个，以及清单里的设置与词表，它们对不上也算损坏。"""
    manifest = read_bytes(folder / MANIFEST, 1 << 20)
    more = [name for name in (CONFIG, TOKENIZER) if f'"{name}"'.encode() in manifest]
    return [STATE, WEIGHTS, MOMENTS, *more]


def _restore(
    trainer: Trainer, weights: dict[str, Any], moments: dict[str, Any], saved: States
) -> None:
    """写入；默认生成器的状态在写入时检查，所以最先写，后面万一出错就换回去。"""
    before = default_generator_state()
    set_default_generator_state(saved["default"])
    try:
        trainer.model.load_state_dict(weights)
        trainer.optimizer.load_state_dict(moments)
        restore(trainer, saved)
    except BaseException:
        set_default_generator_state(before)
        raise


class Checkpoints(Callback):
    """每隔若干步存一个检查点 `step-步数`，只留最近几个；另把评估最好的模型存进 `best`。

    训练正常结束、被 Ctrl-C、SIGTERM 或 SIGHUP 中断时也保存一个：第一次 Ctrl-C 先做完手里的一步、保存，再抛出
    `KeyboardInterrupt`；第二次立即中断。接着训练用 [`Trainer.resume`][gptcore.training.trainer.Trainer.resume]。

    Args:
        folder: 检查点放在哪个文件夹里。
        every: 每隔多少步保存一次。
        keep: 留最近几个。
        announce: 收到 Ctrl-C、开始保存时调用，例如告诉用户稍等。

    Examples:
        >>> checkpoints = Checkpoints("run", every=500)
        >>> history = trainer.train(dataset, epochs=2, callbacks=[checkpoints])
    """

    comes_last = True

    def __init__(
        self,
        folder: str | Path,
        every: int = 500,
        keep: int = 3,
        announce: Callable[[], None] | None = None,
    ) -> None:
        require_count("Checkpoints", "every", every, 1)
        require_count("Checkpoints", "keep", keep, 1)
        self.folder = as_path("Checkpoints", "folder", folder)
        self.every, self.keep = every, keep
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
        try:  # 写不进去的，现在就说，不等到几百步之后
            self.folder.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:  # ValueError：路径里有 NUL
            raise unwritable(self.folder, error) from error
        for path in found:
            if step_of(path) > step:  # 从较早的一个接着训练：后面的属于另一次，让开，不删
                aside = path.with_name(f"old-{os.urandom(4).hex()}-{path.name}")
                try:
                    path.rename(aside)
                except OSError as error:
                    raise unwritable(path, error) from error
        self._saved = step if any(step_of(path) == step for path in found) else None
        self._interrupts.watch()

    def on_step(self, trainer: Trainer, report: StepReport) -> None:
        """到时候、或者收到信号时保存。"""
        if trainer.state.step % self.every == 0 or self._interrupts.received is not None:
            self.save(trainer)
            self._raise_again()

    def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
        """目前最好的模型另存一份。"""
        if trainer.state.best == (evaluation.step, evaluation.loss):
            save_folder(self.folder / BEST, _model_files(trainer))

    def on_end(self, trainer: Trainer) -> None:
        """保存最后的状态。"""
        if trainer.state.step not in (0, self._saved):
            self.save(trainer)
        self._raise_again()

    def interrupt(self, number: int) -> None:
        """当作收到了一个信号：做完手里的一步，保存，再中断；几个进程时，别的进程收到的由它转告。

        Args:
            number: 信号的编号。
        """
        self._interrupts.receive(number)

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
        self._delete_old()
        return path

    def _raise_again(self) -> None:
        """抛出收到的 Ctrl-C，并在 Traceback 的末尾说明怎样接着训练。"""
        try:
            self._interrupts.raise_again()
        except KeyboardInterrupt as error:
            if self._saved is not None:
                error.add_note(
                    f"做完 {self._saved} 步之后的状态已经保存；"
                    f"接着训练：trainer.resume({str(self.folder)!r})，再照原来的参数调用一次"
                )
            raise

    def _delete_old(self) -> None:
        """只留最近几个。先改名，删到一半被杀也不会被误认；以前没有删完的这次接着删。"""
        for old in find_checkpoints(self.folder)[: -self.keep]:
            with contextlib.suppress(OSError):  # 例如 Windows 上正被打开着；下次再删
                old.rename(old.with_name(f".{old.name}.{os.urandom(8).hex()}.old"))
        with contextlib.suppress(OSError):
            for path in self.folder.iterdir():
                if re.fullmatch(r"\.step-[0-9]+\.[0-9a-f]{16}\.old", path.name):
                    shutil.rmtree(path, ignore_errors=True)


def find_checkpoints(folder: Path) -> list[Path]:
    """文件夹里的检查点，从旧到新；写到一半的（还没有清单）不算。"""
    try:
        if not folder.is_dir():
            return []
        found = [p for p in folder.iterdir() if re.fullmatch(r"step-[0-9]{8,}", p.name)]
        return sorted((p for p in found if (p / MANIFEST).is_file()), key=step_of)
    except OSError as error:
        raise unreadable(folder, error) from error


def is_checkpoint(folder: Path) -> bool:
    """清单刚换上、别的文件还没有改名就被杀时，训练状态只在清单里说到。"""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return False
    return (folder / STATE).is_file() or STATE.encode() in read_bytes(manifest, 1 << 20)


def step_of(path: Path) -> int:
    """检查点的文件夹名 `step-00000500` → 500。"""
    return int(path.name.removeprefix("step-"))


def newest_first(folder: Path, missing_ok: bool = False) -> list[Path]:
    """可以从哪里接着训练：它自己是检查点就是它，否则是里面的各个检查点，从新到旧。

    Raises:
        DataError: 里面没有检查点，而 `missing_ok` 是假。
    """
    try:
        if is_checkpoint(folder):
            return [folder]
    except OSError as error:  # 名字太长、没有权限等等
        raise unreadable(folder, error) from error
    found = find_checkpoints(folder)
    if not found and not missing_ok:
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


def _settings(trainer: Trainer) -> dict[str, Any]:
    """优化器与裁剪的设置，冻结了哪些参数；可以改，改了要说出来。"""
    model = trainer.model
    free = {name for name, _ in model.named_parameters()}
    frozen = [name for name in model.state_dict() if name not in free]
    return {"max_norm": trainer.max_norm, "frozen": frozen, **trainer.optimizer.settings}
