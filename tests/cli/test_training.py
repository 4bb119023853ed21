"""训练：发散与中断时不保存，不留空文件夹；管道当语料；数值的上限"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli.running import TINY, Outcome, clean_environment
from cli.test_errors import assert_error
from cli.test_terminal import unix

from gptcore import GPT, load_model, save_model
from gptcore.cli.folders import OutputFolder
from gptcore.data.tokenizers import CharTokenizer

Cli = Callable[..., Outcome]
SMALL = TINY[: TINY.index("--steps")]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("rate", ["1e30", "1e38"])
def test_diverging_on_the_last_step_keeps_the_old_model(
    cli: Cli, text_file: Path, model_folder: Path, tmp_path: Path, rate: str
) -> None:
    args = ("train", "--corpus", text_file, *SMALL)
    save_model(tmp_path / "m", *load_model(model_folder))
    before = contents(tmp_path / "m")
    wild = ("--steps", 1, "--warmup-steps", 0, "--lr", rate)
    result = cli(*args, *wild, "--out", tmp_path / "m")
    assert_error(result, "减小学习率", "--lr", "--weight-decay", "--warmup-steps")
    after = contents(tmp_path / "m")
    assert after.pop("run.json")
    assert after.pop("metrics.jsonl")
    assert after == before


def test_parameters_that_are_not_finite_are_not_saved(
    cli: Cli, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(GPT):
        @property
        def parameters(self) -> list:  # type: ignore[type-arg]
            found = super().parameters
            self.output.linear.weight.data[0, 0] = np.inf
            return found

    monkeypatch.setattr("gptcore.cli.fitting.GPTTrainer.steps", lambda *_, **__: iter(()))
    monkeypatch.setattr("gptcore.cli.fitting.GPT", Broken)
    result = cli("train", "--corpus", text_file, *TINY, "--out", tmp_path / "m")
    assert_error(result, "测试损失是 nan", "没有保存")
    assert list(tmp_path.iterdir()) == []


def interrupted(folder: Path, *, saving: bool) -> str:
    """训练或保存的时候按下 Ctrl-C，返回说明。"""
    output = OutputFolder(folder)
    try:
        with output:
            if saving:
                output.save(GPT(2, 4, 4, 1, 1), CharTokenizer("ab"), {})
            raise KeyboardInterrupt
    except KeyboardInterrupt as error:
        return "".join(error.__notes__)


def test_an_interrupt_says_what_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "a" / "m"
    assert interrupted(out, saving=False) == "没有保存模型"
    assert not (tmp_path / "a").exists()
    with monkeypatch.context() as patch:
        patch.setattr("gptcore.cli.folders.save_model", lambda *_: None)
        assert "完整的模型，或者什么也没有" in interrupted(out, saving=True)
    assert not (tmp_path / "a").exists()
    interrupted(out, saving=True)  # 保存好了
    before = contents(out)
    assert interrupted(out, saving=False) == "没有保存模型，原来的模型没有改动"
    assert contents(out) == before
    assert "原来的模型，或者完整的新模型" in interrupted(out, saving=True)


def test_leftovers_of_an_interrupted_save_are_ours(
    cli: Cli, text_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "m"
    out.mkdir()
    (out / ".model.safetensors.0123456789abcdef.new").write_bytes(b"x")
    (out / ".manifest.json.0123456789abcdef.tmp").write_bytes(b"x")
    result = cli("train", "--corpus", text_file, *TINY, "--out", out)
    assert result.code == 0
    assert "已有一个模型" not in result.out


def test_the_manifest_of_another_program_is_kept(cli: Cli, text_file: Path, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "网页"}', encoding="utf-8")
    result = cli("train", "--corpus", text_file, *TINY, "--out", tmp_path)
    assert_error(result, "有别的文件", "--out")
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


@unix
@pytest.mark.parametrize(
    "command",
    [
        'cat "$0" | "$@" --corpus /dev/stdin',
        '"$@" --corpus <(cat "$0")',
        '"$@" --corpus /dev/stdin <"$0"',
    ],
)
def test_a_pipe_as_the_corpus(text_file: Path, tmp_path: Path, command: str) -> None:
    words = [sys.executable, "-m", "gptcore", "train", *TINY, "--out", str(tmp_path / "m")]
    result = subprocess.run(
        ["bash", "-c", command, str(text_file), *words],
        capture_output=True,
        check=False,
        env=clean_environment(),
        timeout=60,
    )
    assert (result.returncode, result.stderr) == (0, b"")
    assert (tmp_path / "m" / "model.safetensors").is_file()


@unix
def test_a_named_pipe_as_the_corpus(text_file: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "管道")
    args = ("--corpus", str(tmp_path / "管道"), "--out", str(tmp_path / "m"), *TINY)
    with subprocess.Popen(
        [sys.executable, "-m", "gptcore", "train", *args],
        stdout=subprocess.DEVNULL,
        env=clean_environment(),
    ) as child:
        (tmp_path / "管道").write_bytes(text_file.read_bytes())
        assert child.wait(60) == 0


COUNTS = ("context-size", "embedding-size", "heads", "blocks", "batch-size", "steps", "epochs")


@pytest.mark.parametrize("option", [*COUNTS, "warmup-steps", "threads", "seed"])
@pytest.mark.parametrize("zeros", [30, 400, 5000])
def test_numbers_that_are_too_large(cli: Cli, option: str, zeros: int) -> None:
    text = "1" + "0" * zeros
    result = cli("train", f"--{option}", text)
    assert_error(result, f"--{option} 得到 '1000", "必须是不大于 ", f"例如 --{option} ")
    assert len(result.err) < 200


@pytest.mark.parametrize("value", ["\uff11\uff10", "1_0", "1e3", "0x10", "", " 5"])
def test_only_ascii_digits_are_numbers(cli: Cli, value: str) -> None:
    assert_error(cli("train", "--steps", value), f"--steps 得到 {value!r}", "例如 --steps 1000")


@pytest.mark.parametrize("value", ["\uff11", "1_0.5", "", "1e400", "Infinity", "1" * 400])
def test_only_finite_ascii_numbers(cli: Cli, value: str) -> None:
    result = cli("train", "--lr", value)
    assert_error(result, "--lr 得到 '", "大于 0 的有限数", "例如 --lr 0.001")


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["--heads", "2", "--embedding-size", "999999999"], ["1、3、9", "2 的倍数"]),
        (["--embedding-size", "1000000"], ["个参数", "GiB", "上限 16 GiB", "--embedding-size"]),
        (["--blocks", "10000", "--embedding-size", "3000"], ["上限 16 GiB", "--blocks"]),
        (["--blocks", "100000000"], ["--blocks", "不大于 10000"]),
        (["--context-size", "40000"], ["GiB", "--context-size"]),
        (["--corpus", ""], ["--corpus 是空的", "stories"]),
        (["--out", ""], ["--out 是空的", "gptcore-model"]),
        (["--corpus", "很长" * 200], ["名字太长"]),
        (["--warmup-steps", "-1"], ["例如 --warmup-steps 100"]),
    ],
)
def test_settings_that_cannot_work(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], parts: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_error(cli("train", *args), *parts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["-"], ["没有命令 '-'", "demo、train"]),
        (["info", ""], ["文件夹 是空的"]),
        (["generate", "m", "--length", "-3"], ["例如 --max-tokens 256"]),
        (["generate", "m", "--temperature", "inf"], ["有限数", "例如 --temperature 0.8"]),
    ],
)
def test_other_mistakes(cli: Cli, args: list[str], parts: list[str]) -> None:
    assert_error(cli(*args), *parts)


@pytest.mark.parametrize("name", ["GPTCORE_CACHE", "GPTCORE_DATA"])
def test_a_home_that_does_not_exist(cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv("GPTCORE_DATA", raising=False)
    monkeypatch.setenv(name, "~没有这个用户/x")
    result = cli("train", "--corpus", "tinyshakespeare")
    assert_error(result, name, "~没有这个用户", "完整的路径")


def test_a_mirror_in_a_home_that_does_not_exist(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPTCORE_DATA", raising=False)
    monkeypatch.setenv("GPTCORE_CACHE", str(tmp_path))
    monkeypatch.setenv("GPTCORE_MIRROR", "~没有这个用户/x")
    monkeypatch.setattr("gptcore.data.corpora.SHAKESPEARE_ADDRESSES", ("file:///没有",))
    result = cli("train", "--corpus", "tinyshakespeare")
    assert_error(result, "GPTCORE_MIRROR", "~没有这个用户", "完整的路径")


def test_function_names_do_not_reach_the_user(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"")
    result = cli("train", "--corpus", tmp_path / "a.txt")
    assert result.err.startswith("错误：文件 ")


@pytest.mark.parametrize("command", ["info", "generate"])
def test_memory_advice_fits_the_command(
    cli: Cli, model_folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def refuse(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("gptcore.cli.models.load_model", refuse)
    result = cli(command, model_folder)
    assert_error(result, "内存不够", "关掉别的程序")
    assert "--batch-size" not in result.err
