"""`gptcore train` 的文件夹：设置在开始时就存下，中断之后不必再写一遍

- `run.json`：这次训练的全部设置、总步数与语料的 SHA-256，训练开始时写成；
- `run-tokenizer.json`：学出来的、或者从别处读来的分词器；由语料就能得到的（字符、字节、词元文件自带的）不另存；
- `metrics.jsonl`：每一步的记录；
- `checkpoints/step-…`、`checkpoints/best`：检查点，与评估最好的模型；
- 训练完：模型的三个文件、清单与 `training.json`。
"""

import os
import re
import shutil
from collections.abc import Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, cast

from gptcore.cli.corpus import CorpusRecord
from gptcore.cli.folders import (
    CHECKPOINTS,
    METRICS,
    RUN,
    OutputFolder,
    read_record,
    run_around,
    train_command,
)
from gptcore.cli.settings import FREE, TrainSettings, option_of, parse_settings
from gptcore.cli.usage import UsageError
from gptcore.data import Tokenizer, load_tokenizer
from gptcore.errors import DataError, GptcoreError, NonFiniteError
from gptcore.files import locked_folder, make_folder
from gptcore.serialization import (
    MANIFEST,
    dump_json,
    is_leftover,
    load_folder,
    parse_json,
    read_bytes,
    write_bytes,
)
from gptcore.training import GPTTrainer, RunState
from gptcore.training.checkpoints import BEST, STATE, find_checkpoints, step_of
from gptcore.training.matching import parse_state

FORMAT, VERSION = "gptcore-run", 1
TOKENIZER = "run-tokenizer.json"
HINTED = (GptcoreError, OSError, MemoryError)
"""训练途中的这些错误，消息里加上怎样接着训练"""


class Mode(Enum):
    """怎样开始。"""

    NEW = "new"
    RESUME = "resume"
    RESTART = "restart"


@dataclass(frozen=True)
class Run:
    """一次训练。

    Attributes:
        id: 编号，随机的；训练完写进 `training.json`，由此知道那里的模型是不是这一次的。
        settings: 全部设置。
        steps: 总步数。
        corpus: 语料的记录。
    """

    id: str
    settings: TrainSettings
    steps: int
    corpus: CorpusRecord

    @classmethod
    def new(cls, settings: TrainSettings, steps: int, corpus: CorpusRecord) -> "Run":
        """开始一次训练。"""
        return cls(os.urandom(8).hex(), settings, steps, corpus)

    def to_dict(self) -> dict[str, Any]:
        """`run.json` 的内容。"""
        return {
            "format": FORMAT,
            "version": VERSION,
            "id": self.id,
            "steps": self.steps,
            "settings": self.settings.to_dict(),
            "corpus": self.corpus.to_dict(),
        }


def read_run(folder: Path) -> Run:
    """读一次训练的设置。

    Raises:
        DataError: 没有，损坏，或者由更新的版本写成。
    """
    path = folder / RUN
    return parse_run(parse_json(read_bytes(path, 1 << 20), path), path)


def parse_run(value: Any, path: Path) -> Run:
    """由 `Run.to_dict` 的结果重建。

    Args:
        value: 读到的值。
        path: 来自哪个文件，写进消息。

    Raises:
        DataError: 不合要求。
    """
    given: dict[str, Any] = cast("Any", value) if isinstance(value, dict) else {}
    if given.get("format") != FORMAT:
        raise DataError(f"{path} 不是 gptcore train 的设置；请检查文件夹是否正确")
    if given.get("version") != VERSION:
        raise DataError(
            f"{path} 的格式版本是 {str(given.get('version'))[:60]}，这里只认识版本 {VERSION}；"
            "如果由更新的 gptcore 写成，请升级"
        )
    settings = parse_settings(given.get("settings"), path)
    corpus, steps, id_ = (
        CorpusRecord.parse(given.get("corpus")),
        given.get("steps"),
        given.get("id"),
    )
    if corpus is None or type(steps) is not int or steps < 1 or not isinstance(id_, str):
        raise DataError(f"{path} 里的 corpus、steps 或 id 不合要求；文件可能被改动过")
    return Run(id_, settings, steps, corpus)


def find_run(folder: Path) -> Run | None:
    """文件夹（或它所属的训练）的设置；没有，或者读不出来，是 `None`。"""
    around = run_around(folder)
    for place in (folder, *([around] if around else [])):
        try:
            return read_run(place)
        except DataError:
            continue
    return None


def read_state(checkpoint: Path) -> RunState:
    """一个检查点的训练状态。

    Raises:
        DataError: 读不出来。
    """
    content = load_folder(checkpoint, [STATE])[STATE]
    return RunState.from_dict(parse_state(parse_json(content, checkpoint / STATE), STATE)["run"])


