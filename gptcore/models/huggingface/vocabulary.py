"""分词器：与 Hugging Face 的文件互换

字节级 BPE 与字节分词器由 [`hugging_face_files`][gptcore.data.tokenizers.hugging_face_writing.hugging_face_files] 与
[`load_tokenizer`][gptcore.data.tokenizers.loading.load_tokenizer] 读写。字符分词器在这里：它就是 tokenizers 的
`WordLevel`，每个字符一个“词”，前面用 `Split` 把文字拆成一个个字符，解码用 `Fuse` 直接连起来。
词表里没有的字符，两边都报错。
"""

from pathlib import Path
from typing import Any, cast

from gptcore.data.tokenizers import (
    END_OF_TEXT,
    CharTokenizer,
    Tokenizer,
    hugging_face_files,
    load_tokenizer,
)
from gptcore.errors import DataError, GptcoreError
from gptcore.serialization import JSON_MEMORY, dump_json, parse_json, read_bytes

FILE, CONFIG = "tokenizer.json", "tokenizer_config.json"
FILES = (FILE, "vocab.json", "merges.txt", CONFIG, "special_tokens_map.json", "added_tokens.json")
"""与分词器有关的文件"""

_SPLIT = {
    "type": "Split",
    "pattern": {"Regex": r"[\s\S]"},  # 任意一个字符，包括换行
    "behavior": "Isolated",
    "invert": False,
}
_USED = ("added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model")
_UNKNOWN = "[UNK]"
"""词表里没有这个“词”，遇到不认识的字符，tokenizers 因此报错，而不是换成别的词元"""


def end_of_text(tokenizer: Tokenizer | None) -> int | None:
    """文本结束词元的编号；没有时是 `None`。"""
    return None if tokenizer is None else tokenizer.special_tokens.get(END_OF_TEXT)


def dump_tokenizer(tokenizer: Tokenizer, context_size: int) -> dict[str, bytes]:
    """`AutoTokenizer` 能读的几个文件。

    Args:
        tokenizer: 分词器。
        context_size: 模型的上下文尺寸。

    Returns:
        名字与内容。

    Raises:
        DataError: 这个格式写不了；消息说明原因。
    """
    if not isinstance(tokenizer, CharTokenizer):
        return hugging_face_files(tokenizer, context_size)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context_size,
        "clean_up_tokenization_spaces": False,
    }
    return {FILE: dump_json(_char_json(tokenizer)), CONFIG: dump_json(config)}


def read_tokenizer(folder: Path) -> Tokenizer:
    """读入文件夹里的分词器。

    Args:
        folder: Hugging Face 的模型文件夹。

    Raises:
        DataError: 没有分词器，文件损坏，或者是这里没有的种类。
    """
    path = folder / FILE
    if path.is_file():
        content = read_bytes(path, JSON_MEMORY)
        if b'"WordLevel"' in content:
            return _parse_char(parse_json(content, path), path)
    return load_tokenizer(folder)


def _char_json(tokenizer: CharTokenizer) -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": _SPLIT,
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": tokenizer.stoi, "unk_token": _UNKNOWN},
    }


def _parse_char(data: Any, path: Path) -> CharTokenizer:
    """`_char_json` 写成的；别的 `WordLevel`（例如以词为单位的）不读。"""
    fields = cast("dict[str, Any]", data if isinstance(data, dict) else {})
    model: Any = fields.get("model")
    vocab: Any = cast("Any", model).get("vocab") if isinstance(model, dict) else None
    try:
        if not isinstance(vocab, dict):
            raise DataError("没有词表")
        ordered = sorted(cast("dict[str, Any]", vocab).items(), key=lambda item: item[1])
        if [i for _, i in ordered] != list(range(len(ordered))):
            raise DataError("编号不是从 0 起连续的整数")
        tokenizer = CharTokenizer([character for character, _ in ordered])
        expected = _char_json(tokenizer)
        if fields.get("post_processor") is not None:  # transformers 会加上一个什么也不添的
            empty = fields["post_processor"].get("special_tokens") == {}
            expected["post_processor"] = fields["post_processor"] if empty else None
        different = [n for n, value in expected.items() if fields.get(n) != value and n in _USED]
        if different:
            raise DataError(f"{'、'.join(different)} 与字符分词器的不同")
    except (GptcoreError, AttributeError, TypeError) as error:
        raise DataError(
            f"{path} 是 WordLevel 的分词器，这里只读 gptcore 的字符分词器导出的：{error}；"
            "只要模型的，请用 from_pretrained"
        ) from error
    return tokenizer
