"""写 Hugging Face 的分词器文件，格式见 `hugging_face_reading`"""

from typing import Any

from gptcore.data.tokenizers.base import END_OF_TEXT, FILE, Tokenizer
from gptcore.data.tokenizers.bpe import BPETokenizer
from gptcore.data.tokenizers.byte_alphabet import to_characters
from gptcore.data.tokenizers.bytes import TABLE, ByteTokenizer
from gptcore.errors import DataError
from gptcore.serialization import dump_json


def hugging_face_files(tokenizer: Tokenizer, context_size: int | None = None) -> dict[str, bytes]:
    """与模型放在一起、`transformers` 的 `AutoTokenizer` 能读的几个文件。

    有文本结束词元 `<|endoftext|>` 时，它也是开头（bos）与结尾（eos）的词元，与 GPT-2 相同。

    Args:
        tokenizer: `BPETokenizer` 或 `ByteTokenizer`；后者相当于没有合并规则的 BPE。
        context_size: 模型的上下文尺寸，写进 `tokenizer_config.json`。

    Returns:
        文件名与内容：`tokenizer.json`、`vocab.json`、`merges.txt`、`tokenizer_config.json`。

    Raises:
        DataError: 是字符分词器。
    """
    bpe = _as_bpe(tokenizer)
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",  # 照 tokenizer.json 读，不再改动
        "add_prefix_space": bpe.add_prefix_space,
        "clean_up_tokenization_spaces": False,
    }
    if context_size is not None:
        config["model_max_length"] = context_size
    if END_OF_TEXT in bpe.special_tokens:
        config |= {"bos_token": END_OF_TEXT, "eos_token": END_OF_TEXT}
    lines = ["#version: 0.2", *merge_lines(bpe)]
    return {
        FILE: dump_json(tokenizer_json(bpe)),
        "vocab.json": dump_json(vocab_json(bpe)),
        "merges.txt": ("\n".join(lines) + "\n").encode("utf-8"),
        "tokenizer_config.json": dump_json(config),
    }


def tokenizer_json(tokenizer: BPETokenizer) -> dict[str, Any]:
    """`tokenizer.json` 的内容；tokenizers 读到的编号与这里相同。

    合并规则写成 `"Ġ t"` 这样的字符串，新旧版本的 tokenizers 都能读。

    Args:
        tokenizer: 分词器。

    Returns:
        可以写进 JSON 的字典。
    """
    level = {
        "type": "ByteLevel",
        "add_prefix_space": tokenizer.add_prefix_space,
        "trim_offsets": True,
        "use_regex": tokenizer.split,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(tokenizer),
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab_json(tokenizer),
            "merges": merge_lines(tokenizer),
        },
    }


def vocab_json(tokenizer: BPETokenizer) -> dict[str, int]:
    """`vocab.json` 的内容：全部词元与编号，按编号排列；普通词元用字节字母表写，特殊词元照原样写。

    Args:
        tokenizer: 分词器。

    Returns:
        词元与编号。
    """
    vocab = {to_characters(token): number for token, number in tokenizer.vocab.items()}
    vocab |= tokenizer.added_tokens | tokenizer.special_tokens
    return dict(sorted(vocab.items(), key=lambda item: item[1]))


def merge_lines(tokenizer: BPETokenizer) -> list[str]:
    """各次合并，写成 `merges.txt` 里的一行。

    Args:
        tokenizer: 分词器。

    Returns:
        例如 `["Ġ t", "Ġ a", …]`。
    """
    return [f"{to_characters(left)} {to_characters(right)}" for left, right in tokenizer.merges]


def _added_tokens(tokenizer: BPETokenizer) -> list[dict[str, Any]]:
    """整个匹配的词元，按编号排列。"""
    names = {**tokenizer.added_tokens, **tokenizer.special_tokens}
    return [
        {
            "id": number,
            "content": name,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": name not in tokenizer.special_tokens,
            "special": name in tokenizer.special_tokens,
        }
        for name, number in sorted(names.items(), key=lambda item: item[1])
    ]


def _as_bpe(tokenizer: Tokenizer) -> BPETokenizer:
    if isinstance(tokenizer, BPETokenizer):
        return tokenizer
    if isinstance(tokenizer, ByteTokenizer):
        vocab = {token: number for number, token in TABLE.items()}
        return BPETokenizer((), tokenizer.special_tokens, vocab=vocab)
    raise DataError(
        f"hugging_face_files：{type(tokenizer).__name__} 写不成 Hugging Face 的字节级 BPE；"
        "请用 BPETokenizer 或 ByteTokenizer 训练模型"
    )
