"""`gptcore export` 与 `gptcore import` 接上了；来回之后写的一样。实现的测试在 test_huggingface_cli"""

from collections.abc import Callable
from pathlib import Path

import pytest
from cli.running import TINY, Outcome, process
from cli.test_errors import assert_error

from gptcore import load_model

Cli = Callable[..., Outcome]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, text_file: Path) -> Path:
    """GPT-2 的结构，自己的 BPE。"""
    out = tmp_path_factory.mktemp("训练") / "m"
    options = ("--tokenizer", "bpe", "--vocab-size", "280", "--tied", "--init", "gpt2")
    assert process("train", "--corpus", text_file, *options, "--out", out, *TINY).code == 0
    return out


def test_there_and_back(cli: Cli, trained: Path, tmp_path: Path) -> None:
    exported = process("export", trained, "--to", "hf", "--out", tmp_path / "hf")
    assert (exported.code, exported.err) == (0, "")
    assert f"AutoTokenizer.from_pretrained({str(tmp_path / 'hf')!r})" in exported.out
    imported = process("import", tmp_path / "hf", "--dropout", "0.25", "--out", tmp_path / "back")
    assert (imported.code, imported.err) == (0, "")
    assert f"gptcore generate {tmp_path / 'back'}" in imported.out
    args = ("--prompt", "春眠", "--max-tokens", "40", "--seed", "1", "--top-p", "0.9")
    written = [cli("generate", folder, *args) for folder in (trained, tmp_path / "hf")]
    written.append(cli("generate", tmp_path / "back", *args))
    assert [result.err for result in written] == [""] * 3
    assert len({result.out for result in written}) == 1
    model, tokenizer = load_model(tmp_path / "back")
    assert model.config["dropout"] == 0.25
    assert tokenizer == load_model(trained)[1]
    assert "导入自" in cli("info", tmp_path / "back").out


def test_default_folders(
    cli: Cli, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("export", trained).code == 0
    assert cli("import", "gptcore-hf").code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"gptcore-hf", "gptcore-model"}


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["export"], ["缺少参数 文件夹"]),
        (["import"], ["缺少参数 来源"]),
        (["export", "没有"], ["没有文件夹 没有"]),
        (["export", "没有", "--to", "onnx"], ["--to 得到 'onnx'", "例如 --to hf"]),
        (["import", "./没有"], ["没有文件夹", "例如 gpt2"]),
        (["import", "gpt2", "--dropout", "1"], ["--dropout 得到 '1'", "小于 1"]),
        (["import", "gpt2", "--out", ""], ["--out 是空的"]),
    ],
)
def test_mistakes(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], parts: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_error(cli(*args), *parts)
    assert list(tmp_path.iterdir()) == []


def test_an_exported_character_tokenizer_can_be_used_again(
    cli: Cli, model_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    assert cli("export", model_folder, "--out", tmp_path / "hf").code == 0
    for i, path in enumerate(("hf", "hf/tokenizer.json")):
        args = ("--corpus", text_file, "--tokenizer", tmp_path / path, *TINY)
        assert cli("train", *args, "--out", tmp_path / f"m{i}").code == 0
        assert load_model(tmp_path / f"m{i}")[1] == load_model(model_folder)[1]


def test_structures_that_are_not_gpt2s(cli: Cli, text_file: Path, tmp_path: Path) -> None:
    args = ("train", "--corpus", text_file, "--norm", "rms", "--out", tmp_path / "m", *TINY)
    assert cli(*args).code == 0
    result = cli("export", tmp_path / "m", "--out", tmp_path / "hf")
    assert_error(result, "RMSNorm")
    assert not (tmp_path / "hf").exists()
