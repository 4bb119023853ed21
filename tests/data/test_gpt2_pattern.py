"""GPT-2 的切分规则：码位的类别逐个与 tiktoken、tokenizers 比较；切分与分段无关"""

import importlib.util
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcore.data.tokenizers import gpt2_pattern
from gptcore.data.tokenizers.gpt2_pattern import PieceStream, split_pieces
from gptcore.data.tokenizers.unicode_ranges import LETTERS, NUMBERS, SPACES, VERSION

CLASSES = {r"\p{L}": LETTERS, r"\p{N}": NUMBERS, r"\s": SPACES}
CODES = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
# 各类字符都有，容易碰上规则的每一个分支
texts = st.text(st.sampled_from("'srtvemlld  \n\t\u3000\x1c\x85aé龙\uff11½🄰𐐀😀!。-"), max_size=30)


def members(ranges: str) -> set[int]:
    found: set[int] = set()
    for part in ranges.split():
        first, _, last = part.partition("-")
        found.update(range(int(first, 16), int(last or first, 16) + 1))
    return found


def pieces(text: str) -> list[str]:
    return [piece for batch in split_pieces(text) for piece in batch]


def slow_pieces(text: str) -> list[str]:
    """规则照原文逐条写，一次走一步。"""
    letters, numbers, spaces = map(members, CLASSES.values())
    kinds = [
        "L" if c in letters else "N" if c in numbers else "S" if c in spaces else "P"
        for c in map(ord, text)
    ]
    found, i = [], 0
    while i < len(text):
        j = i + slow_length(text, kinds, i)
        found.append(text[i:j])
        i = j
    return found


def slow_length(text: str, kinds: list[str], i: int) -> int:
    for end in ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d"):
        if text.startswith(end, i):
            return len(end)
    space = int(text[i] == " ")
    for kind in "LNP":
        j = i + space
        while j < len(text) and kinds[j] == kind:
            j += 1
        if j > i + space:
            return j - i
        if kinds[i] == kind:
            return 1
    j = i
    while j < len(text) and kinds[j] == "S":
        j += 1
    return j - i if j == len(text) or j - i == 1 else j - i - 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("Hello world", ["Hello", " world"]),
        ("it's we'll they're'x", ["it", "'s", " we", "'ll", " they", "'re", "'", "x"]),
        ("a  b   ", ["a", " ", " b", "   "]),
        ("a\n\n b", ["a", "\n\n", " b"]),
        ("x=12.5!?", ["x", "=", "12", ".", "5", "!?"]),
        ("我们3点见。 好", ["我们", "3", "点见", "。", " 好"]),
        ("\u3000好\x1c\x85b", ["\u3000", "好", "\x1c", "\x85", "b"]),
        ("\uff41\uff11½🄰𐐀😀😀", ["\uff41", "\uff11½", "🄰", "𐐀", "😀😀"]),
    ],
)
def test_examples(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


@given(texts)
def test_is_the_same_rule(text: str) -> None:
    assert pieces(text) == slow_pieces(text)


@given(texts, st.integers(1, 5), st.lists(st.integers(0, 30), max_size=5))
def test_blocks_and_parts_do_not_matter(text: str, block: int, cuts: list[int]) -> None:
    whole = pieces(text)
    places = sorted(min(cut, len(text)) for cut in cuts)
    parts = [text[i:j] for i, j in zip([0, *places], [*places, len(text)], strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpt2_pattern, "BLOCK", block)
        assert pieces(text) == whole
        stream = PieceStream()
        found = [batch for part in parts for batch in stream.feed(part)]
        found += stream.finish()
    assert [piece for batch in found for piece in batch] == whole
    assert list(stream.finish()) == []


@pytest.mark.parametrize("block", [1, 3, 1 << 16])
def test_every_way_to_cut_a_contraction(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """`'r` 之后来了 `e` 才是缩写；空白之后来了字母，最后一个空白归它。"""
    monkeypatch.setattr(gpt2_pattern, "BLOCK", block)
    text = "so we they're x'll 'd  \n y''ve 1 's"
    for cut in range(len(text) + 1):
        stream = PieceStream()
        found = [*stream.feed(text[:cut]), *stream.feed(text[cut:]), *stream.finish()]
        assert [piece for batch in found for piece in batch] == slow_pieces(text)


def test_without_splitting() -> None:
    stream = PieceStream(split=False)
    assert [*stream.feed("a b"), *stream.feed(" c")] == []
    assert list(stream.finish()) == [["a b c"]]
    assert list(stream.finish()) == []


def test_every_byte_of_a_long_piece_is_scanned_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """一个片段分成许多段送来：不能每一段都从头扫描。"""
    monkeypatch.setattr(gpt2_pattern, "BLOCK", 64)
    scanned = 0
    original = gpt2_pattern._blocks

    def count(text: str, final: bool):
        nonlocal scanned
        scanned += len(text)
        return (yield from original(text, final))

    monkeypatch.setattr(gpt2_pattern, "_blocks", count)
    stream = PieceStream()
    for _ in range(1000):
        assert list(stream.feed("aaaaaaaaaa")) == []
    assert list(stream.finish()) == [["a" * 10000]]
    assert scanned < 40000


# ----------------------------------------------------------------------- 与别的实现比较


@pytest.mark.reference
@pytest.mark.parametrize("name", list(CLASSES))
def test_every_code_point_against_tiktoken(name: str) -> None:
    tiktoken = pytest.importorskip("tiktoken", reason="没有安装 tiktoken")
    single = {bytes([byte]): byte for byte in range(256)}
    encoding = tiktoken.Encoding("类", pat_str=name, mergeable_ranks=single, special_tokens={})
    inside = {code for code in CODES if encoding.encode_ordinary(chr(code))}
    assert inside == members(CLASSES[name])


@pytest.mark.reference
@pytest.mark.parametrize("name", list(CLASSES))
def test_every_code_point_against_tokenizers(name: str) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="没有安装 tokenizers")
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(name), "removed")
    inside = {code for code in CODES if not split.pre_tokenize_str(chr(code))}
    assert inside == members(CLASSES[name])


@pytest.mark.parametrize("name", list(CLASSES))
@pytest.mark.parametrize("last", [0xFFFF, 0x10FFFF])
def test_compiled_classes_are_the_table(name: str, last: int) -> None:
    compiled = re.compile(f"[{gpt2_pattern._members(CLASSES[name], last)}]")
    found = compiled.findall("".join(map(chr, CODES)))
    assert set(map(ord, found)) == {code for code in members(CLASSES[name]) if code <= last}


@pytest.mark.reference
def test_the_committed_table_is_what_the_script_makes() -> None:
    if unicodedata.unidata_version != VERSION and not importlib.util.find_spec("unicodedata2"):
        pytest.skip(f"没有安装 unicodedata2=={VERSION}")
    script = Path(__file__).with_name("make_unicode_ranges.py")
    done = subprocess.run(
        [sys.executable, "-X", "utf8", str(script), "--check"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
