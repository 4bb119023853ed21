"""JSON：写得标准，读得严格，占用的内存有上限"""

import json
import tracemalloc
from typing import Any

import numpy as np
import pytest

from gptcore.errors import DataError
from gptcore.serialization import JSON_DEPTH, dump_json, parse_json, texts


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -1, 2**200, 0.1, 5e-324, 1.7976931348623157e308, "", "你好 😀\n\0",
        [], {}, {"": {"键": [1, [2.5, None]]}}, "\ud800", {"\udfff": "a\ud83d"},
    ],
)  # fmt: skip
def test_round_trip(value: Any) -> None:
    content = dump_json(value)
    assert content.decode("utf-8").endswith("\n")  # 孤立的代理码位也写成有效的 UTF-8
    assert parse_json(content, "x") == value
    assert json.loads(content) == value


@pytest.mark.parametrize(
    "value",
    [float("nan"), [float("inf")], {"a": -float("inf")}, np.zeros(2), np.float32(1), {1, 2}, b"x"],
)
def test_what_json_cannot_hold(value: Any) -> None:
    with pytest.raises(DataError, match=r"dump_json：有写不成 JSON 的值.*请换成"):
        dump_json(value)
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(DataError, match="dump_json"):
        dump_json(endless)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "Expecting value"),
        (b"{", ""),
        (b"[1] 2", "Extra data"),
        (b"NaN", "NaN 不是有限的数"),
        (b'{"a": [Infinity]}', "Infinity 不是有限的数"),
        (b"-Infinity", "-Infinity 不是有限的数"),
        (b"[1e999]", "1e999 不是有限的数"),
        (b'{"a": 1, "b": 2, "a": 1}', "键 'a' 出现了两次"),
        (b'[{"x": {"\\u0061": 1, "a": 1}}]', "键 'a' 出现了两次"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b'"\xff"', "utf-8"),
        (b'"\xed\xa0\x80"', "utf-8"),  # 写成 UTF-8 的代理码位
        ('"文"'.encode("gbk"), "utf-8"),
        ("{}".encode("utf-16"), ""),
        (b'"\x00"', "control character"),
        (b"[" * 100_000, ""),
        (b'{"a":' * 100_000, ""),
        (b"[" * (JSON_DEPTH + 2) + b"]" * (JSON_DEPTH + 2), f"嵌套超过 {JSON_DEPTH} 层"),
        (b"9" * 5000, ""),
    ],
)
def test_what_is_not_json(content: bytes, words: str) -> None:
    with pytest.raises(DataError, match=f"^文件 不是有效的 JSON：.*{words}.*被截断或改动过"):
        parse_json(content, "文件")


def test_depth_up_to_the_limit() -> None:
    content = b"[" * JSON_DEPTH + b"]" * JSON_DEPTH
    assert parse_json(content, "x") == json.loads(content)
    mixed = b'{"a":[' * (JSON_DEPTH // 2) + b"]}" * (JSON_DEPTH // 2)
    assert parse_json(mixed, "x") == json.loads(mixed)


def repeated(unit: str, count: int) -> bytes:
    return ("[" + unit * count + "0]").encode()


def keys(value: str, count: int) -> bytes:
    return ("{" + ",".join(f'"{i:x}":{value}' for i in range(count)) + "}").encode()


BOMBS = {
    "空字典": lambda n: repeated("{},", n),
    "空列表": lambda n: repeated("[],", n),
    "小字典": lambda n: repeated('{"":0},', n),
    "套着的列表": lambda n: repeated("[0],", n),
    "小数": lambda n: repeated("1e9,", n),
    "整数": lambda n: repeated("999,", n),
    "大整数": lambda n: repeated("9" * 20 + ",", n),
    "汉字": lambda n: repeated('"中",', n),
    "表情": lambda n: repeated('"😀",', n),
    "转义": lambda n: repeated('"\\ud800",', n),
    "大字典": lambda n: keys("1e9", n),
    "大字典里的文字": lambda n: keys('"é"', n),
    "互不相同的小字典": lambda n: (
        "[" + ",".join(f'{{"{i:x}":0}}' for i in range(n)) + "]"
    ).encode(),
    "一个表情使长文字变宽": lambda n: ("😀" + "a" * 9 * n).join('""').encode(),
    "一个转义使长文字变宽": lambda n: ("\\ud83d\\ude00" + "a" * 9 * n).join('""').encode(),
    "长文字": lambda n: ("a" * 9 * n).join('""').encode(),
}


def traced(content: bytes) -> tuple[int, str]:
    """另占的内存的峰值，以及错误。"""
    tracemalloc.start()
    message = ""
    try:
        parse_json(content, "x")
    except DataError as error:
        message = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak, message


@pytest.mark.parametrize("name", BOMBS)
def test_memory_is_bounded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """读得成的占用不超过上限；再大就拒绝，什么也没有占用。上限改小，测试就快。"""
    limit = 4 << 20
    monkeypatch.setattr(texts, "JSON_MEMORY", limit)
    make = BOMBS[name]
    low, high = 1, 400_000
    while high - low > 1:  # 二分找出最大的读得成的
        middle = (low + high) // 2
        fits = texts._json_memory(make(middle)) <= limit
        low, high = (middle, high) if fits else (low, middle)
    # 字典在 2 的幂的三分之二处扩容，那时占用最多
    steps = [n for n in (2**k * 2 // 3 + 1 for k in range(10, 17)) if n < low]
    for count in (low, *steps[-1:]):
        peak, message = traced(make(count))
        assert message == ""
        assert limit // 6 < peak <= limit + 4096
    peak, message = traced(make(high))
    assert "太多内存" in message
    assert peak < 1 << 16


def test_large_but_ordinary_tokenizers_are_read() -> None:
    """GPT-2 那样 50257 个词元的词表，离上限还远；15 万个词元的也读得了。"""
    words = [f"词{i}" for i in range(50_257)]
    value = {"vocab": {w: i for i, w in enumerate(words)}, "merges": [[w, w] for w in words]}
    assert parse_json(dump_json(value), "x") == value
    words = [f"tok{i}" for i in range(150_000)]
    value = {"vocab": {w: i for i, w in enumerate(words)}, "merges": [f"to {w}" for w in words]}
    assert parse_json(dump_json(value), "x") == value
