"""`gptcore train`：在一份语料或一个文本文件上训练，随时可以中断，再接着训练"""

import math
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gptcore.cli import signals
from gptcore.cli.corpus import read_corpus, recorded_corpus
from gptcore.cli.datasets import describe, make_tokenizer, open_dataset
from gptcore.cli.demo import introduce
from gptcore.cli.evaluate import Score, measure
from gptcore.cli.fitting import OPTIONS, build_trainer, fit, follow, load, unit_of
from gptcore.cli.folders import CHECKPOINTS, RUN, next_command
from gptcore.cli.ranks import share
from gptcore.cli.records import record
from gptcore.cli.runs import (
    Mode,
    Run,
    RunFolder,
    finished,
    lengthen,
    merge,
    parse_run,
    require_new,
    require_run,
    require_same_corpus,
    saved_steps,
    saved_tokenizer,
)
from gptcore.cli.settings import TrainSettings, check, check_memory
from gptcore.cli.terminal import Terminal
from gptcore.cli.tokenizers import Lengths
from gptcore.data import WindowDataset
from gptcore.data.tokenizers import tokenizer_from_dict
from gptcore.distributed import DataParallel
from gptcore.errors import NonFiniteError
from gptcore.threads import blas_threads
from gptcore.training import GPTTrainer
from gptcore.training.batches import updates_per_epoch
from gptcore.training.checkpoints import BEST


@dataclass(frozen=True)
class _Plan:
    """这次训练，它的数据集，与一句话的介绍。"""

    run: Run
    dataset: WindowDataset
    introduction: str


def run_train(
    settings: TrainSettings,
    out: Path,
    terminal: Terminal,
    mode: Mode = Mode.NEW,
    chosen: Collection[str] = (),
    ranks: DataParallel | None = None,
) -> None:
    """训练、在测试部分上评估、保存；或者从中断的地方接着做完。

    Args:
        settings: 命令行上的设置。
        out: 这次训练的文件夹。
        terminal: 终端。
        mode: 从头训练，接着训练，还是丢掉原来的从头再来。
        chosen: 命令行上明确写出了哪几项；接着训练时，其余的都照原来的。
        ranks: 几个进程；不给时就是这一个。

    Raises:
        UsageError: 设置不合要求或与原来的矛盾，语料找不到或变了，`out` 不能写。
        NonFiniteError: 训练发散。
        DataError: 语料或检查点读不了，写不进去。
    """
    with ranks.together() if ranks else nullcontext():
        settings = replace(settings, processes=ranks.size if ranks else 1)
        if ranks and not ranks.is_main:
            _follow(settings, chosen, out, mode, ranks)
        else:
            _lead(settings, chosen, out, mode, terminal, ranks)


def _lead(
    settings: TrainSettings,
    chosen: Collection[str],
    out: Path,
    mode: Mode,
    terminal: Terminal,
    ranks: DataParallel | None,
) -> None:
    """说话、写文件的那个进程；通常也只有它。"""
    resuming = mode is Mode.RESUME
    plan = _resume(settings, chosen, out, terminal) if resuming else _start(settings, out, mode)
    if plan:
        check_memory(plan.run.settings, plan.dataset.vocab_size, ranks.local_size if ranks else 1)
    if ranks:
        share(ranks, plan and [plan.run.to_dict(), plan.dataset.tokenizer.to_dict()])
    if plan is None:
        return
    with RunFolder(out, mode) as folder, blas_threads(plan.run.settings.threads):
        _train(plan, folder, terminal, ranks)
    terminal.say(f"模型存在 {out}，接着写：")
    terminal.command(next_command(out, plan.dataset.decode(plan.dataset.tokens[:200])))


def _follow(
    settings: TrainSettings, chosen: Collection[str], out: Path, mode: Mode, ranks: DataParallel
) -> None:
    """其余的进程：设置与分词器听第 0 个的，语料自己读。"""
    given = share(ranks, None)
    if given is None:
        return
    run = parse_run(given[0], out / RUN)
    named = mode is not Mode.RESUME or "corpus" in chosen
    corpus = read_corpus(settings.corpus if named else recorded_corpus(run.corpus))
    require_same_corpus(run, corpus.record)
    dataset = open_dataset(corpus, tokenizer_from_dict(given[1]), run.settings)
    ranks.threads_each = run.settings.threads
    with blas_threads(run.settings.threads):
        _, trainer = build_trainer(run.settings, dataset, ranks)
        if mode is Mode.RESUME:
            trainer.resume(out / CHECKPOINTS, missing_ok=True)
        follow(trainer, run, dataset)
        with np.errstate(all="ignore"):
            trainer.evaluate(dataset)


def _start(settings: TrainSettings, out: Path, mode: Mode) -> _Plan:
    """从头训练。"""
    check(settings)
    if mode is Mode.NEW:
        require_new(out)
    corpus = read_corpus(settings.corpus)
    tokenizer = make_tokenizer(corpus, settings.tokenizer, settings.vocab_size)
    dataset = open_dataset(corpus, tokenizer, settings)
    run = Run.new(settings, _total_steps(settings, dataset), corpus.record)
    return _Plan(run, dataset, describe(corpus, dataset))


