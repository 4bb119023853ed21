"""Hugging Face 的分词器文件：读、写，与 tokenizers、transformers 得到同样的编号，不认得的拒绝"""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.data.tokenizers import (
    BPETokenizer,
    ByteTokenizer,
    Tokenizer,
    hugging_face_files,
    tokenizer_from_dict,
)
from gptcore.data.tokenizers.gpt2_pattern import GPT2_PATTERN
from gptcore.errors import DataError

TEXT = "low lower lowest 深浅不一 😀 it's   x\n" * 20
SPECIAL = ["<|endoftext|>", "<a b>", "引 \"号'", "换\n行\t", r".*+?[](){}^$|\d"]
PROBES = [
    "",
    "low lowest it's",
    " lower\n\n  x  ",
    "深浅<|endoftext|>a<a b>",
    "<a b>引 \"号'换\n行\tx",
    "x" + SPECIAL[-1] * 2 + " ",
    "    a  b   c",
    "\x00\x85\u3000é😀",
    "abab   ab",
]
SPLIT = {
    "type": "Split",
    "pattern": {"Regex": GPT2_PATTERN},
    "behavior": "Isolated",
    "invert": False,
}
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
ONLY_TEXT = [{"Sequence": {"id": "A", "type_id": 0}}]


@pytest.fixture(scope="module")
def trained() -> BPETokenizer:
    return BPETokenizer.train(TEXT, 285, special_tokens=SPECIAL)


def load(data: Any) -> Any:
    tokenizers = pytest.importorskip("tokenizers", reason="没有安装 tokenizers")
    return tokenizers.Tokenizer.from_str(json.dumps(data, ensure_ascii=False))


def variants(trained: BPETokenizer) -> dict[str, BPETokenizer]:
    merges = trained.merges
    return {
        "训练的": trained,
        "添空格": BPETokenizer(merges, SPECIAL, add_prefix_space=True),
        "不切分": BPETokenizer(merges, SPECIAL, split=False),
        "不切分又添空格": BPETokenizer(merges, SPECIAL, split=False, add_prefix_space=True),
        "普通的整词": BPETokenizer(
            merges, {"<a b>": 290}, added_tokens={"  ": 291, "   ": 292, "ab": 293}
        ),
        "编号有空": BPETokenizer(merges, {"<|endoftext|>": 1000, "<a b>": 500}),
        "没有合并": BPETokenizer([]),
        "次序颠倒": BPETokenizer(
            [(b"lo", b"w"), (b"l", b"o"), (b"ab", b"a"), (b"a", b"b")],
            vocab={**BPETokenizer([]).vocab, b"lo": 256, b"low": 257, b"ab": 258, b"aba": 259},
        ),
    }


@pytest.mark.reference
def test_what_we_write_tokenizers_reads(trained: BPETokenizer) -> None:
    for name, tokenizer in variants(trained).items():
        other = load(tokenizer.to_dict())
        for text in PROBES:
            ids = tokenizer.encode(text, allowed_special="all")
            assert other.encode(text).ids == ids, (name, text)
            assert other.decode(ids, skip_special_tokens=False) == tokenizer.decode(ids), name


@pytest.mark.reference
def test_what_tokenizers_writes_we_read(trained: BPETokenizer) -> None:
    for name, tokenizer in variants(trained).items():
        written = json.loads(load(tokenizer.to_dict()).to_str())
        restored = tokenizer_from_dict(written)
        assert isinstance(restored, BPETokenizer)
        assert restored == tokenizer, name
        assert (
            written["model"]["merges"] != tokenizer.to_dict()["model"]["merges"]
            or not tokenizer.merges
        )