def saved_steps(folder: Path) -> list[int]:
    """一次训练的各个检查点做完多少步，从小到大。"""
    return [step_of(path) for path in find_checkpoints(folder / CHECKPOINTS)]


def require_new(folder: Path) -> None:
    """不接着训练、也不说从头再来时，文件夹里不能有检查点。

    Raises:
        UsageError: 有检查点。
    """
    steps = saved_steps(folder)
    best = (folder / CHECKPOINTS / BEST / MANIFEST).is_file()
    if steps or best:
        found = f"做完 {steps[-1]:,} 步的检查点" if steps else f"检查点 {CHECKPOINTS}/{BEST}"
        raise UsageError(
            f"--out：{folder} 里已有一次训练，存着{found}；要接着训练请加 --resume，"
            "要从头再来请加 --restart（它的检查点会删去），或者用 --out 换一个文件夹"
        )


def require_run(folder: Path) -> Run:
    """要接着训练的那一次。

    Raises:
        UsageError: 没有。
    """
    around = run_around(folder)
    if around and not (around / RUN).exists():
        raise UsageError(
            f"--out：{folder} 是一个单独的检查点，不在 gptcore train 的文件夹里，没有 {RUN}，"
            "命令行不知道原来的设置；请给出原来的文件夹，或者在 Python 里用 trainer.resume"
        )
    if around:
        raise UsageError(
            f"--out：{folder} 是一个检查点；接着训练请给出整个文件夹：{train_command(around, '--resume')}"
        )
    if not (folder / RUN).exists():
        raise UsageError(
            f"--resume：{folder} 里没有 {RUN}，不是 gptcore train 的一次训练；"
            "请检查 --out，或去掉 --resume，从头训练"
        )
    return read_run(folder)


def merge(run: Run, given: TrainSettings, chosen: Collection[str]) -> Run:
    """接着训练时的设置：原来的，加上命令行上另给的、允许改变的几项。

    Args:
        run: 原来的那一次。
        given: 命令行上的设置。
        chosen: 其中明确写出的各项；步数与轮数另外处理。

    Raises:
        UsageError: 另给的设置与原来的不同，又不能改变。
    """
    before = run.settings
    conflicts = [
        f"{option_of(name)} 原来{_shown(name, before)}，现在{_shown(name, given)}"
        for name in sorted(chosen)
        if name not in (*FREE, "steps", "epochs") and not _same(name, before, given)
    ]
    if conflicts:
        raise UsageError(
            f"--resume：这些设置不能中途改变：{'；'.join(conflicts)}。"
            "请去掉它们，或者加 --restart（不加 --resume）从头训练"
        )
    changed = {name: getattr(given, name) for name in chosen if name in FREE}
    return replace(run, settings=replace(before, **changed))


def lengthen(run: Run, settings: TrainSettings, steps: int, done: int) -> Run:
    """接着训练时改总步数：学习率不变时可以，否则已经做完的那些步就会不同。

    Args:
        run: 原来的那一次。
        settings: 新的设置。
        steps: 新的总步数。
        done: 已经做完多少步。

    Raises:
        UsageError: 不能改，或者比做完的还少。
    """
    if steps == run.steps:
        return run
    if settings.schedule != "constant":
        raise UsageError(
            f"--resume：总步数原来是 {run.steps}，现在是 {steps}；学习率按总步数下降，"
            "改了它，已经做完的那些步就不是同一次训练了。请去掉 --steps 与 --epochs，"
            "或者用 --restart 从头训练；想随时加长，开始时用 --schedule constant"
        )
    if steps < done:
        raise UsageError(f"--resume：总步数是 {steps}，已经做完 {done} 步；请给更大的 --steps")
    return replace(run, settings=settings, steps=steps)


def require_same_corpus(run: Run, corpus: CorpusRecord) -> None:
    """接着训练时，语料要和原来的一字不差。

    Raises:
        UsageError: 不同。
    """
    if (corpus.kind, corpus.sha256) != (run.corpus.kind, run.corpus.sha256):
        raise UsageError(
            f"--corpus：{corpus.name} 与开始训练时的不同（{run.corpus.change(corpus)}），"
            "不能从同一批接着训练；请换回原来的文件，或者用 --restart 从头训练"
        )


def _same(name: str, before: TrainSettings, now: TrainSettings) -> bool:
    name = {"min_lr": "final_lr", "tokenizer": "tokenizer_kind"}.get(name, name)
    return getattr(before, name) == getattr(now, name)


def _shown(name: str, settings: TrainSettings) -> str:
    value: Any = getattr(settings, name)
    if name == "shuffle":
        return "打乱" if value else "不打乱"
    if value is None or isinstance(value, bool):
        return "给了" if value else "没有给"
    return f"是 {value:g}" if isinstance(value, float) else f"是 {value}"


