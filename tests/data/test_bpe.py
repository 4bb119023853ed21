"""BPE 分词器：与直白的写法比较，特殊词元，保存与读回，解码"""

import copy
import gc
import json
import pickle
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcore.data.tokenizers import BPETokenizer, Tokenizer, bpe_merging, tokenizer_from_dict
from gptcore.data.tokenizers.gpt2_pattern import split_pieces
from gptcore.errors import DataError, DtypeError, ShapeError

SPECIAL = ["<|end", "<a b>", "引 \"号'", "换\n行", r".*+?[](){}^$|\d", "<|endoftext|>"]
# 字母少，合并多
small = st.text(st.sampled_from("ab c"), max_size=40)


def naive_encode(text: str, merges: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    """每次从头找次序最靠前、最靠左的一对。"""
    tokens: list[bytes] = []
    for pieces in split_pieces(text):
        for piece in pieces:
            word = [bytes([byte]) for byte in piece.encode()]
            while pairs := [p for p in pairwise(word) if p in merges]:
                best = min(pairs, key=merges.index)
                i = list(pairwise(word)).index(best)
                word[i : i + 2] = [best[0] + best[1]]
            tokens += word
    return tokens


@st.composite
def merge_lists(draw: st.DrawFn) -> list[tuple[bytes, bytes]]:
    """随机的合并；次序打乱，后造出来的词元也可能排在前面。"""
    tokens, merges = [b"a", b"b", b" ", b"c"], []
    for _ in range(draw(st.integers(0, 12))):
        pair = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if pair[0] + pair[1] not in tokens:
            merges.append(pair)
            tokens.append(pair[0] + pair[1])
    return draw(st.permutations(merges))


@pytest.fixture(scope="module")
def trained() -> BPETokenizer:
    text = "深浅不一的文字，low lower lowest 123 😀 it's\n" * 20
    return BPETokenizer.train(text, 300, special_tokens=SPECIAL)


@given(merge_lists(), small)
def test_same_as_the_naive_algorithm(merges: list[tuple[bytes, bytes]], text: str) -> None:
    tokenizer = BPETokenizer(merges)
    ids = tokenizer.encode(text)
    assert [tokenizer.decode_bytes([i]) for i in ids] == naive_encode(text, merges)
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode(text) == ids  # 第二次取自缓存


def test_a_merge_listed_before_its_parts() -> None:
    """合并出 `ab` 之后，排在前面的 `ab a` 立刻有了用处，先于右边的 `a b`。"""
    tokenizer = BPETokenizer([(b"ab", b"a"), (b"a", b"b")])
    assert [tokenizer.decode_bytes([i]) for i in tokenizer.encode("abab")] == [b"aba", b"b"]


@given(merge_lists(), small)
def test_without_splitting(merges: list[tuple[bytes, bytes]], text: str) -> None:
    joined = BPETokenizer(merges, split=False)
    rules = [pair for pair in merges if b" " not in pair[0] + pair[1]]
    assert joined.decode(joined.encode(text)) == text
    apart = BPETokenizer(rules, split=False).encode(text)
    assert apart == BPETokenizer(rules).encode(text)  # 合并都不含空格，切不切一样


@given(st.text(st.characters(codec="utf-8")))
def test_round_trip(trained: BPETokenizer, text: str) -> None:
    ids = trained.encode(text)
    assert trained.decode(ids) == text
    assert trained.decode_bytes(ids) == text.encode()
    assert all(type(i) is int for i in ids)
    assert trained.encode_array(text).dtype == np.int64
    assert not set(ids) & set(trained.special_tokens.values())


@given(st.lists(st.sampled_from([*SPECIAL, "<|end", "a", " b", "😀", "of", "text|>", "'", "re"])))
def test_special_tokens_anywhere(trained: BPETokenizer, parts: list[str]) -> None:
    text = "".join(parts)
    ids = trained.encode(text, allowed_special="all")
    assert trained.decode(ids) == text
    assert ids == slow_special(trained, text, SPECIAL)
    some = trained.encode(text, allowed_special={"<|end"})
    assert some == slow_special(trained, text, ["<|end"])
    assert trained.encode(text) == slow_special(trained, text, [])


def slow_special(tokenizer: BPETokenizer, text: str, allowed: list[str]) -> list[int]:
    """从左到右，每处取最长的特殊词元。"""
    ids, plain, i = [], "", 0
    while i < len(text):
        here = [name for name in allowed if text.startswith(name, i)]
        if here:
            name = max(here, key=len)
            ids += [*tokenizer.encode(plain), tokenizer.special_tokens[name]]
            plain, i = "", i + len(name)
        else:
            plain, i = plain + text[i], i + 1
    return ids + tokenizer.encode(plain)


@given(
    st.lists(st.sampled_from([*SPECIAL, "<|endoft", "ext|>", "a'", "re", "  ", "\n", "好", "12"])),
    st.lists(st.integers(0, 80), max_size=6),
)
def test_parts_of_a_stream_do_not_matter(
    trained: BPETokenizer, words: list[str], cuts: list[int]
) -> None:
    text = "".join(words)
    places = sorted(min(cut, len(text)) for cut in cuts)
    parts = [text[i:j] for i, j in zip([0, *places], [*places, len(text)], strict=True)]
    for allowed in ((), "all"):
        arrays = list(trained.encode_stream(parts, allowed_special=allowed))
        joined = [i for array in arrays for i in array.tolist()]
        assert joined == trained.encode(text, allowed_special=allowed)


def test_every_way_to_cut_a_special_token() -> None:
    """`<|end` 之后还可能来 `oftext|>`，要等到看得出来。"""
    names = ["<|end", "<|endoftext|>"]
    tokenizer = BPETokenizer([], names)
    text = "a<|endoftext|>b<|end<|endoftext|<"
    for cut in range(len(text) + 1):
        arrays = tokenizer.encode_stream([text[:cut], text[cut:]], allowed_special="all")
        joined = [i for array in arrays for i in array.tolist()]
        assert joined == slow_special(tokenizer, text, names)


def test_ids_of_a_new_vocabulary(trained: BPETokenizer) -> None:
    assert trained.vocab[b"!"] == 0
    assert trained.vocab[b" "] == 220  # 与 GPT-2 相同
    assert list(trained.special_tokens.values()) == [*range(294, 300)]
    assert trained.vocab_size == 300
    assert [trained.vocab[a + b] for a, b in trained.merges] == list(range(256, 294))
    assert repr(trained) == "BPETokenizer(vocab_size=300, merges=38)"


def test_added_tokens_always_match() -> None:
    tokenizer = BPETokenizer([(b" ", b" ")], ["<s>"], added_tokens={"   ": 257, "ab": 258})
    assert tokenizer.special_tokens == {"<s>": 259}
    assert tokenizer.encode("ab   <s>") == [258, 257, *tokenizer.encode("<s>")]
    assert tokenizer.encode("a  b") == [64, 220, 220, 65]
    assert tokenizer.encode("ab<s>", allowed_special="all") == [258, 259]
    assert tokenizer.decode([258, 257, 259]) == "ab   <s>"
    assert BPETokenizer.from_dict(tokenizer.to_dict()) == tokenizer


def test_add_prefix_space() -> None:
    tokenizer = BPETokenizer([(b" ", b"a")], ["<s>"], add_prefix_space=True)
    assert tokenizer.encode("a") == [256]
    assert tokenizer.encode(" a") == [256]
    assert tokenizer.encode("\ta") == [220, *BPETokenizer([]).encode("\t"), 64]
    assert tokenizer.encode("a<s>a a", allowed_special="all") == [256, 257, 256, 256]
    assert tokenizer.encode("") == []
    stream = tokenizer.encode_stream(["", "a", "a"])
    assert [i for array in stream for i in array.tolist()] == [256, 64]


# ----------------------------------------------------------------------- 代理码位


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("\ud83d\ude00", "😀"),
        ("a\ud800b", "a\ufffdb"),
        ("\udc00\ud83d\ude00\ud83d", "\ufffd😀\ufffd"),
        ("\ufeff\ud800", "\ufeff\ufffd"),
    ],
)
def test_surrogates(trained: BPETokenizer, text: str, same_as: str) -> None:
    assert trained.encode(text) == trained.encode(same_as)
    stream = trained.encode_stream(list(text))
    assert [i for array in stream for i in array.tolist()] == trained.encode(same_as)


