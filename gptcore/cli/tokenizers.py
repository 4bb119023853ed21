"""命令行的分词器：按 `--tokenizer` 建立或读入；一段词元有多少个字符与字节"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gptcore.cli.corpus import Corpus
from gptcore.cli.failures import plain
from gptcore.cli.folders import find_model
from gptcore.cli.usage import UsageError, suggestion
from gptcore.data import (
    END_OF_TEXT,
    BPETokenizer,
    ByteTokenizer,
    CharTokenizer,
    Tokenizer,
    load_tokenizer,
)
from gptcore.data.tokenizers import ByteLevelTokenizer, Ids
from gptcore.errors import DataError
from gptcore.models.huggingface.vocabulary import read_tokenizer

KINDS = ("char", "bytes", "bpe")
VOCAB_SIZE = 1000
"""不给 `--vocab-size` 时 BPE 的词表；文字少的，能有多大就多大"""
BLOCK = 1 << 20


def check_tokenizer(tokenizer: str | None, vocab_size: int | None) -> None:
    """两个选项之间的矛盾。

    Raises:
        UsageError: 有矛盾。
    """
    if vocab_size is not None and tokenizer != "bpe":
        raise UsageError(
            f"--vocab-size {vocab_size} 只用于 --tokenizer bpe；请去掉它，或加上 --tokenizer bpe"
        )


def build_tokenizer(
    kind: str,
    vocab_size: int | None,
    texts: Sequence[str | Path],
    train: Sequence[str | Path],
    *,
    separated: bool = False,
) -> Tokenizer:
    """建立或读入分词器。

    有几份文本时，字节与 BPE 的词表里加上文本结束词元，用来隔开各份。

    Args:
        kind: `KINDS` 之一，或者分词器的文件或文件夹。
        vocab_size: BPE 的词表大小。
        texts: 全部文本，字符的词表取自其中。
        train: 其中训练的部分，BPE 由它学出。
        separated: 只有一份文本时，是否也要文本结束词元。

    Raises:
        UsageError: 没有这个文件，或者文字太少。
        DataError: 分词器的文件读不懂。
    """
    special = [END_OF_TEXT] if separated or len(texts) > 1 else []
    if kind == "char":
        return CharTokenizer.from_text("".join(map(str, texts)))
    if kind == "bytes":
        return ByteTokenizer(special)
    if kind == "bpe":
        return _train(train, vocab_size, special)
    return read(kind)


def read(name: str) -> Tokenizer:
    """读入存好的分词器；gptcore 的模型文件夹、训练的文件夹也可以。

    Raises:
        UsageError: 没有这个文件或文件夹。
        DataError: 读不懂。
    """
    path = Path(name)
    if not name or not path.exists():
        raise UsageError(
            f"--tokenizer {name!r} 既不是 {'、'.join(KINDS)}，也不是文件或文件夹"
            f"{suggestion(name, KINDS)}；请检查路径"
        )
    if path.is_dir():
        return read_tokenizer(find_model(path))
    if path.name == "tokenizer.json":  # 也可能是导出的字符分词器
        return read_tokenizer(path.parent)
    if path.name in ("vocab.bpe", "encoder.json", "vocab.json", "merges.txt"):
        path = path.parent  # 词表与合并规则是两个文件
    return load_tokenizer(path)


def _train(train: Sequence[str | Path], vocab_size: int | None, special: list[str]) -> Tokenizer:
    size = vocab_size or VOCAB_SIZE
    smallest = 256 + len(special)
    if size < smallest:
        parts = "256 个字节" + (f"，加上 {len(special)} 个特殊词元" if special else "")
        raise UsageError(
            f"--vocab-size {size} 太小，至少是 {smallest}：{parts}；通常取 1000 到 50000"
        )
    try:
        return BPETokenizer.train(train, size, special_tokens=special)
    except DataError as error:
        found = re.search(r"词表最多 (\d+)", str(error))
        if found is None:
            raise
        most = int(found[1])
        if vocab_size is None:
            return BPETokenizer.train(train, most, special_tokens=special)
        raise UsageError(
            f"--vocab-size {size} 太大：训练部分的文字太少，词表至多 {most}；"
            f"请写 --vocab-size {most} 或更小的数，或换更长的文本"
        ) from error


def encode(tokenizer: Tokenizer, parts: Sequence[str], corpus: Corpus) -> Ids:
    """编码几份文字，之间放文本结束词元（分词器有它的话）。

    Args:
        tokenizer: 分词器。
        parts: 各份文字，可以只是语料的一部分。
        corpus: 语料；有不认识的字符时，说出它在哪一份的什么位置。

    Raises:
        UsageError: 有分词器不认识的字符。
    """
    end = tokenizer.special_tokens.get(END_OF_TEXT)
    pieces: list[Ids] = [np.empty(0, dtype=np.int64)]
    try:
        for i, text in enumerate(parts):
            if i and end is not None:
                pieces.append(np.array([end], dtype=np.int64))
            pieces.append(tokenizer.encode_array(text))
    except DataError:
        for name, text in zip(corpus.record.names, corpus.texts, strict=True):
            _require_known(tokenizer, name, text)
        raise
    return np.concatenate(pieces)


def _require_known(tokenizer: Tokenizer, name: str, text: str) -> None:
    try:
        tokenizer.encode_array(text)
    except DataError as error:
        raise UsageError(
            f"--corpus {name!r} 里有分词器不认识的字符：{plain(str(error))}"
        ) from error


class Lengths:
    """每个词元是几个字符、几个字节；由此得到一段词元的字符数与字节数，不必解码全文。

    一个字符的几个字节分在几个词元里时，算在它的第一个字节那里。特殊词元不是文字，都是 0。

    Args:
        tokenizer: 分词器。
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._table = np.zeros((tokenizer.vocab_size, 2), dtype=np.int64)
        special = set(tokenizer.special_tokens.values())
        for i in range(tokenizer.vocab_size):
            if i not in special:
                content = _content(tokenizer, i)
                characters = sum((byte & 0xC0) != 0x80 for byte in content)
                self._table[i] = characters, len(content)

    def count(self, tokens: Any) -> tuple[int, int]:
        """一段词元的字符数与字节数。

        Args:
            tokens: 一维整数数组，或词元文件的一段。
        """
        total = np.zeros(2, dtype=np.int64)
        for start in range(0, len(tokens), BLOCK):
            total += self._table[np.asarray(tokens[start : start + BLOCK])].sum(axis=0)
        return int(total[0]), int(total[1])


def _content(tokenizer: Tokenizer, i: int) -> bytes:
    if not isinstance(tokenizer, ByteLevelTokenizer):
        return tokenizer.decode([i]).encode("utf-8", "surrogatepass")
    try:
        return tokenizer.decode_bytes([i])
    except DataError:  # 空着的编号
        return b""
