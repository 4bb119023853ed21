"""字节级 BPE 分词器"""

from __future__ import annotations

import os
import reprlib
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Self, cast

import numpy as np

from gptcore.data.checks import positive_integer
from gptcore.data.text import text_chunks
from gptcore.data.tokenizers.bpe_merging import Merges, PieceCache
from gptcore.data.tokenizers.bpe_training import learn_merges
from gptcore.data.tokenizers.byte_alphabet import BYTE_ORDER, is_byte_level, to_bytes
from gptcore.data.tokenizers.byte_level import ByteLevelTokenizer
from gptcore.data.tokenizers.gpt2_pattern import PieceStream
from gptcore.data.tokenizers.ids import Ids
from gptcore.data.tokenizers.special import check_id, check_names, split_tokens
from gptcore.data.tokenizers.texts import check_text, well_formed
from gptcore.errors import ArgumentError, DataError, DtypeError
from gptcore.files import is_file

BASE = 256


class BPETokenizer(ByteLevelTokenizer):
    """字节级 BPE 分词器：先切成片段，每个片段的字节按学到的次序两两合并。

    编码一个片段：从单个字节开始，每次在相邻的对里找次序最靠前的合并规则（有几处时取最左边的），
    直到没有规则可用。片段按 GPT-2 的规则切分，合并不跨过片段，
    见 [`gpt2_pattern`][gptcore.data.tokenizers.gpt2_pattern]。

    训练用 `train`，读 GPT-2 与 Hugging Face 的文件用 `load`；直接构造时给出合并规则。
    不给 `vocab` 时，编号是：256 个字节（GPT-2 的次序，`!` 是 0）、各次合并的结果、特殊词元。

    Args:
        merges: 各次合并的两串字节，越靠前越优先。
        special_tokens: 特殊词元：名字的列表，接在后面编号；或名字与编号的字典。
        vocab: 词元与编号；不给时按上面的次序。要有全部 256 个字节与每次合并的结果。
        added_tokens: 总是整个匹配的普通词元与编号，例如有的模型加进词表的一串空格。
        add_prefix_space: 编码之前，在每段开头没有空格的文字前面添一个空格。
        split: 是否按 GPT-2 的规则切分；否则整段文字是一个片段。

    Attributes:
        merges: 各次合并的两串字节。
        vocab: 普通词元与编号，不含特殊词元。
        added_tokens: 总是整个匹配的普通词元与编号。
        add_prefix_space: 是否添空格。
        split: 是否切分。

    Raises:
        DataError: 合并规则、词表或特殊词元无效。
        DtypeError: 类型不对。

    Examples:
        >>> tokenizer = BPETokenizer.train("low lower lowest " * 9, vocab_size=261)
        >>> tokenizer.merges
        [(b'l', b'o'), (b'lo', b'w'), (b' ', b'low'), (b' low', b'e'), (b's', b't')]
        >>> tokenizer.encode(" lower lowest")
        [259, 81, 259, 260]
        >>> tokenizer.decode([258, 260])
        ' lowst'

    出处：Sennrich 等 2016，https://arxiv.org/abs/1508.07909；字节级与切分规则见 Radford 等 2019（GPT-2）。

    教程：第 19 章 BPE 分词，第 20 章 载入 GPT-2。
    """

    kind = "bpe"

    def __init__(
        self,
        merges: Iterable[tuple[bytes, bytes]],
        special_tokens: Iterable[str] | Mapping[str, int] = (),
        *,
        vocab: Mapping[bytes, int] | None = None,
        added_tokens: Mapping[str, int] | None = None,
        add_prefix_space: bool = False,
        split: bool = True,
    ) -> None:
        self.merges = _check_merges(merges)
        self.vocab = _default_vocab(self.merges) if vocab is None else _check_vocab(vocab)
        self.added_tokens = check_names("BPETokenizer", added_tokens or {}, 0)
        self.add_prefix_space, self.split = bool(add_prefix_space), bool(split)
        super().__init__(_by_id(self.vocab, self.added_tokens), special_tokens)
        _check_results(self.vocab, self.merges)
        _check_distinct(self.vocab, chain(self.added_tokens, self._special))
        ids = self.vocab
        rules = Merges(
            [(ids[left], ids[right]) for left, right in self.merges],
            [ids[left + right] for left, right in self.merges],
        )
        self._cache = PieceCache(rules, [ids[bytes([byte])] for byte in range(BASE)])
        self._lock = threading.Lock()

    @classmethod
    def train(
        cls,
        source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        vocab_size: int,
        *,
        special_tokens: Iterable[str] = (),
        min_frequency: int = 2,
    ) -> Self:
        """从文字训练，算法见 [`bpe_training`][gptcore.data.tokenizers.bpe_training]。

        同样的文字总是得到同样的词表：次数相同的对，取编号小的。

        Args:
            source: 文字；或一个文件的路径（`Path`，UTF-8）；或它们的列表、迭代器，片段不会跨过两份。
                字符串总是文字，不是文件名。文件一段一段地读，占多少内存取决于有多少种片段。
            vocab_size: 词表大小，是 256 个字节、各次合并与特殊词元之和。
            special_tokens: 特殊词元的名字，编号在最后；训练文字里与它们相同的文字照普通文字统计。
            min_frequency: 一对词元至少出现多少次才合并；只出现一次的合并记住的是这份文字，而不是规律。

        Returns:
            分词器，词表恰好是 `vocab_size`。

        Raises:
            ArgumentError: `vocab_size` 小于 256 加特殊词元的个数，或参数不是正整数。
            DataError: 文字是空的，或太少，造不出这么大的词表；消息写出最多能有多大。
            DtypeError: `source` 不是文字或路径。
        """
        size = positive_integer("BPETokenizer.train", "vocab_size", vocab_size)
        least = positive_integer("BPETokenizer.train", "min_frequency", min_frequency)
        special = list(check_names("BPETokenizer.train", special_tokens, 0))
        wanted = size - BASE - len(special)
        if wanted < 0:
            raise ArgumentError(
                f"BPETokenizer.train：vocab_size 得到 {size}，至少要有 {BASE + len(special)} 个："
                f"{BASE} 个字节，加上 {len(special)} 个特殊词元；请增大 vocab_size"
            )
        counts: Counter[str] = Counter()
        for pieces in _pieces(source):
            counts.update(pieces)
        if not counts:
            raise DataError("BPETokenizer.train：没有文字可供训练；请给出至少一个字符的文字")
        merges = learn_merges(counts, wanted, least)
        if len(merges) < wanted:
            most = BASE + len(merges) + len(special)
            raise DataError(
                f"BPETokenizer.train：文字太少，只能合并 {len(merges)} 次（min_frequency={least}），"
                f"词表最多 {most}，不够 vocab_size={size}；请给出更多文字，"
                f"或者 vocab_size 不超过 {most}"
                + ("，或减小 min_frequency" if least > 1 else "")
                + _path_hint(source)
            )
        return cls(merges, special)

    def _encode_parts(self, parts: Iterator[str | int]) -> Iterator[Ids]:
        stream = PieceStream(self.split)
        fresh = True  # 前面是开头，或一个整个匹配的词元
        for part in chain(split_tokens(parts, self.added_tokens), (None,)):
            if isinstance(part, str):
                if fresh and self.add_prefix_space and part[0] != " ":
                    part = " " + part
                batches, fresh = stream.feed(part), False
            else:
                batches, fresh = stream.finish(), True
            for pieces in batches:
                with self._lock:
                    ids = self._cache.encode(pieces)
                yield ids
            if isinstance(part, int):
                yield np.array([part], dtype=np.int64)

    def to_dict(self) -> dict[str, Any]:
        """变成 Hugging Face `tokenizer.json` 的内容，tokenizers 能直接读，编号相同。

        Returns:
            可以写进 JSON 的字典。
        """
        from gptcore.data.tokenizers.hugging_face_writing import tokenizer_json

        return tokenizer_json(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """从 `to_dict()` 的结果，或别处的 Hugging Face `tokenizer.json` 恢复。

        Args:
            data: `tokenizer.json` 的内容。

        Returns:
            分词器。

        Raises:
            DataError: 内容无效，或用到了这里没有实现的东西；消息写出是哪一项。
        """
        from gptcore.data.tokenizers.hugging_face_reading import parse_tokenizer_json

        return cls(**parse_tokenizer_json(data))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BPETokenizer) and self._settings() == other._settings()

    def __hash__(self) -> int:
        return hash((tuple(self.merges), frozenset(self._special.items())))

    def __repr__(self) -> str:
        return f"BPETokenizer(vocab_size={self.vocab_size}, merges={len(self.merges)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), *self._settings())

    def _settings(self) -> tuple[Any, ...]:
        return (
            self.merges,
            self._special,
            self.vocab,
            self.added_tokens,
            self.add_prefix_space,
            self.split,
        )


