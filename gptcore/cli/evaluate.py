"""`gptcore eval`：在没有用来训练的文本上打分，与训练结束时的算法相同，一位不差"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from gptcore.cli.corpus import CorpusRecord, find_corpus, recorded_corpus
from gptcore.cli.failures import plain
from gptcore.cli.folders import find_model, read_record
from gptcore.cli.help import NARROW
from gptcore.cli.runs import find_run
from gptcore.cli.terminal import Terminal
from gptcore.cli.usage import UsageError
from gptcore.data import CharDataset, Tokenizer, read_text
from gptcore.data.windows import Integers
from gptcore.errors import DataError
from gptcore.losses import GPTLoss
from gptcore.models import load_model
from gptcore.threads import blas_threads
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


def measure(evaluation: Evaluation, text: str) -> Score:
    """由评估的结果算出各种单位的分数。

    Args:
        evaluation: 评估的结果。
        text: 被预测的那段文本，不含只当前文的第一个词元。

    Returns:
        分数。
    """
    return Score(
        evaluation.loss,
        evaluation.perplexity,
        evaluation.bits_per(evaluation.tokens),
        evaluation.bits_per(len(text)),
        evaluation.bits_per(len(text.encode())),
    )


def run_eval(folder: Path, corpus: str | None, threads: int | None, terminal: Terminal) -> Score:
    """读模型，在测试部分（或者另给的文本）上评估，写出各个分数与它们的定义。

    Args:
        folder: 模型文件夹，一次训练，或者它的一个检查点。
        corpus: 评估哪份文本；不给时是训练时留作测试的部分。
        threads: BLAS 的线程数；不给时与训练时相同。
        terminal: 终端。

    Returns:
        分数。

    Raises:
        UsageError: 不是模型，找不到语料，或者它在训练之后变了。
        DataError: 文件损坏。
    """
    place = find_model(folder)
    model, tokenizer = load_model(place)
    history = _history(place)
    text, tokens, title = _tokens(history, corpus, tokenizer)
    dataset = _Text(tokens, tokenizer.vocab_size, model.context_size)
    if len(tokens) < 2:
        raise UsageError(f"{title}只有 {len(tokens)} 个词元，至少要两个才能评估；请换长一些的文本")
    terminal.say(f"模型 {place}")
    terminal.say(f"文本 {title}，{len(text):,} 个字符")
    terminal.console.file.flush()
    with blas_threads(threads or history.threads), np.errstate(all="ignore"):
        evaluation = Evaluation(*evaluate(model, GPTLoss(), dataset))
    if not math.isfinite(evaluation.loss):
        raise UsageError(f"{place} 的损失是 {evaluation.loss}：权重里有 NaN 或无穷；请换一个检查点")
    score = measure(evaluation, tokenizer.decode(tokens[1:]))
    _show(score, terminal)
    return score


@dataclass(frozen=True)
class _History:
    """训练时留下的、评估要用到的。"""

    corpus: CorpusRecord | None
    threads: int
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
    return _History(
        corpus,
        threads if type(threads) is int and threads > 0 else 1,
        name if isinstance(name, str) else None,
    )


def _tokens(
    history: _History, given: str | None, tokenizer: Tokenizer
) -> tuple[str, Integers, str]:
    """评估哪段文本：全文或测试部分，它的词元，以及怎样称呼它。"""
    record = history.corpus
    if given is not None:
        text = read_text(find_corpus(given))
        if record is None or CorpusRecord.of(given, text).sha256 != record.sha256:
            return text, _encode(tokenizer, text, given), f"{given} 的全文"
    elif record is not None:
        name = recorded_corpus(record)
        text = read_text(find_corpus(name))
        if CorpusRecord.of(name, text).sha256 != record.sha256:
            raise UsageError(
                f"语料 {name} 在训练之后变了（原来 {record.characters:,} 个字符，现在 {len(text):,} 个），"
                "分不出哪些是测试部分；请换回原来的文件，或者用 --corpus 给出要评估的文本"
            )
    else:
        hint = f"（训练用的是 {history.name}，但没有记下内容）" if history.name else ""
        raise UsageError(f"没有语料的记录{hint}，不知道在什么文本上评估；请用 --corpus 给出")
    tokens = _encode(tokenizer, text, record.name)
    test = tokens[int(len(tokens) * record.split) :]
    return tokenizer.decode(test), test, f"{record.name} 的测试部分（模型没有用它训练）"


def _encode(tokenizer: Tokenizer, text: str, name: str) -> Integers:
    try:
        return tokenizer.encode_array(text)
    except DataError as error:
        raise UsageError(f"--corpus {name!r} 里有模型不认识的字符：{plain(str(error))}") from error


class _Text(CharDataset):
    """一段词元，整段都用来评估；窗口的取法与训练时的评估相同。"""

    def __init__(self, tokens: Integers, vocab_size: int, context_size: int) -> None:
        self.tokens, self.vocab_size = tokens, vocab_size
        super().__init__("", context_size=context_size)

    def load(self) -> None:
        """不读文件：词元已经有了。"""
        self.train_data = self.test_data = self.tokens[None, :-1], self.tokens[None, 1:]

    @property
    def test_tokens(self) -> Integers:
        """全部。"""
        return self.tokens


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
