"""字节分词器，以及各种分词器共用的接口：读回、分段编码、逐个解码"""

import doctest
import importlib
import json
import os
import pkgutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcore.data import BPETokenizer, ByteTokenizer, CharTokenizer, Tokenizer, load_tokenizer
from gptcore.data import tokenizers as package
from gptcore.data.tokenizers import TOKENIZERS, ByteLevelTokenizer, tokenizer_from_dict
from gptcore.errors import ArgumentError, DataError, DtypeError

KINDS: list[Tokenizer] = [
    CharTokenizer("ab\n龙😀"),
    ByteTokenizer(["<|endoftext|>", "a\nb"]),
    BPETokenizer([(b"a", b"b"), (b"\xe9", b"\xbe")], ["<|endoftext|>", "a\nb"]),
]
texts = st.text(st.sampled_from("ab\n龙😀"))


@given(st.text(st.characters(codec="utf-8")))
def test_round_trip(text: str) -> None:
    tokenizer = ByteTokenizer(["<|endoftext|>"])
    assert bytes(tokenizer.encode(text)) == text.encode()
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_special_tokens() -> None:
    tokenizer = ByteTokenizer(["<|endoftext|>", "<s>"])
    assert tokenizer.vocab_size == 258
    assert tokenizer.special_tokens == {"<|endoftext|>": 256, "<s>": 257}
    assert tokenizer.encode("<s>") == list(b"<s>")
    assert tokenizer.encode("a<s>", allowed_special={"<s>"}) == [97, 257]
    assert tokenizer.decode([97, 257]) == "a<s>"
    assert tokenizer.decode_bytes([0xFF, 256]) == b"\xff<|endoftext|>"
    assert ByteTokenizer({"<s>": 300}).vocab_size == 301
    assert repr(tokenizer) == "ByteTokenizer(vocab_size=258)"
    assert tokenizer != ByteTokenizer()
    assert hash(tokenizer) == hash(ByteTokenizer({"<s>": 257, "<|endoftext|>": 256}))
    with pytest.raises(DataError, match=r"'<s>' 的编号 255 已经用于.*例如 256"):
        ByteTokenizer({"<s>": 255})


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"type": "byte"}, ["special_tokens", "None", "字典"]),
        ({"type": "byte", "special_tokens": ["<s>"]}, ["special_tokens", "<s>"]),
        ({"type": "byte", "special_tokens": {"<s>": 3}}, ["编号 3"]),
        ({"type": "byte", "special_tokens": {"<s>": 1e9}}, ["1000000000.0", "整数"]),
        ({"type": "byte", "special_tokens": {"": 256}}, ["空的"]),
        ({"type": "bpe"}, ["model"]),
        ([], ["[]"]),
    ],
)
def test_bad_dictionary(data: Any, expected: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        tokenizer_from_dict(data)
    assert all(part in str(caught.value) for part in expected), str(caught.value)


def test_from_dict_of_something_else() -> None:
    for kind in TOKENIZERS.values():
        for data in ([], None, 3, {}):
            with pytest.raises(DataError):
                kind.from_dict(data)  # type: ignore[arg-type]


# ----------------------------------------------------------------------- 共用的接口


@pytest.mark.parametrize("tokenizer", KINDS, ids=repr)
def test_save_and_load(tokenizer: Tokenizer, tmp_path: Path) -> None:
    file = tokenizer.save(tmp_path / "夹")
    assert file == tmp_path / "夹" / "tokenizer.json"
    restored = Tokenizer.load(tmp_path / "夹")
    assert restored == tokenizer
    assert type(restored) is type(tokenizer)
    assert restored.special_tokens == tokenizer.special_tokens
    assert load_tokenizer(tokenizer.save(tmp_path / "a.json")) == tokenizer
    assert type(tokenizer).load(file) == tokenizer
    for other in {CharTokenizer, ByteTokenizer, BPETokenizer} - {type(tokenizer)}:
        with pytest.raises(DataError, match=rf"{other.__name__}.load.*{type(tokenizer).__name__}"):
            other.load(file)


@pytest.mark.parametrize("tokenizer", KINDS, ids=repr)
@given(texts, st.lists(st.integers(0, 20), max_size=5))
def test_streams(tokenizer: Tokenizer, text: str, cuts: list[int]) -> None:
    places = sorted(min(cut, len(text)) for cut in cuts)
    parts = [text[i:j] for i, j in zip([0, *places], [*places, len(text)], strict=True)]
    ids = tokenizer.encode(text)
    assert [i for array in tokenizer.encode_stream(parts) for i in array.tolist()] == ids
    decoder = tokenizer.incremental_decoder()
    shown = ""
    for i in ids:
        shown += decoder.push(i)
        assert text.startswith(shown)
    assert shown + decoder.flush() == text


@given(st.binary(), st.booleans())
def test_incremental_decoding_of_random_bytes(content: bytes, bpe: bool) -> None:
    tokenizer: ByteLevelTokenizer = BPETokenizer([]) if bpe else ByteTokenizer()
    ids = (
        [tokenizer.vocab[bytes([b])] for b in content]
        if isinstance(tokenizer, BPETokenizer)
        else list(content)
    )
    decoder = tokenizer.incremental_decoder()
    shown = "".join(map(decoder.push, ids)) + decoder.flush()
    assert shown == tokenizer.decode(ids) == content.decode("utf-8", "replace")
    assert tokenizer.decode_bytes(ids) == content


@pytest.mark.parametrize("tokenizer", KINDS, ids=repr)
def test_errors_are_the_same_everywhere(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("ab", allowed_special="all") == tokenizer.encode("ab")
    with pytest.raises(ArgumentError, match=r"allowed_special 里的 '<没有>'"):
        tokenizer.encode("ab", allowed_special=["<没有>"])
    with pytest.raises(ArgumentError, match=r"allowed_special 得到字符串"):
        tokenizer.encode("ab", allowed_special="ab")
    with pytest.raises(DtypeError, match=r"text 得到 bytes"):
        tokenizer.encode(b"ab")  # type: ignore[arg-type]
    with pytest.raises(DataError, match=str(tokenizer.vocab_size)):
        tokenizer.decode([tokenizer.vocab_size])
    with pytest.raises(DataError, match=str(tokenizer.vocab_size)):
        tokenizer.incremental_decoder().push(tokenizer.vocab_size)


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(package.__path__)])
def test_examples_in_docstrings(name: str) -> None:
    module = importlib.import_module(f"{package.__name__}.{name}")
    result = doctest.testmod(module, extraglobs=dict(vars(package)))
    assert result.failed == 0


