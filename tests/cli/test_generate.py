"""`gptcore generate`：与库的生成逐字相同，几条提示，停止字符串，标准输入，对数概率，整字地输出"""

import ast
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.running import TINY, Outcome, clean_environment, process
from cli.test_errors import assert_error
from cli.test_terminal import terminal, unix

from gptcore import GPT, generate_text, load_model, save_model
from gptcore.cli.app import run
from gptcore.cli.generate import run_generate
from gptcore.cli.prompts import read_prompts
from gptcore.data import BPETokenizer, ByteTokenizer, CharTokenizer

Cli = Callable[..., Outcome]
END = "<|endoftext|>"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, text_file: Path) -> dict[str, Path]:
    """三种分词器各训练一个小模型。"""
    place = tmp_path_factory.mktemp("三种")
    for kind in ("char", "bytes", "bpe"):
        size = ("--vocab-size", "280") if kind == "bpe" else ()
        args = ("--corpus", str(text_file), "--tokenizer", kind, *size)
        assert run(["train", *args, "--out", str(place / kind), *TINY]) == 0
    return {kind: place / kind for kind in ("char", "bytes", "bpe")}


OPTIONS: list[dict[str, Any]] = [
    {},
    {"temperature": 0},
    {"temperature": 0.7, "top_k": 5},
    {"top_p": 0.8, "min_p": 0.02},
    {"repetition_penalty": 1.3, "top_k": 9, "top_p": 0.9},
]


def words(options: dict[str, Any]) -> list[str]:
    return [w for k, v in options.items() for w in ("--" + k.replace("_", "-"), str(v))]


@pytest.mark.parametrize("kind", ["char", "bytes", "bpe"])
@pytest.mark.parametrize("options", OPTIONS)
def test_the_same_text_as_the_library(
    cli: Cli, folders: dict[str, Path], kind: str, options: dict[str, Any]
) -> None:
    model, tokenizer = load_model(folders[kind])
    pieces = generate_text(
        model, tokenizer, "春眠", 30, stop="鸟。", rng=np.random.default_rng(5), **options
    )
    args = ("--prompt", "春眠", "--max-tokens", 30, "--seed", 5, "--stop", "鸟。")
    result = cli("generate", folders[kind], *args, *words(options))
    assert (result.code, result.err) == (0, "")
    assert result.out == "春眠" + "".join(pieces) + "\n"


def test_older_names_of_max_tokens(cli: Cli, folders: dict[str, Path]) -> None:
    outputs = {
        cli("generate", folders["char"], name, 7, "--seed", 1).out
        for name in ("--max-tokens", "--length", "--steps")
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) == 8


@pytest.mark.parametrize("kind", ["char", "bytes", "bpe"])
def test_several_prompts(cli: Cli, folders: dict[str, Path], kind: str) -> None:
    model, tokenizer = load_model(folders[kind])
    prompts = ["春", "夜来风雨声", "春", "花落知多少。\n"]
    rows = model.generate_batch(
        [tokenizer.encode(p) for p in prompts], 12, rng=np.random.default_rng(3), top_k=8
    )
    args = [w for p in prompts for w in ("--prompt", p)]
    result = cli("generate", folders[kind], *args, "--max-tokens", 12, "--seed", 3, "--top-k", 8)
    expected = [
        f"[{i + 1}/4]\n{prompt}{tokenizer.decode(row)}\n"
        for i, (prompt, row) in enumerate(zip(prompts, rows, strict=True))
    ]
    assert (result.code, result.err) == (0, "")
    assert result.out == "\n".join(expected)


def test_each_of_several_stops_by_itself(cli: Cli, folders: dict[str, Path]) -> None:
    prompts = ("--prompt", "春", "--prompt", "夜")
    free = cli("generate", folders["char"], *prompts, "--max-tokens", 40, "--seed", 1)
    rows = [part.split("\n", 1)[1].rstrip("\n") for part in free.out.split("\n\n[")]
    stops = ("--stop", "，", "--stop", "。")
    stopped = cli("generate", folders["char"], *prompts, "--max-tokens", 40, "--seed", 1, *stops)
    cut = [row[: min(i for m in "，。" if (i := (row + m).find(m, 1)) >= 0)] for row in rows]
    assert stopped.out == f"[1/2]\n{cut[0]}\n\n[2/2]\n{cut[1]}\n"


