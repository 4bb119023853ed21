"""字节分词器"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, cast

import numpy as np

from gptcore.data.tokenizers.byte_level import ByteLevelTokenizer
from gptcore.data.tokenizers.ids import Ids
from gptcore.errors import DataError

TABLE = {i: bytes([i]) for i in range(256)}


class ByteTokenizer(ByteLevelTokenizer):
    """字节分词器：UTF-8 的每个字节是一个词元，编号就是字节的值。

    不用训练，什么文字都能编码；一个汉字是 3 个词元，序列因此比较长。

    Args:
        special_tokens: 特殊词元：名字的列表，从 256 起编号；或名字与编号的字典。

    Raises:
        DataError: 特殊词元的名字或编号无效。
        DtypeError: 特殊词元的名字不是字符串。

    Examples:
        >>> tokenizer = ByteTokenizer(["<|endoftext|>"])
        >>> tokenizer.vocab_size
        257
        >>> tokenizer.encode("龙")
        [233, 190, 153]
        >>> tokenizer.encode("a<|endoftext|>", allowed_special="all")
        [97, 256]

    教程：第 19 章 BPE 分词。
    """

    kind = "byte"

    def __init__(self, special_tokens: Iterable[str] | Mapping[str, int] = ()) -> None:
        super().__init__(TABLE, special_tokens)

    def _encode_parts(self, parts: Iterator[str | int]) -> Iterator[Ids]:
        for part in parts:
            if isinstance(part, int):
                yield np.array([part], dtype=np.int64)
            else:
                yield np.frombuffer(part.encode("utf-8"), np.uint8).astype(np.int64)

    def to_dict(self) -> dict[str, Any]:
        """变成可以写进 JSON 的字典。

        Returns:
            `{"type": "byte", "special_tokens": {名字: 编号}}`。
        """
        return {"type": self.kind, "special_tokens": self.special_tokens}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """从 `to_dict()` 的结果恢复。

        Args:
            data: 字典，`"special_tokens"` 是名字与编号。

        Returns:
            同样的分词器。

        Raises:
            DataError: 内容无效。
        """
        given: Any = data
        special: Any = data.get("special_tokens") if isinstance(given, Mapping) else given
        if not isinstance(special, dict):
            raise DataError(
                f"ByteTokenizer.from_dict：special_tokens 得到 {reprlib.repr(special)}，"
                "它必须是名字与编号的字典；请检查文件是否完整，或用 to_dict() 重新保存"
            )
        return cls(cast("dict[str, int]", special))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByteTokenizer) and self._special == other._special

    def __hash__(self) -> int:
        return hash(frozenset(self._special.items()))

    def __repr__(self) -> str:
        return f"ByteTokenizer(vocab_size={self.vocab_size})"
