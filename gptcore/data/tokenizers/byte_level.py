"""字节级分词器共用的部分：编号 → 字节 → 文字"""

from __future__ import annotations

import codecs
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np

from gptcore.data.tokenizers.base import IncrementalDecoder, Tokenizer
from gptcore.data.tokenizers.ids import Ids, check_range, integer_ids
from gptcore.data.tokenizers.special import AllowedSpecial, check_names, split_tokens
from gptcore.data.tokenizers.texts import well_formed
from gptcore.errors import DataError


class ByteLevelTokenizer(Tokenizer):
    """每个词元是一串字节的分词器。

    先把文字写成 UTF-8，再切分字节，所以任何文字都能编码，没有“不认识的字符”；
    反过来，任意一串词元不一定是完整的 UTF-8，`decode` 用 `�`（U+FFFD）代替残缺的部分。

    孤立的代理码位不是字符，写不成 UTF-8：编码时成对的合成一个字符，孤立的换成 U+FFFD，与 tiktoken 相同。

    Args:
        tokens: 普通词元的编号与字节。
        special_tokens: 特殊词元：名字的列表，接在后面编号；或名字与编号的字典。

    Raises:
        DataError: 特殊词元的名字或编号无效。
        DtypeError: 特殊词元的名字不是字符串。
    """

    def __init__(
        self, tokens: Mapping[int, bytes], special_tokens: Iterable[str] | Mapping[str, int] = ()
    ) -> None:
        name = type(self).__name__
        start = max(tokens, default=-1) + 1
        self._special = check_names(name, special_tokens, start)
        self._bytes = dict(tokens)
        for token, number in self._special.items():
            if number in self._bytes:
                raise DataError(
                    f"{name}：特殊词元 {token!r} 的编号 {number} 已经用于 {self._bytes[number]!r}；"
                    f"请换一个编号，例如 {start}"
                )
            self._bytes[number] = token.encode("utf-8")
        self._size = max(self._bytes, default=-1) + 1

    @property
    def vocab_size(self) -> int:
        """词表大小，即最大的编号加一；读自别处的词表可能有空着的编号。"""
        return self._size

    @property
    def special_tokens(self) -> dict[str, int]:
        """特殊词元的名字与编号。"""
        return dict(self._special)

    def encode_array(self, text: str, *, allowed_special: AllowedSpecial = ()) -> Ids:
        """把文本变成词元编号的一维 int64 数组。

        Args:
            text: 要编码的文本，可以为空。
            allowed_special: 文本里的哪些特殊词元算数：名字的集合，或 `"all"`。

        Returns:
            一维 int64 数组。

        Raises:
            ArgumentError: `allowed_special` 不是名字的集合，或有这个分词器没有的名字。
            DtypeError: `text` 不是字符串。
        """
        arrays = list(self.encode_stream((text,), allowed_special=allowed_special))
        if len(arrays) == 1:
            return arrays[0]
        return np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)

    def encode_stream(
        self, texts: Iterable[str], *, allowed_special: AllowedSpecial = ()
    ) -> Iterator[Ids]:
        """逐段编码一份分成几段的长文本；各段的结果连起来，与一次编码全文相同，不论怎样分段。

        Args:
            texts: 文本的各段，首尾相接。
            allowed_special: 同 `encode`。

        Yields:
            编号的数组，一段文本不一定恰好对应一个。

        Raises:
            ArgumentError: `allowed_special` 不是名字的集合，或有这个分词器没有的名字。
            DtypeError: 有一段不是字符串。
        """
        allowed = self._select("encode", allowed_special)
        return self._encode_parts(split_tokens(well_formed(texts), allowed))

    @abstractmethod
    def _encode_parts(self, parts: Iterator[str | int]) -> Iterator[Ids]:
        """编码首尾相接的各段文字，夹在中间的编号是已经认出的特殊词元。"""

    def decode(self, ids: Any) -> str:
        """把一串词元编号变回文本。

        Args:
            ids: 编号的列表、一维整数数组或张量。

        Returns:
            文本；不是 UTF-8 的字节变成 `�`（U+FFFD）。

        Raises:
            DataError: 编号超出词表；消息写出值、范围和位置。
            DtypeError: 编号不是整数。
            ShapeError: 数组不是一维。
        """
        return self._join("decode", ids).decode("utf-8", "replace")

    def decode_bytes(self, ids: Any) -> bytes:
        """把一串词元编号变回字节，一个不差。

        Args:
            ids: 编号的列表、一维整数数组或张量。

        Returns:
            字节，不一定是完整的 UTF-8；特殊词元是它的名字。

        Raises:
            DataError: 编号超出词表。
            DtypeError: 编号不是整数。
            ShapeError: 数组不是一维。
        """
        return self._join("decode_bytes", ids)

    def incremental_decoder(self) -> ByteLevelDecoder:
        """逐个词元解码，供流式生成使用：一个字符的字节到齐了才给出。

        Returns:
            新的解码器。

        Examples:
            >>> tokenizer = ByteTokenizer()
            >>> decoder = tokenizer.incremental_decoder()
            >>> [decoder.push(i) for i in tokenizer.encode("龙！")]
            ['', '', '龙', '', '', '！']
            >>> decoder.flush()
            ''
        """
        return ByteLevelDecoder(self)

    def _join(self, operation: str, ids: Any) -> bytes:
        array = integer_ids(operation, ids)
        check_range(operation, array, self._size)
        numbers = cast("list[int]", array.tolist())
        try:
            return b"".join(map(self._bytes.__getitem__, numbers))
        except KeyError as error:
            raise DataError(
                f"{operation}：位置 {numbers.index(error.args[0])}（从 0 数起）上的编号 {error} 是空着的，"
                "词表里没有这个词元；请检查编号是否来自同一个分词器"
            ) from None


class ByteLevelDecoder(IncrementalDecoder):
    """字节级分词器的逐个解码：只给出完整的字符，各次结果连起来等于 `decode`。

    一个字符的字节可以分在几个词元里，到齐之前 `push` 给出空字符串，而不是 `�`（U+FFFD）。
    只有确实不可能再凑成字符的字节（后面来的字节已经接不上）才变成 U+FFFD，与 `decode` 一样；
    末尾残缺的部分留到 `flush`。

    Args:
        tokenizer: 分词器。
    """

    def __init__(self, tokenizer: ByteLevelTokenizer) -> None:
        super().__init__(tokenizer)
        self._decode_bytes = tokenizer.decode_bytes
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """收下一个词元。

        Args:
            token: 词元的编号。

        Returns:
            到这里已经完整的文字，可能为空。

        Raises:
            DataError: 编号超出词表。
            DtypeError: 编号不是整数。
        """
        return self._utf8.decode(self._decode_bytes([token]))

    def flush(self) -> str:
        """结束：给出还没有凑成字符的剩余部分；之后可以从头再用。

        Returns:
            剩余的文字，通常为空；残缺的字节变成 U+FFFD。
        """
        return self._utf8.decode(b"", True)
