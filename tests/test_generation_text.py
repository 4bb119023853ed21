"""文本进，文本出：完整的字、停止字符串、文本结束词元、空的提示"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcore import GPT, ArgumentError, CharTokenizer, DataError, DtypeError, generate_text
from gptcore.data.tokenizers import END_OF_TEXT, BPETokenizer, ByteTokenizer, Tokenizer
from gptcore.models.generation.text import StopStrings


class Scripted(GPT):
    """不论提示是什么，都依次写出给定的编号；记下提示与取走了几个。"""

    def __init__(self, tokenizer: Tokenizer, script: Sequence[int]) -> None:
        super().__init__(tokenizer.vocab_size, 4, 4, 1, 1)
        self.script, self.taken = list(script), 0
        self.prompt: list[int] = []

    def generate(self, prompt: Any, max_tokens: int = 256, **options: Any) -> Iterator[Any]:  # type: ignore[override]
        self.prompt, stop = list(prompt), options.get("end_of_text")
        for i in self.script[:max_tokens]:
            self.taken += 1
            if i == stop:
                return
            yield i


BYTES = ByteTokenizer([END_OF_TEXT])
ALPHABET = st.text(st.sampled_from("ab。龙😀"), max_size=20)
STOPS = st.lists(st.text(st.sampled_from("ab。龙😀"), min_size=1, max_size=4), max_size=3)


def scripted(data: bytes, **options: Any) -> list[str]:
    return list(generate_text(Scripted(BYTES, data), BYTES, "x", 10**6, **options))


def cut(text: str, stops: list[str]) -> str:
    """逐字地写，哪个停止字符串先写完整，就从它的开头截断；同时的取开头最早的。"""
    for end in range(1, len(text) + 1):
        done = [end - len(s) for s in stops if text[:end].endswith(s)]
        if done:
            return text[: min(done)]
    return text


@given(ALPHABET, STOPS)
def test_stop_strings_across_tokens(text: str, stops: list[str]) -> None:
    pieces = scripted(text.encode(), stop=stops)
    assert "".join(pieces) == cut(text, stops)
    assert all(pieces)
    assert not any("\ufffd" in piece for piece in pieces)


@given(ALPHABET, STOPS, st.data())
def test_any_division_gives_the_same(text: str, stops: list[str], data: st.DataObject) -> None:
    found, written, start = StopStrings(stops), "", 0
    while start < len(text):
        n = data.draw(st.integers(1, len(text) - start))
        written += found.push(text[start : start + n])
        start += n
        # 放出去的一定是最后结果的开头：没有一个字要收回
        assert cut(text, stops).startswith(written)
        # 留着的只是可能成为停止字符串的那几个字
        if not found.stopped:
            held = text[len(written) : start]
            assert not held or any(s.startswith(held) and s != held for s in stops)
    assert written + found.flush() == cut(text, stops)
    assert found.stopped == (cut(text, stops) != text or any(text.endswith(s) for s in stops if s))


def test_pieces_come_as_soon_as_they_are_certain() -> None:
    assert scripted("好。".encode(), stop="结束") == ["好", "。"]
    assert scripted("好结果".encode(), stop="结束") == ["好", "结果"]
    assert scripted("结结束了".encode(), stop="结束") == ["结"]
    assert scripted("还没结".encode(), stop="结束") == ["还", "没", "结"]  # 没有下文：最后给出
    assert scripted(b"abcd", stop=["abcd", "bc"]) == ["a"]  # bc 先写完整
    assert scripted(b"xabab", stop="ab") == ["x"]


def test_nothing_more_is_generated_after_the_stop() -> None:
    model = Scripted(BYTES, b"one. two. three.")
    assert "".join(generate_text(model, BYTES, "x", stop=".")) == "one"
    assert model.taken == 4
    model = Scripted(BYTES, b"one")
    stream = generate_text(model, BYTES, "x")
    assert next(stream) == "o"
    stream.close()  # type: ignore[attr-defined]
    assert model.taken == 1


@given(st.binary(max_size=20))
def test_bytes_that_are_not_text(data: bytes) -> None:
    pieces = scripted(data)
    assert "".join(pieces) == data.decode("utf-8", "replace")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        if error.end == len(data) and error.reason == "unexpected end of data":  # 只是末尾残缺
            assert not any("\ufffd" in piece for piece in pieces[:-1])
    else:
        assert not any("\ufffd" in piece for piece in pieces)


def test_broken_tail_comes_last() -> None:
    assert scripted("好龙".encode()[:-1]) == ["好", "\ufffd"]
    assert scripted("好龙".encode()[:-1], stop="。") == ["好", "\ufffd"]
    assert scripted("龙".encode() * 2, stop="\ufffd") == ["龙", "龙"]


def test_end_of_text_token() -> None:
    end = BYTES.special_tokens[END_OF_TEXT]
    model = Scripted(BYTES, [*b"ab", end, *b"cd"])
    assert "".join(generate_text(model, BYTES, "")) == "ab"
    assert model.prompt == [end]  # 空的提示：从文本结束词元开始
    assert "".join(generate_text(model, BYTES, "x", stop="zz")) == "ab"
    assert model.prompt == [ord("x")]
    list(generate_text(model, BYTES, END_OF_TEXT))  # 文字只是长得像
    assert model.prompt == list(END_OF_TEXT.encode())
    # 结束时，残缺的与留着的都给出
    model = Scripted(BYTES, [*"结龙".encode()[:-1], end])
    assert list(generate_text(model, BYTES, "x", stop="结束")) == ["结\ufffd"]


def test_empty_prompt_without_such_a_token() -> None:
    tokenizer = CharTokenizer.from_text("ab\n")
    model = GPT(3, 4, 4, 1, 1)
    with pytest.raises(DataError, match=r"提示不能为空.*没有文本结束词元.*换行符 '\\n'"):
        generate_text(model, tokenizer, "")


@pytest.mark.parametrize("kind", ["char", "byte", "bpe"])
def test_the_same_as_decoding_the_ids(kind: str) -> None:
    text = "小猫在花园里追蝴蝶。小狗在河边睡觉。🐱" * 3
    tokenizer: Tokenizer = {
        "char": lambda: CharTokenizer.from_text(text),
        "byte": lambda: BYTES,
        "bpe": lambda: BPETokenizer.train(text, 280),
    }[kind]()
    model = GPT(tokenizer.vocab_size, 16, 16, 2, 2, rng=np.random.default_rng(0))
    for seed, options in enumerate(({"temperature": 0}, {"top_k": 20}, {"top_p": 0.9})):
        pieces = list(
            generate_text(model, tokenizer, "小猫", 40, rng=np.random.default_rng(seed), **options)  # type: ignore[arg-type]
        )
        ids = model.generate(
            tokenizer.encode("小猫"),
            40,
            rng=np.random.default_rng(seed),
            end_of_text=tokenizer.special_tokens.get(END_OF_TEXT),
            **options,  # type: ignore[arg-type]
        )
        assert "".join(pieces) == tokenizer.decode(list(ids))
        off = generate_text(
            model,
            tokenizer,
            "小猫",
            40,
            rng=np.random.default_rng(seed),
            use_cache=False,
            **options,  # type: ignore[arg-type]
        )
        assert list(off) == pieces


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"prompt": None}, DtypeError, "提示必须是字符串，这里是 None；.*model.generate"),
        ({"prompt": [1]}, DtypeError, r"提示必须是字符串，这里是 \[1\]"),
        ({"prompt": "龙"}, DataError, "位置 0.*'龙'（U\\+9F99）不在词表里"),
        ({"tokenizer": "abc"}, DtypeError, "GPT 与分词器，这里是 GPT 与 str；.*dataset.tokenizer"),
        ({"model": None}, DtypeError, "这里是 NoneType 与 CharTokenizer"),
        ({"tokenizer": BYTES}, ArgumentError, "分词器有 257 个词元，模型有 3 个"),
        ({"stop": ""}, ArgumentError, "stop 里有 ''.*不为空"),
        ({"stop": ["a", 3]}, ArgumentError, "stop 里有 3"),
        ({"stop": 3}, DtypeError, "stop 必须是字符串或它们的列表，这里是 3"),
        ({"max_tokens": -1}, ArgumentError, "max_tokens .*-1"),
        ({"temperature": -1}, ArgumentError, "temperature .*-1"),
        ({"top_p": 2}, ArgumentError, "top_p .*2"),
        ({"rng": 1}, DtypeError, "rng 必须是随机数生成器"),
    ],
)
def test_arguments(arguments: Any, kind: Any, message: str) -> None:
    given = {
        "model": GPT(3, 4, 4, 1, 1),
        "tokenizer": CharTokenizer("ab\n"),
        "prompt": "a",
        **arguments,
    }
    with pytest.raises(kind, match=message):  # 在取第一段文字之前
        generate_text(**given)


@pytest.mark.parametrize("name", ["topk", "return_logprobs", "end_of_text", "steps"])
def test_unknown_options(name: str) -> None:
    model, tokenizer = GPT(3, 4, 4, 1, 1), CharTokenizer("ab\n")
    with pytest.raises(DtypeError, match=f"没有 {name} 这个选项；.*temperature、top_k"):
        generate_text(model, tokenizer, "a", **{name: 1})  # type: ignore[arg-type]


def test_ids_without_text_are_silent() -> None:
    """词表里有空着的编号，或者模型的词表补齐过：不中断，也不显示。"""
    holes = BPETokenizer([], {END_OF_TEXT: 300})
    a, b = holes.encode("ab")
    assert list(generate_text(Scripted(holes, [a, 280, b]), holes, "x")) == ["a", "b"]
    padded = BPETokenizer([], {END_OF_TEXT: 319})
    model = Scripted(padded, [a, 319, b])
    assert list(generate_text(model, holes, "x")) == ["a", "b"]
    with pytest.raises(ArgumentError, match="分词器有 320 个词元，模型有 301 个"):
        generate_text(Scripted(holes, []), padded, "x")
