"""`gptcore tokenize`：把文本编码成词元文件，之后反复训练都不必再编码；文本可以比内存大"""

import time
from collections.abc import Sequence
from pathlib import Path

from gptcore.cli.corpus import can_be_read_again, find_corpus, is_token_file
from gptcore.cli.folders import quoted
from gptcore.cli.terminal import Terminal
from gptcore.cli.tokenizers import build_tokenizer, check_tokenizer
from gptcore.cli.usage import UsageError
from gptcore.data import END_OF_TEXT, Tokenizer, read_text, write_tokens
from gptcore.data.sources import Source

SECONDS = 5.0
"""隔多少秒写一行进度"""


def run_tokenize(
    names: Sequence[str],
    out: Path,
    kind: str,
    vocab_size: int | None,
    split_documents: bool,
    terminal: Terminal,
) -> None:
    """编码几份文本，写成一个词元文件。

    Args:
        names: 语料的名称，或文本文件的路径。
        out: 词元文件。
        kind: 分词器的种类，或存好的分词器。
        vocab_size: BPE 的词表大小。
        split_documents: 文本里的 `<|endoftext|>` 是否算作文本结束词元。
        terminal: 终端。

    Raises:
        UsageError: 没有这个文件，`out` 是别的文件，或者分词器不合要求。
        DataError: 文件读不了，写不进去，或者有分词器不认识的字符。
    """
    check_tokenizer(kind, vocab_size)
    paths = [find_corpus(name, "文本") for name in names]
    if all(path.is_file() and not path.stat().st_size for path in paths):
        raise UsageError(f"文本 {'、'.join(names)} 是空的；请给出有内容的文件")
    _require_ours(out)
    tokenizer = _tokenizer(paths, kind, vocab_size, split_documents)
    allowed = {END_OF_TEXT} if split_documents else set[str]()
    source: Source = paths[0] if len(paths) == 1 else paths
    report = _Report(terminal)
    old = out.exists()
    try:
        file = write_tokens(out, source, tokenizer, allowed_special=allowed, progress=report)
    except (KeyboardInterrupt, SystemExit) as error:
        error.add_note(f"没有写成 {out}" + ("，原来的没有改动" if old else ""))
        raise
    terminal.say(
        f"词元文件 {out}：{file.count:,} 个词元，{report.characters:,} 个字符，"
        f"平均每个词元 {report.characters / file.count:.2f} 个字符；词表 {tokenizer.vocab_size:,}"
    )
    terminal.say("用它训练：")
    terminal.command(f"gptcore train --corpus {quoted(str(out))}")


class _Report:
    """编码的进度：每隔几秒写一行。"""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal, self._shown = terminal, time.monotonic()
        self.characters = 0

    def __call__(self, characters: int, tokens: int) -> None:
        self.characters = characters
        if time.monotonic() - self._shown >= SECONDS:
            self._shown = time.monotonic()
            self._terminal.say(f"已编码 {characters:,} 个字符，{tokens:,} 个词元")
            self._terminal.console.file.flush()


def _tokenizer(
    paths: Sequence[Path], kind: str, vocab_size: int | None, split_documents: bool
) -> Tokenizer:
    """分词器；字符与 BPE 的要先读一遍文本。"""
    if kind in ("char", "bpe"):
        for path in paths:
            if not can_be_read_again(path):
                raise UsageError(
                    f"--tokenizer {kind} 要先读一遍文本，{path} 却只能读一遍；"
                    "请先存成文件，或用 --tokenizer bytes、存好的分词器"
                )
    texts = [read_text(path) for path in paths] if kind == "char" else paths
    tokenizer = build_tokenizer(kind, vocab_size, texts, paths, separated=split_documents)
    if split_documents and END_OF_TEXT not in tokenizer.special_tokens:
        raise UsageError(
            f"--split-documents：分词器里没有文本结束词元 {END_OF_TEXT}，分不开各份；"
            "请用 --tokenizer bytes、bpe，或者有它的分词器"
        )
    return tokenizer


def _require_ours(out: Path) -> None:
    """已有的文件只有词元文件可以换掉。"""
    if out.is_dir():
        raise UsageError(f"--out：{out} 是文件夹；请写文件名，例如 {out / 'tokens.npy'}")
    if out.exists() and not is_token_file(out):
        raise UsageError(
            f"--out：{out} 不是词元文件，不会覆盖它；请换一个名字，例如 --out tokens.npy"
        )