@pytest.mark.parametrize(
    ("given", "stop"),
    [("\\n", "\n"), ("\n", "\n"), ("\\t", "\t"), ("a\\\\nb", "a\\nb"), ("\\\\\\n", "\\\n")],
)
def test_escapes_in_a_stop_string(
    cli: Cli, tmp_path: Path, given: str, stop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """模型总写同一串字；停在哪里由停止字符串决定。"""
    text = "xa\\nb\\\n\ty"
    monkeypatch.setattr("gptcore.cli.generate.Run", Scripted)
    tokenizer = CharTokenizer.from_text(text)
    Scripted.script = tokenizer.encode(text)
    save_model(tmp_path / "m", GPT(tokenizer.vocab_size, 4, 4, 1, 1), tokenizer)
    result = cli("generate", tmp_path / "m", "--prompt", "x", "--stop", given, "--max-tokens", 9)
    assert result.out == "x" + text[: text.index(stop)] + "\n"


class Scripted:
    """照着写好的编号生成。"""

    script: list[int]

    def __init__(self, *_: Any, **__: Any) -> None:
        self.rest = iter(self.script)

    def step(self, rows: list[int]) -> list[Any]:
        from gptcore.models.generation import GeneratedToken

        return [GeneratedToken(next(self.rest), -1.0) for _ in rows]


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["--top-p", "0"], ["--top-p 得到 '0'", "大于 0、不大于 1", "例如 --top-p 0.9"]),
        (["--top-p", "1.5"], ["--top-p 得到 '1.5'", "不大于 1"]),
        (["--top-k", "-1"], ["--top-k 得到 '-1'", "不小于 0 的整数", "例如 --top-k 40"]),
        (["--top-k", "2.5"], ["--top-k 得到 '2.5'", "整数"]),
        (["--min-p", "1.1"], ["--min-p 得到 '1.1'", "不小于 0、不大于 1"]),
        (["--temperature", "-0.1"], ["--temperature 得到 '-0.1'", "不小于 0"]),
        (["--repetition-penalty", "0"], ["--repetition-penalty 得到 '0'", "大于 0 的有限数"]),
        (["--max-tokens", "-1"], ["--max-tokens（--length）得到 '-1'"]),
        (["--stop", ""], ["--stop 是空的", "去掉 --stop"]),
        (["--prompt", ""], ["--prompt 是空的"]),
        (["--prompt", "春", "--prompt", "春龙"], ["--prompt '春龙'", "位置 1", "'龙'（U+9F99）"]),
        (["--prompt", "春" * 99 + "龙"], ["春…'", "位置 99"]),
        (["--prompt", "-", "--prompt", "-"], ["--prompt - 只能给一次"]),
    ],
)
def test_mistakes(cli: Cli, folders: dict[str, Path], args: list[str], parts: list[str]) -> None:
    result = cli("generate", folders["char"], *args)
    assert_error(result, *parts)
    assert result.out == ""


# ---------------------------------------------------------------- 从哪里开始，在哪里结束


def test_end_of_text_ends_the_text(cli: Cli, tmp_path: Path) -> None:
    tokenizer = ByteTokenizer([END])
    model = GPT(257, 8, 4, 1, 1)
    bias = model.output.linear.bias
    assert bias is not None
    bias.data[256] = 1e4
    save_model(tmp_path / "m", model, tokenizer)
    for prompts in (["春"], ["春", "夜"]):
        args = [w for p in prompts for w in ("--prompt", p)]
        out = cli("generate", tmp_path / "m", *args, "--logprobs").out
        assert END not in out
        assert [line for line in out.splitlines() if line and line[0] != "["] == []
    assert cli("generate", tmp_path / "m", "--prompt", "春").out == "春\n"


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({}, [256]),
        (
            {"corpus": {"name": "x", "path": None, "characters": 9, "sha256": "", "split": 0.9}},
            [10],
        ),
    ],
)
def test_where_to_start_without_a_prompt(
    tmp_path: Path, record: dict[str, Any], expected: list[int]
) -> None:
    """训练时没有见过文本结束词元的，从新的一行开始。"""
    tokenizer = ByteTokenizer([END])
    save_model(tmp_path / "m", GPT(257, 8, 4, 1, 1), tokenizer, {"training.json": record})
    (prompt,) = read_prompts(None, tokenizer, tmp_path / "m")
    assert (prompt.text, prompt.ids) == ("", expected)
    (prompt,) = read_prompts(None, CharTokenizer("ab"), tmp_path / "m")
    assert prompt.ids == [0]  # 词表里没有换行


