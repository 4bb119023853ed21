"""`gptcore train --tokenizer`：三种分词器与存好的，几份文本，接着训练，评估的数是对的"""

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.running import TINY, Outcome
from cli.test_errors import assert_error
from hypothesis import given
from hypothesis import strategies as st

from gptcore import GPTLoss, Tensor, load_model, no_grad
from gptcore.cli.corpus import Corpus, CorpusRecord, read_corpus
from gptcore.cli.tokenizers import Lengths, encode
from gptcore.data import BPETokenizer, ByteTokenizer, CharTokenizer, Tokenizer

Cli = Callable[..., Outcome]
END = "<|endoftext|>"
POEMS = "春眠不觉晓，处处闻啼鸟。\n夜来风雨声，花落知多少。\n"
ENGLISH = "The quick brown fox jumps over the lazy dog; naïve café.\n"
SIZE = TINY[: TINY.index("--steps")]
TWENTY = (*SIZE, "--steps", "20", "--save-every", "5", "--eval-every", "5")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """中英文各一半，后一成里没有多少重复的。"""
    path = tmp_path / "文.txt"
    rng = np.random.default_rng(0)
    lines = (POEMS + ENGLISH).split("\n")
    path.write_text("\n".join(lines[i] for i in rng.integers(0, 3, 120)), encoding="utf-8")
    return path


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def numbers(out: str) -> list[float]:
    return [float(x) for x in re.findall(r"^\S* +(\d+\.\d{4}) ", out, re.MULTILINE)]


def test_char_is_the_default(cli: Cli, text: Path, tmp_path: Path) -> None:
    args = ("train", "--corpus", text, *TINY)
    assert cli(*args, "--out", tmp_path / "a").code == 0
    assert cli(*args, "--tokenizer", "char", "--out", tmp_path / "b").code == 0
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    assert not (tmp_path / "b" / "run-tokenizer.json").exists()


@pytest.mark.parametrize("kind", ["char", "bytes", "bpe"])
def test_training_and_evaluation(cli: Cli, text: Path, tmp_path: Path, kind: str) -> None:
    """分数从头算一遍：后一成的文字，每个词元恰好预测一次，除以真正的字符数与字节数。"""
    size = ("--vocab-size", "300") if kind == "bpe" else ()
    out = tmp_path / "m"
    trained = cli("train", "--corpus", text, "--tokenizer", kind, *size, "--out", out, *TWENTY)
    assert (trained.code, trained.err) == (0, "")
    content = text.read_text(encoding="utf-8")
    cut = int(len(content) * 0.9)
    model, tokenizer = load_model(out)
    expected: dict[str, Tokenizer] = {
        "char": CharTokenizer.from_text(content),
        "bytes": ByteTokenizer(),
        "bpe": BPETokenizer.train(content[:cut], 300),  # 只用训练部分
    }
    assert tokenizer == expected[kind]

    test = tokenizer.encode_array(content[cut:])
    total = 0.0
    with no_grad(), model.evaluating():
        for i in range(0, len(test) - 1, model.context_size):
            window = test[None, i : i + model.context_size + 1]
            loss = GPTLoss()(model(Tensor(window[:, :-1])), Tensor(window[:, 1:]))
            total += float(loss) * (window.shape[1] - 1)
    loss, bits = total / (len(test) - 1), total / math.log(2)
    predicted = content[cut:].encode()[len(tokenizer.decode(test[:1]).encode()) :]
    if kind == "bytes":
        predicted = content[cut:].encode()[1:]
    characters = sum(byte & 0xC0 != 0x80 for byte in predicted)
    wanted = [loss, math.exp(loss), bits / (len(test) - 1), bits / characters]
    wanted.append(bits / len(predicted))

    result = cli("eval", out)
    assert (result.code, result.err) == (0, "")
    np.testing.assert_allclose(numbers(result.out), wanted, rtol=2e-6, atol=6e-5)
    unit = "字符" if kind == "char" else "词元"
    assert f"测试损失 {loss:.4f} 奈特/{unit}" in trained.out
    assert f"{numbers(result.out)[3]:.4f} 比特/字符" in trained.out
    assert ("比特/字节" in trained.out) == (kind != "char")
    assert f"{len(content[cut:]):,} 个字符" in result.out
    assert (f"{len(test):,} 个词元" in result.out) == (kind != "char")
    assert f"{unit}/秒" in trained.out
    assert f"奈特/{unit}" in cli("train", "--out", out, "--resume").out

    shown = " ".join(cli("info", out).out.split())
    names = {"char": "字符（char）", "bytes": "字节（bytes）", "bpe": "字节级 BPE（bpe）"}
    assert f"种类 {names[kind]} 词元 {tokenizer.vocab_size} 特殊词元 无" in shown
    assert f"测试损失（奈特/{unit}）" in shown
    generated = cli("generate", out, "--prompt", "春", "--max-tokens", 5)
    assert generated.out.startswith("春")


