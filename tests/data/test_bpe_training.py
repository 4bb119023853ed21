"""训练 BPE：与直白的写法比较，与 tokenizers 逐个比较，次数相同时的取法，文字太少，速度"""

import json
import random
import time
from collections import Counter
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.data import text as reading
from gptcore.data.tokenizers import BPETokenizer
from gptcore.data.tokenizers.byte_alphabet import BYTE_ORDER, to_characters
from gptcore.data.tokenizers.gpt2_pattern import split_pieces
from gptcore.errors import ArgumentError, DataError, DtypeError

# 几种词各重复几次：相邻的对时增时减，次数常常相同
words = st.text(st.sampled_from("abc龙龚1"), min_size=1, max_size=9)
texts = st.lists(st.tuples(words, st.integers(1, 9)), min_size=1, max_size=9).map(
    lambda pairs: "".join(f"{word}\n" * count for word, count in pairs)
)


def naive_merges(text: str, merges: int, least: int) -> list[tuple[bytes, bytes]]:
    """每次从头数一遍。"""
    tokens = [bytes([byte]) for byte in BYTE_ORDER]
    words = Counter(piece for batch in split_pieces(text) for piece in batch)
    split = {word: [tokens.index(bytes([byte])) for byte in word.encode()] for word in words}
    learned: list[tuple[bytes, bytes]] = []
    while len(learned) < merges:
        counts: Counter[tuple[int, int]] = Counter()
        for word, count in words.items():
            for pair in pairwise(split[word]):
                counts[pair] += count
        if not counts or max(counts.values()) < least:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        for ids in split.values():
            i = 0
            while i < len(ids) - 1:
                if (ids[i], ids[i + 1]) == best:
                    ids[i : i + 2] = [len(tokens)]
                i += 1
        learned.append((tokens[best[0]], tokens[best[1]]))
        tokens.append(tokens[best[0]] + tokens[best[1]])
    return learned


def train(text: Any, merges: int, least: int = 2) -> list[tuple[bytes, bytes]]:
    """合并不够时，错误消息里的词表大小恰好可以。"""
    try:
        return BPETokenizer.train(text, 256 + merges, min_frequency=least).merges
    except DataError as error:
        most = int(str(error).split("词表最多 ")[1].split("，")[0])
        assert most < 256 + merges
        return BPETokenizer.train(text, most, min_frequency=least).merges


def generated_chinese(characters: int) -> str:
    """像中文的文字：常用字、常用词的次数相差很大，句子之间才有标点。"""
    rng = random.Random(7)
    letters = [chr(code) for code in range(0x4E00, 0x5A00)]
    weights = list(accumulate(1 / (i + 3) for i in range(len(letters))))
    words = [
        "".join(rng.choices(letters, cum_weights=weights, k=rng.choice([1, 2, 2, 3])))
        for _ in range(20000)
    ]
    weights = list(accumulate(1 / (i + 5) for i in range(len(words))))
    parts: list[str] = []
    size = 0
    while size < characters:
        parts.append(
            "".join(rng.choices(words, cum_weights=weights, k=rng.randint(2, 9)))
            + rng.choice("，。；\n")
        )
        size += len(parts[-1])
    return "".join(parts)[:characters]


@given(texts, st.integers(1, 30), st.integers(1, 3))
@settings(max_examples=300)
def test_same_as_the_naive_algorithm(text: str, merges: int, least: int) -> None:
    assert train(text, merges, least) == naive_merges(text, merges, least)


@given(st.integers(2, 40), st.integers(1, 4))
def test_runs_of_one_character(length: int, merges: int) -> None:
    text = "a" * length
    assert train(text, merges, 1) == naive_merges(text, merges, 1)


