"""BPE 分词器：参数不合要求时的错误"""

from typing import Any

import pytest

from gptcore.data.tokenizers import BPETokenizer
from gptcore.errors import ArgumentError, DataError, DtypeError

SPECIAL = ["<|end", "<a b>", "引 \"号'", "换\n行", r".*+?[](){}^$|\d", "<|endoftext|>"]


@pytest.fixture(scope="module")
def trained() -> BPETokenizer:
    text = "深浅不一的文字，low lower lowest 123 😀 it's\n" * 20
    return BPETokenizer.train(text, 300, special_tokens=SPECIAL)


@pytest.mark.parametrize(
    ("allowed", "error", "expected"),
    [
        ("<|endoftext|>", ArgumentError, ["'<|endoftext|>'", "集合", '"all"']),
        (["<s>"], ArgumentError, ["'<s>'", "<|endoftext|>"]),
        ([1], ArgumentError, ["1"]),
        (3, ArgumentError, ["3", '"all"']),
        (None, ArgumentError, ["None"]),
    ],
)
def test_bad_allowed_special(
    trained: BPETokenizer, allowed: Any, error: type[Exception], expected: list[str]
) -> None:
    for method in (trained.encode, trained.encode_array, trained.encode_stream):
        with pytest.raises(error) as caught:
            method("a", allowed_special=allowed)
        assert all(part in str(caught.value) for part in expected), str(caught.value)


def test_bad_text(trained: BPETokenizer) -> None:
    for text in (b"a", 3, None):
        with pytest.raises(DtypeError, match=r"text 得到.*字符串"):
            trained.encode(text)  # type: ignore[arg-type]
    with pytest.raises(DtypeError):
        list(trained.encode_stream(["a", b"b"]))  # type: ignore[list-item]


FULL = {bytes([i]): i for i in range(256)}


@pytest.mark.parametrize(
    ("arguments", "settings", "expected"),
    [
        (([(b"a",)],), {}, ["merges 的第 0 项", "两串字节"]),
        (([(b"a", "b")],), {}, ["merges 的第 0 项"]),
        (([(b"a", b"")],), {}, ["merges 的第 0 项"]),
        (([b"ab"],), {}, ["merges 的第 0 项"]),
        (([(b"a", b"b"), (b"a", b"b")],), {}, ["第 0 项与第 1 项相同"]),
        (([(b"a", b"b"), (b"ab", b"c"), (b"b", b"c"), (b"a", b"bc")],), {}, ["b'abc'", "已经有了"]),
        (([(b"a", b"bc")],), {}, ["merges 的第 0 项", "b'bc'", "不在词表里"]),
        (([(b"a", b"b")],), {"vocab": FULL}, ["b'ab'", "不在词表里"]),
        (([],), {"vocab": {b"a": 0}}, ["0x00", "共缺 255 个"]),
        (([],), {"vocab": {**FULL, "ab": 256}}, ["'ab'", "bytes"]),
        (([],), {"vocab": {**FULL, b"ab": 2**31}}, ["b'ab'", "2147483648"]),
        (([],), {"vocab": {**FULL, b"ab": True}}, ["True"]),
        (([],), {"vocab": {**FULL, b"ab": 97}}, ["编号 97", "b'a'", "b'ab'"]),
        (([], {"<s>": 3}), {}, ["'<s>'", "编号 3 已经用于", "例如 256"]),
        (([], {"<s>": 256, "<t>": 256}), {}, ["'<t>'", "256"]),
        (([], {"<s>": "3"}), {}, ["'<s>'", "'3'"]),
        (([], ["<s>", "<s>"]), {}, ["'<s>'", "两次"]),
        (([], [""]), {}, ["空的"]),
        (([], ["a\ud800"]), {}, ["位置 1", "U+D800"]),
        (([],), {"added_tokens": {"ab": 0}}, ["编号 0", "b'!'", "b'ab'"]),
    ],
)
def test_bad_arguments(
    arguments: tuple[Any, ...], settings: dict[str, Any], expected: list[str]
) -> None:
    with pytest.raises(DataError) as caught:
        BPETokenizer(*arguments, **settings)
    assert all(part in str(caught.value) for part in expected), str(caught.value)


@pytest.mark.parametrize("special", ["<s>", b"<s>", 3, [3], None])
def test_bad_type_of_special_tokens(special: Any) -> None:
    with pytest.raises(DtypeError, match=r"特殊词元|special_tokens"):
        BPETokenizer([], special)


@pytest.mark.parametrize("merges", [5, None, "ab", b"ab", {}])
def test_bad_type_of_merges(merges: Any) -> None:
    with pytest.raises(DtypeError, match="merges 得到"):
        BPETokenizer(merges)


@pytest.mark.parametrize("vocab", [5, ["a"], "ab"])
def test_bad_type_of_vocab(vocab: Any) -> None:
    with pytest.raises(DtypeError, match="vocab 得到"):
        BPETokenizer([], vocab=vocab)
