"""字符分词器"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, cast

import numpy as np

from gptcore.data.tokenizers.base import Tokenizer
from gptcore.data.tokenizers.ids import Ids, check_range, integer_ids
from gptcore.data.tokenizers.special import AllowedSpecial
from gptcore.data.tokenizers.texts import check_text, describe, invalid, is_surrogate
from gptcore.errors import DataError, DtypeError

BLOCK = 1 << 18
"""编码长文本时每次处理的字符数，限制临时数组的大小。"""


class CharTokenizer(Tokenizer):
    """字符分词器：每个字符（Unicode 码位）是一个词元。

    Args:
        vocab: 词表，字符的列表，或把它们连成的一个字符串；顺序就是编号，不能重复。
            要从一段文本里收集词表，用 `from_text`。

    Attributes:
        vocab: 字符的列表，下标是编号。
        stoi: 从字符到编号的字典。
        itos: 从编号到字符的字典。

    Raises:
        DataError: 词表为空、有重复，或某一项不是单个有效字符。
        DtypeError: `vocab` 的某一项不是字符串。

    Examples:
        >>> tokenizer = CharTokenizer.from_text("hello")
        >>> tokenizer.vocab
        ['e', 'h', 'l', 'o']
        >>> tokenizer.encode("hole")
        [1, 3, 2, 0]
        >>> tokenizer.decode([1, 0])
        'he'
    """

    kind = "char"

    def __init__(self, vocab: str | Sequence[str]) -> None:
        self.vocab = _check_vocab(vocab)
        self.stoi: dict[str, int] = {character: i for i, character in enumerate(self.vocab)}
        self.itos: dict[int, str] = dict(enumerate(self.vocab))
        self._codes = np.array([ord(character) for character in self.vocab], dtype="<u4")
        # 码位 → 编号的对照表，不在词表里的是 −1；最后一格代表所有更大的码位
        self._table = np.full(int(self._codes.max()) + 2, -1, dtype=np.int32)
        self._table[self._codes] = np.arange(len(self.vocab))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """收集文本里出现过的字符，按码位从小到大排成词表。

        Args:
            text: 训练文本，不能为空。

        Returns:
            能编码这段文本的分词器。

        Raises:
            DataError: 文本为空，或含有孤立的代理码位。
            DtypeError: `text` 不是字符串。
        """
        check_text("CharTokenizer.from_text", text)
        if not text:
            raise DataError(
                "CharTokenizer.from_text：text 是空的，收集不到任何字符；请给出至少一个字符的文本"
            )
        vocab = sorted(set(text))
        for character in vocab:
            if is_surrogate(character):
                raise invalid("CharTokenizer.from_text", character, text.index(character))
        return cls(vocab)

    @property
    def vocab_size(self) -> int:
        """词表大小。"""
        return len(self.vocab)

    def encode_array(self, text: str, *, allowed_special: AllowedSpecial = ()) -> Ids:
        """把文本变成词元编号的数组。

        Args:
            text: 要编码的文本，可以为空。
            allowed_special: 字符分词器没有特殊词元，只能是空的或 `"all"`。

        Returns:
            一维 int64 数组，每个字符一个编号。

        Raises:
            DataError: 有字符不在词表里；消息写出字符、码位和位置。
            DtypeError: `text` 不是字符串。
        """
        check_text("encode", text)
        self._select("encode", allowed_special)
        ids = np.empty(len(text), dtype=np.int64)
        start = 0
        for found in self._blocks((text,)):
            ids[start : start + len(found)] = found
            start += len(found)
        return ids

    def encode_stream(
        self, texts: Iterable[str], *, allowed_special: AllowedSpecial = ()
    ) -> Iterator[Ids]:
        """逐段编码一份分成几段的长文本，各段的结果连起来，与一次编码全文相同。

        Args:
            texts: 文本的各段，首尾相接。
            allowed_special: 同 `encode_array`。

        Returns:
            编号的数组，每个至多 26 万个编号。

        Raises:
            DataError: 有字符不在词表里；消息写出它在全文里的位置。
            DtypeError: 有一段不是字符串。
        """
        self._select("encode", allowed_special)
        return self._blocks(texts)

    def _blocks(self, texts: Iterable[str]) -> Iterator[Ids]:
        position = 0
        largest = len(self._table) - 1
        for text in texts:
            check_text("encode", text)
            for start in range(0, len(text), BLOCK):
                piece = text[start : start + BLOCK]
                codes = np.frombuffer(piece.encode("utf-32-le", "surrogatepass"), dtype="<u4")
                found = self._table[np.minimum(codes, largest)]
                if found.min() < 0:
                    at = int(np.argmax(found < 0))
                    self._unknown(piece[at], position + at)
                yield found.astype(np.int64)
                position += len(piece)

    def decode(self, ids: Any) -> str:
        """把一串词元编号变回文本。

        Args:
            ids: 编号的列表、一维整数数组或张量。

        Returns:
            文本，长度与 `ids` 相同。

        Raises:
            DataError: 编号超出词表；消息写出值、范围和位置。
            DtypeError: 编号不是整数。
            ShapeError: 数组不是一维。
        """
        array = integer_ids("decode", ids)
        check_range("decode", array, self.vocab_size)
        return self._codes[array.astype(np.int64)].tobytes().decode("utf-32-le")

    def to_dict(self) -> dict[str, Any]:
        """变成可以写进 JSON 的字典。

        Returns:
            `{"type": "char", "vocab": 按编号连起来的全部字符}`。
        """
        return {"type": self.kind, "vocab": "".join(self.vocab)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """从 `to_dict()` 的结果恢复。

        Args:
            data: 字典，`"vocab"` 是字符串或字符的列表。

        Returns:
            同样的分词器。

        Raises:
            DataError: 没有 `"vocab"`，或词表无效。
        """
        given: Any = data
        vocab = data.get("vocab") if isinstance(given, Mapping) else data
        if not isinstance(vocab, str | list):
            raise DataError(
                f"CharTokenizer.from_dict：vocab 得到 {reprlib.repr(vocab)}，它必须是字符串或字符的列表；"
                "请检查文件是否完整，或用 to_dict() 重新保存"
            )
        return cls(cast("str | list[str]", vocab))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CharTokenizer) and self.vocab == other.vocab

    def __hash__(self) -> int:
        return hash(tuple(self.vocab))

    def __repr__(self) -> str:
        return f"CharTokenizer(vocab_size={self.vocab_size})"

    def _unknown(self, character: str, position: int) -> None:
        raise DataError(
            f"encode：位置 {position}（从 0 数起）上的字符 {describe(character)}不在词表里，"
            f"词表共有 {self.vocab_size} 个字符；请删去或替换它，或改用训练文本里含有它的模型"
        )


def _check_vocab(vocab: Any) -> list[str]:
    """词表的列表；逐个检查，不先复制，重复几百万次的内容就不会占用几百倍的内存。"""
    if not isinstance(vocab, Iterable):
        raise DtypeError(f"CharTokenizer：vocab 得到 {vocab!r}，它必须是字符串或字符的列表")
    seen: dict[str, int] = {}
    for position, character in enumerate(cast("Iterable[Any]", vocab)):
        if not isinstance(character, str):
            raise DtypeError(
                f"CharTokenizer：vocab 的位置 {position} 上是 {reprlib.repr(character)}"
                f"（{type(character).__name__}），每一项必须是一个字符；请先转换成 str"
            )
        if len(character) != 1:
            raise DataError(
                f"CharTokenizer：vocab 的位置 {position} 上是 {reprlib.repr(character)}，"
                f"长度是 {len(character)}，每一项必须恰好是一个字符；请拆开或删去它"
            )
        if is_surrogate(character):
            raise invalid("CharTokenizer", character, position)
        if character in seen:
            raise DataError(
                f"CharTokenizer：字符 {describe(character)}在 vocab 里出现了两次，"
                f"位置是 {seen[character]} 和 {position}；请去掉重复的，"
                "要从文本收集词表请用 CharTokenizer.from_text(文本)"
            )
        seen[character] = position
    if not seen:
        raise DataError("CharTokenizer：vocab 是空的；请给出至少一个字符，或用 from_text(文本)")
    return list(seen)