@pytest.mark.reference
@pytest.mark.parametrize("prefix", [False, True])
@pytest.mark.parametrize("regex", [False, True])
def test_trained_by_tokenizers(prefix: bool, regex: bool) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="没有安装 tokenizers")
    other = tokenizers.Tokenizer(tokenizers.models.BPE())
    other.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=prefix, use_regex=regex
    )
    other.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=SPECIAL,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    other.train_from_iterator([TEXT], trainer)
    other.add_tokens(["  ", "整词"])
    other.add_special_tokens(["<后加的>"])
    ours = BPETokenizer.from_dict(json.loads(other.to_str()))
    assert set(ours.special_tokens) == {*SPECIAL, "<后加的>"}
    assert set(ours.added_tokens) == {"  ", "整词"}
    assert ours.vocab_size == other.get_vocab_size()
    for text in [*PROBES, TEXT, "整词  <后加的>整词x"]:
        assert ours.encode(text, allowed_special="all") == other.encode(text).ids, text


@pytest.mark.reference
@given(st.text(st.sampled_from("ab <s>整 ")))
def test_added_tokens_of_both_kinds_agree(text: str) -> None:
    ours = BPETokenizer([], {"<s>": 256, "ab<s>": 257}, added_tokens={"  ": 258, "整a": 259})
    other = load(ours.to_dict())
    assert ours.encode(text, allowed_special="all") == other.encode(text).ids


@pytest.mark.reference
@pytest.mark.parametrize(
    "change",
    [
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [SPLIT, LEVEL]}},
        {
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [{**SPLIT, "behavior": "Removed", "invert": True}, LEVEL],
            }
        },
        {"post_processor": {**LEVEL, "trim_offsets": False}},
        {
            "post_processor": {
                "type": "TemplateProcessing",
                "single": ONLY_TEXT,
                "pair": [*ONLY_TEXT, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {},
            }
        },
        {"decoder": None},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False}},
    ],
)
def test_the_same_thing_written_differently(trained: BPETokenizer, change: dict[str, Any]) -> None:
    data = {**trained.to_dict(), **change}
    ours, other = BPETokenizer.from_dict(data), load(data)
    for text in [*PROBES, TEXT]:
        assert ours.encode(text, allowed_special="all") == other.encode(text).ids


def test_old_files_have_no_type(trained: BPETokenizer) -> None:
    data = trained.to_dict()
    for name in ("type", "byte_fallback", "ignore_merges"):
        del data["model"][name]
    for name in ("truncation", "padding", "normalizer", "post_processor", "decoder"):
        del data[name]
    assert tokenizer_from_dict(data) == trained


def test_settings_of_a_call_are_not_read(trained: BPETokenizer) -> None:
    data = {**trained.to_dict(), "truncation": {"max_length": 3}, "padding": {"pad_id": 0}}
    assert tokenizer_from_dict(data) == trained


