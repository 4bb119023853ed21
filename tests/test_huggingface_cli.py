"""`gptcore export` 与 `gptcore import` 的实现：来回、不覆盖别的、按名字下载"""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hf_folders import CONFIG, draw_state, write_folder
from hf_server import Hub, running

from gptcore import GPT, CharTokenizer, DataError, load_model, load_pretrained, save_model
from gptcore.cli.folders import is_model_folder, read_record
from gptcore.cli.info import run_info
from gptcore.cli.terminal import Terminal, open_terminal
from gptcore.cli.transfer import run_export, run_import
from gptcore.cli.usage import UsageError
from gptcore.data.tokenizers import BPETokenizer
from gptcore.models.huggingface import remote

TEXT = "Hello, 你好 the cat sat on the mat\n"


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def terminal(out: io.StringIO) -> Terminal:
    return open_terminal(out)


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    tokenizer = CharTokenizer.from_text(TEXT)
    model = GPT(tokenizer.vocab_size, 9, 6, 3, 2, head_bias=False, dropout=0.1)
    return save_model(tmp_path / "我们的", model, tokenizer)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    tokenizer = BPETokenizer.train(TEXT * 9, 270, special_tokens=["<|endoftext|>"])
    model = GPT(270, 9, 6, 3, 2, head_bias=False, tied=True, init="gpt2")
    return model.save_pretrained(tmp_path / "theirs", tokenizer)


def same(one: GPT, other: GPT) -> None:
    for (name, p), q in zip(one.named_parameters(), other.parameters, strict=True):
        np.testing.assert_array_equal(p.data, q.data, err_msg=name)


def test_there_and_back(ours: Path, tmp_path: Path, terminal: Terminal, out: io.StringIO) -> None:
    run_export(ours, tmp_path / "hf", "hf", terminal)
    assert "AutoModelForCausalLM.from_pretrained" in out.getvalue()
    assert "分词器是字符的" in out.getvalue()
    model, tokenizer = load_model(ours)
    exported, again = load_pretrained(tmp_path / "hf")
    same(exported, model)
    assert again == tokenizer
    run_import(str(tmp_path / "hf"), tmp_path / "back", None, terminal)
    returned, again = load_model(tmp_path / "back")
    same(returned, model)
    assert returned.config == {**model.config, "init": "gpt2"}
    assert again == tokenizer


def test_import(theirs: Path, tmp_path: Path, terminal: Terminal, out: io.StringIO) -> None:
    run_import(str(theirs), tmp_path / "in", None, terminal)
    assert "读入" in out.getvalue()
    assert "gptcore generate" in out.getvalue()
    assert "--prompt Hello" in out.getvalue()
    model, tokenizer = load_model(tmp_path / "in")
    expected, theirs_tokenizer = load_pretrained(theirs)
    same(model, expected)
    assert model.config == expected.config
    assert tokenizer.encode(TEXT) == theirs_tokenizer.encode(TEXT)
    record = read_record(tmp_path / "in")
    assert record["settings"] == {"source": "theirs"}  # 不写完整的路径
    run_info(tmp_path / "in", terminal)
    assert "导入自" in out.getvalue()
    run_import(str(theirs), tmp_path / "in", None, terminal)  # 再来一次：替换


def test_export_replaces_only_exports(ours: Path, tmp_path: Path, terminal: Terminal) -> None:
    run_export(ours, tmp_path / "hf", "hf", terminal)
    run_export(ours, tmp_path / "hf", "hf", terminal)
    assert not is_model_folder(tmp_path / "hf")
    before = sorted(p.name for p in ours.iterdir())
    with pytest.raises(UsageError, match="gptcore 自己的模型文件夹，导出会换掉"):
        run_export(ours, ours, "hf", terminal)
    assert sorted(p.name for p in ours.iterdir()) == before
    load_model(ours)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").write_text("x", encoding="utf-8")
    with pytest.raises(UsageError, match="别的文件"):
        run_export(ours, tmp_path / "other", "hf", terminal)
    with pytest.raises(UsageError, match="--out"):
        run_export(ours, ours / "config.json", "hf", terminal)