def _resume(
    given: TrainSettings, chosen: Collection[str], out: Path, terminal: Terminal
) -> _Plan | None:
    """接着训练；已经做完的，说一声就好。"""
    run = merge(require_run(out), given, chosen)
    longer = bool({"steps", "epochs"} & set(chosen))
    if not longer and _tell_finished(run, out, terminal):
        return None
    settings = run.settings
    check(replace(settings, steps=given.steps, epochs=given.epochs) if longer else settings)
    corpus = read_corpus(given.corpus if "corpus" in chosen else recorded_corpus(run.corpus))
    require_same_corpus(run, corpus.record)
    if "corpus" in chosen:
        run = replace(run, corpus=corpus.record)
    tokenizer = saved_tokenizer(out, run) or make_tokenizer(corpus, settings.tokenizer, None)
    dataset = open_dataset(corpus, tokenizer, settings)
    if longer:
        new = replace(settings, steps=given.steps, epochs=given.epochs)
        done = max(saved_steps(out), default=0)
        run = lengthen(run, new, _total_steps(new, dataset), done)
        if _tell_finished(run, out, terminal):
            return None
    return _Plan(run, dataset, describe(corpus, dataset))


def _total_steps(settings: TrainSettings, dataset: WindowDataset) -> int:
    """总步数：步数，或者轮数乘一轮的步数。"""
    if settings.steps is not None:
        return settings.steps
    batches = len(dataset) // settings.processes
    return (settings.epochs or 2) * updates_per_epoch(batches, settings.accumulate)


def _tell_finished(run: Run, out: Path, terminal: Terminal) -> bool:
    """已经做完的，说出结果。"""
    result = finished(out, run)
    if result is None:
        return False
    loss = result.get("test_loss")
    shown = (
        f"，测试损失 {loss:.4f} 奈特/{result.get('unit', '字符')}"
        if isinstance(loss, float)
        else ""
    )
    terminal.say(f"{out} 里的训练已经做完 {result.get('steps')} 步{shown}，不必接着训练")
    if result.get("stopped"):
        terminal.say(f"它提前停止了：{result['stopped']}；要练下去，请给更大的 --patience")
    elif run.settings.schedule == "constant":
        terminal.say("它的学习率不变，要加长，请给更大的 --steps 或 --epochs")
    return True


def _train(plan: _Plan, folder: RunFolder, terminal: Terminal, ranks: DataParallel | None) -> None:
    """训练、评估、保存，说出结果。"""
    run, dataset, settings = plan.run, plan.dataset, plan.run.settings
    model, trainer = build_trainer(settings, dataset, ranks)
    introduce(terminal, plan.introduction, model, settings.threads)
    if ranks:
        ranks.threads_each = settings.threads
        terminal.say(f"{ranks}；一步的窗口由它们均分" if ranks.size > 1 else f"{ranks}")
    if folder.mode is Mode.RESUME:
        load(trainer, run, folder, terminal)
    else:
        many = f"，{settings.accumulate} 批更新一次" if settings.accumulate > 1 else ""
        many += f"，{settings.processes} 个进程各算各的批" if settings.processes > 1 else ""
        terminal.say(f"训练 {run.steps:,} 步，每批 {settings.batch_size} 个窗口{many}")
        if folder.replaces:
            terminal.say(f"{folder.folder} 里已有一个模型，训练完会替换它")
    signals.check()
    folder.begin(run, trainer, dataset.tokenizer)
    seconds = fit(trainer, run, dataset, folder, terminal)
    terminal.say("正在测试部分上评估……")
    terminal.console.file.flush()
    with np.errstate(all="ignore"):
        evaluation = trainer.evaluate(dataset)
    if not math.isfinite(evaluation.loss):
        raise NonFiniteError(
            f"训练后的测试损失是 {evaluation.loss}，没有保存；请减小学习率，{OPTIONS}"
        )
    result = {
        "test_loss": evaluation.loss,
        "unit": unit_of(dataset),
        **_result(trainer, run),
        "seconds": round(seconds, 2),
    }
    where = trainer.strategy.environment()
    content = record("train", settings.to_dict(), result, run.corpus, run.id, where)
    folder.save(model, dataset.tokenizer, content)
    score = measure(evaluation, *Lengths(dataset.tokenizer).count(dataset.test_tokens[1:]))
    _report(score, result, dataset, folder, terminal)


def _result(trainer: GPTTrainer, run: Run) -> dict[str, Any]:
    """训练记录里的结果。"""
    state = trainer.state
    step, loss = state.best or (None, None)
    return {
        "steps": state.step,
        "stopped": trainer.stop_reason if state.step < run.steps else None,
        "skipped": state.skipped,
        "best_step": step,
        "best_loss": loss,
    }


def _report(
    score: Score,
    result: dict[str, Any],
    dataset: WindowDataset,
    folder: RunFolder,
    terminal: Terminal,
) -> None:
    if result["stopped"]:
        terminal.say(f"提前停止：{result['stopped']}，共 {result['steps']:,} 步")
    if result["skipped"]:
        terminal.say(f"因为 NaN 或无穷跳过了 {result['skipped']} 步")
    unit = result["unit"]
    terminal.say(
        f"测试损失 {score.loss:.4f} 奈特/{unit}（每个{unit}一样可能时是 {np.log(dataset.vocab_size):.4f}）；"
        f"训练 {result['seconds']:.0f} 秒"
    )
    per_byte = "" if unit == "字符" else f"，{score.bits_per_byte:.4f} 比特/字节"
    terminal.say(
        f"困惑度 {score.perplexity:.4f}；{score.bits_per_character:.4f} 比特/字符{per_byte}"
    )
    if result["best_step"] is not None:
        best = folder.checkpoints / BEST
        terminal.say(
            f"途中评估最低的是第 {result['best_step']:,} 步：{result['best_loss']:.4f}，存在 {best}"
        )