# ----------------------------------------------------------------------- 拒绝


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """把 `a.b.0` 这样的位置换成别的值；`...` 表示删去。"""

    def apply(data: Any) -> None:
        *parents, last = path.split(".")
        for name in parents:
            data = data[int(name) if isinstance(data, list) else name]
        key = int(last) if isinstance(data, list) else last
        if value is ...:
            del data[key]
        else:
            data[key] = value

    return apply


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("version", "2.0", ["version", "'2.0'"]),
        ("normalizer", {"type": "NFC"}, ["normalizer", "NFC", "null"]),
        ("model.type", "WordPiece", ["model.type", "'WordPiece'", "BPE"]),
        ("model.type", "Unigram", ["model.type", "'Unigram'"]),
        ("model.dropout", 0.1, ["model.dropout", "0.1"]),
        ("model.unk_token", "<unk>", ["model.unk_token", "<unk>"]),
        ("model.continuing_subword_prefix", "##", ["model.continuing_subword_prefix", "##"]),
        ("model.end_of_word_suffix", "</w>", ["model.end_of_word_suffix", "</w>"]),
        ("model.byte_fallback", True, ["model.byte_fallback", "True"]),
        ("model.ignore_merges", True, ["model.ignore_merges"]),
        ("model", ..., ["type"]),
        ("model", None, ["model 是 None", "字典"]),
        ("model.vocab", ["a"], ["model.vocab", "字典"]),
        ("model.vocab.a", "3", ["'a'", "'3'", "整数"]),
        ("model.vocab.a", -1, ["'a'", "-1"]),
        ("model.vocab.a", 1.0, ["'a'", "1.0"]),
        ("model.vocab.a", ..., ["0x61", "共缺 1 个"]),
        ("model.vocab.中", 999, ["'中'", "字节字母表"]),
        ("model.vocab", {}, ["added_tokens", "词表|编号"]),
        ("model.merges", {}, ["model.merges", "列表"]),
        ("model.merges.0", "a b c", ["model.merges[0]", "'a b c'"]),
        ("model.merges.0", ["a"], ["model.merges[0]", "['a']"]),
        ("model.merges.0", 3, ["model.merges[0]", "3"]),
        ("model.merges.0", "a ", ["''"]),
        ("model.merges.0", "q z", ["b'qz'", "不在词表里"]),
        ("model.merges.1", "中 a", ["'中'", "字节字母表"]),
        ("pre_tokenizer", None, ["pre_tokenizer", "None", "ByteLevel"]),
        ("pre_tokenizer", {"type": "Metaspace"}, ["pre_tokenizer", "Metaspace"]),
        ("pre_tokenizer.use_regex", "yes", ["pre_tokenizer.use_regex", "'yes'"]),
        (
            "pre_tokenizer",
            {"type": "Sequence", "pretokenizers": [{**SPLIT, "pattern": {"Regex": r"\d"}}, LEVEL]},
            ["pretokenizers[0].pattern", "GPT-2"],
        ),
        (
            "pre_tokenizer",
            {"type": "Sequence", "pretokenizers": [{**SPLIT, "pattern": " "}, LEVEL]},
            ["pretokenizers[0].pattern"],
        ),
        (
            "pre_tokenizer",
            {"type": "Sequence", "pretokenizers": [{**SPLIT, "invert": True}, LEVEL]},
            ["pretokenizers[0]", "invert"],
        ),
        (
            "pre_tokenizer",
            {"type": "Sequence", "pretokenizers": [SPLIT, {**LEVEL, "use_regex": True}]},
            ["pretokenizers[1].use_regex"],
        ),
        ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [SPLIT]}, ["pre_tokenizer"]),
        ("decoder", {"type": "WordPiece"}, ["decoder", "WordPiece"]),
        ("decoder", 3, ["decoder", "3"]),
        (
            "post_processor",
            {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, *ONLY_TEXT]},
            ["post_processor", "TemplateProcessing"],
        ),
        ("post_processor", {"type": "RobertaProcessing"}, ["post_processor", "Roberta"]),
        ("added_tokens", {}, ["added_tokens", "列表"]),
        ("added_tokens.0", "x", ["added_tokens[0]", "字典"]),
        ("added_tokens.0.content", "", ["added_tokens[0].content", "''"]),
        ("added_tokens.0.content", 3, ["added_tokens[0].content", "3"]),
        ("added_tokens.0.content", "a\ud800", ["ud800", "280", "285"]),
        ("added_tokens.0.id", "3", ["added_tokens[0]", "'3'"]),
        ("added_tokens.0.id", 3, ["<|endoftext|>", "两个编号", "280", "3"]),
        ("added_tokens.0.content", "<新>", ["'<新>'", "280", "285"]),
        ("added_tokens.0.content", "a", ["'a'", "两个编号|普通词元"]),
        ("added_tokens.0.lstrip", True, ["added_tokens[0].lstrip"]),
        ("added_tokens.0.rstrip", True, ["added_tokens[0].rstrip"]),
        ("added_tokens.0.single_word", True, ["added_tokens[0].single_word"]),
        ("added_tokens.0.special", 1, ["added_tokens[0].special", "1"]),
    ],
)
def test_refused(trained: BPETokenizer, path: str, value: Any, expected: list[str]) -> None:
    data = copy.deepcopy(trained.to_dict())
    change(path, value)(data)
    with pytest.raises(DataError) as caught:
        tokenizer_from_dict(data)
    message = str(caught.value)
    assert all(any(part in message for part in parts.split("|")) for parts in expected), message
    message.encode("utf-8", "backslashreplace")


