"""各命令：训练 → 查看 → 生成，演示，帮助"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli.running import TINY, Outcome, process
from rich.cells import cell_len
from rich.console import Console

from gptcore.cli import scoring
from gptcore.cli.app import COMMANDS
from gptcore.cli.demo import BIGRAM, FLOOR, MODEL, UNIFORM, UNIGRAM, DemoSettings, run_demo
from gptcore.cli.terminal import Terminal
from gptcore.data.stories import entropy_rate
from gptcore.models import GPT, load_model, save_model
from gptcore.tensor import Tensor, no_grad

Cli = Callable[..., Outcome]
ENGLISH = re.compile(
    r"\b(usage|options?|arguments?|commands?|default|required|show this|exit)\b", re.IGNORECASE
)


def test_train_info_generate(cli: Cli, text_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "我的 模型"
    result = cli("train", "--corpus", text_file, "--out", out, *TINY, "--seed", "7")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    steps = [line for line in lines if line.startswith("步 ")]
    assert [line.split("  ")[0] for line in steps] == [f"步 {i}/5" for i in range(1, 6)]
    assert all(re.search(r"损失 \d.*学习率 .*字符/秒  剩余 \d", line) for line in steps)
    assert any(line.startswith("测试损失 ") for line in lines)
    assert lines[-1] == f"  gptcore generate '{out}' --prompt 春眠"
    assert "\x1b" not in result.out
    assert "\r" not in result.out

    record = json.loads((out / "training.json").read_text(encoding="utf-8"))
    assert record["settings"]["seed"] == 7
    assert record["settings"]["threads"] == 1
    assert record["result"]["steps"] == 5
    model, _ = load_model(out)
    assert model.config["head_bias"] is False

    shown = cli("info", out)
    assert shown.code == 0
    for part in (
        "上下文尺寸",
        f"{model.num_parameters:,}",
        "KiB",
        "BLAS 线程数",
        "测试损失（奈特/字符）",
    ):
        assert part in shown.out

    first, again, other = (
        cli("generate", out, "--prompt", "春", "--length", 30, "--seed", s) for s in (1, 1, 2)
    )
    assert first.code == 0
    assert len(first.out) == 32
    assert first.out.startswith("春")
    assert first.out.endswith("\n")
    assert first.out == again.out != other.out
    greedy = [
        cli("generate", out, "--steps", 9, "--temperature", 0, "--seed", s).out for s in (1, 2)
    ]
    assert greedy[0] == greedy[1]
    assert cli("generate", out, "--steps", 9, "--temperature", "1e-320").out == greedy[0]
    assert cli("generate", out, "--prompt", "春", "--length", 0).out == "春\n"


def test_same_seed_same_model(cli: Cli, text_file: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        cli("train", "--corpus", text_file, "--out", tmp_path / name, *TINY, "--seed", seed)
    a, b, c = ((tmp_path / n / "model.safetensors").read_bytes() for n in "abc")
    assert a == b != c


def test_training_replaces_a_model_that_has_no_checkpoints(
    cli: Cli, text_file: Path, model_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "m"
    save_model(out, *load_model(model_folder))
    result = cli("train", "--corpus", text_file, "--out", out, *TINY)
    assert (result.code, result.err) == (0, "")
    assert "已有一个模型，训练完会替换它" in result.out


def test_default_is_two_epochs(cli: Cli, text_file: Path, tmp_path: Path) -> None:
    small = TINY[: TINY.index("--steps")]
    args = ("train", "--corpus", text_file, "--batch-size", 50, *small)
    two = cli(*args, "--out", tmp_path / "a")
    one = cli(*args, "--out", tmp_path / "b", "--epochs", 1)
    steps = [int(re.findall(r"步 \d+/(\d+)", r.out)[0]) for r in (two, one)]
    assert steps[0] == 2 * steps[1] > 0


def test_demo_with_small_settings(tmp_path: Path) -> None:
    settings = DemoSettings(
        context_size=8,
        embedding_size=8,
        heads=2,
        blocks=1,
        steps=8,
        held_out=2000,
        samples=(11, 12, 40),
    )
    with (tmp_path / "输出.txt").open("w+", encoding="utf-8") as file:
        result = run_demo(tmp_path / "m", Terminal(Console(file=file, width=80)), settings)
        file.seek(0)
        out = file.read()
    assert list(result.losses) == [UNIFORM, UNIGRAM, BIGRAM, MODEL, FLOOR]
    uniform, unigram, bigram, model, floor = result.losses.values()
    assert uniform > unigram > bigram > floor
    assert model > floor
    assert abs(floor - entropy_rate()) < 0.03
    assert result.gap == model - floor
    for title in ("训练之前写的", "练了 4 步写的", "练完 8 步写的"):
        assert title in out
    for part in (MODEL, FLOOR, f"{floor:.3f}", "文法写得出的句子：", "BLAS 线程数 1"):
        assert part in out
    assert f"gptcore generate {tmp_path / 'm'} --prompt " in out.replace("\n", "")
    assert "已有一个模型" not in out
    assert load_model(tmp_path / "m")[0].context_size == 8
    with (tmp_path / "输出.txt").open("w+", encoding="utf-8") as file:
        run_demo(tmp_path / "m", Terminal(Console(file=file, width=80)), settings)
        file.seek(0)
        assert "已有一个模型，训练完会替换它" in file.read()


def test_held_out_loss_scores_each_token_once_with_half_a_context() -> None:
    model = GPT(11, 8, 8, 2, 1, head_bias=False, rng=np.random.default_rng(0)).astype(np.float64)
    for length in (2, 5, 9, 10, 13, 30, 31):
        ids = np.random.default_rng(length).integers(0, 11, length)
        expected = []
        for t in range(1, length):
            # 第 t 个词元由前文的最后一个窗口预测：窗口的起点是 4 的倍数，或者贴着结尾
            start = min(max(0, -(-(t - 8) // 4) * 4), max(0, length - 1 - 8))
            assert t - start >= min(t, 4)
            with no_grad():
                scores = model(Tensor(ids[None, start:t])).data[0, -1]
            expected.append(np.log(np.exp(scores).sum()) - scores[ids[t]])
        assert scoring.held_out_loss(model, ids, 3) == pytest.approx(np.mean(expected), rel=1e-9)


def test_baselines_are_distributions() -> None:
    train = np.array([0, 1, 0, 1, 2, 0, 1])
    for a in range(4):
        total = sum(np.exp(-scoring.bigram_loss(train, np.array([a, b]), 4)) for b in range(4))
        assert total == pytest.approx(1)
    total = sum(np.exp(-scoring.unigram_loss(train, np.array([0, b]), 4)) for b in range(4))
    assert total == pytest.approx(1)
    assert scoring.uniform_loss(4) == pytest.approx(np.log(4))


@pytest.mark.parametrize("args", [[], ["-h"], ["--help"]])
def test_help(cli: Cli, args: list[str]) -> None:
    result = cli(*args)
    assert result.code == 0
    assert result.err == ""
    for part in ("用法：gptcore 命令", *COMMANDS, "显示帮助并退出"):
        assert part in result.out
    assert not ENGLISH.search(result.out.replace("--help", ""))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("columns", [40, 80, 120])
def test_help_of_a_command(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    result = cli(command, "--help")
    assert result.code == 0
    assert result.out.startswith(f"用法：gptcore {command}")
    assert not ENGLISH.search(result.out.replace("--help", ""))
    assert max(cell_len(line) for line in result.out.splitlines()) <= columns
    assert not [line for line in result.out.splitlines() if line != line.rstrip()]


def test_help_names_every_option_and_default(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    text = " ".join(cli("train", "--help").out.split())
    for option, default in {
        "--corpus": "stories",
        "--context-size": "32",
        "--embedding-size": "64",
        "--heads": "2",
        "--blocks": "2",
        "--batch-size": "4",
        "--lr": "0.001",
        "--warmup-steps": "100",
        "--weight-decay": "0.01",
        "--dropout": "0",
        "--norm": "layer",
        "--init": "he",
        "--accumulate": "1",
        "--schedule": "cosine",
        "--beta2": "0.999",
        "--clip": "1",
        "--skip-nonfinite": "0",
        "--seed": "42",
        "--threads": "1",
        "--eval-every": "500",
        "--save-every": "500",
        "--keep": "3",
        "--out": "gptcore-model",
    }.items():
        described = text.split(option + " ", 1)[1].split(" --", 1)[0]
        assert f"默认 {default}）" in described
    for option in ("--min-lr", "--steps", "--epochs", "--patience", "--resume", "--restart"):
        assert option + " " in text
    for flag in ("--post-norm", "--tied", "--no-bias"):
        assert flag + " " in text
    assert "--shuffle, --no-shuffle 每一轮打乱窗口的次序（默认打乱）" in text


def test_help_without_docstrings() -> None:
    result = process("-h", env={"PYTHONOPTIMIZE": "2"})
    assert result.code == 0
    for part in ("用 NumPy 从零写成的 GPT", "演示：", "训练：", "生成：", "查看："):
        assert part in result.out


def test_version(cli: Cli) -> None:
    assert re.fullmatch(r"gptcore \d+\.\d+\.\d+\S*\n", cli("--version").out)
