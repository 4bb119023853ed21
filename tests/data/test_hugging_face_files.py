"""Hugging Face 的分词器文件：词表与合并规则两个文件，给 transformers 的文件"""

import json
from pathlib import Path
from typing import Any

import pytest

from gptcore.data.tokenizers import (
    BPETokenizer,
    CharTokenizer,
    Tokenizer,
    hugging_face_files,
)
from gptcore.errors import DataError

TEXT = "low lower lowest 深浅不一 😀 it's   x\n" * 20
SPECIAL = ["<|endoftext|>", "<a b>", "引 \"号'", "换\n行\t", r".*+?[](){}^$|\d"]


@pytest.fixture(scope="module")
def trained() -> BPETokenizer:
    return BPETokenizer.train(TEXT, 285, special_tokens=SPECIAL)


# ----------------------------------------------------------------------- 词表与合并规则两个文件


def write_pair(folder: Path, tokenizer: BPETokenizer, vocab: str, merges: str) -> None:
    files = hugging_face_files(tokenizer)
    (folder / vocab).write_bytes(files["vocab.json"])
    (folder / merges).write_bytes(files["merges.txt"])


@pytest.mark.parametrize("names", [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")])
def test_two_files(trained: BPETokenizer, tmp_path: Path, names: tuple[str, str]) -> None:
    write_pair(tmp_path, trained, *names)
    assert Tokenizer.load(tmp_path) == trained  # 不是字节、也不是合并结果的，是特殊词元
    text = (tmp_path / names[1]).read_text(encoding="utf-8")
    (tmp_path / names[1]).write_bytes(text.split("\n", 1)[1].replace("\n", "\r\n").encode())
    assert Tokenizer.load(tmp_path) == trained  # 没有第一行，Windows 的换行


def test_two_files_and_the_tokens_listed_beside_them(tmp_path: Path) -> None:
    plain = BPETokenizer([(b"a", b"b")])
    write_pair(tmp_path, plain, "vocab.json", "merges.txt")
    (tmp_path / "added_tokens.json").write_text('{"<s>": 257, "<t>": 258}', encoding="utf-8")
    assert BPETokenizer.load(tmp_path).special_tokens == {"<s>": 257, "<t>": 258}
    decoder = {
        "258": {"content": "<t>", "special": False, "normalized": True},
        "259": {"content": "<u>", "special": True, "lstrip": False},
    }
    config = {"add_prefix_space": True, "added_tokens_decoder": decoder}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer = BPETokenizer.load(tmp_path)
    assert tokenizer.special_tokens == {"<s>": 257, "<u>": 259}
    assert tokenizer.added_tokens == {"<t>": 258}
    assert tokenizer.add_prefix_space
    decoder["259"]["rstrip"] = True
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(DataError, match=r"vocab.json 与 merges.txt：added_tokens\[259\].rstrip"):
        BPETokenizer.load(tmp_path)
    config["added_tokens_decoder"] = {"中": {"content": "<t>", "special": True}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(DataError, match="'中'"):
        BPETokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("vocab", "merges", "expected"),
    [
        (b"{", "", ["vocab.json", "JSON"]),
        (b"[]", "", ["字典"]),
        (b'{"a": 1, "a": 2}', "", ["'a'", "两次"]),
        (None, "a b\nc\n", ["第 2 行", "'c'"]),
        (None, "#version: 0.2\na b\n\nc d e\n", ["第 4 行", "'c d e'"]),
        (None, "q z\n", ["b'qz'", "不在词表里"]),
        (None, "a \ufffd\n", ["字节字母表"]),
        (None, b"\xff\xfe", ["merges.txt", "UTF-8"]),
    ],
)
def test_bad_pair(tmp_path: Path, vocab: bytes | None, merges: Any, expected: list[str]) -> None:
    write_pair(tmp_path, BPETokenizer([(b"a", b"b")]), "vocab.json", "merges.txt")
    if vocab is not None:
        (tmp_path / "vocab.json").write_bytes(vocab)
    (tmp_path / "merges.txt").write_bytes(merges if isinstance(merges, bytes) else merges.encode())
    with pytest.raises(DataError) as caught:
        Tokenizer.load(tmp_path)
    assert all(part in str(caught.value) for part in expected), str(caught.value)


# ----------------------------------------------------------------------- 给 transformers 的文件


def test_files_have_no_surprises(trained: BPETokenizer) -> None:
    files = hugging_face_files(trained)
    assert list(files) == ["tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json"]
    assert json.loads(files["tokenizer.json"]) == trained.to_dict()
    assert files["merges.txt"].decode().split("\n")[:2] == ["#version: 0.2", "l o"]
    assert "model_max_length" not in json.loads(files["tokenizer_config.json"])
    assert json.loads(files["vocab.json"])["<a b>"] == trained.special_tokens["<a b>"]
    with pytest.raises(DataError, match=r"CharTokenizer.*BPETokenizer"):
        hugging_face_files(CharTokenizer("ab"))