def test_the_same_text_is_tested_whatever_the_tokenizer(text: Path) -> None:
    corpus = read_corpus([str(text)])
    _, test = corpus.split()
    for tokenizer in (ByteTokenizer(), BPETokenizer.train(corpus.texts, 320)):
        ids = encode(tokenizer, test, corpus)
        assert tokenizer.decode(ids) == "".join(test)


def test_bpe_is_deterministic(cli: Cli, text: Path, tmp_path: Path) -> None:
    args = ("train", "--corpus", text, "--tokenizer", "bpe", "--vocab-size", 310, *TINY)
    for name in "ab":
        assert cli(*args, "--out", tmp_path / name).code == 0
    for name in ("model.safetensors", "tokenizer.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_default_vocabulary_fits_the_text(cli: Cli, text: Path, tmp_path: Path) -> None:
    args = ("train", "--corpus", text, "--tokenizer", "bpe", *SIZE, "--steps", 1)
    assert cli(*args, "--context-size", 4, "--out", tmp_path / "m").code == 0
    most = load_model(tmp_path / "m")[1].vocab_size
    assert 256 < most < 1000
    result = cli(*args, "--vocab-size", most + 1, "--out", tmp_path / "x")
    assert_error(result, f"--vocab-size {most + 1} 太大", f"--vocab-size {most} 或更小")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["--vocab-size", "300"], ["--vocab-size 300 只用于 --tokenizer bpe"]),
        (["--tokenizer", "bytes", "--vocab-size", "300"], ["只用于 --tokenizer bpe"]),
        (["--tokenizer", "bpe", "--vocab-size", "0"], ["--vocab-size", "'0'"]),
        (
            ["--tokenizer", "bpe", "--vocab-size", "255"],
            ["--vocab-size 255 太小", "256 个字节"],
        ),
        (["--tokenizer", "byte"], ["--tokenizer 'byte'", "你要的是不是 bytes", "检查路径"]),
        (["--tokenizer", ""], ["--tokenizer ''", "char、bytes、bpe"]),
        (["--tokenizer", "没有/这里"], ["--tokenizer '没有/这里'", "文件或文件夹"]),
    ],
)
def test_mistakes(
    cli: Cli,
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    parts: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_error(cli("train", "--corpus", text, *args), *parts)
    assert [path.name for path in tmp_path.iterdir()] == [text.name]


# ---------------------------------------------------------------- 存好的分词器


def test_the_tokenizer_of_another_model(cli: Cli, text: Path, tmp_path: Path) -> None:
    first = ("--tokenizer", "bpe", "--vocab-size", 300, "--out", tmp_path / "a")
    assert cli("train", "--corpus", text, *first, *TINY).code == 0
    expected = load_model(tmp_path / "a")[1]
    expected.save(tmp_path / "词表.json")
    expected.save(tmp_path / "文件夹")
    for i, path in enumerate(("a", "a/checkpoints/best", "词表.json", "文件夹")):
        out = tmp_path / str(i)
        args = ("--tokenizer", tmp_path / path, "--out", out)
        assert cli("train", "--corpus", text, *args, *TINY).code == 0
        assert load_model(out)[1] == expected
        assert weights(out) == weights(tmp_path / "a")


def test_gpt2_files(cli: Cli, tmp_path: Path, text: Path) -> None:
    """OpenAI 的两个文件的写法。"""
    from gptcore.data.tokenizers import hugging_face_files

    tokenizer = BPETokenizer.train(POEMS * 9, 280, special_tokens=[END])
    for name, content in hugging_face_files(tokenizer).items():
        if name in ("vocab.json", "merges.txt"):
            (tmp_path / name).write_bytes(content)
    for i, path in enumerate((tmp_path, tmp_path / "merges.txt", tmp_path / "vocab.json")):
        out = tmp_path / f"m{i}"
        args = ("--corpus", text, "--tokenizer", path, "--out", out)
        assert cli("train", *args, *TINY).code == 0
        assert load_model(out)[1].encode(POEMS) == tokenizer.encode(POEMS)
        assert load_model(out)[1].special_tokens == {END: 279}


def test_unknown_characters_name_the_file_and_the_position(
    cli: Cli, text: Path, tmp_path: Path
) -> None:
    content = text.read_text(encoding="utf-8")
    known = content[: len(content) // 2]
    CharTokenizer.from_text(known).save(tmp_path / "字.json")
    late = tmp_path / "晚.txt"
    late.write_text(known + known[:-5] + "龙" + known[-5:], encoding="utf-8")
    fine = tmp_path / "好.txt"
    fine.write_text(known, encoding="utf-8")
    args = ("--tokenizer", tmp_path / "字.json", "--out", tmp_path / "m", *TINY)
    result = cli("train", "--corpus", fine, "--corpus", late, *args)
    where = f"位置 {2 * len(known) - 5}（从 0 数起）"
    assert_error(result, f"--corpus {str(late)!r} 里有分词器不认识的字符", where, "'龙'（U+9F99）")
    assert cli("train", "--corpus", fine, *args).code == 0


# ---------------------------------------------------------------- 几份文本


def test_several_corpora(
    cli: Cli, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "诗.txt"
    other.write_text(POEMS * 30, encoding="utf-8")
    corpora = ("--corpus", text, "--corpus", other)
    args = (*corpora, "--tokenizer", "bytes", *TWENTY)
    whole = tmp_path / "whole"
    trained = cli("train", *args, "--out", whole)
    assert (trained.code, trained.err) == (0, "")
    texts = [p.read_text(encoding="utf-8") for p in (text, other)]
    assert f"语料 {text}、{other}：{sum(map(len, texts)):,} 个字符" in trained.out
    assert load_model(whole)[1].special_tokens == {END: 256}
    settings = json.loads((whole / "run.json").read_text(encoding="utf-8"))["settings"]
    assert settings["corpus"] == [str(text), str(other)]

    # 测试部分是最后一成的字符，在第二份里
    cut = int(sum(map(len, texts)) * 0.9) - len(texts[0])
    result = cli("eval", whole)
    assert (result.code, result.err) == (0, "")
    assert f"{len(texts[1][cut:]):,} 个字符，{len(texts[1][cut:].encode()):,} 个词元" in result.out
    again = cli("eval", whole, *corpora)
    assert numbers(again.out) == numbers(result.out)
    only = cli("eval", whole, "--corpus", other)
    assert f"{other} 的全文" in only.out
    swapped = cli("eval", whole, "--corpus", other, "--corpus", text)
    assert f"{other}、{text} 的全文" in swapped.out
    monkeypatch.setenv("COLUMNS", "300")
    assert f"{text}、{other}\n" in cli("info", whole).out

    # 语料换了地方，接着训练
    moved = tmp_path / "别处"
    moved.mkdir()
    paths = [shutil.move(path, moved / path.name) for path in (text, other)]
    out = unfinished(whole, tmp_path / "again")
    assert_error(cli("train", "--out", out, "--resume"), f"{text} 不在了", "--corpus")
    given = [w for path in paths for w in ("--corpus", path)]
    assert_error(
        cli("train", "--out", out, "--resume", *given[2:], *given[:2]), "与开始训练时的不同"
    )
    assert cli("train", "--out", out, "--resume", *given).code == 0
    assert weights(out) == weights(whole)


def unfinished(folder: Path, out: Path) -> Path:
    """只做到第 15 步的同一次训练。"""
    shutil.copytree(folder, out)
    shutil.rmtree(out / "checkpoints" / "step-00000020")
    for name in ("model.safetensors", "config.json", "tokenizer.json", "manifest.json"):
        (out / name).unlink()
    (out / "training.json").unlink()
    return out


texts = st.lists(st.text(st.sampled_from("春a\n🙂"), min_size=1), min_size=1, max_size=5)


@given(texts, st.floats(0.01, 1))
def test_splitting_by_characters(parts: list[str], split: float) -> None:
    names = [str(i) for i in range(len(parts))]
    corpus = Corpus(CorpusRecord.of(names, parts, split), tuple(parts))
    train, test = corpus.split()
    whole = "".join(parts)
    cut = int(len(whole) * split)
    assert ("".join(train), "".join(test)) == (whole[:cut], whole[cut:])
    assert all(train + test)
    assert len(parts) <= len(train + test) <= len(parts) + 1


@given(st.text(max_size=20).filter(lambda t: not re.search("[\ud800-\udfff]", t)), st.booleans())
def test_lengths(text: str, several: bool) -> None:
    special = [END, "<x>"] if several else []
    merges = [(b"a", b"b"), (b"\xe6", b"\x98"), (b"\xe6\x98", b"\xa5")]
    tokenizers: list[Tokenizer] = [ByteTokenizer(special), BPETokenizer(merges, special)]
    text += "ab春🙂"
    for tokenizer in (*tokenizers, CharTokenizer.from_text(text)):
        ids = [*tokenizer.special_tokens.values(), *tokenizer.encode(text)]
        counted = Lengths(tokenizer).count(np.array(ids))
        assert counted == (len(text), len(text.encode()))


# ---------------------------------------------------------------- 接着训练


def test_resuming_keeps_the_tokenizer(cli: Cli, text: Path, tmp_path: Path) -> None:
    own = tmp_path / "词表.json"
    BPETokenizer.train(text, 290).save(own)
    for name, args in (("bpe", ("--vocab-size", 300)), (str(own), ())):
        whole = tmp_path / f"whole-{len(name)}"
        options = ("--tokenizer", name, *args)
        assert cli("train", "--corpus", text, *options, "--out", whole, *TWENTY).code == 0
        assert (whole / "run-tokenizer.json").is_file()
        own.unlink(missing_ok=True)  # 存下了，原来的文件不在也不要紧
        out = unfinished(whole, tmp_path / f"again-{len(name)}")
        result = cli("train", "--out", out, "--resume", *options)
        assert (result.code, result.err) == (0, "")
        for file in ("model.safetensors", "tokenizer.json"):
            assert (out / file).read_bytes() == (whole / file).read_bytes()
        BPETokenizer.train(text, 290).save(own)
    assert_error(
        cli("train", "--out", whole, "--resume", "--tokenizer", "bytes"),
        f"--tokenizer 原来是 {own}，现在是 bytes",
    )
    out = unfinished(whole, tmp_path / "lost")
    (out / "run-tokenizer.json").unlink()
    assert_error(cli("train", "--out", out, "--resume"), "run-tokenizer.json")
    restarted = ("--restart", "--corpus", text, "--tokenizer", "bytes", *TINY)
    assert cli("train", "--out", whole, *restarted).code == 0
    assert not (whole / "run-tokenizer.json").exists()
    assert_error(
        cli("train", "--out", whole, "--resume", "--tokenizer", "char"),
        "--tokenizer 原来是 bytes，现在是 char",
    )


def test_a_run_that_never_began_leaves_nothing(
    cli: Cli, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gptcore.cli.train.fit", refuse)
    args = ("--corpus", text, "--tokenizer", "bpe", "--vocab-size", 290, *TINY)
    assert cli("train", *args, "--out", tmp_path / "m").code == 130
    assert [path.name for path in tmp_path.iterdir()] == [text.name]


def test_older_records_can_be_read() -> None:
    old = {"name": "a.txt", "path": "/x/a.txt", "characters": 9, "sha256": "s", "split": 0.9}
    record = CorpusRecord.parse(old)
    assert record == CorpusRecord(("a.txt",), ("/x/a.txt",), 9, "s")
    assert record is not None
    assert CorpusRecord.parse(json.loads(json.dumps(record.to_dict()))) == record
    for change in (
        {"name": 3},
        {"path": 3},
        {"characters": "9"},
        {"split": 0.0},
        {"sha256": None},
        {"更多": 1},
    ):
        assert CorpusRecord.parse({**old, **change}) is None
    new = json.loads(json.dumps(record.to_dict()))
    for change in ({"names": []}, {"paths": []}, {"kind": "x"}, {"separated": 1}, {"names": "ab"}):
        assert CorpusRecord.parse({**new, **change}) is None
    assert CorpusRecord.parse([]) is None
