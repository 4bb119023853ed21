"""`gptcore eval`：在没有用来训练的文本上打分，与训练结束时的算法相同，一位不差"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from gptcore.cli.corpus import Corpus, CorpusRecord, read_corpus, recorded_corpus
from gptcore.cli.datasets import HeldOutTokens
from gptcore.cli.folders import read_record
from gptcore.cli.help import NARROW
from gptcore.cli.models import open_model
from gptcore.cli.runs import find_run
from gptcore.cli.terminal import Terminal
from gptcore.cli.tokenizers import Lengths, encode
from gptcore.cli.usage import UsageError
from gptcore.data import Tokenizer
from gptcore.losses import GPTLoss
from gptcore.threads import blas_threads, model_threads
from gptcore.training import Evaluation
from gptcore.training.evaluation import evaluate


@dataclass(frozen=True)
class Score:
    """一段文本上的分数。

    Attributes:
        loss: 每个词元的平均损失，单位奈特。
        perplexity: 困惑度。
        bits_per_token: 每个词元多少比特。
        bits_per_character: 每个字符多少比特。
        bits_per_byte: 每个 UTF-8 字节多少比特。
    """

    loss: float
    perplexity: float
    bits_per_token: float
    bits_per_character: float
    bits_per_byte: float


def measure(evaluation: Evaluation, characters: int, size: int) -> Score:
    """由评估的结果算出各种单位的分数。

    Args:
        evaluation: 评估的结果。
        characters: 被预测的那段文本有多少个字符，不含只当前文的第一个词元。
        size: 它有多少个 UTF-8 字节。

    Returns:
        分数。
    """
    return Score(
        evaluation.loss,
        evaluation.perplexity,
        evaluation.bits_per(evaluation.tokens),
        evaluation.bits_per(characters) if characters else math.nan,
        evaluation.bits_per(size) if size else math.nan,
    )


def run_eval(
    folder: Path, corpus: Sequence[str] | None, threads: int | None, terminal: Terminal
) -> Score:
    """读模型，在测试部分（或者另给的文本）上评估，写出各个分数与它们的定义。

    Args:
        folder: 模型文件夹，一次训练，它的一个检查点，或者 Hugging Face 的 GPT-2 文件夹。
        corpus: 评估哪些文本；不给时是训练时留作测试的部分。
        threads: BLAS 的线程数；不给时与训练时相同。
        terminal: 终端。

    Returns:
        分数。

    Raises:
        UsageError: 不是模型，找不到语料，或者它在训练之后变了。
        DataError: 文件损坏。
    """
    place, model, tokenizer = open_model(folder)
    history = _history(place)
    part = _part(history, corpus, tokenizer)
    if len(part.tokens) < 2:
        raise UsageError(
            f"{part.title}只有 {len(part.tokens)} 个词元，至少要两个才能评估；请换长一些的文本"
        )
    lengths = Lengths(tokenizer)
    characters, _ = lengths.count(part.tokens)
    terminal.say(f"模型 {place}")
    several = characters != len(part.tokens)
    tokens = f"，{len(part.tokens):,} 个词元" if several else ""
    terminal.say(f"文本 {part.title}，{characters:,} 个字符{tokens}")
    terminal.console.file.flush()
    dataset = HeldOutTokens(tokenizer, part.tokens, model.context_size)
    count = threads or history.threads
    limit = blas_threads(count) if count else model_threads(model.num_parameters)
    with limit, np.errstate(all="ignore"):
        evaluation = Evaluation(*evaluate(model, GPTLoss(), dataset))
    if not math.isfinite(evaluation.loss):
        raise UsageError(f"{place} 的损失是 {evaluation.loss}：权重里有 NaN 或无穷；请换一个检查点")
    score = measure(evaluation, *lengths.count(part.tokens[1:]))
    _show(score, terminal)
    return score


@dataclass(frozen=True)
class _History:
    """训练时留下的、评估要用到的。"""

    corpus: CorpusRecord | None
    threads: int | None
    name: str | None
    """只记着语料名字的旧记录"""


def _history(place: Path) -> _History:
    """模型自己的训练记录；检查点没有记录，看它所属的那次训练。"""
    record = read_record(place)
    run = find_run(place)
    settings: Any = record.get("settings")
    values = cast("dict[str, Any]", settings) if isinstance(settings, dict) else {}
    corpus = CorpusRecord.parse(record.get("corpus"))
    if run and (corpus is None or corpus.sha256 == run.corpus.sha256):
        return _History(run.corpus, run.settings.threads, None)
    threads, name = values.get("threads"), values.get("corpus")
    if isinstance(name, list):
        name = "、".join(map(str, cast("list[Any]", name)))
    return _History(
        corpus,
        threads if type(threads) is int and threads > 0 else None,
        name if isinstance(name, str) else None,
    )


@dataclass(frozen=True)
class _Part:
    """评估的那段文本：词元，以及怎样称呼它。"""

    tokens: Any
    title: str


def _part(history: _History, given: Sequence[str] | None, tokenizer: Tokenizer) -> _Part:
    """评估哪段文本：全文或测试部分。"""
    record = history.corpus
    if given:
        corpus = read_corpus(given)
        if record is None or corpus.record.sha256 != record.sha256:
            return _whole(corpus, tokenizer)
    elif record is not None:
        corpus = read_corpus(recorded_corpus(record))
        if corpus.record.sha256 != record.sha256:
            raise UsageError(
                f"语料 {corpus.record.name} 在训练之后变了（{record.change(corpus.record)}），"
                "分不出哪些是测试部分；请换回原来的文件，或者用 --corpus 给出要评估的文本"
            )
    else:
        hint = f"（训练用的是 {history.name}，但没有记下内容）" if history.name else ""
        raise UsageError(f"没有语料的记录{hint}，不知道在什么文本上评估；请用 --corpus 给出")
    title = f"{record.name} 的测试部分（模型没有用它训练）"
    if corpus.file is not None:
        return _Part(_file_tokens(corpus, tokenizer)[int(record.count * record.split) :], title)
    corpus = replace(corpus, record=replace(corpus.record, split=record.split))
    return _Part(encode(tokenizer, corpus.split()[1], corpus), title)


def _whole(corpus: Corpus, tokenizer: Tokenizer) -> _Part:
    title = f"{corpus.record.name} 的全文"
    if corpus.file is not None:
        return _Part(_file_tokens(corpus, tokenizer), title)
    return _Part(encode(tokenizer, corpus.texts, corpus), title)


def _file_tokens(corpus: Corpus, tokenizer: Tokenizer) -> Any:
    file: Any = corpus.file
    if file.tokenizer != tokenizer:
        raise UsageError(
            f"--corpus {corpus.record.name!r} 的分词器与模型的不同，编号对不上；"
            "请用模型的分词器重新写：gptcore tokenize 文本 --tokenizer 模型的文件夹 --out 词元文件"
        )
    return file.tokens


def _show(score: Score, terminal: Terminal) -> None:
    rows = [
        ("损失", score.loss, "奈特/词元", "每个词元的 −ln p 的平均，p 是模型给它的概率"),
        ("困惑度", score.perplexity, "", "损失的指数：相当于每次在多少个词元里均匀地猜"),
        ("信息量", score.bits_per_token, "比特/词元", "损失除以 ln 2"),
        ("", score.bits_per_character, "比特/字符", "总的比特数除以字符数"),
        ("", score.bits_per_byte, "比特/字节", "总的比特数除以 UTF-8 字节数；分词不同也能比较"),
    ]
    console = terminal.console
    terminal.say()
    for name, value, unit, meaning in rows:
        if console.is_terminal and console.width < NARROW:
            terminal.say(f"{name or '信息量'} {value:.4f} {unit}", "bold")
            terminal.hanging(Text("  "), Text(meaning))
        else:
            title = f"{_padded(name, 6)}  {value:>8.4f}  {_padded(unit, 9)}  "
            terminal.hanging(Text(title), Text(meaning))


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))
