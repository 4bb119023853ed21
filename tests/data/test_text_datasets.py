"""任何分词器的数据集：各种来源，窗口与划分，错误"""

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcore import GPT, CharDataset, DataError, GPTLoss, Tensor, TextDataset
from gptcore.data import (
    END_OF_TEXT,
    BPETokenizer,
    ByteTokenizer,
    CharTokenizer,
    Tokenizer,
    TokenRows,
    WindowDataset,
    load_corpus,
)
from gptcore.errors import ArgumentError, DtypeError, GptcoreError, RangeError

BYTES = ByteTokenizer([END_OF_TEXT])
END = 256


@pytest.fixture(scope="module")
def chinese_bpe() -> BPETokenizer:
    text = load_corpus("stories")[:30_000]
    return BPETokenizer.train(text, 500, special_tokens=[END_OF_TEXT])


# ------------------------------------------------------------------- 来源


def files(folder: Path, *texts: str) -> list[Path]:
    paths = [folder / f"{i}.txt" for i in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text.encode())
    return paths


def test_one_file_is_its_encoding(tmp_path: Path) -> None:
    text = "春江潮水连海平，海上明月共潮生。\r\n" * 20
    (path,) = files(tmp_path, text)
    for given_path in (path, str(path)):
        dataset = TextDataset(given_path, BYTES, context_size=8)
        assert dataset.tokens.tolist() == BYTES.encode(text.replace("\r\n", "\n"))
        assert dataset.documents == 1


@pytest.mark.parametrize("tokenizer", [BYTES, ByteTokenizer(), CharTokenizer("春夏秋冬")])
def test_documents_are_joined(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """几份之间有一个文本结束词元，开头与末尾没有；空的跳过；没有这个词元时直接相连。"""
    first, empty, second = files(tmp_path, "春夏" * 9, "", "秋")
    source = ["", first, "冬冬", empty, "", second, ""]
    dataset = TextDataset(source, tokenizer, context_size=4, split=1.0)
    expected: list[int] = []
    for text in ("春夏" * 9, "冬冬", "秋"):
        expected += [END] if expected and tokenizer is BYTES else []
        expected += tokenizer.encode(text)
    assert dataset.tokens.tolist() == expected
    assert dataset.documents == 3


def test_sorted_glob_and_iterators(tmp_path: Path) -> None:
    files(tmp_path, "a" * 20, "b" * 20, "c" * 20)
    from_glob = TextDataset(sorted(tmp_path.glob("*.txt")), BYTES, context_size=4)
    from_texts = TextDataset((c * 20 for c in "abc"), BYTES, context_size=4)
    np.testing.assert_array_equal(from_glob.tokens, from_texts.tokens)
    assert from_glob.fingerprint() == from_texts.fingerprint()


def test_an_iterator_is_taken_once() -> None:
    taken: list[int] = []

    def texts() -> Iterator[str]:
        for i in range(5):
            taken.append(i)
            yield str(i) * 10

    for tokenizer in (BYTES, None):
        taken.clear()
        dataset = TextDataset(texts(), tokenizer, context_size=4)
        assert taken == list(range(5))
        with pytest.raises(DataError, match="已经取过一遍"):
            dataset.load()


def test_without_a_tokenizer_it_is_the_char_dataset(tmp_path: Path) -> None:
    """同一个文件，与 CharDataset 的词表、窗口、标签、评估都相同。"""
    (path,) = files(tmp_path, "黄河远上白云间，一片孤城万仞山。\n" * 30)
    chars, text = CharDataset(path, 4, 16), TextDataset(path, None, 4, 16)
    assert text.tokenizer == chars.tokenizer
    assert text.tokens.dtype == np.uint16
    assert len(text) == len(chars)
    for (x, y), (u, v) in zip(text, chars, strict=True):
        assert x.dtype == u.dtype == y.dtype == v.dtype == np.int64
        np.testing.assert_array_equal(x.data, u.data)
        np.testing.assert_array_equal(y.data, v.data)
    pairs = zip(text.evaluation_batches(), chars.evaluation_batches(), strict=True)
    for (x, y), (u, v) in pairs:
        np.testing.assert_array_equal(x.data, u.data)
        np.testing.assert_array_equal(y.data, v.data)
    for dataset in (text.eval(), chars.eval()):
        assert dataset.all()[0].shape == (1, 16) or len(dataset.all()[0].data) > 1
    np.testing.assert_array_equal(text.all()[0].data, chars.all()[0].data)


def test_chinese_bpe(chinese_bpe: BPETokenizer, tmp_path: Path) -> None:
    text = load_corpus("stories")[:20_000]
    (path,) = files(tmp_path, text)
    dataset = TextDataset(path, chinese_bpe, 8, 32)
    assert dataset.tokens.tolist() == chinese_bpe.encode(text)
    assert dataset.decode(dataset.tokens) == text
    x, y = dataset[3]
    assert chinese_bpe.decode(x.data[2]).strip("\ufffd") in text  # 两端可能有不完整的字符
    np.testing.assert_array_equal(x.data[:, 1:], y.data[:, :-1])


def test_special_tokens_in_the_text_only_when_asked(chinese_bpe: BPETokenizer) -> None:
    text = f"天地{END_OF_TEXT}玄黄" * 20
    plain = TextDataset([text], chinese_bpe, context_size=4)
    asked = TextDataset([text], chinese_bpe, context_size=4, allowed_special={END_OF_TEXT})
    end = chinese_bpe.special_tokens[END_OF_TEXT]
    assert end not in plain.tokens
    assert np.count_nonzero(asked.tokens == end) == 20
    assert plain.decode(plain.tokens) == asked.decode(asked.tokens) == text


@pytest.mark.skipif(sys.platform == "win32", reason="命名管道只用于 POSIX 系统")
@pytest.mark.parametrize("kind", [CharDataset, TextDataset])
def test_a_pipe_is_read_once(tmp_path: Path, kind: Any) -> None:
    pipe, text = tmp_path / "管道", "白日依山尽，黄河入海流。\r\n" * 9000
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(text.encode(),))
    writer.start()
    dataset = kind(pipe, context_size=8)
    writer.join()
    assert dataset.decode(dataset.tokens) == text.replace("\r\n", "\n")


