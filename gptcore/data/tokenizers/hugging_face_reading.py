"""读 Hugging Face 与 GPT-2 的分词器文件

`tokenizer.json` 是 tokenizers 的格式，写着分词器的全部：词表、合并规则、怎样切分、特殊词元。
这里读其中的字节级 BPE；用到别的部件时拒绝，并说出是哪一项，而不是悄悄得到不同的编号。
`truncation` 与 `padding` 是调用时的设置，不属于分词器，不读。

`vocab.json` 与 `merges.txt`（OpenAI 叫 `encoder.json` 与 `vocab.bpe`）是更早的写法，只有词表与合并规则。

格式的出处：https://github.com/huggingface/tokenizers 与 https://github.com/openai/gpt-2。
"""

import reprlib
from collections.abc import Mapping
from typing import Any, NoReturn, cast

from gptcore.data.tokenizers.byte_alphabet import BYTE_ORDER, to_bytes, to_characters
from gptcore.data.tokenizers.gpt2_pattern import GPT2_PATTERN
from gptcore.data.tokenizers.special import check_id
from gptcore.errors import DataError

NAME = "tokenizer.json"
PATTERNS = (
    GPT2_PATTERN,
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
)
"""同一条切分规则的几种写法：GPT-2 的与 tiktoken 的"""
_UNUSED = ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")
_OFF = ("byte_fallback", "ignore_merges")
_BASE = {to_characters(bytes([byte])) for byte in BYTE_ORDER}


def parse_tokenizer_json(data: Any) -> dict[str, Any]:
    """读懂 `tokenizer.json` 的内容。

    Args:
        data: 解析好的 JSON。

    Returns:
        `BPETokenizer` 的参数。

    Raises:
        DataError: 内容无效，或用到了没有实现的部件。
    """
    content = _mapping(data, NAME)
    if content.get("version") not in (None, "1.0"):
        _refuse("version", content["version"], "1.0")
    model = _mapping(content.get("model"), "model")
    _check_model(model)
    if content.get("normalizer") is not None:
        _refuse("normalizer", content["normalizer"], "null（不改动文字）")
    _check_decoder(content.get("decoder"))
    _check_post_processor(content.get("post_processor"))
    add_prefix_space, split = _pre_tokenizer(content.get("pre_tokenizer"))
    vocab = _vocab(model.get("vocab"), "model.vocab")
    merges = [
        _merge(merge, f"model.merges[{i}]")
        for i, merge in enumerate(_list(model.get("merges"), "model.merges"))
    ]
    added = [
        _added_token(token, i)
        for i, token in enumerate(_list(content.get("added_tokens", []), "added_tokens"))
    ]
    names: dict[bool, dict[str, int]] = {True: {}, False: {}}
    following = len(vocab)
    for name, number, special in added:
        if name not in vocab:  # tokenizers 不看这里写的编号，依次编在词表后面
            if number != following:
                raise DataError(
                    f"added_tokens 里 {reprlib.repr(name)} 的编号是 {number}，tokenizers 会读成 {following}；"
                    "请把它和编号也写进 model.vocab"
                )
            following += 1
        names[special][name] = number
    return {
        **_separate(vocab, merges, {**names[False], **names[True]}),
        "special_tokens": names[True],
        "added_tokens": names[False],
        "add_prefix_space": add_prefix_space,
        "split": split,
    }


def parse_vocab_and_merges(vocab: Any, merges: str, config: Any, added: Any) -> dict[str, Any]:
    """读懂 `vocab.json` 与 `merges.txt`，或 `encoder.json` 与 `vocab.bpe`。

    Args:
        vocab: 解析好的词表，词元与编号。
        merges: 合并规则的文字，每行两个词元。
        config: `tokenizer_config.json` 的内容，没有时是空字典。
        added: `added_tokens.json` 的内容，没有时是空字典。

    Returns:
        `BPETokenizer` 的参数。

    Raises:
        DataError: 内容无效。
    """
    table = _vocab(vocab, "词表")
    lines = [line.rstrip("\r") for line in merges.split("\n")]
    first = 1 if lines[0].startswith("#version") else 0
    pairs = [
        _merge(line, f"合并规则的第 {i} 行")
        for i, line in enumerate(lines[first:], first + 1)
        if line
    ]
    reachable = _BASE.union(left + right for left, right in pairs)
    special = {name: number for name, number in table.items() if name not in reachable}
    special |= _vocab(added, "added_tokens.json")
    settings = _mapping(config, "tokenizer_config.json")
    plain: dict[str, int] = {}
    decoder = _mapping(settings.get("added_tokens_decoder", {}), "added_tokens_decoder")
    for number, token in decoder.items():
        text = {**_mapping(token, f"added_tokens_decoder[{number}]")}
        text["id"] = (
            int(number) if number.isascii() and number.isdigit() and len(number) < 11 else number
        )
        name, index, is_special = _added_token(text, number)
        special.pop(name, None)
        (special if is_special else plain)[name] = index
    return {
        **_separate(table, pairs, {**plain, **special}),
        "special_tokens": special,
        "added_tokens": plain,
        "add_prefix_space": settings.get("add_prefix_space") is True,
    }