def _rebuild(kind: type[BPETokenizer], *settings: Any) -> BPETokenizer:
    merges, special, vocab, added, add_prefix_space, split = settings
    return kind(
        merges,
        special,
        vocab=vocab,
        added_tokens=added,
        add_prefix_space=add_prefix_space,
        split=split,
    )


def _pieces(source: Any) -> Iterator[list[str]]:
    """各份文字的片段；路径读成文字。"""
    if isinstance(source, str | os.PathLike):
        source = (cast("str | os.PathLike[str]", source),)
    elif isinstance(source, bytes | bytearray) or not isinstance(source, Iterable):
        raise DtypeError(
            f"BPETokenizer.train：source 得到 {type(source).__name__}；"
            "它必须是文字、文件的路径（Path），或它们的列表"
        )
    for item in cast("Iterable[Any]", source):
        if isinstance(item, os.PathLike):
            texts = text_chunks(cast("os.PathLike[str]", item))
        else:
            check_text("BPETokenizer.train", item)
            texts = (cast("str", item),)
        stream = PieceStream()
        for text in well_formed(texts):
            yield from stream.feed(text)
        yield from stream.finish()


def _path_hint(source: Any) -> str:
    """文字其实是一个文件名时的提示。"""
    if isinstance(source, str) and len(source) < 1000 and is_file(source):
        return f"；{source!r} 是一个文件，要读它请写 Path({source!r})"
    return ""


