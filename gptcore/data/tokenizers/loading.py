"""认出分词器的种类，从字典、文件或文件夹读回"""

import os
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gptcore.data.text import decode_utf8
from gptcore.data.tokenizers.base import FILE, Tokenizer, checked_path
from gptcore.data.tokenizers.bpe import BPETokenizer
from gptcore.data.tokenizers.bytes import ByteTokenizer
from gptcore.data.tokenizers.chars import CharTokenizer
from gptcore.data.tokenizers.hugging_face_reading import parse_vocab_and_merges
from gptcore.errors import DataError, GptcoreError
from gptcore.serialization import JSON_MEMORY, parse_json, read_bytes

TOKENIZERS: dict[str, type[Tokenizer]] = {
    kind.kind: kind for kind in (CharTokenizer, ByteTokenizer, BPETokenizer)
}
"""种类名与分词器类的对照。"""

PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
"""词表与合并规则的文件名：Hugging Face 的，OpenAI 的"""
CONFIG, ADDED = "tokenizer_config.json", "added_tokens.json"


def tokenizer_from_dict(data: Mapping[str, Any]) -> Tokenizer:
    """从 `to_dict()` 的结果恢复分词器。

    种类由 `"type"` 决定；没有 `"type"` 而有 `"model"` 的是 Hugging Face 的 `tokenizer.json`，按字节级 BPE 读。

    Args:
        data: 分词器的字典，通常来自模型文件夹里的 JSON。

    Returns:
        恢复的分词器。

    Raises:
        DataError: 种类未知，或内容无效。
    """
    given: Any = data
    kind: Any = given
    if isinstance(given, Mapping):
        kind = data.get("type")
        if kind is None and "model" in data:
            kind = BPETokenizer.kind
    if not isinstance(kind, str) or kind not in TOKENIZERS:
        raise DataError(
            f"tokenizer_from_dict：type 得到 {reprlib.repr(kind)}，已知的种类是 {'、'.join(TOKENIZERS)}；"
            "请检查文件是否完整，或升级 gptcore"
        )
    return TOKENIZERS[kind].from_dict(data)


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """读回任何一种分词器。

    认得的文件夹：有 `tokenizer.json` 的（`save` 写成的，或 Hugging Face 的字节级 BPE）；
    有 `vocab.json` 与 `merges.txt` 的（Hugging Face）；有 `encoder.json` 与 `vocab.bpe` 的（OpenAI 发布的 GPT-2）。

    后两种没有说明哪些是特殊词元：既不是字节、也不是合并结果的词元算特殊词元，例如 GPT-2 的 `<|endoftext|>`；
    旁边有 `added_tokens.json` 或 `tokenizer_config.json` 的，其中列出的也算。

    Args:
        path: 文件夹，或 `tokenizer.json` 这样的文件。

    Returns:
        分词器。

    Raises:
        DataError: 找不到，文件无效，或用到了这里没有实现的东西。
        DtypeError: `path` 不是路径。
    """
    place = checked_path("load_tokenizer", path)
    if not os.path.isdir(place):  # noqa: PTH112 名字太长时 Path.is_dir 抛出 OSError
        return _from_file(place)
    if (place / FILE).is_file():
        return _from_file(place / FILE)
    for vocab, merges in PAIRS:
        if (place / vocab).is_file() and (place / merges).is_file():
            return _from_pair(place, vocab, merges)
    raise DataError(
        f"load_tokenizer：文件夹 {place} 里没有分词器；要有 {FILE}，或 "
        + "，或 ".join(f"{vocab} 与 {merges}" for vocab, merges in PAIRS)
    )


def _from_file(path: Path) -> Tokenizer:
    data = _json(path)
    try:
        return tokenizer_from_dict(data)
    except GptcoreError as error:
        raise DataError(f"{path}：{error}") from error


def _from_pair(folder: Path, vocab: str, merges: str) -> Tokenizer:
    text = decode_utf8(read_bytes(folder / merges, JSON_MEMORY), folder / merges)
    extra: dict[str, Any] = {
        name: _json(folder / name) if (folder / name).is_file() else {} for name in (CONFIG, ADDED)
    }
    try:
        settings = parse_vocab_and_merges(_json(folder / vocab), text, extra[CONFIG], extra[ADDED])
        return BPETokenizer(**settings)
    except GptcoreError as error:
        raise DataError(f"{folder} 里的 {vocab} 与 {merges}：{error}") from error


def _json(path: Path) -> Any:
    return parse_json(read_bytes(path, JSON_MEMORY), path)
