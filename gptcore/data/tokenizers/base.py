"""分词器的接口"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from gptcore.data.tokenizers.ids import Ids
from gptcore.data.tokenizers.special import AllowedSpecial, select_special
from gptcore.errors import DataError, DtypeError
from gptcore.serialization import dump_json, write_bytes

END_OF_TEXT = "<|endoftext|>"
"""GPT-2 给文本结束词元起的名字；训练自己的词表时也建议用它。"""
FILE = "tokenizer.json"
"""分词器存进文件夹时的文件名。"""


class Tokenizer(ABC):
    """分词器的接口：数据集、生成和保存只通过它打交道。

    子类给出 `kind`、`vocab_size`、`encode_array`、`decode`、`to_dict` 和 `from_dict`，
    并在 `TOKENIZERS` 里登记，`tokenizer_from_dict` 就能读回它。

    特殊词元（例如文本结束 `<|endoftext|>`）不来自文字：`encode` 默认把长得像它的文字当作普通文字，
    点了名才当作特殊词元，来路不明的文本因此冒充不了它。
    """

    kind: ClassVar[str]
    """种类名，读回时靠它找到类。"""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """词表大小，编号的范围是 `0` 到 `vocab_size - 1`。"""

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """特殊词元的名字与编号；没有时为空。"""
        return {}

    @abstractmethod
    def encode_array(self, text: str, *, allowed_special: AllowedSpecial = ()) -> Ids:
        """把文本变成词元编号的一维 int64 数组，参数见 `encode`。"""

    @abstractmethod
    def decode(self, ids: Any) -> str:
        """把一串词元编号变回文本。"""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """变成可以写进 JSON 的字典，`tokenizer_from_dict` 能认出它的种类。"""

    @classmethod
    @abstractmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """从 `to_dict()` 的结果恢复。"""

    def encode(self, text: str, *, allowed_special: AllowedSpecial = ()) -> list[int]:
        """把文本变成词元编号的列表。

        Args:
            text: 要编码的文本，可以为空。
            allowed_special: 文本里的哪些特殊词元算数：名字的集合，或 `"all"` 表示全部；
                其余的照普通文字编码。

        Returns:
            编号的列表。

        Raises:
            ArgumentError: `allowed_special` 不是名字的集合，或有这个分词器没有的名字。
            DataError: 文本里有词表以外的内容。
            DtypeError: `text` 不是字符串。
        """
        ids = self.encode_array(text, allowed_special=allowed_special)
        return cast("list[int]", ids.tolist())

    def encode_stream(
        self, texts: Iterable[str], *, allowed_special: AllowedSpecial = ()
    ) -> Iterator[Ids]:
        """逐段编码一份分成几段的长文本，例如一个大文件；不必把全文放进内存。

        各段的结果连起来，与一次编码全文相同，不论怎样分段。

        Args:
            texts: 文本的各段，首尾相接。
            allowed_special: 同 `encode`。

        Yields:
            编号的数组，一段文本不一定恰好对应一个。
        """
        for text in texts:
            yield self.encode_array(text, allowed_special=allowed_special)

    def incremental_decoder(self) -> IncrementalDecoder:
        """逐个词元解码，供流式生成使用。

        Returns:
            新的解码器；每个 `push` 只给出完整的字符。
        """
        return IncrementalDecoder(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """把分词器存成 JSON 文件。

        Args:
            path: 以 `.json` 结尾的是文件；否则是文件夹，存成其中的 `tokenizer.json`。

        Returns:
            写成的文件。

        Raises:
            DataError: 写不进去。
            DtypeError: `path` 不是路径。
        """
        file = checked_path("save", path)
        file = file if file.suffix == ".json" else file / FILE
        write_bytes(file, dump_json(self.to_dict()))
        return file

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """读回分词器；`Tokenizer.load` 认得所有的种类，`BPETokenizer.load` 等只接受自己的种类。

        除了 `save` 写成的文件，也能读 GPT-2 与 Hugging Face 的，
        见 [`load_tokenizer`][gptcore.data.tokenizers.load_tokenizer]。

        Args:
            path: 文件，或存有分词器的文件夹。

        Returns:
            分词器。

        Raises:
            DataError: 找不到，读不懂，或者不是这个种类。
        """
        from gptcore.data.tokenizers.loading import load_tokenizer  # 它要用到各个种类

        tokenizer = load_tokenizer(path)
        if not isinstance(tokenizer, cls):
            raise DataError(
                f"{cls.__name__}.load：{os.fspath(path)} 里是 {type(tokenizer).__name__}；"
                f"请改用 {type(tokenizer).__name__}.load 或 Tokenizer.load"
            )
        return tokenizer

    def _select(self, operation: str, allowed: AllowedSpecial) -> Mapping[str, int]:
        """`allowed_special` 点了名的特殊词元。"""
        return select_special(operation, self.special_tokens, allowed)


class IncrementalDecoder:
    """逐个词元解码：依次 `push` 每个编号，最后 `flush`；各次结果连起来就是 `decode` 的结果。

    这是每个词元都由完整的字符组成时的做法；字节级分词器有自己的子类。

    Args:
        tokenizer: 分词器。
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

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
        return self._tokenizer.decode([token])

    def flush(self) -> str:
        """结束：给出还没有凑成字符的剩余部分；之后可以从头再用。

        Returns:
            剩余的文字，通常为空；残缺的字节变成 `�`（U+FFFD）。
        """
        return ""


def checked_path(operation: str, path: Any) -> Path:
    """检查参数是不是路径。

    Args:
        operation: 操作名，写进错误消息。
        path: `str` 或路径。

    Returns:
        路径。

    Raises:
        DtypeError: 不是路径。
    """
    try:
        return Path(path)
    except TypeError:
        raise DtypeError(
            f"{operation}：path 得到 {type(path).__name__}，它必须是路径（str 或 Path）"
        ) from None