def saves_tokenizer(settings: TrainSettings) -> bool:
    """分词器要不要和设置一起存下：学出来的（将来的版本也许学得不同）与从别处读来的要。"""
    return settings.tokenizer_kind not in ("char", "bytes")


def saved_tokenizer(folder: Path, run: Run) -> Tokenizer | None:
    """训练开始时存下的分词器；由语料就能得到的没有存，是 `None`。

    Raises:
        DataError: 文件不在了，或者读不懂。
    """
    return load_tokenizer(folder / TOKENIZER) if saves_tokenizer(run.settings) else None


def finished(folder: Path, run: Run) -> dict[str, Any] | None:
    """这次训练已经做完时，是它的结果；否则是 `None`。"""
    record = read_record(folder)
    result = record.get("result")
    if record.get("run") != run.id or not isinstance(result, dict):
        return None
    values = cast("dict[str, Any]", result)
    settings = record.get("settings")
    before = cast("dict[str, Any]", settings) if isinstance(settings, dict) else {}
    stopped = values.get("stopped") and before.get("patience") == run.settings.patience
    return values if values.get("steps") == run.steps or stopped else None


class RunFolder(OutputFolder):
    """一次训练的文件夹：开始时存下设置，中断时说明从哪里接着训练。

    Args:
        folder: 文件夹。
        mode: 怎样开始。
    """

    def __init__(self, folder: Path, mode: Mode) -> None:
        super().__init__(folder)
        self.mode = mode
        self.checkpoints, self.metrics = folder / CHECKPOINTS, folder / METRICS
        self._trainer: GPTTrainer | None = None
        self._lock = ExitStack()

    def begin(self, run: Run, trainer: GPTTrainer, tokenizer: Tokenizer) -> None:
        """第一步之前：锁住文件夹，删去要放弃的检查点，存下分词器与设置。

        Args:
            run: 这次训练。
            trainer: 训练器，由它知道做了几步。
            tokenizer: 分词器。

        Raises:
            UsageError: 另一个进程正在这里训练。
        """
        make_folder(self.checkpoints)
        try:
            self._lock.enter_context(locked_folder(self.checkpoints, seconds=1.0))
        except OSError as error:
            raise UsageError(
                f"{self.option}：另一个进程正在 {self.folder} 里训练；请等它做完，或换一个文件夹"
            ) from error
        self._trainer = trainer
        if self.mode is Mode.RESTART:
            self._clear()
        if saves_tokenizer(run.settings):
            write_bytes(self.folder / TOKENIZER, dump_json(tokenizer.to_dict()))
        else:
            (self.folder / TOKENIZER).unlink(missing_ok=True)
        write_bytes(self.folder / RUN, dump_json(run.to_dict()))

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._lock.close()
        with suppress(OSError):  # 空的才删得掉
            self.checkpoints.rmdir()
        if error is not None and self._trainer is not None:
            if self._trainer.state.step == 0 and self.mode is not Mode.RESUME:
                self._discard()  # 一步也没有做完，什么也不留下
            elif isinstance(error, HINTED) and not isinstance(error, NonFiniteError):
                error.add_note(self._kept() or "没有检查点")
        super().__exit__(kind, error, trace)

    def _accepts(self) -> bool:
        if self.replaces or all(is_leftover(path) for path in self.folder.iterdir()):
            return True
        try:
            read_run(self.folder)
        except DataError:
            return False
        return True

    def _interrupted(self) -> str:
        return self._kept() or super()._interrupted()

    def _kept(self) -> str:
        """存着哪一步，怎样接着训练；没有检查点时是空的。"""
        found = find_checkpoints(self.checkpoints)
        if not found:
            return ""
        return (
            f"第 {step_of(found[-1]):,} 步之后的状态存在 {found[-1]}，"
            f"接着训练：{self.command('--resume')}"
        )

    def command(self, *options: str) -> str:
        """再训练一次的命令，可以照抄；现在有几个进程，就还是几个。"""
        size = self._trainer.strategy.size if self._trainer else 1
        command = train_command(self.folder, *options)
        return f"mpiexec -n {size} {command} --distributed" if size > 1 else command

    def _clear(self) -> None:
        """删去各个检查点；先改成 `Checkpoints` 认得的、要删去的名字，删到一半被杀也不会被误认。"""
        if not self.checkpoints.is_dir():
            return
        for path in list(self.checkpoints.iterdir()):
            if path.name == BEST or re.fullmatch(r"(old-[0-9a-f]{8}-)?step-[0-9]{8,}", path.name):
                aside = path.with_name(f".step-0.{os.urandom(8).hex()}.old")
                path.rename(aside)
                shutil.rmtree(aside, ignore_errors=True)

    def _discard(self) -> None:
        for path in (self.folder / RUN, self.folder / TOKENIZER, self.metrics):
            path.unlink(missing_ok=True)
