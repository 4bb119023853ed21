"""词元文件：格式，像数组，原子的写"""

import copy
import hashlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptcore import DataError, TextDataset, TokenDataset, write_tokens
from gptcore.data import (
    END_OF_TEXT,
    BPETokenizer,
    ByteTokenizer,
    CharTokenizer,
    FileTokens,
    TokenFile,
    load_corpus,
)
from gptcore.data.token_files import npy_header
from gptcore.errors import ArgumentError, DtypeError, RangeError

BYTES = ByteTokenizer([END_OF_TEXT])
TEXTS = ["天地玄黄" * 20, "", "宇宙洪荒" * 15]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "tokens.npy"
    write_tokens(file, TEXTS, BYTES)
    return file


def others(folder: Path) -> list[str]:
    """文件夹里除了 tokens.npy 还有什么。"""
    return [p.name for p in folder.iterdir() if p.name != "tokens.npy"]


# ------------------------------------------------------------------- 格式


def test_numpy_reads_it(path: Path) -> None:
    """两个接连的标准数组：词元，与 JSON 的字节。"""
    expected = TextDataset(TEXTS, BYTES, context_size=4).tokens
    for found in (np.load(path), np.load(path, mmap_mode="r")):
        assert found.dtype == "<u2"
        np.testing.assert_array_equal(found, expected)
    with path.open("rb") as file:
        np.load(file)
        facts = json.loads(np.load(file).tobytes())
        assert file.read() == b""
    assert facts["count"] == len(expected) == facts["documents"] + 20 * 12 + 15 * 12 - 1
    assert facts["sha256"] == hashlib.sha256(expected.tobytes()).hexdigest()
    assert facts["tokenizer"] == BYTES.to_dict()


@pytest.mark.parametrize(("kind", "count"), [("<u2", 0), ("<u4", 7), ("|u1", 10**17)])
def test_our_header_is_numpys(kind: str, count: int) -> None:
    header = npy_header(kind, count)
    assert len(header) == 128
    file = io.BytesIO(header)
    assert np.lib.format.read_magic(file) == (1, 0)
    assert np.lib.format.read_array_header_1_0(file) == ((count,), False, np.dtype(kind))
    assert file.tell() == 128


def test_facts(path: Path) -> None:
    file = TokenFile(path)
    assert (len(file), file.documents, file.dtype) == (421, 2, np.uint16)
    assert file.tokenizer == BYTES
    assert repr(file) == f"TokenFile({str(path)!r}, count=421, dtype=uint16)"
    file.verify()
    assert copy.copy(file).sha256 == file.sha256
    file.close()
    with pytest.raises(DataError, match="已经关上"):
        file.read(0, 1)


def test_large_vocabulary_is_uint32(tmp_path: Path) -> None:
    vocab = "".join(map(chr, range(0x10000, 0x10000 + 2**16 + 1)))
    for tokenizer, kind in ((CharTokenizer(vocab), "<u4"), (CharTokenizer(vocab[1:]), "<u2")):
        file = write_tokens(tmp_path / "a.npy", [vocab[-30:]], tokenizer)
        assert file.dtype == kind
        assert np.load(file.path).tolist() == tokenizer.encode(vocab[-30:])
        assert TokenDataset(file, context_size=2)[0][0].dtype == np.int64


def test_bpe_comes_back(tmp_path: Path) -> None:
    text = load_corpus("stories")[:20_000]
    tokenizer = BPETokenizer.train(text, 400, special_tokens=[END_OF_TEXT])
    (tmp_path / "故事.txt").write_text(text, encoding="utf-8")
    dataset = TokenDataset(write_tokens(tmp_path / "a.npy", tmp_path / "故事.txt", tokenizer))
    assert dataset.tokenizer == tokenizer
    assert dataset.decode(dataset.tokens) == text
    assert dataset.encode("小猫") == tokenizer.encode("小猫")


# ------------------------------------------------------------------- 像数组


@pytest.mark.parametrize(
    "index", [slice(None), slice(3, 9), slice(-5, None), slice(9, 3), slice(2, 400, 7), 0, -1, 420]
)
def test_tokens_behave_like_an_array(path: Path, index: Any) -> None:
    tokens, full = TokenFile(path).tokens, np.load(path)
    assert np.array_equal(np.asarray(tokens[index]), full[index])
    part, whole = tokens[10:400], full[10:400]
    assert isinstance(part, FileTokens)
    if isinstance(index, slice) or index < 390:
        assert np.array_equal(np.asarray(part[index]), whole[index])
    assert list(part) == whole.tolist()
    assert (part.shape, part.ndim, part.dtype) == (whole.shape, 1, whole.dtype)
    windows = part.windows(np.array([0, 5, 2]), 4)
    assert windows.tolist() == [whole[s : s + 4].tolist() for s in (0, 5, 2)]
    assert BYTES.decode(tokens) == f"{TEXTS[0]}{END_OF_TEXT}{TEXTS[2]}"
    assert np.asarray(tokens, dtype=np.int64).dtype == np.int64


