"""`gptcore eval`：与训练结束时的数相同，各种文件夹，别的文本；`plot`、`doctor` 与 `info` 接上了"""

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli.running import TINY, Outcome
from cli.test_errors import assert_error

from gptcore import GPTLoss, Tensor, load_model, no_grad, save_model
from gptcore.cli.app import run

Cli = Callable[..., Outcome]
ARGS = (*TINY[:-1], "12", "--eval-every", "4", "--save-every", "4", "--keep", "2")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, text_file: Path) -> Path:
    out = tmp_path_factory.mktemp("run") / "m"
    assert run(["train", "--corpus", str(text_file), "--out", str(out), *ARGS]) == 0
    return out


def numbers(out: str) -> list[str]:
    """损失、困惑度，每词元、每字符、每字节的比特数。"""
    return re.findall(r"^\S* +(\d+\.\d{4}) ", out, re.MULTILINE)


def test_eval_gives_the_same_figures_as_training(cli: Cli, text_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    trained = cli("train", "--corpus", text_file, "--out", out, *ARGS)
    result = cli("eval", out)
    assert (result.code, result.err) == (0, "")
    loss, perplexity, per_token, per_character, per_byte = numbers(result.out)
    assert f"测试损失 {loss} 奈特/字符" in trained.out
    assert f"困惑度 {perplexity}；{per_character} 比特/字符" in trained.out
    record = json.loads((out / "training.json").read_text(encoding="utf-8"))
    exact = record["result"]["test_loss"]
    from gptcore.cli.evaluate import run_eval
    from gptcore.cli.terminal import open_terminal

    assert run_eval(out, None, None, open_terminal()).loss == exact  # 一位不差
    assert per_token == f"{exact / math.log(2):.4f}" == per_character
    assert float(per_byte) < float(per_character)
    for part in ("−ln p", "均匀地猜", "除以 ln 2", "除以字符数", "UTF-8 字节数"):
        assert part in result.out


def test_the_figures_are_what_they_say(cli: Cli, text_file: Path, trained: Path) -> None:
    """从头算一遍：后一成的文本切成互不重叠的窗口，每个字符恰好预测一次。"""
    model, tokenizer = load_model(trained)
    text = text_file.read_text(encoding="utf-8")
    tokens = tokenizer.encode_array(text)
    test = tokens[int(len(tokens) * 0.9) :]
    total = 0.0
    with no_grad(), model.evaluating():
        for i in range(0, len(test) - 1, model.context_size):
            window = test[None, i : i + model.context_size + 1]
            loss = GPTLoss()(model(Tensor(window[:, :-1])), Tensor(window[:, 1:]))
            total += float(loss) * (window.shape[1] - 1)
    loss = total / (len(test) - 1)
    size = len(tokenizer.decode(test[1:]).encode())
    expected = [loss, math.exp(loss), *[total / math.log(2) / n for n in (len(test) - 1,) * 2]]
    found = [float(x) for x in numbers(cli("eval", trained).out)]
    np.testing.assert_allclose(found, [*expected, total / math.log(2) / size], atol=6e-5)


def test_checkpoints_can_be_evaluated(cli: Cli, trained: Path, tmp_path: Path) -> None:
    last = trained / "checkpoints" / "step-00000012"
    for command in ("eval", "info"):
        for folder in (last, trained / "checkpoints" / "best"):
            assert cli(command, folder).code == 0
    assert numbers(cli("eval", last).out) == numbers(cli("eval", trained).out)
    early = numbers(cli("eval", trained / "checkpoints" / "step-00000008").out)
    assert early[0] > numbers(cli("eval", trained).out)[0]
    alone = tmp_path / "搬走的"
    shutil.copytree(last, alone)
    assert_error(cli("eval", alone), "没有语料的记录", "--corpus")


def test_an_unfinished_run_uses_its_newest_checkpoint(
    cli: Cli, trained: Path, tmp_path: Path
) -> None:
    out = tmp_path / "m"
    shutil.copytree(trained, out)
    (out / "manifest.json").unlink()
    last = out / "checkpoints" / "step-00000012"
    result = cli("eval", out)
    assert f"模型 {last}" in result.out
    assert numbers(result.out) == numbers(cli("eval", trained).out)
    told = cli("generate", out, "--prompt", "春", "--length", "3")
    assert (told.code, told.out[0], len(told.out)) == (0, "春", 5)
    assert told.err == f"提醒：{out} 里的训练还没有做完，用的是最新的检查点 {last}\n"
    assert "还没有做完，这是最新的检查点" in cli("info", out).out


def test_other_texts_are_evaluated_whole(
    cli: Cli, trained: Path, text_file: Path, tmp_path: Path
) -> None:
    own = cli("eval", trained, "--corpus", text_file)
    assert numbers(own.out) == numbers(cli("eval", trained).out)
    other = tmp_path / "诗.txt"
    other.write_text("春眠不觉晓\n处处闻啼鸟\n", encoding="utf-8")
    result = cli("eval", trained, "--corpus", other)
    assert result.code == 0
    assert f"{other} 的全文，12 个字符" in result.out
    assert numbers(result.out) != numbers(own.out)
    other.write_text("春天的龙", encoding="utf-8")
    assert_error(cli("eval", trained, "--corpus", other), "不认识的字符", "'天'（U+5929）")
    other.write_text("春", encoding="utf-8")
    assert_error(cli("eval", trained, "--corpus", other), "只有 1 个词元", "长一些")


def test_a_corpus_that_is_gone_or_changed(
    cli: Cli, trained: Path, text_file: Path, tmp_path: Path
) -> None:
    corpus, out = tmp_path / "a.txt", tmp_path / "m"
    shutil.copy(text_file, corpus)
    assert cli("train", "--corpus", corpus, "--out", out, *ARGS).code == 0
    corpus.write_text("春眠不觉晓，" * 200, encoding="utf-8")
    for folder in (out, out / "checkpoints" / "best"):
        assert_error(
            cli("eval", folder),
            str(corpus),
            "在训练之后变了（原来 ",
            "现在 1,200 个字符）",
            "--corpus",
        )
    corpus.unlink()
    assert_error(cli("eval", out), f"{corpus} 不在了", "--corpus")


def test_models_without_a_record(cli: Cli, trained: Path, tmp_path: Path, text_file: Path) -> None:
    save_model(tmp_path / "m", *load_model(trained))
    assert_error(cli("eval", tmp_path / "m"), "没有语料的记录", "--corpus")
    save_model(
        tmp_path / "old", *load_model(trained), {"training.json": {"settings": {"corpus": "诗"}}}
    )
    assert_error(cli("eval", tmp_path / "old"), "训练用的是 诗", "--corpus")
    assert "的全文" in cli("eval", tmp_path / "m", "--corpus", text_file).out


def test_weights_that_are_not_finite(
    cli: Cli, trained: Path, tmp_path: Path, text_file: Path
) -> None:
    model, tokenizer = load_model(trained)
    model.output.linear.weight.data[...] = np.nan
    save_model(tmp_path / "m", model, tokenizer)
    assert_error(cli("eval", tmp_path / "m", "--corpus", text_file), "NaN", "换一个检查点")


def test_the_demo_can_be_evaluated(cli: Cli, tmp_path: Path) -> None:
    import io

    from rich.console import Console

    from gptcore.cli.demo import DemoSettings, run_demo
    from gptcore.cli.terminal import Terminal

    small = DemoSettings(
        context_size=8,
        embedding_size=8,
        heads=2,
        blocks=1,
        steps=4,
        held_out=500,
        samples=(5, 6, 9),
    )
    run_demo(tmp_path / "m", Terminal(Console(file=io.StringIO(), width=80)), small)
    result = cli("eval", tmp_path / "m")
    assert (result.code, result.err) == (0, "")
    assert "stories 的测试部分" in result.out


# ---------------------------------------------------------------- info、plot、doctor


def test_info_of_a_run(cli: Cli, trained: Path) -> None:
    out = cli("info", trained).out
    words = " ".join(out.split())
    for part in ("做完的步数 12 / 12", "评估的次数 3", "step-00000008 ", "学习率调度 cosine"):
        assert part in words
    assert re.search(r"最低的一次 第 \d+ 步，\d\.\d{4}", words)
    words = " ".join(cli("info", trained / "checkpoints" / "step-00000008").out.split())
    assert "做完的步数 8 / 12" in words
    assert "training_state.json" in words
    assert "step-00000012" not in words


def test_plot(cli: Cli, trained: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="没有安装 matplotlib")
    picture = tmp_path / "图.svg"
    result = cli("plot", trained, "--out", picture)
    assert (result.code, result.err) == (0, "")
    assert picture.read_bytes().lstrip().startswith(b"<?xml")
    assert_error(cli("plot", trained, "--out", tmp_path / "a.pdf"), ".png 或 .svg")
    assert_error(cli("plot", tmp_path), "metrics.jsonl")


@pytest.mark.parametrize("code", [0, 1])
def test_doctor_returns_its_verdict(cli: Cli, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr("gptcore.cli.doctor.run_doctor", lambda _: code)
    assert cli("doctor").code == code