def _check_merges(merges: Any) -> list[tuple[bytes, bytes]]:
    given: object = merges
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise DtypeError(
            f"BPETokenizer：merges 得到 {reprlib.repr(cast('object', given))}，它必须是两串字节的列表；"
            "要从文字训练请用 BPETokenizer.train，要读文件请用 BPETokenizer.load"
        )
    checked: dict[tuple[bytes, bytes], int] = {}
    for i, pair in enumerate(cast("Iterable[Any]", merges)):
        match pair:
            case [bytes() as left, bytes() as right] if left and right:
                parts = left, right
            case _:
                raise DataError(
                    f"BPETokenizer：merges 的第 {i} 项是 {reprlib.repr(pair)}，它必须是两串字节"
                )
        if parts in checked:
            raise DataError(
                f"BPETokenizer：merges 的第 {checked[parts]} 项与第 {i} 项相同，都是 {parts!r}；请去掉一个"
            )
        checked[parts] = i
    return list(checked)


def _default_vocab(merges: list[tuple[bytes, bytes]]) -> dict[bytes, int]:
    vocab = {bytes([byte]): i for i, byte in enumerate(BYTE_ORDER)}
    for left, right in merges:
        if left + right in vocab:
            raise DataError(
                f"BPETokenizer：merges 里 {left!r} 与 {right!r} 合成的 {left + right!r} 已经有了；"
                "请去掉一个，或给出 vocab"
            )
        vocab[left + right] = len(vocab)
    return vocab


def _check_vocab(vocab: Any) -> dict[bytes, int]:
    if not isinstance(vocab, Mapping):
        raise DtypeError(
            f"BPETokenizer：vocab 得到 {reprlib.repr(vocab)}，它必须是词元（bytes）与编号的字典"
        )
    vocab = cast("Mapping[Any, Any]", vocab)
    for token, number in vocab.items():
        if not isinstance(token, bytes) or not token:
            raise DataError(
                f"BPETokenizer：vocab 里的 {reprlib.repr(token)} 不是一串字节；普通词元要写成 bytes"
            )
        check_id("BPETokenizer", token, number)
    missing = [byte for byte in range(BASE) if bytes([byte]) not in vocab]
    if missing:
        raise DataError(
            f"BPETokenizer：vocab 里没有字节 0x{missing[0]:02X}（共缺 {len(missing)} 个），有的文字会无法编码；"
            "词表要有全部 256 个字节"
        )
    return dict(vocab)


def _by_id(vocab: Mapping[bytes, int], added: Mapping[str, int]) -> dict[int, bytes]:
    tokens: dict[int, bytes] = {}
    pairs = ((name.encode("utf-8"), number) for name, number in added.items())
    for token, number in chain(vocab.items(), pairs):
        if number in tokens:
            raise DataError(
                f"BPETokenizer：编号 {number} 既是 {tokens[number]!r} 又是 {token!r}；每个词元的编号要不同"
            )
        tokens[number] = token
    return tokens


def _check_distinct(vocab: Mapping[bytes, int], names: Iterable[str]) -> None:
    """Hugging Face 的文件把两种词元写在一起，写法相同就分不清了。"""
    for name in names:
        if is_byte_level(name) and (token := to_bytes(name, "特殊词元")) in vocab:
            raise DataError(
                f"BPETokenizer：特殊词元 {name!r} 与编号 {vocab[token]} 的普通词元写法相同，"
                "保存之后分不清它们；请给特殊词元换一个名字，例如 <|名字|>"
            )


def _check_results(vocab: Mapping[bytes, int], merges: list[tuple[bytes, bytes]]) -> None:
    for i, (left, right) in enumerate(merges):
        for token in (left, right, left + right):
            if token not in vocab:
                raise DataError(
                    f"BPETokenizer：merges 的第 {i} 项 {left!r} 与 {right!r} 用到的 {token!r} 不在词表里；"
                    "请检查两者是否来自同一个分词器"
                )