# ----------------------------------------------------------------------- 解码


@given(st.lists(st.integers(0, 299)))
def test_incremental_decoding_is_decoding(trained: BPETokenizer, ids: list[int]) -> None:
    decoder = trained.incremental_decoder()
    for _ in range(2):  # flush 之后可以从头再用
        parts = [decoder.push(i) for i in ids]
        assert "".join(parts) + decoder.flush() == trained.decode(ids)
        assert decoder.flush() == ""


@given(st.text())
def test_incremental_decoding_gives_whole_characters(trained: BPETokenizer, text: str) -> None:
    text = text.replace("\ufffd", "")
    decoder = trained.incremental_decoder()
    shown = ""
    for i in trained.encode(text):
        shown += decoder.push(i)
        assert text.startswith(shown)  # 没有 U+FFFD，也没有半个字符
    assert shown == text
    assert decoder.flush() == ""


def test_broken_tail_only_at_flush(trained: BPETokenizer) -> None:
    ids = BPETokenizer([]).encode("龙😀")[:-1]
    decoder = trained.incremental_decoder()
    assert [decoder.push(i) for i in ids] == ["", "", "龙", "", "", ""]
    assert decoder.flush() == "\ufffd"


@pytest.mark.parametrize(
    ("ids", "error", "expected"),
    [
        ([0, 300], DataError, ["编号 300", "位置 1", "0 到 299"]),
        ([-1], DataError, ["编号 -1"]),
        ([0.5], DtypeError, ["0.5", "int("]),
        (np.zeros((1, 2), int), ShapeError, ["(1, 2)"]),
    ],
)
def test_bad_ids(
    trained: BPETokenizer, ids: Any, error: type[Exception], expected: list[str]
) -> None:
    for method in (trained.decode, trained.decode_bytes):
        with pytest.raises(error) as caught:
            method(ids)
        assert all(part in str(caught.value) for part in expected), str(caught.value)
    if np.ndim(ids) == 1:
        with pytest.raises(error):
            trained.incremental_decoder().push(ids[-1])


