"""GPT-2 的编号：与 tiktoken、tokenizers 逐个比较，两者都由本地的词表造出"""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptcore.data.tokenizers import BPETokenizer

STRANGE = [
    "",
    " ",
    "Hello, world!",
    "it's we'll I'd they're 've 'LL \u2019s '' ' s 're're",
    "2024-11-30 3.14159 \uff11\uff12\uff13 ½ ٣ Ⅷ \u3007",
    "  leading\n\n\n  and trailing   \t\t \r\n ",
    "\u3000全角空格\u00a0不换行\u2028行\u2029段\u200b零宽\ufeff",
    "你好，世界！龙年大吉。繁體中文，日本語のテキスト、한국어 텍스트",
    "😀👨‍👩‍👧‍👦🏳️‍🌈🇨🇳🇺🇸✈️❤️👍🏽e\u0301\u0323 Z̴̡͙a̷l̶g̸o̵",
    "".join(map(chr, range(0x100))),
    "\x00\x1b[31m\x7f\x80\x9f\x1c\x1d\x1e\x1f\x85",
    "\U0001f3f4\U000e0067\U000e0062\U000e007f\U0010ffff\ufffd\ufffe𠮷𐍈",
    "ꟍꟚ\u1c89\U000105c0\u088f\u0558\U00011de0",  # 各版 Unicode 判断不同的码位
    "a" * 1000,
    " " * 1000 + "x",
    "\n" * 777,
    "龙" * 500,
    "<|endoftext|> <|endoftext|",
    "\u01c5\u01f2\u2170ªº²³¹¼",
    "def f(x):\n\treturn x**2  # 平方\n",
]


def fuzzed(count: int, seed: int) -> list[str]:
    """随机的短文字：词、缩写、空白、各种文字与任意码位混在一起。"""
    rng = random.Random(seed)
    words = "the of low er 's 't 're 've 'm 'll 'd ' '' don't 12 3 ² ½ 龙 你好 。 ， 😀 👨‍👩‍👧 🇨🇳 e\u0301".split()
    spaces = [" ", " ", " ", "  ", "\n", "\t", "\r\n", "\u3000", "\xa0", "\x85", "\x1c", "\u2028"]

    def piece() -> str:
        kind = rng.random()
        if kind < 0.35:
            return rng.choice(words)
        if kind < 0.6:
            return rng.choice(spaces)
        if kind < 0.75:
            return chr(rng.randrange(0x80))
        if kind < 0.85:
            return chr(rng.randrange(0x3000))
        code = rng.choice((rng.randrange(0x10000), rng.randrange(0x110000)))
        return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)

    return ["".join(piece() for _ in range(rng.randrange(1, 14))) for _ in range(count)]


def random_bytes(count: int) -> list[bytes]:
    rng = random.Random(3)
    return [rng.randbytes(rng.randrange(1, 60)) for _ in range(count)]


def long_texts(tinyshakespeare_path: Path) -> list[str]:
    rng = random.Random(1)
    han = [chr(rng.randrange(0x4E00, 0x9FFF)) for _ in range(3000)]
    chinese = "".join(
        "".join(rng.choices(han, k=rng.randrange(1, 25))) + rng.choice("，。！？\n 12a")
        for _ in range(8000)
    )
    return [tinyshakespeare_path.read_text(encoding="utf-8"), chinese, "".join(fuzzed(20_000, 2))]


def test_known_ids(gpt2: BPETokenizer) -> None:
    assert gpt2.vocab_size == 50257
    assert gpt2.special_tokens == {"<|endoftext|>": 50256}
    assert gpt2.encode("hello world") == [31373, 995]
    assert gpt2.encode("hello <|endoftext|>", allowed_special="all") == [31373, 220, 50256]
    assert gpt2.encode("<|endoftext|>") == [27, 91, 437, 1659, 5239, 91, 29]


