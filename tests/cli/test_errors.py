"""用户的错误：一行中文，说出值和办法，退出码 2，没有 Traceback"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.running import TINY, Outcome, process

from gptcore import load_model, save_model

Cli = Callable[..., Outcome]


def assert_error(result: Outcome, *parts: str) -> None:
    """退出码 2，标准错误上恰好一行，含有各个部分。"""
    assert result.code == 2
    assert result.err.startswith("错误：")
    assert result.err.count("\n") == 1
    assert result.err.endswith("\n")
    assert "Traceback" not in result.out + result.err
    for part in parts:
        assert part in result.err


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (
            ["trian"],
            [
                "'trian'",
                "你要的是不是 train",
                "demo、train、generate、eval、info、plot、tokenize、export、import、doctor",
            ],
        ),
        (["--foo"], ["--foo", "gptcore --help"]),
        (["train", "--step", "3"], ["--step，", "你要的是不是 --steps", "gptcore train --help"]),
        (["train", "--steps"], ["--steps", "后面要写一个值", "gptcore train --help"]),
        (["train", "x"], ["多出了 'x'", "--corpus x", "加引号"]),
        (["generate"], ["缺少参数 文件夹", "gptcore generate --help"]),
        (["generate", "a", "b"], ["多出了 'b'"]),
        (["demo", "--help=3"], ["--help", "后面不能写值"]),
        (["train", "--steps", "0"], ["--steps", "'0'", "不小于 1 的整数"]),
        (["train", "--steps", "1.5"], ["--steps", "'1.5'", "整数"]),
        (["train", "--epochs", "two"], ["--epochs", "'two'", "例如 --epochs 2"]),
        (["train", "--batch-size", "-4"], ["--batch-size", "'-4'"]),
        (["train", "--seed", "-1"], ["--seed", "'-1'", "不小于 0"]),
        (["train", "--threads", "0"], ["--threads", "'0'"]),
        (["train", "--lr", "0"], ["--lr", "'0'", "大于 0", "例如 --lr 0.001"]),
        (["train", "--lr", "nan"], ["--lr", "'nan'"]),
        (["train", "--lr", "inf"], ["--lr", "'inf'"]),
        (["train", "--weight-decay", "-0.1"], ["--weight-decay", "'-0.1'", "不小于 0"]),
        (["train", "--min-lr", "1"], ["--min-lr 1", "--lr 0.001", "减小 --min-lr"]),
        (["train", "--steps", "1", "--epochs", "1"], ["--steps", "--epochs", "只能给一个"]),
        (["train", "--heads", "3"], ["--heads 3", "--embedding-size 64", "1、2、4、8、16"]),
        (["train", "--corpus", "storis"], ["'storis'", "你要的是不是 stories", "tinyshakespeare"]),
        (["train", "--corpus", "没有.txt"], ["'没有.txt'", "stories、tinyshakespeare"]),
        (["generate", "没有"], ["没有文件夹 没有", "gptcore train"]),
        (["info", "没有"], ["没有文件夹 没有", "gptcore demo"]),
        (["generate", ".", "--temperature", "-1"], ["--temperature", "'-1'"]),
        (["generate", ".", "--length", "-1"], ["--max-tokens（--length）得到 '-1'"]),
    ],
)
def test_command_line_mistakes(cli: Cli, args: list[str], parts: list[str]) -> None:
    assert_error(cli(*args), *parts)


def test_errors_in_a_real_process() -> None:
    result = process("train", "--heads", "3", python=("-X", "dev"))
    assert_error(result, "--heads 3")
    assert result.out == ""


def test_corpus_is_a_folder(cli: Cli, tmp_path: Path) -> None:
    assert_error(cli("train", "--corpus", tmp_path), repr(str(tmp_path)), "是文件夹", "文本文件")


def test_corpus_is_empty(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "空.txt"
    path.write_bytes(b"")
    assert_error(cli("train", "--corpus", path), str(path), "是空的", "有内容的文件")


def test_corpus_is_not_utf8(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("春眠不觉晓，处处闻啼鸟。".encode("gbk"))
    assert_error(cli("train", "--corpus", path), "GBK", "转换成 UTF-8")


def test_corpus_is_shorter_than_a_window(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "短.txt"
    path.write_bytes(b"abcdefghij" * 10)
    result = cli("train", "--corpus", path, "--context-size", "32")
    assert_error(result, "100 个字符", "测试部分 10 个", "要 33 个", "减小 --context-size")
    assert not (tmp_path / "gptcore-model").exists()


def test_batch_is_larger_than_the_training_part(cli: Cli, text_file: Path, tmp_path: Path) -> None:
    result = cli("train", "--corpus", text_file, "--batch-size", "9999", "--out", tmp_path / "m")
    assert_error(result, "--batch-size 9999", "窗口数", "减到")


def test_out_is_a_file(cli: Cli, text_file: Path) -> None:
    result = cli("train", "--corpus", text_file, "--out", text_file)
    assert_error(result, "--out", text_file.name, "是一个文件", "换一个")


def test_out_below_a_file(cli: Cli, text_file: Path) -> None:
    result = cli("train", "--corpus", text_file, "--out", text_file / "m")
    assert_error(result, "不能写入", "换一个可写的位置")


@pytest.mark.parametrize("command", ["demo", "train"])
def test_out_holds_something_else(cli: Cli, tmp_path: Path, command: str) -> None:
    (tmp_path / "config.json").write_text('{"name": "别人的"}', encoding="utf-8")
    (tmp_path / "照片.jpg").write_bytes(b"x")
    assert_error(cli(command, "--out", tmp_path), str(tmp_path), "不会覆盖", "--out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "照片.jpg"]


@pytest.mark.skipif(os.name == "nt", reason="Windows 的文件夹权限不同")
def test_out_is_not_writable(cli: Cli, text_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    # 以管理员身份运行时权限位不起作用，所以直接让写入失败
    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    folder = text_file.parent / "不可写"
    result = cli("train", "--corpus", text_file, "--out", folder)
    assert_error(result, "--out", str(folder), "没有权限", "可写的位置")


def test_loss_becomes_nan(cli: Cli, text_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    result = cli(
        *("train", "--corpus", text_file, "--out", out, *TINY[:-1], "50"),
        *("--lr", "1e30", "--warmup-steps", "0"),
    )
    assert_error(
        result,
        *(
            "第 1 步（从 0 数起）损失是 nan",
            "的输出（形状 (4, 8, 24)）里有 NaN",
            "学习率是 9.99e+29",
        ),
        *("没有检查点", "选项是 --lr"),
    )
    assert sorted(path.name for path in out.iterdir()) == ["metrics.jsonl", "run.json"]
    assert cli("train", "--corpus", text_file, "--out", out, *TINY).code == 0


def test_not_enough_memory(
    cli: Cli, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("gptcore.cli.fitting.GPT", refuse)
    result = cli("train", "--corpus", text_file, "--out", tmp_path / "m")
    assert_error(result, "内存不够", "--embedding-size", "--batch-size")


def test_disk_is_full(
    cli: Cli, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("gptcore.cli.folders.save_model", refuse)
    result = cli("train", "--corpus", text_file, "--out", tmp_path / "m", *TINY)
    assert_error(result, str(tmp_path / "m"), "磁盘满了", "磁盘空间")


def test_prompt_with_unknown_characters(cli: Cli, model_folder: Path) -> None:
    result = cli("generate", model_folder, "--prompt", "春龙")
    assert_error(result, "--prompt '春龙'", "位置 1", "'龙'（U+9F99）", "删去或替换")


def test_empty_prompt(cli: Cli, model_folder: Path) -> None:
    assert_error(cli("generate", model_folder, "--prompt", ""), "--prompt 是空的", "至少给一个字符")


@pytest.mark.parametrize("command", ["generate", "info"])
def test_not_a_model_folder(cli: Cli, tmp_path: Path, command: str) -> None:
    assert_error(cli(command, tmp_path), str(tmp_path), "没有 manifest.json", "gptcore train")


def test_a_file_instead_of_a_model_folder(cli: Cli, text_file: Path) -> None:
    assert_error(cli("info", text_file), text_file.name, "文件夹")


def damage(folder: Path, name: str, change: object) -> None:
    path = folder / name
    if isinstance(change, dict):
        content = json.loads(path.read_text(encoding="utf-8"))
        content = {**content, **change}
        path.write_text(json.dumps(content), encoding="utf-8")
    elif change is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: int(str(change))])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("model.safetensors", None),
        ("model.safetensors", 0),
        ("model.safetensors", 7),
        ("model.safetensors", 500),
        ("tokenizer.json", None),
        ("tokenizer.json", 10),
        ("tokenizer.json", {"vocab": "ab"}),
        ("tokenizer.json", {"vocab": 3}),
        ("tokenizer.json", {"type": "other"}),
        ("config.json", 10),
        ("config.json", {"version": 99}),
        ("config.json", {"model": None}),
        ("config.json", {"model": {}}),
        ("config.json", {"model": {"vocab_size": "x"}}),
        ("config.json", {"format": "别的"}),
        (
            "config.json",
            {
                "model": dict.fromkeys(
                    ["vocab_size", "context_size", "embedding_size", "heads", "blocks"], -3
                )
            },
        ),
        (
            "config.json",
            {
                "model": dict.fromkeys(
                    ["vocab_size", "context_size", "embedding_size", "heads", "blocks"], 1
                )
            },
        ),
    ],
)
@pytest.mark.parametrize("command", ["generate", "info"])
def test_damaged_files(
    cli: Cli, model_folder: Path, tmp_path: Path, command: str, name: str, change: object
) -> None:
    folder = tmp_path / "坏"
    shutil.copytree(model_folder, folder)
    damage(folder, name, change)
    assert_error(cli(command, folder))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite(
    cli: Cli, model_folder: Path, tmp_path: Path, value: float
) -> None:
    model, tokenizer = load_model(model_folder)
    model.output.linear.weight.data[...] = value
    save_model(tmp_path / "m", model, tokenizer)
    result = cli("generate", tmp_path / "m", "--length", "3")
    assert_error(result, "NaN")


def test_info_without_a_training_record(cli: Cli, model_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    shutil.copytree(model_folder, folder)
    for content in (b"{", b"[]", b'{"settings": 3}'):
        (folder / "training.json").write_bytes(content)
        result = cli("info", folder)
        assert result.code == 0
        assert "词表大小" in result.out