def test_a_position_beyond_the_first_chunk(tmp_path: Path) -> None:
    """不认识的字符在几 MB 之后，位置仍是全文里的。"""
    (path,) = files(tmp_path, "甲" * 1_500_000 + "乙")
    with pytest.raises(DataError, match=r"位置 1500000（.*'乙'（U\+4E59）"):
        TextDataset(path, CharTokenizer("甲"))


# ------------------------------------------------------------------- 窗口


TEXTS = st.lists(st.text(alphabet="甲乙ab", min_size=1, max_size=60), min_size=1, max_size=3)


@given(TEXTS, st.integers(1, 12), st.integers(1, 15) | st.none(), st.sampled_from([0.3, 0.9, 1.0]))
def test_windows_against_a_plain_loop(
    texts: list[str], context_size: int, stride: int | None, split: float
) -> None:
    ids = [i for text in texts for i in (END, *BYTES.encode(text))][1:]
    cut = int(len(ids) * split)
    parts = [ids[:cut], ids[cut:]]
    arguments = texts, BYTES, 1, context_size, stride, split
    if any(len(part) <= context_size for part in parts if split < 1.0 or part):
        with pytest.raises(DataError, match=f"split={split}.*需要 {context_size + 1} 个"):
            TextDataset(*arguments)
        return
    dataset = TextDataset(*arguments)
    step = stride or max(1, context_size // 2)
    for part, (x, y) in zip(parts, (dataset.train_data, dataset.test_data), strict=True):
        starts = range(0, len(part) - context_size, step)
        assert isinstance(x, TokenRows)
        assert x.shape == y.shape == (len(starts), context_size)
        assert np.asarray(x).tolist() == [part[s : s + context_size] for s in starts]
        assert np.asarray(y).tolist() == [part[s + 1 : s + context_size + 1] for s in starts]
    if len(parts[1]) > 1:
        labels = np.concatenate([y.data.ravel() for _, y in dataset.evaluation_batches()])
        assert labels.tolist() == parts[1][1:]


def test_context_plus_one_tokens_give_one_window() -> None:
    dataset = TextDataset(["abcdefgh"], BYTES, context_size=7, split=1.0)
    assert len(dataset) == 1
    with pytest.raises(DataError) as caught:
        TextDataset(["abcdefg"], BYTES, context_size=7, split=1.0)
    for part in ("7 个词元", "split=1.0", "context_size=7", "8 个"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "index", [0, -1, slice(1, 3), slice(None), slice(None, None, -2), [3, 0], [], np.array([1, -2])]
)
def test_rows_behave_like_an_array(index: Any) -> None:
    tokens = np.arange(23, dtype=np.uint16)
    rows = TokenRows(tokens, 5, 3)
    full = np.array([tokens[s : s + 5] for s in range(0, 19, 3)], dtype=np.int64)
    assert rows.shape == full.shape
    assert len(rows) == len(full)
    assert rows[index].dtype == np.int64
    np.testing.assert_array_equal(rows[index], full[index])
    np.testing.assert_array_equal(rows[full[:, 0] > 5], full[full[:, 0] > 5])
    np.testing.assert_array_equal(rows[np.array([[1, 0]])], full[[[1, 0]]])
    assert np.asarray(rows, dtype=np.float32).dtype == np.float32
    assert repr(rows) == "TokenRows(shape=(7, 5), dtype=int64)"


def test_wrong_row_indices() -> None:
    rows = TokenRows(np.arange(23, dtype=np.uint16), 5, 3)
    for index in (7, -8, np.array([0, 7])):
        with pytest.raises(RangeError, match=r"越界，共有 7 个窗口；请用 -7 到 6"):
            rows[index]
    with pytest.raises(DtypeError, match="整数"):
        rows[np.array([0.5])]
    with pytest.raises(ArgumentError, match="copy"):
        rows.__array__(copy=False)
    assert TokenRows(np.arange(3), 5, 1).shape == (0, 5)


# ------------------------------------------------------------------- 类型


def test_small_integers_go_through_the_model() -> None:
    """批总是 int64；uint16、uint32 的张量也能直接通过模型与损失，结果逐位相同。"""
    dataset = TextDataset(["abcdefghij" * 20], BYTES, 4, 8)
    x, y = dataset[0]
    assert x.dtype == y.dtype == np.int64
    results = []
    for dtype in (np.int64, np.uint16, np.uint32):
        model = GPT(dataset.vocab_size, 8, 16, 2, 1, rng=np.random.default_rng(0))
        ids, labels = (Tensor(part.data.astype(dtype)) for part in (x, y))
        loss = GPTLoss()(model(ids), labels)
        loss.backward()
        results.append([loss.data, *(p.grad for p in model.parameters)])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


class Wide(Tokenizer):
    """词表 70,000，编号装不进 uint16；`shift` 让编号超出词表。"""

    kind = "wide"
    vocab_size = 70_000

    def __init__(self, shift: int = 0) -> None:
        self.shift = shift

    def encode_array(self, text: str, *, allowed_special: Any = ()) -> Any:
        return np.array([ord(c) + self.shift for c in text], dtype=np.int64)

    def decode(self, ids: Any) -> str:
        return "".join(map(chr, ids))

    def to_dict(self) -> dict[str, Any]:
        return {"type": self.kind}

    @classmethod
    def from_dict(cls, data: Any) -> Any:
        return cls()


def test_large_vocabulary_uses_uint32() -> None:
    dataset = TextDataset(["a𐀀" * 50], Wide(), 1, 8)
    assert dataset.tokens.dtype == np.uint32
    assert dataset[0][0].data[0, :2].tolist() == [97, 0x10000]
    for shift in (10**6, -98):
        with pytest.raises(DataError, match=r"Wide 给出的编号在 .*应当是 0 到 69999"):
            TextDataset(["a" * 100], Wide(shift))


def test_own_dataset_from_a_list() -> None:
    class Counting(WindowDataset):
        def read(self) -> tuple[Tokenizer, Any]:
            return CharTokenizer("0123456789"), [i % 10 for i in range(50)]

    dataset = Counting(2, context_size=5, split=0.5)
    assert dataset.tokens.dtype == np.int64
    assert dataset.decode(dataset[0][0].data[0]) == "01234"
    assert dataset.decode(dataset.test_tokens[:3]) == "567"


# ------------------------------------------------------------------- 错误


@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        ("两行\n文字", DataError, r"TextDataset：source 得到字符串.*请写成 \[文字\]"),
        ([], DataError, "没有文字"),
        (["", ""], DataError, "没有文字"),
        (b"abc", DtypeError, "source 得到 bytes"),
        (3, DtypeError, "source 得到 int"),
        (["a" * 99, 3], DtypeError, "第 1 项是 int"),
        ([b"a"], DtypeError, "第 0 项是 bytes"),
        (Path("没有.txt"), DataError, "没有.txt.*不存在"),
        ("没有.txt", DataError, "没有.txt.*不存在"),
    ],
)
def test_wrong_sources(source: Any, kind: type[GptcoreError], message: str) -> None:
    for tokenizer in (BYTES, None):
        with pytest.raises(kind, match=message):
            TextDataset(source, tokenizer)


