"""BPE 分词器的速度与内存：训练、编码、解码，很长的片段；装有 tiktoken 时在同一个进程里轮流比较

文字由 tiny Shakespeare 与随机造的中文、数字等拼成，不用下载。编码英文分冷、热两种：冷的一次从空的缓存开始，
热的是再编码一次同样的文字。机器忽快忽慢，每一项取几次里最快的。

    GPTCORE_DATA=放有 tinyshakespeare.txt 与 gpt2/ 的文件夹 python tests/benchmarks/tokenizer.py
"""

import argparse
import functools
import json
import os
import platform
import random
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from pathlib import Path
from typing import Any

import gptcore
from gptcore.data import BPETokenizer, corpus_path
from gptcore.data.tokenizers.byte_alphabet import to_bytes
from gptcore.data.tokenizers.gpt2_pattern import GPT2_PATTERN

TRAIN_LIMIT = 20.0  # 秒：1 MB 文字、2000 次合并
ENCODE_LIMIT = 1.0  # MB/s：10 MB 英文，热


def chinese(size: int) -> str:
    """`size` 字节的中文：字与词的次数相差很大，句子之间才有标点。"""
    rng = random.Random(7)
    letters = [chr(code) for code in range(0x4E00, 0x5A00)]
    words = ["".join(zipf(rng, letters, rng.choice([1, 2, 2, 3]))) for _ in range(20000)]
    sentences = ["".join(zipf(rng, words, 5)) + rng.choice("，。；\n") for _ in range(size // 25)]
    return "".join(sentences)[: size // 3]


def various_english(english: str, size: int) -> str:
    """`size` 字节、几十万种不同的词：把莎士比亚的词两两拼起来，常见的仍然常见。"""
    rng = random.Random(8)
    words = sorted(set(english.split()))
    compounds = [rng.choice(words) + rng.choice(words) for _ in range(500_000)]
    return " ".join(zipf(rng, words + compounds, size // 12))[:size]


@functools.cache
def weights(count: int) -> list[float]:
    return list(accumulate(1 / (i + 4) for i in range(count)))


def zipf(rng: random.Random, items: list[str], count: int) -> list[str]:
    """越靠前的越常见。"""
    return rng.choices(items, cum_weights=weights(len(items)), k=count)


def tiktoken_encode(folder: Path) -> Callable[[str], Any] | None:
    """tiktoken 的 GPT-2 编码，没有安装就没有。"""
    try:
        import tiktoken
    except ModuleNotFoundError:
        return None
    vocab = json.loads((folder / "encoder.json").read_text(encoding="utf-8"))
    special = {"<|endoftext|>": vocab.pop("<|endoftext|>")}
    ranks = {to_bytes(token, "encoder.json"): number for token, number in vocab.items()}
    encoding = tiktoken.Encoding(
        "gpt2", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens=special
    )
    return encoding.encode_ordinary


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peak_memory() -> float:
    """这个进程到目前为止的内存峰值，MB；Windows 上没有。"""
    try:
        import resource
    except ModuleNotFoundError:
        return float("nan")
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def report_version(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"没有 {name}"


def main() -> int:
    parser = argparse.ArgumentParser(description="BPE 分词器的速度与内存")
    parser.add_argument("--megabytes", type=int, default=10, help="编码多少 MB 的英文")
    parser.add_argument("--rounds", type=int, default=3, help="每一项几次，取最快的")
    options = parser.parse_args()
    print(
        f"Python {platform.python_version()}，{report_version('numpy')}，gptcore {gptcore.__version__}，"
        f"{report_version('tiktoken')}"
    )
    folder = Path(os.environ["GPTCORE_DATA"]) / "gpt2"
    english = corpus_path("tinyshakespeare").read_text(encoding="utf-8")
    failed = train({"英文": english[:1_000_000], "中文": chinese(1_000_000)}, options.rounds)

    tokenizer = BPETokenizer.load(folder)
    theirs = tiktoken_encode(folder)
    rng = random.Random(0)
    size = options.megabytes * 1_000_000
    long_texts = {
        "莎士比亚，重复几遍": (english * (size // len(english) + 1))[:size],
        "几十万种词": various_english(english, size),
    }
    for name, text in long_texts.items():
        before = peak_memory()
        cold = seconds(lambda text=text: tokenizer.encode_array(text))
        speed = compare(
            f"{options.megabytes} MB {name}，热", tokenizer, theirs, text, options.rounds
        )
        print(f"  冷：{size / cold / 1e6:.1f} MB/s；内存峰值多出 {peak_memory() - before:.0f} MB")
        failed |= speed < ENCODE_LIMIT
        ids = tokenizer.encode_array(text)
        print(f"  解码：{size / seconds(lambda ids=ids: tokenizer.decode(ids)) / 1e6:.1f} MB/s")

    texts = {
        "中文": chinese(1_000_000),
        "不带标点的中文": "".join(c for c in chinese(1_000_000) if c.isalpha()),
        "一个字母": "a" * 1_000_000,
        "空格": " " * 1_000_000,
        "换行": "\n" * 1_000_000,
        "数字": "".join(rng.choices("0123456789", k=1_000_000)),
        "标点": "".join(rng.choices("!@#$%^&*()-=_+[]{}", k=1_000_000)),
        "表情": "".join(rng.choices("😀👨👩👧🇨🇳❤x ", k=300_000)),
    }
    for name, text in texts.items():
        fresh = BPETokenizer(tokenizer.merges)
        compare(f"1 MB {name}，冷", fresh, theirs, text, 1)
    return int(failed)


def train(texts: dict[str, str], rounds: int) -> bool:
    failed = False
    for name, text in texts.items():
        best = min(seconds(lambda text=text: BPETokenizer.train(text, 2256)) for _ in range(rounds))
        print(f"训练：{len(text.encode()) / 1e6:.2f} MB {name}，2000 次合并，{best:.2f} 秒")
        failed |= best > TRAIN_LIMIT
    return failed


def compare(
    name: str, tokenizer: BPETokenizer, theirs: Callable[[str], Any] | None, text: str, rounds: int
) -> float:
    size = len(text.encode()) / 1e6
    ours: list[float] = []
    others: list[float] = []
    for _ in range(rounds):
        ours.append(seconds(lambda: tokenizer.encode_array(text)))
        try:
            others += [seconds(lambda: theirs(text))] if theirs else []
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            print(f"  tiktoken 失败：{error}")  # 很长的空白让它的正则栈溢出，抛出的不是 Exception
    other = f"，tiktoken {size / min(others):6.1f} MB/s" if others else ""
    print(f"编码：{name}：{size / min(ours):6.1f} MB/s{other}")
    return size / min(ours)


if __name__ == "__main__":
    raise SystemExit(main())
