"""字符分词器与读入文本"""

import json
import os
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcore.data import CharTokenizer, Tokenizer, read_text, tokenizer_from_dict
from gptcore.data.tokenizers import chars as module
from gptcore.errors import DataError, DtypeError, ShapeError
from gptcore.tensor import Tensor

texts = st.text(min_size=1)


@given(texts)
def test_round_trip(text: str) -> None:
    tokenizer = CharTokenizer.from_text(text)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(type(i) is int for i in ids)
    assert tokenizer.vocab == sorted(set(text))
    assert [tokenizer.stoi[c] for c in text] == ids
    assert "".join(tokenizer.itos[i] for i in ids) == text


@given(texts)
def test_decode_accepts_list_array_and_tensor(text: str) -> None:
    tokenizer = CharTokenizer.from_text(text)
    ids = tokenizer.encode_array(text)
    assert ids.dtype == np.int64
    for form in (
        ids,
        ids.astype(np.int32),
        ids.tolist(),
        iter(ids),
        Tensor(ids),
        Tensor(ids.tolist()),
    ):
        assert tokenizer.decode(form) == text


@given(texts, st.integers(1, 5))
def test_blocks_do_not_matter(text: str, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        tokenizer = CharTokenizer.from_text(text)
        assert tokenizer.encode(text) == [tokenizer.stoi[c] for c in text]


@given(texts)
def test_survives_json_and_pickle(text: str) -> None:
    tokenizer = CharTokenizer.from_text(text)
    written = json.dumps(tokenizer.to_dict(), ensure_ascii=False).encode("utf-8")
    restored = tokenizer_from_dict(json.loads(written))
    assert restored == tokenizer
    assert restored.decode(restored.encode(text)) == text
    assert hash(restored) == hash(pickle.loads(pickle.dumps(tokenizer)))  # noqa: S301 自己刚写的


def test_empty_text_and_no_ids() -> None:
    tokenizer = CharTokenizer("ab")
    assert tokenizer.encode("") == []
    for nothing in ([], np.array([]), Tensor([])):
        assert tokenizer.decode(nothing) == ""


def test_given_order_is_kept() -> None:
    tokenizer = CharTokenizer(["乙", "甲"])
    assert tokenizer.encode("甲乙") == [1, 0]
    assert tokenizer.vocab_size == 2
    assert repr(tokenizer) == "CharTokenizer(vocab_size=2)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("好人龙", ["'龙'", "U+9F99", "位置 2", "词表共有 2 个字符", "请删去或替换"]),
        ("😀好", ["'😀'", "U+1F600", "位置 0", "请删去或替换"]),
        ("好\ud800", ["U+D800", "孤立的代理码位", "位置 1"]),
    ],
)
def test_unknown_character(text: str, expected: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        CharTokenizer.from_text("好人").encode(text)
    assert all(part in str(caught.value) for part in expected), str(caught.value)
    str(caught.value).encode("utf-8")  # 消息本身要能打印


def test_unknown_character_in_a_later_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 4)
    with pytest.raises(DataError, match="位置 9"):
        CharTokenizer("ab").encode("ababababax")


@pytest.mark.parametrize(
    ("ids", "error", "expected"),
    [
        ([0, 3], DataError, ["编号 3", "位置 1", "0 到 2"]),
        ([0, 1, -1], DataError, ["编号 -1", "位置 2", "0 到 2"]),
        ([2**70], DataError, [str(2**70), "位置 0"]),
        (np.array([2**63], dtype=np.uint64), DataError, [str(2**63), "0 到 2"]),
        (Tensor(np.array([7])), DataError, ["编号 7", "0 到 2", "请检查"]),
        ([0, 1.0], DtypeError, ["位置 1", "1.0", "float", "int("]),
        (["a"], DtypeError, ["位置 0", "'a'", "str"]),
        (np.array([0.0]), DtypeError, ["float64", "astype"]),
        (Tensor([0.5]), DtypeError, ["float32", "astype"]),
        (np.array([True]), DtypeError, ["bool", "必须是整数"]),
        ("ab", DtypeError, ["'ab'", "encode"]),
        (1, DtypeError, ["得到 1", "[编号]"]),
        (np.array([[0, 1]]), ShapeError, ["(1, 2)", "一维", "逐行"]),
        (np.array(0), ShapeError, ["()", "[编号]"]),
    ],
)
def test_bad_ids(ids: Any, error: type[Exception], expected: list[str]) -> None:
    with pytest.raises(error) as caught:
        CharTokenizer("abc").decode(ids)
    assert all(part in str(caught.value) for part in expected), str(caught.value)