def test_import_replaces_only_ours(
    theirs: Path, ours: Path, tmp_path: Path, terminal: Terminal
) -> None:
    run_import(str(theirs), ours, None, terminal)
    with pytest.raises(UsageError, match="Hugging Face 格式的模型文件夹，导入会换掉"):
        run_import(str(theirs), theirs, None, terminal)
    load_pretrained(theirs)
    with pytest.raises(UsageError, match="已经是 gptcore 的模型文件夹"):
        run_import(str(ours), tmp_path / "new", None, terminal)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("to", ["", "HF", "onnx"])
def test_unknown_format(ours: Path, tmp_path: Path, terminal: Terminal, to: str) -> None:
    with pytest.raises(UsageError, match=r"--to 得到 .*--to hf"):
        run_export(ours, tmp_path / "x", to, terminal)


def test_what_cannot_be_exported(tmp_path: Path, terminal: Terminal) -> None:
    tokenizer = CharTokenizer("abc")
    biased = save_model(tmp_path / "a", GPT(3, 9, 6, 3, 2), tokenizer)
    with pytest.raises(UsageError, match="输出头有偏置（head_bias）"):
        run_export(biased, tmp_path / "x", "hf", terminal)
    other = save_model(
        tmp_path / "b", GPT(3, 9, 6, 3, 2, head_bias=False, norm="RMSNorm"), tokenizer
    )
    with pytest.raises(DataError, match="norm='RMSNorm'"):
        run_export(other, tmp_path / "x", "hf", terminal)
    assert not (tmp_path / "x").exists()


def test_what_cannot_be_imported(theirs: Path, tmp_path: Path, terminal: Terminal) -> None:
    target = tmp_path / "x"
    for source in ("./none", "/none/at/all", "a/b/c", "C:\\x"):
        with pytest.raises(UsageError):
            run_import(source, target, None, terminal)
    with pytest.raises(DataError, match="没有分词器"):
        run_import(str(write_folder(tmp_path / "bare")), target, None, terminal)
    padded = GPT(300, 9, 6, 3, 2, head_bias=False)
    padded.save_pretrained(tmp_path / "padded", load_pretrained(theirs)[1])
    with pytest.raises(UsageError, match=r"分词器有 270 个词元，模型有 300 个.*load_pretrained"):
        run_import(str(tmp_path / "padded"), target, None, terminal)
    rates = {**CONFIG, "attn_pdrop": 0.5}
    with pytest.raises(DataError, match=r"attn_pdrop=0\.5.*--dropout 0"):
        run_import(str(write_folder(tmp_path / "r", rates, draw_state())), target, None, terminal)
    assert not target.exists()


def test_dropout_can_be_given(theirs: Path, tmp_path: Path, terminal: Terminal) -> None:
    config = json.loads((theirs / "config.json").read_text(encoding="utf-8"))
    text = json.dumps({**config, "attn_pdrop": 0.5})
    (theirs / "config.json").write_text(text, encoding="utf-8")
    run_import(str(theirs), tmp_path / "in", 0.25, terminal)
    assert load_model(tmp_path / "in")[0].config["dropout"] == 0.25


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("GPTCORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(remote, "WAIT", 0.01)
    with running() as site:
        monkeypatch.setenv("GPTCORE_HF_ENDPOINT", site.url)
        yield site


@pytest.mark.parametrize("live", [False, True])
def test_import_by_name(
    hub: Hub, theirs: Path, tmp_path: Path, terminal: Terminal, out: io.StringIO, live: bool
) -> None:
    hub.add("someone/gpt2", theirs)
    terminal.live = live
    run_import("someone/gpt2", tmp_path / "in", None, terminal)
    assert "按名字从网上下载" in out.getvalue()
    assert "model.safetensors" in out.getvalue()
    same(load_model(tmp_path / "in")[0], load_pretrained(theirs)[0])
    assert read_record(tmp_path / "in")["settings"] == {"source": "someone/gpt2"}


def test_import_by_a_wrong_name(hub: Hub, tmp_path: Path, terminal: Terminal) -> None:
    with pytest.raises(DataError, match="上没有它"):
        run_import("gpt22", tmp_path / "in", None, terminal)
    assert not (tmp_path / "in").exists()


def test_an_interrupted_import_says_so(
    theirs: Path, tmp_path: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gptcore.cli.transfer.load_pretrained", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        run_import(str(theirs), tmp_path / "in", None, terminal)
    assert caught.value.__notes__ == ["没有保存模型"]
    assert not (tmp_path / "in").exists()
