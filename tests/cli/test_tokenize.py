"""`gptcore tokenize`：写成的词元文件，用它训练、评估、生成"""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.running import TINY, Outcome, clean_environment, process
from cli.test_errors import assert_error
from cli.test_terminal import unix
from cli.test_tokenizers import END, POEMS, TWENTY, numbers, unfinished, weights

from gptcore import load_model
from gptcore.cli import corpus as corpora
from gptcore.cli.corpus import read_corpus
from gptcore.cli.prompts import read_prompts
from gptcore.data import BPETokenizer, ByteTokenizer, CharTokenizer, TokenFile

Cli = Callable[..., Outcome]


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "一.txt", tmp_path / "二.txt"
    paths[0].write_text(POEMS * 30, encoding="utf-8")
    paths[1].write_text("花落知多少" * 40, encoding="utf-8")
    return paths


def content(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["char", "bytes", "bpe"])
def test_the_file(cli: Cli, texts: tuple[Path, Path], tmp_path: Path, kind: str) -> None:
    out = tmp_path / "词元 文件.npy"
    size = ("--vocab-size", "290") if kind == "bpe" else ()
    result = cli("tokenize", *texts, "--tokenizer", kind, *size, "--out", out)
    assert (result.code, result.err) == (0, "")
    one, two = map(content, texts)
    expected = {
        "char": CharTokenizer.from_text(one + two),
        "bytes": ByteTokenizer([END]),
        "bpe": BPETokenizer.train([one, two], 290, special_tokens=[END]),
    }[kind]
    file = TokenFile(out)
    assert file.tokenizer == expected
    end = list(expected.special_tokens.values())
    assert list(file.tokens) == [*expected.encode(one), *end, *expected.encode(two)]
    assert f"{file.count:,} 个词元，{len(one + two):,} 个字符" in result.out
    assert result.out.endswith(f"  gptcore train --corpus '{out}'\n")