def _separate(
    vocab: Mapping[str, int], merges: list[tuple[str, str]], added: Mapping[str, int]
) -> dict[str, Any]:
    """普通词元与合并规则变成字节；`added` 是整个匹配的词元，它们在 `vocab` 里的写法不是字节。"""
    needed = _BASE.union(left + right for left, right in merges)
    for name, number in added.items():
        if vocab.get(name, number) != number:
            raise DataError(
                f"词元 {reprlib.repr(name)} 有两个编号：词表里是 {vocab[name]}，"
                f"另外添加的是 {number}；请检查文件是否来自同一个分词器"
            )
        if name in needed:
            raise DataError(
                f"另外添加的词元 {reprlib.repr(name)} 也是合并要用的普通词元，这里不支持；请给它换一个名字"
            )
    return {
        "vocab": {to_bytes(k, "词表"): v for k, v in vocab.items() if k not in added},
        "merges": [(to_bytes(a, "合并规则"), to_bytes(b, "合并规则")) for a, b in merges],
    }


def _check_model(model: Mapping[str, Any]) -> None:
    if model.get("type") not in (None, "BPE"):
        _refuse("model.type", model["type"], "BPE")
    for name in _UNUSED:
        if model.get(name) not in (None, "", 0):
            _refuse(f"model.{name}", model[name], "null")
    for name in _OFF:
        if model.get(name) not in (None, False):
            _refuse(f"model.{name}", model[name], "false")


def _check_decoder(decoder: Any) -> None:
    if decoder is not None and _mapping(decoder, "decoder").get("type") != "ByteLevel":
        _refuse("decoder", decoder, "ByteLevel")


def _check_post_processor(processor: Any) -> None:
    """ByteLevel 只改位置信息；只有原文的 TemplateProcessing 什么也不加；其余的会添词元。"""
    if processor is None:
        return
    content = _mapping(processor, "post_processor")
    match content.get("type"), content.get("single"):
        case "ByteLevel", _:
            pass
        case "TemplateProcessing", [{"Sequence": {"id": "A"}}]:
            pass
        case _:
            _refuse("post_processor", processor, "null 或 ByteLevel（不另外添加词元）")


def _pre_tokenizer(value: Any) -> tuple[bool, bool]:
    """是否添空格，是否切分。"""
    match value:
        case {"type": "ByteLevel"}:
            content = _mapping(value, "pre_tokenizer")
            return (
                _flag(content, "add_prefix_space", "pre_tokenizer", True),
                _flag(content, "use_regex", "pre_tokenizer", True),
            )
        case {
            "type": "Sequence",
            "pretokenizers": [{"type": "Split"} as split, {"type": "ByteLevel"} as level],
        }:
            return _split_then_byte_level(split, level)
        case _:
            pass
    return _refuse("pre_tokenizer", value, "ByteLevel，或 GPT-2 规则的 Split 加 ByteLevel")


def _split_then_byte_level(split: Mapping[str, Any], level: Mapping[str, Any]) -> tuple[bool, bool]:
    place = "pre_tokenizer.pretokenizers"
    pattern = split.get("pattern")
    regex = (
        cast("Mapping[str, Any]", pattern).get("Regex") if isinstance(pattern, Mapping) else None
    )
    if regex not in PATTERNS:
        _refuse(f"{place}[0].pattern", pattern, "GPT-2 的切分规则")
    kept = split.get("behavior"), split.get("invert")
    if kept not in (("Isolated", False), ("Removed", True)):
        _refuse(f"{place}[0] 的 behavior 与 invert", kept, '"Isolated" 与 false')
    for name in ("add_prefix_space", "use_regex"):
        if _flag(level, name, f"{place}[1]", True):
            _refuse(f"{place}[1].{name}", True, "false")
    return False, True


def _added_token(token: Any, index: object) -> tuple[str, int, bool]:
    """名字、编号、是不是特殊词元。"""
    place = f"added_tokens[{index}]"
    content = _mapping(token, place)
    name = content.get("content")
    if not isinstance(name, str) or not name:
        raise DataError(f"{place}.content 是 {reprlib.repr(name)}，它必须是不为空的字符串")
    for flag in ("single_word", "lstrip", "rstrip"):
        if _flag(content, flag, place, False):
            _refuse(f"{place}.{flag}", True, "false")
    return name, check_id(place, name, content.get("id")), _flag(content, "special", place, False)


def _merge(value: Any, place: str) -> tuple[str, str]:
    parts = value.split(" ") if isinstance(value, str) else value
    match parts:
        case [str() as left, str() as right]:
            return left, right
        case _:
            raise DataError(f"{place} 是 {reprlib.repr(value)}，它必须是两个词元，中间一个空格")


def _vocab(value: Any, place: str) -> dict[str, int]:
    table = _mapping(value, place)
    for name, number in table.items():
        check_id(place, name, number)
    return dict(table)


def _mapping(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise DataError(f"{place} 是 {reprlib.repr(value)}，它必须是字典；请检查文件是否完整")
    return cast("Mapping[str, Any]", value)


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise DataError(f"{name} 是 {reprlib.repr(value)}，它必须是列表；请检查文件是否完整")
    return cast("list[Any]", value)


def _flag(content: Mapping[str, Any], name: str, place: str, default: bool) -> bool:
    value = content.get(name, default)
    if not isinstance(value, bool):
        raise DataError(f"{place}.{name} 是 {reprlib.repr(value)}，它必须是 true 或 false")
    return value


def _refuse(field: str, value: Any, supported: str) -> NoReturn:
    raise DataError(
        f"{field} 是 {reprlib.repr(value)}，gptcore 没有实现它，照读会得到不同的编号；支持的是 {supported}"
    )