def test_textbook_example() -> None:
    """Sennrich 等 2016 图 1 的词与次数；次数相同时取编号小的一对。"""
    text = " ".join(["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3)
    assert BPETokenizer.train(text, 266).merges == [
        (b"e", b"s"),
        (b"es", b"t"),
        (b"l", b"o"),
        (b"lo", b"w"),
        (b"e", b"w"),  # 以下五对都是 6 次
        (b"n", b"ew"),
        (b" ", b"low"),
        (b" ", b"new"),
        (b" new", b"est"),
        (b"d", b"est"),
    ]


def test_ties_take_the_smallest_ids() -> None:
    assert BPETokenizer.train("ba" * 1 + "\n" + "ab\nba\nab", 257).merges == [(b"a", b"b")]
    assert BPETokenizer.train("xz\nxy\nxz\nxy", 257).merges == [(b"x", b"y")]
    # “编号”是 GPT-2 的次序：看得见的字符在前，控制字符在后
    assert BPETokenizer.train("\x01\x02a\x01\x02ab\nab", 257, min_frequency=1).merges == [
        (b"a", b"b")
    ]


def test_a_pair_that_lost_some_of_its_occurrences() -> None:
    """`b a` 先有 9 次；合并 `a b` 用掉其中 5 次，还剩 4 次。"""
    merges = train("abab\n" * 5 + "ba\n" * 4, 3)
    assert merges == [(b"a", b"b"), (b"ab", b"ab"), (b"b", b"a")]


def test_the_order_of_texts_does_not_matter() -> None:
    lines = [f"{word}{i % 7}\n" for i in range(200) for word in ("low", "lower", "深浅")]
    shuffled = random.Random(0).sample(lines, len(lines))
    assert BPETokenizer.train(lines, 265) == BPETokenizer.train(shuffled, 265)


def test_sources(tmp_path: Path) -> None:
    text = "low lower lowest\n" * 20
    expected = BPETokenizer.train(text, 262)
    file = tmp_path / "文字.txt"
    file.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    for source in (file, [text], iter([text]), [file], [text[:170], text[170:]], (text,)):
        assert BPETokenizer.train(source, 262) == expected
    assert BPETokenizer.train([text, file], 262).merges == expected.merges
    with pytest.MonkeyPatch.context() as patch:  # 文件分成许多段来读
        patch.setattr(reading, "CHUNK", 7)
        assert BPETokenizer.train(file, 262) == expected
    # 片段不跨过两份
    assert train(["ab"] * 9 + ["c"] * 9, 9) == [(b"a", b"b")]
    # 代理码位与编码时同样处理
    assert train("\ud83d\ude00" * 9, 99) == train("😀" * 9, 99)


def test_a_file_name_is_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "文字.txt").write_text("low " * 9, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"'文字.txt' 是一个文件.*Path\('文字.txt'\)"):
        BPETokenizer.train("文字.txt", 300)


def test_special_tokens_come_last() -> None:
    tokenizer = BPETokenizer.train("<s>" * 50, 259, special_tokens=["<s>", "<t>"])
    assert tokenizer.special_tokens == {"<s>": 257, "<t>": 258}
    assert tokenizer.merges == [(b">", b"<")]  # 训练文字里的 <s> 是普通文字
    assert tokenizer.encode("<s>", allowed_special="all") == [257]


def test_exactly_the_bytes() -> None:
    tokenizer = BPETokenizer.train("a", 256)
    assert tokenizer.merges == []
    assert tokenizer.vocab_size == 256


@pytest.mark.parametrize(
    ("source", "size", "settings", "error", "expected"),
    [
        ("", 300, {}, DataError, ["没有文字", "至少一个字符"]),
        ([], 300, {}, DataError, ["没有文字"]),
        (["", ""], 300, {}, DataError, ["没有文字"]),
        ("a", 257, {}, DataError, ["只能合并 0 次", "词表最多 256", "vocab_size=257", "更多文字"]),
        ("abc", 300, {}, DataError, ["只能合并 0 次", "减小 min_frequency"]),
        ("abc", 300, {"min_frequency": 1}, DataError, ["只能合并 2 次", "词表最多 258"]),
        ("ab ab", 300, {"special_tokens": ["<s>"]}, DataError, ["只能合并 1 次", "词表最多 258"]),
        ("a", 255, {}, ArgumentError, ["255", "至少要有 256", "增大"]),
        (
            "a",
            256,
            {"special_tokens": ["<s>"]},
            ArgumentError,
            ["256", "至少要有 257", "1 个特殊词元"],
        ),
        ("a", 0, {}, ArgumentError, ["vocab_size", "正整数"]),
        ("a", 300.5, {}, ArgumentError, ["vocab_size", "300.5"]),
        ("a", 300, {"min_frequency": 0}, ArgumentError, ["min_frequency", "正整数"]),
        ("a", 300, {"special_tokens": "<s>"}, DtypeError, ["special_tokens", "列表"]),
        (b"a", 300, {}, DtypeError, ["source", "bytes"]),
        (3, 300, {}, DtypeError, ["source", "int"]),
        ([3], 300, {}, DtypeError, ["int", "字符串"]),
        (Path("没有这个文件"), 300, {}, DataError, ["没有这个文件", "不存在"]),
    ],
)
def test_errors(
    source: Any, size: Any, settings: dict[str, Any], error: type[Exception], expected: list[str]
) -> None:
    with pytest.raises(error) as caught:
        BPETokenizer.train(source, size, **settings)
    assert type(caught.value) is error
    assert all(part in str(caught.value) for part in expected), str(caught.value)


def test_speed() -> None:
    """0.25 MB、2000 次合并，不到 20 秒的四分之一；整 1 MB 的用时见 tests/benchmarks/tokenizer.py。"""
    text = generated_chinese(85_000)
    start = time.perf_counter()
    BPETokenizer.train(text, 2256)
    assert time.perf_counter() - start < 5


# ----------------------------------------------------------------------- 与 tokenizers 比较


def hugging_face_merges(texts: list[str], vocab_size: int, least: int) -> list[tuple[str, str]]:
    tokenizers = pytest.importorskip("tokenizers", reason="没有安装 tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=least,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return [tuple(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]]


def written(merges: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(to_characters(left), to_characters(right)) for left, right in merges]


@pytest.mark.reference
@pytest.mark.parametrize("least", [1, 2, 7])
def test_same_merges_as_tokenizers(tinyshakespeare_path: Path, least: int) -> None:
    english = tinyshakespeare_path.read_text(encoding="utf-8")[:120_000]
    mixed = ["aaaaa aaaa\n" * 9, "😀👨‍👩‍👧\u3000\uff11½" * 5, "\x00\x01\x85" * 9]
    for parts in ([english], [generated_chinese(30_000)], mixed, [english[:3000], *mixed]):
        merges = train(parts, 1500, least)
        assert written(merges) == hugging_face_merges(parts, 256 + len(merges), least)


@pytest.mark.reference
@given(texts, st.integers(1, 30), st.integers(1, 3))
def test_same_merges_as_tokenizers_on_random_texts(text: str, merges: int, least: int) -> None:
    learned = train(text, merges, least)
    assert written(learned) == hugging_face_merges([text], 256 + len(learned), least)