def test_a_gap_in_the_vocabulary() -> None:
    tokenizer = BPETokenizer([], {"<s>": 300})
    assert tokenizer.vocab_size == 301
    assert tokenizer.decode([300]) == "<s>"
    with pytest.raises(DataError, match=r"位置 1.*280 是空着的"):
        tokenizer.decode([0, 280])
    assert BPETokenizer.from_dict(tokenizer.to_dict()) == tokenizer


# ----------------------------------------------------------------------- 保存与读回


def test_save_and_load(trained: BPETokenizer, tmp_path: Path) -> None:
    text = "".join(SPECIAL) + "lower 深浅"
    assert trained.save(tmp_path / "夹") == tmp_path / "夹" / "tokenizer.json"
    assert trained.save(str(tmp_path / "a.json")) == tmp_path / "a.json"
    for place in (tmp_path / "夹", tmp_path / "a.json", str(tmp_path / "夹" / "tokenizer.json")):
        for kind in (Tokenizer, BPETokenizer):
            restored = kind.load(place)
            assert restored == trained
            assert restored.special_tokens == trained.special_tokens
            ids = restored.encode(text, allowed_special="all")
            assert ids == trained.encode(text, allowed_special="all")
            assert ids[: len(SPECIAL)] == list(trained.special_tokens.values())


def test_json_and_pickle_and_copy(trained: BPETokenizer) -> None:
    trained.encode("lower")
    written = json.dumps(trained.to_dict(), ensure_ascii=True)
    restored = tokenizer_from_dict(json.loads(written))
    pickled = pickle.loads(pickle.dumps(trained))  # noqa: S301 自己刚写的
    for other in (restored, pickled, copy.deepcopy(trained)):
        assert other == trained
        assert hash(other) == hash(trained)
        assert other.encode("lower 深浅") == trained.encode("lower 深浅")
    assert trained != BPETokenizer(trained.merges)
    assert trained != "lower"


# ----------------------------------------------------------------------- 缓存与速度


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe_merging, "CACHE", 10_000)
    tokenizer, plain = (BPETokenizer([(b"1", b"2"), (b" ", b"12")]) for _ in range(2))
    text = " ".join(map(str, range(30_000)))
    ids = np.concatenate(list(tokenizer.encode_stream([text])))
    assert tokenizer._cache._used < 10_000 + 2 * (1 << 16) * bpe_merging.ENTRY
    monkeypatch.setattr(bpe_merging, "CACHE", 1 << 40)
    assert np.array_equal(ids, plain.encode_array(text))


def test_interrupting_leaves_no_half_written_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = BPETokenizer([(b"a", b"b")])
    tokenizer.encode("abc ")

    def interrupt(*args: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bpe_merging.Merges, "apply", interrupt)
        with pytest.raises(KeyboardInterrupt):
            tokenizer.encode("abc cab")
    assert len(tokenizer._cache) == 0
    assert tokenizer.encode("abc cab") == [256, 66, 220, 66, 256]


def test_threads_share_the_cache(trained: BPETokenizer) -> None:
    texts = [" ".join(f"low{i}er{j}" for i in range(300)) for j in range(8)]
    expected = [BPETokenizer.from_dict(trained.to_dict()).encode(text) for text in texts]
    fresh = BPETokenizer.from_dict(trained.to_dict())
    results: list[Any] = [None] * len(texts)

    def work(k: int) -> None:
        results[k] = fresh.encode(texts[k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == expected


@pytest.mark.parametrize("piece", ["a", " ", "\n", "ab", "龙", "12", "😀"])
def test_long_pieces_are_not_quadratic(gpt2: BPETokenizer, piece: str) -> None:
    """长度 8 倍，时间远不到 64 倍。"""

    def seconds(length: int) -> float:
        gc.collect()
        gpt2._cache._forget()
        start = time.perf_counter()
        gpt2.encode_array(piece * length)
        return time.perf_counter() - start

    short, long = (min(seconds(length) for _ in range(3)) for length in (4_000, 32_000))
    assert long < 24 * short + 0.05