@pytest.mark.reference
def test_strange_texts(gpt2: BPETokenizer, gpt2_tiktoken: Any, gpt2_tokenizers: Any) -> None:
    for text in STRANGE:
        ids = gpt2.encode(text)
        assert ids == gpt2_tiktoken.encode_ordinary(text), text[:50]
        assert gpt2.decode(ids) == text
        special = gpt2.encode(text, allowed_special="all")
        assert special == gpt2_tiktoken.encode(text, allowed_special="all")
        assert special == gpt2_tokenizers.encode(text).ids, text[:50]


@pytest.mark.reference
def test_long_texts(
    gpt2: BPETokenizer, gpt2_tiktoken: Any, gpt2_tokenizers: Any, tinyshakespeare_path: Path
) -> None:
    for text in long_texts(tinyshakespeare_path):
        ids = gpt2.encode_array(text)
        assert np.array_equal(ids, gpt2_tiktoken.encode_ordinary(text))
        assert np.array_equal(ids, gpt2_tokenizers.encode(text).ids)
        assert gpt2.decode(ids) == text


@pytest.mark.reference
def test_random_bytes(gpt2: BPETokenizer, gpt2_tiktoken: Any, gpt2_tokenizers: Any) -> None:
    """字节当作文字有三种办法：坏的换成 U+FFFD，换成孤立的代理码位，一个字节一个字符。"""
    for content in random_bytes(2000):
        for text in (content.decode("utf-8", "replace"), content.decode("latin-1")):
            assert gpt2.encode(text) == gpt2_tiktoken.encode_ordinary(text)
            assert gpt2.encode(text) == gpt2_tokenizers.encode(text).ids
        text = content.decode("utf-8", "surrogateescape")
        assert gpt2.encode(text) == gpt2_tiktoken.encode_ordinary(text)
    for codes in np.random.default_rng(4).integers(0xD7F0, 0xE010, (500, 6)).tolist():
        text = "".join(map(chr, codes))
        assert gpt2.encode(text) == gpt2_tiktoken.encode_ordinary(text)


@pytest.mark.reference
def test_decoding_random_ids(gpt2: BPETokenizer, gpt2_tiktoken: Any, gpt2_tokenizers: Any) -> None:
    rng = np.random.default_rng(5)
    partial = np.array([i for i in range(50257) if "\ufffd" in gpt2.decode([i])])  # 半个字符
    for _ in range(500):
        ids = rng.choice(partial, 12) if rng.random() < 0.5 else rng.integers(0, 50257, 12)
        numbers = ids.tolist()
        assert gpt2.decode_bytes(ids) == gpt2_tiktoken.decode_bytes(numbers)
        assert gpt2.decode(ids) == gpt2_tiktoken.decode(numbers)
        assert gpt2.decode(ids) == gpt2_tokenizers.decode(numbers, skip_special_tokens=False)
        decoder = gpt2.incremental_decoder()
        assert "".join(map(decoder.push, numbers)) + decoder.flush() == gpt2.decode(ids)


@pytest.mark.reference
@pytest.mark.slow
def test_100000_fuzzed_texts(gpt2: BPETokenizer, gpt2_tiktoken: Any, gpt2_tokenizers: Any) -> None:
    texts = fuzzed(100_000, 0)
    for start in range(0, len(texts), 5000):
        some = texts[start : start + 5000]
        ours = [gpt2.encode(text) for text in some]
        theirs = gpt2_tiktoken.encode_ordinary_batch(some, num_threads=1)
        others = [encoding.ids for encoding in gpt2_tokenizers.encode_batch(some)]
        for text, a, b, c in zip(some, ours, theirs, others, strict=True):
            assert a == b, ascii(text)
            assert a == c, ascii(text)


@pytest.mark.reference
def test_fuzzed_texts(gpt2: BPETokenizer, gpt2_tiktoken: Any) -> None:
    for text in fuzzed(3000, 1):
        assert gpt2.encode(text) == gpt2_tiktoken.encode_ordinary(text), ascii(text)