def test_a_special_token_may_not_look_like_an_ordinary_one() -> None:
    """`tokenizer.json` 的词表不分种类；字节 0xE9 在里面写成 `é`。"""
    merges = [(b"a", b"b")]
    with pytest.raises(DataError, match=r"'ab' 与编号 256 的普通词元写法相同.*换一个名字"):
        BPETokenizer(merges, ["ab"])
    with pytest.raises(DataError, match=r"'é' 与编号 165"):
        BPETokenizer(merges, added_tokens={"é": 257})
    assert BPETokenizer(merges, [" ", "\n", "abc", "中"]).vocab_size == 261


@pytest.mark.reference
def test_files_for_transformers(
    trained: BPETokenizer, gpt2: BPETokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers", reason="没有安装 transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    kinds: dict[str, Any] = {
        **variants(trained),
        "gpt2": gpt2,
        "字节": ByteTokenizer(["<|endoftext|>"]),
    }
    for name, tokenizer in kinds.items():
        folder = tmp_path / name
        folder.mkdir()
        for file, content in hugging_face_files(tokenizer, context_size=64).items():
            (folder / file).write_bytes(content)
        other = transformers.AutoTokenizer.from_pretrained(folder)
        for text in PROBES:
            ids = tokenizer.encode(text, allowed_special="all")
            assert other(text)["input_ids"] == ids, (name, text)
            assert other.decode(ids) == tokenizer.decode(ids), (name, text)
        assert other.model_max_length == 64
        eos = "<|endoftext|>" if "<|endoftext|>" in tokenizer.special_tokens else None
        assert other.eos_token == other.bos_token == eos
        restored = Tokenizer.load(folder)
        assert restored.encode(TEXT) == tokenizer.encode(TEXT)


# ----------------------------------------------------------------------- 随意改动过的文件

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(data: Any) -> list[tuple[Any, Any]]:
    """每个可以改的位置：容器与键。"""
    found: list[tuple[Any, Any]] = []
    if isinstance(data, dict | list):
        keys = list(data) if isinstance(data, dict) else list(range(len(data)))
        found = [(data, key) for key in keys]
        for key in keys:
            found += places(data[key])
    return found


@given(st.data())
@settings(max_examples=400)
def test_any_change_is_read_or_refused(data: st.DataObject) -> None:
    """改一处，删一处，或换成文件里别处的值：要么读成一个能用的分词器，要么是 DataError。"""
    level = {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [SPLIT, LEVEL]}}
    content = {**BPETokenizer([(b"a", b"b")], ["<s>"], added_tokens={"  ": 257}).to_dict()}
    content = copy.deepcopy({**content, **data.draw(st.sampled_from([{}, level]))})
    spots = [spot for spot in places(content) if spot[0] is not content["model"]["vocab"]]
    spots += [(content["model"]["vocab"], key) for key in ("a", "ab", "<s>", "Ġ")]
    others = copy.deepcopy([container[key] for container, key in spots[:60]])
    for _ in range(data.draw(st.integers(1, 2))):
        container, key = spots[data.draw(st.integers(0, len(spots) - 1))]
        if isinstance(container, list) and key >= len(container):
            continue  # 刚才删去了
        which = data.draw(st.integers(0, 2))
        if which == 0:
            container[key] = data.draw(values)
        elif which == 1:
            container[key] = others[data.draw(st.integers(0, len(others) - 1))]
        elif isinstance(container, dict):
            container.pop(key, None)
        else:
            del container[key:]
    try:
        tokenizer = tokenizer_from_dict(content)
    except DataError:
        return
    for text in ("ab<s>  é\n", PROBES[-2]):
        ids = tokenizer.encode(text)
        assert max(ids) < tokenizer.vocab_size
        assert tokenizer.decode(ids).replace(" ", "") == text.replace(" ", "")  # 可能添了空格