@pytest.mark.parametrize(
    ("vocab", "error", "expected"),
    [
        ("", DataError, ["vocab 是空的", "from_text"]),
        ("aba", DataError, ["'a'", "U+0061", "0 和 2", "from_text"]),
        (["a", "bc"], DataError, ["'bc'", "位置 1", "长度是 2", "请拆开"]),
        (["a", ""], DataError, ["长度是 0"]),
        (["a", 3], DtypeError, ["位置 1", "3（int）", "str"]),
        ("a\udc00", DataError, ["U+DC00", "位置 1", "UTF-8", "请从文本里删去"]),
    ],
)
def test_bad_vocab(vocab: Any, error: type[Exception], expected: list[str]) -> None:
    with pytest.raises(error) as caught:
        CharTokenizer(vocab)
    assert all(part in str(caught.value) for part in expected), str(caught.value)


def test_bad_text() -> None:
    with pytest.raises(DataError, match=r"text 是空的.*至少一个字符"):
        CharTokenizer.from_text("")
    with pytest.raises(DataError, match=r"from_text：位置 3.*U\+D800.*请从文本里删去"):
        CharTokenizer.from_text("cba\ud800")
    with pytest.raises(DtypeError, match=r"encode：text 得到 bytes.*decode"):
        CharTokenizer("a").encode(b"a")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, ["type", "None", "char"]),
        ({"type": "word"}, ["'word'", "char", "升级"]),
        ({"type": ["char"]}, ["['char']"]),
        ({"type": "char"}, ["vocab", "None", "to_dict"]),
        ({"type": "char", "vocab": ""}, ["vocab 是空的"]),
    ],
)
def test_bad_dictionary(data: dict[str, Any], expected: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        tokenizer_from_dict(data)
    assert all(part in str(caught.value) for part in expected), str(caught.value)


# ----------------------------------------------------------------------- read_text


def test_bom_and_line_endings(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"\xef\xbb\xbf" + "一\r\n二\r三\n\r\n".encode())
    assert read_text(file) == read_text(str(file)) == "一\n二\n三\n\n"


@given(texts)
def test_reads_what_was_written(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.txt"
        file.write_bytes(b"\xef\xbb\xbf" + text.encode("utf-8"))
        assert read_text(file) == text.replace("\r\n", "\n").replace("\r", "\n")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", ["是空的", "请换一个"]),
        (b"\xef\xbb\xbf", ["是空的"]),
        ("a中文文本".encode("gbk"), ["位置 1", "0xD6", "GBK", "gb18030", "write_text"]),
        (b"\xef\xbb\xbfab\xff cdefg", ["位置 5", "0xFF", "encoding"]),
        ("中文".encode("utf-16"), ["位置 0", "UTF-16", 'encoding="utf-16"']),
        (b"\x89PNG\x00\x00\x01\x02", ["位置 0", "0x89", "空字节", "纯文本"]),
        ("文本".encode()[:-1], ["位置 3", "没有传完"]),
    ],
)
def test_bad_content(tmp_path: Path, content: bytes, expected: list[str]) -> None:
    file = tmp_path / "文本.txt"
    file.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_text(file)
    assert all(part in str(caught.value) for part in [*expected, "文本.txt"]), str(caught.value)


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"没有.txt.*不存在.*corpus_path"):
        read_text(tmp_path / "没有.txt")
    with pytest.raises(DataError, match=r"^read_text：[^：]*是目录.*请给出"):
        read_text(tmp_path)
    with pytest.raises(DataError, match="读不了"):
        read_text("a\0b")
    with pytest.raises(DtypeError, match=r"path 得到 int.*文件名"):
        read_text(3)  # type: ignore[arg-type]


@pytest.mark.skipif(sys.platform == "win32", reason="权限位只用于 POSIX 系统")
def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "秘密.txt"
    file.write_text("a", encoding="utf-8")
    if os.geteuid() == 0:  # 管理员不受权限位约束，直接模拟

        def refuse(*args: Any, **settings: Any) -> Any:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "read_bytes", refuse)
        monkeypatch.setattr(Path, "open", refuse)
    file.chmod(0)
    with pytest.raises(DataError, match=r"没有权限.*秘密.txt.*请修改"):
        read_text(file)


def test_loading_always_names_the_file(tmp_path: Path) -> None:
    """内容里的类型不对，也是文件的错。"""
    file = tmp_path / "tokenizer.json"
    file.write_text('{"type": "char", "vocab": ["a", 5]}', encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(str(file))):
        Tokenizer.load(tmp_path)


def test_loading_from_a_name_that_is_too_long() -> None:
    with pytest.raises(DataError, match="不能读取"):
        Tokenizer.load("长" * 2000)
