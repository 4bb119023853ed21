"""词元文件：截断与改动都认得出；写错的来源与位置"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptcore import DataError, TextDataset, TokenDataset, write_tokens
from gptcore.data import (
    END_OF_TEXT,
    ByteTokenizer,
    TokenFile,
    Tokenizer,
)
from gptcore.data.token_files import facts_digest, npy_header
from gptcore.errors import DtypeError

BYTES = ByteTokenizer([END_OF_TEXT])
TEXTS = ["天地玄黄" * 20, "", "宇宙洪荒" * 15]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "tokens.npy"
    write_tokens(file, TEXTS, BYTES)
    return file


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[Path, bytes]:
    file = tmp_path / "tiny.npy"
    write_tokens(file, ["天地", "玄黄"], BYTES)
    return file, file.read_bytes()


def test_every_truncation_is_noticed(tiny: tuple[Path, bytes]) -> None:
    path, content = tiny
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(DataError, match=r"tiny.npy"):
            TokenFile(path)
    for extra in (b"\0", content):
        path.write_bytes(content + extra)
        with pytest.raises(DataError, match="与文件头不符"):
            TokenFile(path)


def test_every_changed_byte_is_noticed(tiny: tuple[Path, bytes]) -> None:
    """改动任何一个字节：词元里的由 verify 发现，其余的打开时就报错。"""
    path, content = tiny
    for i in range(len(content)):
        path.write_bytes(content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :])
        with pytest.raises(DataError, match=r"tiny.npy"):  # noqa: PT012 哪一步报错都可以
            file = TokenFile(path)
            assert 128 <= i < 128 + 2 * 13
            file.verify()


def test_edited_tokens_are_found_when_read(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[128 + 2 * 30 : 128 + 2 * 31] = b"\xff\xff"
    path.write_bytes(content)
    dataset = TokenDataset(path, context_size=8, stride=8)
    assert dataset[0][0].shape == (1, 8)
    with pytest.raises(DataError, match=r"tokens.npy.*有编号 65535，词表只到 256"):
        dataset[3]
    with pytest.raises(DataError, match="SHA-256"):
        dataset.file.verify()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows 不能截断打开着的文件")
def test_truncated_while_open(path: Path) -> None:
    dataset = TokenDataset(path, context_size=8, split=0.5)
    os.truncate(path, 600)
    assert dataset[0][0].shape == (1, 8)
    with pytest.raises(DataError, match="变短了"):
        dataset.eval().all()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows 不能替换打开着的文件")
def test_replaced_while_open(path: Path) -> None:
    """打开之后换上新文件：读到的仍是旧的那一份。"""
    dataset = TokenDataset(path, context_size=8)
    before = np.asarray(dataset.tokens)
    write_tokens(path, ["别的" * 100], BYTES)
    np.testing.assert_array_equal(np.asarray(dataset.tokens), before)
    assert TokenDataset(path, context_size=8).fingerprint() != dataset.fingerprint()


def test_other_files(tmp_path: Path, path: Path) -> None:
    other = tmp_path / "other.npy"
    np.save(other, np.arange(100, dtype=np.uint16))
    with pytest.raises(DataError, match=r"other.npy 不是完好的词元文件.*没有说明.*write_tokens"):
        TokenDataset(other)
    other.write_bytes(b"PK" * 200)
    with pytest.raises(DataError, match=r"other.npy 不是完整的词元文件"):
        TokenDataset(other)
    with pytest.raises(DataError, match=r"没有.npy：文件不存在"):
        TokenDataset(tmp_path / "没有.npy")
    with pytest.raises(DataError, match="文件夹"):
        TokenDataset(tmp_path)
    with pytest.raises(DtypeError, match="path 得到 int"):
        TokenDataset(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "格式版本是 2"),
        ({"format": "别的"}, "没有写明"),
        ({"count": 420}, "说明被改动过"),
        ({"check": "0" * 64}, "说明被改动过"),
        ({"tokenizer": {"type": "火星"}}, "里的分词器：.*'火星'"),
        ({"tokenizer": None}, "里的分词器："),
    ],
)
def test_wrong_facts(path: Path, change: dict[str, Any], message: str) -> None:
    content = path.read_bytes()
    end = 128 + 2 * 421
    facts = json.loads(content[end + 128 :]) | change
    if "check" not in change:
        del facts["check"]
        facts["check"] = facts_digest(facts)
    changed = json.dumps(facts).encode()
    path.write_bytes(content[:end] + npy_header("|u1", len(changed)) + changed)
    with pytest.raises(DataError, match=message):
        TokenFile(path)


def test_too_short_names_both_numbers(tmp_path: Path) -> None:
    file = write_tokens(tmp_path / "a.npy", ["a" * 64], BYTES)
    with pytest.raises(DataError) as caught:
        TokenDataset(file, context_size=64, split=1.0)
    for part in ("TokenDataset", "64 个词元", "split=1.0", "context_size=64", "65 个"):
        assert part in str(caught.value)
    file = write_tokens(tmp_path / "a.npy", ["a" * 65], BYTES)
    assert len(TokenDataset(file, context_size=64, split=1.0)) == 1


def test_type_of_tokenizer_is_kept(path: Path) -> None:
    assert isinstance(TokenDataset(path, context_size=8).tokenizer, Tokenizer)


def test_chinese_text_that_cannot_be_a_file_name(tmp_path: Path) -> None:
    """短于 256 个字符、含有小数点的中文，写成 UTF-8 比文件名的上限长。"""
    text = "圆周率大约是 3.14，" * 20
    assert len(text) < 256 < len(text.encode())
    file = write_tokens(tmp_path / "a.npy", [text, "a.\0b"], ByteTokenizer())
    assert file.tokenizer.decode(file.tokens) == text + "a.\0b"
    assert len(TextDataset([text], ByteTokenizer(), context_size=4))


@pytest.mark.parametrize("several", [False, True])
def test_source_is_not_overwritten(tmp_path: Path, several: bool) -> None:
    book, other = tmp_path / "book.txt", tmp_path / "other.txt"
    book.write_text("床前明月光", encoding="utf-8")
    other.write_text("疑是地上霜", encoding="utf-8")
    source = [other, tmp_path / "." / "book.txt"] if several else str(book)
    with pytest.raises(DataError, match="既是来源，又是要写的文件"):
        write_tokens(book, source, ByteTokenizer())
    assert book.read_text(encoding="utf-8") == "床前明月光"
    assert sorted(tmp_path.iterdir()) == [book, other]


@pytest.mark.skipif(sys.platform == "win32", reason="没有命名管道")
def test_pipes_and_devices_are_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    with pytest.raises(DataError, match="它不是普通文件"):
        write_tokens(pipe, ["ab"], ByteTokenizer())
    with pytest.raises(DataError, match="它不是普通文件"):
        ByteTokenizer().save(pipe)
    assert pipe.is_fifo()
    assert [*tmp_path.iterdir()] == [pipe]


@pytest.mark.parametrize("path", ["", ".", "/"])
def test_path_without_a_name(path: str) -> None:
    with pytest.raises(DataError, match="不是文件名"):
        write_tokens(path, ["ab"], ByteTokenizer())
