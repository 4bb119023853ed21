"""`gptcore generate` 的提示：命令行上的文字，标准输入，或者什么也不给"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gptcore.cli.corpus import CorpusRecord
from gptcore.cli.failures import plain
from gptcore.cli.folders import read_record
from gptcore.cli.runs import find_run
from gptcore.cli.streams import complain
from gptcore.cli.usage import UsageError
from gptcore.data import END_OF_TEXT, Tokenizer
from gptcore.data.text import decode_utf8
from gptcore.errors import DataError

STANDARD_INPUT = "-"
SHOWN = 40
"""消息里的提示至多写多少个字符"""


@dataclass(frozen=True)
class Prompt:
    """一条提示。

    Attributes:
        text: 文字，写在续写的前面。
        ids: 它的词元。
    """

    text: str
    ids: list[int]


def read_prompts(given: Sequence[str] | None, tokenizer: Tokenizer, place: Path) -> list[Prompt]:
    """读入各条提示并编码。

    Args:
        given: 命令行上的各个 `--prompt`；`-` 是标准输入。不给时从新的一篇（或新的一行）开始。
        tokenizer: 分词器。
        place: 模型在哪里；由训练的记录知道它见没见过文本结束词元。

    Raises:
        UsageError: 提示为空，有模型不认识的字符，或标准输入读不了。
    """
    if not given:
        return [Prompt("", _start(tokenizer, place))]
    if list(given).count(STANDARD_INPUT) > 1:
        raise UsageError("--prompt - 只能给一次：标准输入只能读一遍；请去掉多余的")
    return [_prompt(tokenizer, text) for text in given]


def as_utf8(argument: str) -> str:
    """还原命令行上的文字：区域设置是 C 时，Python 会把它的 UTF-8 字节逐个变成代理码位。"""
    try:
        return argument.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        return argument


def _prompt(tokenizer: Tokenizer, given: str) -> Prompt:
    if given == STANDARD_INPUT:
        text, shown = _standard_input(), "--prompt - 读到的文字"
    else:
        text = as_utf8(given)
        short = text if len(text) <= SHOWN else text[:SHOWN] + "…"
        shown = f"--prompt {short!r} "
    if not text:
        raise UsageError("--prompt 是空的；请至少给一个字符，或去掉 --prompt，从头开始写")
    try:
        return Prompt(text, tokenizer.encode(text))
    except DataError as error:
        raise UsageError(f"{shown}里有模型不认识的字符：{plain(str(error))}") from error


def _start(tokenizer: Tokenizer, place: Path) -> list[int]:
    """没有提示时从哪里写起：文本结束词元之后是新的一篇；没有它、训练时没见过它，就是新的一行。"""
    end = tokenizer.special_tokens.get(END_OF_TEXT)
    run = find_run(place)
    corpus = run.corpus if run else CorpusRecord.parse(read_record(place).get("corpus"))
    if end is not None and (corpus is None or corpus.separated):
        return [end]
    try:
        return tokenizer.encode("\n")
    except DataError:  # 词表里没有换行
        return [0]


def _standard_input() -> str:
    """标准输入的全文；末尾的一个换行去掉，`echo` 与编辑器总会加上它。"""
    if sys.stdin is None:
        raise UsageError("--prompt -：标准输入是关闭的；请从管道或文件输入，或直接写出提示")
    if sys.stdin.isatty():
        complain("输入提示，写完另起一行按 Ctrl-D", prefix="")
    try:
        text = decode_utf8(sys.stdin.buffer.read(), Path("标准输入"))
    except DataError as error:
        raise UsageError(f"--prompt -：{plain(str(error))}") from error
    text = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")
    if not text:
        raise UsageError(
            "--prompt -：标准输入是空的；请至少给一个字符，或去掉 --prompt，从头开始写"
        )
    return text