def test_default_is_bpe(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("tokenize", "stories").code == 0
    assert isinstance(TokenFile(tmp_path / "tokens.npy").tokenizer, BPETokenizer)
    assert TokenFile(tmp_path / "tokens.npy").tokenizer.vocab_size == 1000


@pytest.mark.parametrize("marked", [False, True])
def test_splitting_documents(cli: Cli, tmp_path: Path, marked: bool) -> None:
    text = tmp_path / "a.txt"
    text.write_text(END.join(["春眠不觉晓"] * 30), encoding="utf-8")
    out = tmp_path / "a.npy"
    option = ["--split-documents"] if marked else []
    assert cli("tokenize", text, "--tokenizer", "bytes", "--out", out, *option).code == 0
    ids = np.asarray(TokenFile(out).tokens)
    assert (ids == 256).sum() == (29 if marked else 0)
    assert read_corpus([str(out)]).record.separated is marked
    assert cli("train", "--corpus", out, "--out", tmp_path / "m", *TINY).code == 0
    tokenizer = load_model(tmp_path / "m")[1]
    (prompt,) = read_prompts(None, tokenizer, tmp_path / "m")
    assert prompt.ids == [256 if marked else 10]
    result = cli("tokenize", text, "--tokenizer", "char", "--out", out, "--split-documents")
    assert_error(result, "--split-documents", END, "--tokenizer bytes")


def test_training_from_the_file(
    cli: Cli, texts: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, whole = tmp_path / "a.npy", tmp_path / "whole"
    size = ("--tokenizer", "bpe", "--vocab-size", 280)
    assert cli("tokenize", *texts, *size, "--out", tokens).code == 0
    file = TokenFile(tokens)
    trained = cli("train", "--corpus", tokens, "--out", whole, *TWENTY)
    assert (trained.code, trained.err) == (0, "")
    assert f"语料 {tokens}：{file.count:,} 个词元，词表 280" in trained.out
    assert load_model(whole)[1] == file.tokenizer
    assert not (whole / "run-tokenizer.json").exists()

    result = cli("eval", whole)
    assert (result.code, result.err) == (0, "")
    test = np.asarray(file.tokens)[int(file.count * 0.9) :]
    assert isinstance(file.tokenizer, BPETokenizer)
    ends = (test == file.tokenizer.special_tokens[END]).sum()
    size_of_text = len(file.tokenizer.decode_bytes(test[1:])) - ends * len(END)
    loss, _, _, _, per_byte = numbers(result.out)
    assert per_byte == pytest.approx(loss * (len(test) - 1) / np.log(2) / size_of_text, rel=1e-3)
    assert numbers(cli("eval", whole, "--corpus", tokens).out) == numbers(result.out)
    assert f"{texts[0]} 的全文" in cli("eval", whole, "--corpus", texts[0]).out
    assert cli("generate", whole, "--max-tokens", 5).code == 0

    out = unfinished(whole, tmp_path / "again")
    assert cli("train", "--out", out, "--resume").code == 0
    assert weights(out) == weights(whole)

    # 测试部分有上限
    monkeypatch.setattr(corpora, "TEST_TOKENS", 50)
    capped = cli("train", "--corpus", tokens, "--out", tmp_path / "c", *TWENTY)
    assert capped.code == 0
    assert "，50 个词元" in cli("eval", tmp_path / "c").out
    # 已经训练的，测试部分不变
    assert numbers(cli("eval", whole).out) == numbers(result.out)


def test_a_changed_file(cli: Cli, texts: tuple[Path, Path], tmp_path: Path) -> None:
    tokens, whole = tmp_path / "a.npy", tmp_path / "m"
    bytes_ = ("--tokenizer", "bytes", "--out", tokens)
    assert cli("tokenize", texts[0], *bytes_).code == 0
    assert cli("train", "--corpus", tokens, "--out", whole, *TWENTY).code == 0
    assert cli("tokenize", texts[1], *bytes_).code == 0
    assert_error(cli("eval", whole), str(tokens), "在训练之后变了")
    out = unfinished(whole, tmp_path / "again")
    assert_error(cli("train", "--out", out, "--resume"), "与开始训练时的不同", "个词元")
    assert "的全文" in cli("eval", whole, "--corpus", tokens).out
    other = ("--tokenizer", "char", "--out", tokens)
    assert cli("tokenize", texts[0], *other).code == 0
    result = cli("eval", whole, "--corpus", tokens)
    assert_error(result, "分词器与模型的不同", "gptcore tokenize 文本 --tokenizer")
    damaged = tokens.read_bytes()[:-9]
    tokens.write_bytes(damaged)
    result = cli("train", "--corpus", tokens, "--out", tmp_path / "x", *TINY)
    assert_error(result, str(tokens), "gptcore tokenize")
    assert "write_tokens" not in result.err


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["--corpus", "a.npy", "--tokenizer", "char"], ["是词元文件", "去掉 --tokenizer"]),
        (["--corpus", "a.npy", "--corpus", "一.txt"], ["是词元文件，只能单独用"]),
        (["--corpus", "a.npy", "--context-size", "500"], ["个词元", "减小 --context-size"]),
    ],
)
def test_mistakes_in_training(
    cli: Cli,
    texts: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    parts: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("tokenize", texts[0].name, "--tokenizer", "bytes", "--out", "a.npy").code == 0
    assert_error(cli("train", *args), *parts)
    assert not (tmp_path / "gptcore-model").exists()


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        ([], ["缺少参数 文本…", "gptcore tokenize --help"]),
        (["没有.txt"], ["文本 '没有.txt'", "stories", "检查路径"]),
        (["空.txt"], ["文本 空.txt 是空的"]),
        (["."], ["文本 '.' 是文件夹"]),
        (["一.txt", "--out", "."], ["--out：. 是文件夹", "tokens.npy"]),
        (["一.txt", "--out", "二.txt"], ["--out：二.txt 不是词元文件，不会覆盖它"]),
        (["一.txt", "--out", ""], ["--out 是空的"]),
        (["一.txt", "--tokenizer", "x"], ["--tokenizer 'x'"]),
        (["一.txt", "--tokenizer", "bytes", "--vocab-size", "9"], ["只用于 --tokenizer bpe"]),
        (["一.txt", "--vocab-size", "9"], ["--vocab-size 9 太小"]),
        (["一.txt", "--vocab-size", "9999"], ["--vocab-size 9999 太大"]),
        (["一.txt", "龙.txt", "--tokenizer", "字.json"], ["'龙.txt'", "位置 1", "U+9F99"]),
        (["gbk.txt", "--tokenizer", "bytes"], ["gbk.txt", "GBK"]),
    ],
)
def test_mistakes(
    cli: Cli,
    texts: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    parts: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "空.txt").write_bytes(b"")
    (tmp_path / "龙.txt").write_text("春龙", encoding="utf-8")
    (tmp_path / "gbk.txt").write_bytes("春眠".encode("gbk"))
    CharTokenizer.from_text(content(texts[0])).save(tmp_path / "字.json")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    result = cli("tokenize", *args)
    assert_error(result, *parts)
    assert not re.search(r"write_tokens|BPETokenizer|source|min_frequency", result.err)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_interruption_keeps_the_old_file(
    cli: Cli, texts: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "a.npy"
    args = ("tokenize", *texts, "--tokenizer", "bytes", "--out", out)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("gptcore.cli.tokenize._Report.__call__", interrupt)
        result = cli(*args)
    assert (result.code, result.err) == (130, f"已中断（Ctrl-C），没有写成 {out}\n")
    assert not out.exists()
    assert cli(*args).code == 0
    before = out.read_bytes()
    monkeypatch.setattr("gptcore.cli.tokenize._Report.__call__", interrupt)
    assert cli(*args).err.endswith("没有写成 " + str(out) + "，原来的没有改动\n")
    assert out.read_bytes() == before
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".npy", ".txt", ".txt"]


def test_progress_is_reported(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gptcore.cli.tokenize.SECONDS", 0.0)
    out = cli("tokenize", "stories", "--tokenizer", "bytes", "--out", tmp_path / "a.npy").out
    assert re.search(r"^已编码 [\d,]+ 个字符，[\d,]+ 个词元$", out, re.MULTILINE)


@unix
def test_pipes(texts: tuple[Path, Path], tmp_path: Path) -> None:
    """只读一遍的，字节分词器可以。"""
    words = [sys.executable, "-m", "gptcore", "tokenize", "/dev/stdin"]
    out = ["--out", str(tmp_path / "a.npy")]
    for kind, code in (("bytes", 0), ("bpe", 2), ("char", 2)):
        result = subprocess.run(
            [*words, "--tokenizer", kind, *out],
            input=texts[0].read_bytes(),
            capture_output=True,
            check=False,
            env=clean_environment(),
            timeout=60,
        )
        assert result.returncode == code
        assert ("只能读一遍" in result.stderr.decode()) == bool(code)
    assert TokenFile(tmp_path / "a.npy").count == len(texts[0].read_bytes())


def test_in_a_real_process(texts: tuple[Path, Path], tmp_path: Path) -> None:
    tokens, out = tmp_path / "a.npy", tmp_path / "m"
    size = ("--vocab-size", "280")
    assert process("tokenize", *texts, *size, "--out", tokens).code == 0
    for args in (
        ("train", "--corpus", tokens, "--out", out, *TINY),
        ("eval", out),
        ("generate", out, "--max-tokens", "5"),
    ):
        result = process(*args)
        assert (result.code, result.err) == (0, "")