def test_wrong_token_index(path: Path) -> None:
    tokens = TokenFile(path).tokens[:20]
    for index in (20, -21):
        with pytest.raises(RangeError, match=rf"下标 {index} 越界，共有 20 个词元"):
            tokens[index]
    with pytest.raises(DtypeError, match="asarray"):
        tokens[[1, 2]]
    assert "shape=(20,)" in repr(tokens)


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("split", [0.5, 1.0])
def test_same_batches_as_in_memory(path: Path, batch_size: int, split: float) -> None:
    arguments: Any = batch_size, 16, 5, split
    disk, memory = TokenDataset(path, *arguments), TextDataset(TEXTS, BYTES, *arguments)
    assert disk.fingerprint() == memory.fingerprint()
    order = np.random.default_rng(0).permutation(len(memory.train_data[0]))
    pairs = [*zip(disk, memory, strict=True), (disk.all(), memory.all())]
    pairs.append((disk.take(order), memory.take(order)))
    if split < 1.0:
        for limit in (None, 3):
            both = (d.evaluation_batches(limit) for d in (disk, memory))
            pairs += list(zip(*both, strict=True))
        pairs.append((disk.eval().all(), memory.eval().all()))
    for left, right in pairs:
        for a, b in zip(left, right, strict=True):
            assert a.dtype == b.dtype == np.int64
            assert not a.requires_grad
            np.testing.assert_array_equal(a.data, b.data)


# ------------------------------------------------------------------- 写


def test_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gptcore.data.sources.BLOCK", 100)
    calls: list[tuple[int, int]] = []
    texts = ["天" * 30, "地" * 30, "人" * 10]
    file = write_tokens(tmp_path / "a.npy", texts, BYTES, progress=lambda *call: calls.append(call))
    assert calls[-1] == (70, 212) == (70, file.count)
    assert len(calls) > 1
    assert calls == sorted(calls)


@pytest.mark.parametrize("error", [OSError("网络断了"), KeyboardInterrupt(), ValueError("自己的")])
@pytest.mark.parametrize("where", ["source", "progress"])
def test_interrupted_writing_leaves_the_old_file(
    path: Path, error: BaseException, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """来源与回调的错误原样抛出；旧文件不变，没有多出来的文件。"""
    monkeypatch.setattr("gptcore.data.sources.BLOCK", 10)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise error

    def texts() -> Iterator[str]:
        yield "a" * 1000
        if where == "source":
            fail()

    with pytest.raises(type(error)) as caught:
        write_tokens(path, texts(), BYTES, progress=fail if where == "progress" else None)
    assert caught.value is error
    assert path.read_bytes() == before
    assert others(path.parent) == []


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL 只用于 POSIX 系统")
@pytest.mark.parametrize("exists", [True, False])
def test_killed_writing(path: Path, exists: bool) -> None:
    """写到一半被终止：目标要么没有，要么是旧的；临时文件不会被当作完整的，下次写时清除。"""
    before = path.read_bytes()
    if not exists:
        path.unlink()
    program = Path(__file__).with_name("write_tokens_program.py")
    command = [sys.executable, program, path, "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline().decode("utf-8").strip() == "停在这里"
        process.kill()
    assert path.exists() is exists
    assert not exists or path.read_bytes() == before
    (left,) = others(path.parent)
    temporary = path.with_name(left)
    assert temporary.stat().st_size > 2_000_000
    with pytest.raises(DataError, match="没有写完"):
        TokenFile(temporary)
    write_tokens(path, TEXTS, BYTES)
    assert others(path.parent) == [left]  # 刚写的，也许还有进程在用
    os.utime(temporary, (time.time() - 3600,) * 2)
    write_tokens(path, TEXTS, BYTES)
    assert others(path.parent) == []
    assert path.read_bytes() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="没有 /dev/full")
def test_disk_errors_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write

    def full(descriptor: int, content: Any) -> int:
        if len(content) > 200:
            raise OSError(28, "No space left on device")
        return real(descriptor, content)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(DataError, match=r"不能写入 .*tokens.npy：磁盘满了"):
        write_tokens(tmp_path / "tokens.npy", TEXTS, BYTES)
    assert list(tmp_path.iterdir()) == []


def test_where_it_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="它是文件夹"):
        write_tokens(tmp_path, TEXTS, BYTES)
    (tmp_path / "文件").touch()
    for wrong in (tmp_path / "文件" / "a.npy", tmp_path / "a\0b", tmp_path / ("a" * 300)):
        with pytest.raises(DataError, match="不能写入"):
            write_tokens(wrong, TEXTS, BYTES)
    with pytest.raises(DtypeError, match="write_tokens：path 得到 int"):
        write_tokens(3, TEXTS, BYTES)  # type: ignore[arg-type]
    new = tmp_path / "新" / "的" / "a.npy"
    assert write_tokens(new, TEXTS, BYTES).count == 421


def test_wrong_arguments(tmp_path: Path) -> None:
    target = tmp_path / "tokens.npy"
    cases: list[tuple[Any, Any, dict[str, Any], type[Exception], str]] = [
        ([], BYTES, {}, DataError, "write_tokens：没有文字"),
        (TEXTS, None, {}, DtypeError, "tokenizer 得到 None"),
        (TEXTS, BYTES, {"allowed_special": {"x"}}, ArgumentError, "allowed_special 里的 'x'"),
        (TEXTS, CharTokenizer("天"), {}, DataError, r"第 0 项：encode：位置 1.*'地'"),
        (TEXTS, Unsaved(), {}, DataError, "'unsaved'.*已知的种类"),
    ]
    for source, tokenizer, options, kind, message in cases:
        with pytest.raises(kind, match=message):
            write_tokens(target, source, tokenizer, **options)
        assert list(tmp_path.iterdir()) == []


class Unsaved(CharTokenizer):
    """读不回来的分词器：种类没有登记。"""

    def __init__(self) -> None:
        super().__init__("天地玄黄宇宙洪荒")

    def to_dict(self) -> dict[str, Any]:
        return {"type": "unsaved"}