def test_nothing_to_load(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"没有分词器.*tokenizer.json.*merges.txt.*vocab.bpe"):
        Tokenizer.load(tmp_path)
    with pytest.raises(DataError, match=r"没有.json.*文件不存在"):
        Tokenizer.load(tmp_path / "没有.json")
    with pytest.raises(DtypeError, match=r"path 得到 int"):
        Tokenizer.load(3)  # type: ignore[arg-type]
    with pytest.raises(DtypeError, match=r"path 得到 int"):
        KINDS[0].save(3)  # type: ignore[arg-type]
    (tmp_path / "占着").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match="不能写入"):
        KINDS[0].save(tmp_path / "占着" / "a.json")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", ["JSON"]),
        (b"[" * 10000, ["JSON"]),
        (b'{"type": "bpe"', ["JSON"]),
        (b'{"type": "word"}', ["'word'", "char", "byte", "bpe"]),
        (b'{"type": "char", "vocab": "aa"}', ["'a'", "两次"]),
        (
            json.dumps({"model": {"type": "Unigram"}, "pre_tokenizer": None}).encode(),
            ["tokenizer.json"],
        ),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes, expected: list[str]) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    for place in (tmp_path, tmp_path / "tokenizer.json"):
        with pytest.raises(DataError) as caught:
            Tokenizer.load(place)
        assert str(place) in str(caught.value)
        assert all(part in str(caught.value) for part in expected), str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="没有命名管道")
def test_does_not_wait_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tokenizer.json")
    with pytest.raises(DataError, match=r"管道|没有分词器"):
        Tokenizer.load(tmp_path)
    with pytest.raises(DataError, match="管道"):
        Tokenizer.load(tmp_path / "tokenizer.json")