def test_several_corpora_start_with_a_new_text(cli: Cli, text_file: Path, tmp_path: Path) -> None:
    args = ("--corpus", text_file, "--corpus", text_file, "--tokenizer", "bytes")
    assert cli("train", *args, "--out", tmp_path / "m", *TINY).code == 0
    tokenizer = load_model(tmp_path / "m")[1]
    (prompt,) = read_prompts(None, tokenizer, tmp_path / "m")
    assert prompt.ids == [tokenizer.special_tokens[END]]
    assert "特殊词元" in cli("info", tmp_path / "m").out
    assert f"{END} = 256" in cli("info", tmp_path / "m").out


# ---------------------------------------------------------------- 标准输入


class Input(io.TextIOWrapper):
    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="utf-8")


@pytest.mark.parametrize(
    ("content", "prompt"),
    [
        ("春眠".encode(), "春眠"),
        ("春眠\n".encode(), "春眠"),
        ("春眠\n\n".encode(), "春眠\n"),
        ("\ufeff春眠\r\n夜\r\n".encode(), "春眠\n夜"),
    ],
)
def test_a_prompt_from_standard_input(
    cli: Cli,
    folders: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    prompt: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", Input(content))
    result = cli("generate", folders["char"], "--prompt", "-", "--max-tokens", 0)
    assert (result.code, result.out) == (0, prompt + "\n")


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ["--prompt -：标准输入是空的", "去掉 --prompt"]),
        (b"\n", ["标准输入是空的"]),
        ("春眠".encode("gbk"), ["--prompt -：文件 '标准输入' 不是 UTF-8", "GBK"]),
        ("春龙".encode(), ["--prompt - 读到的文字里有模型不认识的字符", "位置 1", "U+9F99"]),
    ],
)
def test_standard_input_that_is_wrong(
    cli: Cli,
    folders: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    parts: list[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", Input(content))
    assert_error(cli("generate", folders["char"], "--prompt", "-"), *parts)
    monkeypatch.setattr(sys, "stdin", None)
    assert_error(cli("generate", folders["char"], "--prompt", "-"), "标准输入是关闭的")


@unix
def test_standard_input_in_a_real_process(folders: dict[str, Path]) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "gptcore", "generate", str(folders["bpe"]), "--prompt", "-"],
        input="龙🐉\n".encode(),
        capture_output=True,
        check=True,
        env=clean_environment({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
        timeout=60,
    )
    assert result.stdout.decode().startswith("龙🐉")
    assert result.stderr == b""


# ---------------------------------------------------------------- 对数概率


@pytest.mark.parametrize("kind", ["char", "bytes", "bpe"])
def test_logprobs(cli: Cli, folders: dict[str, Path], kind: str) -> None:
    model, tokenizer = load_model(folders[kind])
    ids = tokenizer.encode("春眠")
    expected = list(model.generate(ids, 20, rng=np.random.default_rng(2), return_logprobs=True))
    args = ("--prompt", "春眠", "--max-tokens", 20, "--seed", 2, "--logprobs")
    lines = cli("generate", folders[kind], *args).out.splitlines()
    found = [line.split(None, 2) for line in lines]
    assert [int(i) for _, i, _ in found] == [token.id for token in expected]
    np.testing.assert_allclose(
        [float(p) for p, _, _ in found], [token.logprob for token in expected], atol=6e-5
    )
    for (_, _, shown), token in zip(found, expected, strict=True):
        value = ast.literal_eval(shown)
        if isinstance(value, str):
            assert value == tokenizer.decode([token.id])
        else:
            assert isinstance(tokenizer, ByteTokenizer | BPETokenizer)
            assert value == tokenizer.decode_bytes([token.id])


def test_logprobs_of_several_prompts(cli: Cli, folders: dict[str, Path]) -> None:
    args = ("--prompt", "春", "--prompt", "夜\n", "--max-tokens", 3, "--logprobs")
    lines = cli("generate", folders["char"], *args).out.splitlines()
    assert (lines[0], lines[4], lines[5], len(lines)) == ("[1/2] '春'", "", "[2/2] '夜\\n'", 9)


# ---------------------------------------------------------------- 管道与终端


@unix
@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_whole_characters_through_a_pipe(folders: dict[str, Path], kind: str) -> None:
    args = ["generate", str(folders[kind]), "--prompt", "春", "--max-tokens", "3000"]
    with subprocess.Popen(
        [sys.executable, "-m", "gptcore", *args],
        stdout=subprocess.PIPE,
        env=clean_environment(),
    ) as child:
        assert child.stdout
        pieces: list[str] = []
        while chunk := os.read(child.stdout.fileno(), 1 << 16):
            pieces.append(chunk.decode())  # 一个字的几个字节总在一起
    assert child.returncode == 0
    assert len(pieces) > 3


@unix
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_line_is_ended(folders: dict[str, Path], number: int, code: int) -> None:
    args = ("generate", str(folders["char"]), "--prompt", "春眠春眠", "--max-tokens", "1000000")
    found, out = terminal(
        80, "-m", "gptcore", *args, interrupt_at="春眠春眠", interrupt=signal.Signals(number)
    )
    name = {130: "Ctrl-C", 143: "SIGTERM"}[code]
    assert found == code
    assert out.endswith(f"\r\n已中断（{name}）\r\n")
    assert "Traceback" not in out


@unix
def test_a_terminal_is_told_what_to_do(folders: dict[str, Path]) -> None:
    args = ("generate", str(folders["char"]), "--prompt", "-")
    code, out = terminal(60, "-m", "gptcore", *args, interrupt_at="Ctrl-D")
    assert code == 130
    assert out.startswith("输入提示，写完另起一行按 Ctrl-D\r\n")


# ---------------------------------------------------------------- Hugging Face 的文件夹


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """词表比分词器大的 GPT-2 文件夹。"""
    text = "春眠不觉晓，处处闻啼鸟。" * 9
    tokenizer = BPETokenizer.train(text, 270, special_tokens=[END])
    model = GPT(320, 9, 6, 3, 2, head_bias=False, tied=True, rng=np.random.default_rng(0))
    return model.save_pretrained(tmp_path_factory.mktemp("hf") / "gpt2", tokenizer)


def test_a_hugging_face_folder_can_be_used_as_it_is(
    cli: Cli, theirs: Path, text_file: Path
) -> None:
    result = cli("generate", theirs, "--prompt", "春眠", "--max-tokens", 60, "--seed", 1)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("春眠")
    lines = cli("generate", theirs, "--max-tokens", 60, "--seed", 1, "--logprobs").out
    assert any(line.endswith("''") for line in lines.splitlines())  # 多出的词元没有文字
    shown = cli("info", theirs)
    assert shown.code == 0
    assert "字节级 BPE（bpe）" in shown.out
    assert f"{END} = 269" in shown.out
    assert_error(cli("eval", theirs), "没有语料的记录", "--corpus")
    evaluated = cli("eval", theirs, "--corpus", text_file)
    assert (evaluated.code, evaluated.err) == (0, "")
    assert_error(cli("export", theirs), "Hugging Face", "import")


def test_other_architectures_are_refused(cli: Cli, theirs: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(theirs, tmp_path / "m")
    text = (tmp_path / "m" / "config.json").read_text(encoding="utf-8")
    (tmp_path / "m" / "manifest.json").unlink()
    changed = text.replace('"model_type": "gpt2"', '"model_type": "llama"')
    assert changed != text
    (tmp_path / "m" / "config.json").write_text(changed, encoding="utf-8")
    assert_error(cli("generate", tmp_path / "m"), "model_type", "llama")


def test_run_generate_has_defaults(
    folders: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run_generate(folders["char"])
    assert len(capsys.readouterr().out) == 257


def test_help_mentions_the_main_names(cli: Cli) -> None:
    out = cli("generate", "--help").out
    assert "--length, --max-tokens 个数" in out
    assert "--steps" not in out
    assert process("generate", "--help").out == out