def test_a_file_name_among_texts(tmp_path: Path) -> None:
    paths = files(tmp_path, "a" * 100, "b" * 100)
    with pytest.raises(DataError, match=r"第 0 项是字符串.*正好有这个名字的文件.*Path\("):
        TextDataset([str(path) for path in paths], BYTES)
    with paths[0].open(encoding="utf-8") as file, pytest.raises(DtypeError, match="TextIOWrapper"):
        TextDataset(file, BYTES)


def test_the_message_says_which_document(tmp_path: Path) -> None:
    good, bad = files(tmp_path, "甲" * 50, "甲乙")
    chars = CharTokenizer("甲")
    with pytest.raises(DataError, match=r"^encode：位置 1.*'乙'"):
        TextDataset(bad, chars)
    with pytest.raises(DataError, match=r"^TextDataset：文件 '.*1.txt'：encode：位置 1.*'乙'"):
        TextDataset([good, bad], chars)
    with pytest.raises(DataError, match=r"^TextDataset：source 的第 2 项：encode：位置 0"):
        TextDataset([good, "", "乙"], chars)
    bad.write_bytes(b"\xff\xff")
    with pytest.raises(DataError, match=r"^read_text：文件 '.*1.txt' 不是 UTF-8"):
        TextDataset([good, bad], chars)


def test_wrong_tokenizer() -> None:
    with pytest.raises(DtypeError, match=r"TextDataset：tokenizer 得到 'gpt2'.*必须是分词器"):
        TextDataset(["abc"], "gpt2")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"'<\|pad\|>' 不是这个分词器的特殊词元"):
        TextDataset(["abc"], BYTES, allowed_special={"<|pad|>"})


def test_errors_of_the_iterator_come_out() -> None:
    class MineError(Exception):
        pass

    def texts() -> Iterator[str]:
        yield "abc"
        raise MineError

    with pytest.raises(MineError):
        TextDataset(texts(), BYTES)
