"""测分词器用的文字：tiny Shakespeare 与随机造的，不用下载别的"""

import functools
import random
from itertools import accumulate

from gptcore.data import corpus_path

MEGABYTE = 1_000_000


def english(size: int) -> str:
    """`size` 字节的莎士比亚，不够长就重复几遍。"""
    text = corpus_path("tinyshakespeare").read_text(encoding="utf-8")
    return (text * (size // len(text) + 1))[:size]


def chinese(size: int) -> str:
    """`size` 字节的中文：字与词的次数相差很大，句子之间才有标点。"""
    rng = random.Random(7)
    letters = [chr(code) for code in range(0x4E00, 0x5A00)]
    words = ["".join(_zipf(rng, letters, rng.choice([1, 2, 2, 3]))) for _ in range(20000)]
    sentences = ["".join(_zipf(rng, words, 5)) + rng.choice("，。；\n") for _ in range(size // 25)]
    return "".join(sentences)[: size // 3]


def various_english(size: int) -> str:
    """`size` 字节、几十万种不同的词：把莎士比亚的词两两拼起来，常见的仍然常见。"""
    rng = random.Random(8)
    words = sorted(set(english(MEGABYTE).split()))
    compounds = [rng.choice(words) + rng.choice(words) for _ in range(500_000)]
    return " ".join(_zipf(rng, words + compounds, size // 12))[:size]


def strange(kind: str) -> str:
    """1 MB 很长的片段：没有标点，或者只有一类字符。"""
    rng = random.Random(0)
    if kind == "不带标点的中文":
        return "".join(c for c in chinese(MEGABYTE) if c.isalpha())
    letters = STRANGE[kind]
    return "".join(rng.choices(letters, k=MEGABYTE if len(letters.encode()) < 20 else 300_000))


STRANGE = {
    "不带标点的中文": "",
    "一个字母": "a",
    "空格": " ",
    "换行": "\n",
    "数字": "0123456789",
    "标点": "!@#$%^&*()-=_+[]{}",
    "表情": "😀👨👩👧🇨🇳❤x ",
}


@functools.cache
def _weights(count: int) -> list[float]:
    return list(accumulate(1 / (i + 4) for i in range(count)))


def _zipf(rng: random.Random, items: list[str], count: int) -> list[str]:
    """越靠前的越常见。"""
    return rng.choices(items, cum_weights=_weights(len(items)), k=count)
