"""文字的来源：一个文件，几份文件或文字，或迭代器；逐份编码成词元

一份文件或一段文字是一份**文档**。有几份时，前后两份之间放一个文本结束词元 `<|endoftext|>`，
模型由此知道后一份与前一份无关；分词器没有这个特殊词元时直接相连。只有一份时不添，
所以一个文件的词元就是 `tokenizer.encode(全文)`。空的文件和空的文字跳过。
"""

import io
import os
import reprlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gptcore.data.text import text_chunks
from gptcore.data.tokenizers.base import END_OF_TEXT, Tokenizer
from gptcore.data.tokenizers.ids import Ids
from gptcore.data.tokenizers.special import AllowedSpecial, select_special
from gptcore.errors import DataError, DtypeError
from gptcore.files import is_file

Source = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""一个文件名（`str` 或 `Path`）；或可迭代的对象，其中的 `Path` 是文件，`str` 是文字。"""
Unsigned = npt.NDArray[np.uint16 | np.uint32]
BLOCK = 1 << 20
"""每次大约给出多少个词元"""


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """存得下全部编号的最小的类型：词表不超过 65,536 时是 uint16，否则是 uint32。

    Args:
        vocab_size: 词表大小。

    Returns:
        小端的类型。
    """
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


class Documents:
    """一份来源的各份文档；只能从头到尾取一遍。

    Args:
        operation: 操作名，写进错误消息。
        source: 来源。

    Attributes:
        count: 已经取完了几份，不计空的。
        characters: 已经读了多少个字符。

    Raises:
        DataError: 来源写得不对。
        DtypeError: 来源的类型不对。
    """

    def __init__(self, operation: str, source: Source) -> None:
        self.operation = operation
        self.count, self.characters = 0, 0
        self._several, self._items = _items(operation, source)
        self._name = ""
        self._read_error: DataError | None = None
        self._forbidden: Path | None = None

    def forbid(self, target: Path) -> None:
        """正要写的文件，不能又是来源之一：写完会换掉它，原文就没有了。"""
        self._forbidden = target

    def __iter__(self) -> Iterator[Iterator[str]]:
        """各份不空的文档。

        Yields:
            首尾相接的各段文字；要先取完一份，再取下一份。

        Raises:
            DataError: 文件读不了，或者把文件名写成了文字。
            DtypeError: 有一项不是文字或路径。
        """
        for i, item in enumerate(self._items):
            if isinstance(item, os.PathLike):
                path = cast("os.PathLike[str]", item)
                self._name, pieces = f"文件 {os.fspath(path)!r}", self._file(path)
            else:
                self._name = f"source 的第 {i} 项"
                pieces = iter((_text(self.operation, item, i),))
            filled = (piece for piece in pieces if piece)
            first = next(filled, None)
            if first is not None:
                yield self._counted(chain((first,), filled))
                self.count += 1

    def require_some(self) -> None:
        """取完之后，至少要有一份。

        Raises:
            DataError: 一份也没有，或全是空的。
        """
        if not self.count:
            raise DataError(f"{self.operation}：没有文字，source 是空的；请给出至少一份不空的文字")

    def explain(self, error: DataError) -> DataError:
        """编码时的错误，说明是哪一份；读文件的错误里已经有文件名。"""
        if error is self._read_error or not self._several:
            return error
        return DataError(f"{self.operation}：{self._name}：{error}")

    def _file(self, path: os.PathLike[str]) -> Iterator[str]:
        try:
            if self._forbidden is not None and _same_file(path, self._forbidden):
                raise DataError(
                    f"{self.operation}：{os.fspath(path)!r} 既是来源，又是要写的文件，写完原文就没有了；"
                    "请写到别的文件，例如 tokens.npy"
                )
            yield from text_chunks(path)
        except DataError as error:
            self._read_error = error
            raise

    def _counted(self, pieces: Iterator[str]) -> Iterator[str]:
        for piece in pieces:
            self.characters += len(piece)
            yield piece


class TokenStream:
    """各份文档的全部词元，一段一段地给出；只能从头到尾取一遍。

    Args:
        documents: 各份文档。
        tokenizer: 分词器。
        allowed_special: 文字里的哪些特殊词元算数，见 `Tokenizer.encode`。

    Raises:
        ArgumentError: `allowed_special` 里有这个分词器没有的名字。
        DtypeError: 分词器的类型不对。
    """

    def __init__(
        self, documents: Documents, tokenizer: Tokenizer, allowed_special: AllowedSpecial = ()
    ) -> None:
        given: Any = tokenizer
        operation = documents.operation
        if not isinstance(given, Tokenizer):
            raise DtypeError(
                f"{operation}：tokenizer 得到 {reprlib.repr(given)}，它必须是分词器；"
                "例如 ByteTokenizer()，或 load_tokenizer(文件夹)"
            )
        select_special(operation, tokenizer.special_tokens, allowed_special)
        self.documents, self.tokenizer, self.allowed_special = documents, tokenizer, allowed_special

    def __iter__(self) -> Iterator[Ids]:
        encode, end = self.tokenizer.encode_stream, self.tokenizer.special_tokens.get(END_OF_TEXT)
        for pieces in self.documents:
            if self.documents.count and end is not None:
                yield np.array([end], dtype=np.int64)
            try:
                yield from encode(pieces, allowed_special=self.allowed_special)
            except DataError as error:
                explained = self.documents.explain(error)
                if explained is error:
                    raise
                raise explained from error

    def blocks(self) -> Iterator[Unsigned]:
        """全部词元，每次约 `BLOCK` 个，类型是 `token_dtype(词表大小)`。

        Raises:
            DataError: 文件读不了，文字编码不了，或分词器给出了词表以外的编号。
        """
        held: list[Ids] = []
        count = 0
        for ids in self:
            held.append(ids)
            count += len(ids)
            if count >= BLOCK:
                yield self._narrowed(held)
                held, count = [], 0
        if count:
            yield self._narrowed(held)

    def _narrowed(self, arrays: list[Ids]) -> Unsigned:
        ids, size = np.concatenate(arrays), self.tokenizer.vocab_size
        if ids.min() < 0 or ids.max() >= size:
            raise DataError(
                f"{self.documents.operation}：{type(self.tokenizer).__name__} 给出的编号在 {ids.min()} 到 "
                f"{ids.max()} 之间，应当是 0 到 {size - 1}；请检查它的 vocab_size"
            )
        return ids.astype(token_dtype(size))


def _items(operation: str, source: Any) -> tuple[bool, Iterator[Any]]:
    """各份文档，以及是不是可能有几份。"""
    if isinstance(source, str):
        if "\n" in source:
            raise DataError(
                f"{operation}：source 得到字符串 {reprlib.repr(source)}；一个字符串表示文件名，"
                "文字本身请写成 [文字]"
            )
        return False, iter((Path(source),))
    if isinstance(source, os.PathLike):
        return False, iter((cast("os.PathLike[str]", source),))
    if isinstance(source, bytes | bytearray | io.IOBase) or not isinstance(source, Iterable):
        raise DtypeError(
            f"{operation}：source 得到 {type(cast('object', source)).__name__}；它必须是文件名（str 或 Path），"
            "或它们与文字的列表、迭代器"
        )
    return True, iter(cast("Iterable[Any]", source))


def _same_file(path: os.PathLike[str], other: Path) -> bool:
    try:
        return Path(path).samefile(other)
    except (OSError, ValueError):  # 还没有，或者读不了，读的时候再说
        return False


def _text(operation: str, item: Any, i: int) -> str:
    """一份文字；把文件名误写成文字时报错。"""
    if not isinstance(item, str):
        raise DtypeError(
            f"{operation}：source 的第 {i} 项是 {type(item).__name__}；每一项必须是 Path（文件）或 str（文字）"
        )
    like_a_name = len(item) < 256 and "\n" not in item and ("." in item or os.sep in item)
    if like_a_name and is_file(item):
        raise DataError(
            f"{operation}：source 的第 {i} 项是字符串 {item!r}，正好有这个名字的文件；"
            f"列表里的字符串是文字，文件请写成 Path({item!r})"
        )
    return item
