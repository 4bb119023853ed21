"""一次训练的文件夹：什么时候可以从头、可以接着训练，什么时候说不；设置真的到了训练器"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.running import Outcome
from cli.test_errors import assert_error

from gptcore.errors import DataError

Cli = Callable[..., Outcome]
SIZE = ("--context-size", "8", "--embedding-size", "8", "--heads", "2", "--blocks", "1")
TWENTY = (*SIZE, "--steps", "20", "--save-every", "5", "--eval-every", "5", "--keep", "2")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, text_file: Path) -> Path:
    """做完的一次训练。"""
    from gptcore.cli.app import run

    out = tmp_path_factory.mktemp("run") / "m"
    assert run(["train", "--corpus", str(text_file), "--out", str(out), *TWENTY]) == 0
    return out


@pytest.fixture
def unfinished(finished: Path, tmp_path: Path) -> Path:
    """只做到第 15 步的同一次训练。"""
    out = tmp_path / "m"
    shutil.copytree(finished, out)
    shutil.rmtree(out / "checkpoints" / "step-00000020")
    for name in ("model.safetensors", "config.json", "tokenizer.json", "manifest.json"):
        (out / name).unlink()
    (out / "training.json").unlink()
    return out


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_layout(finished: Path) -> None:
    names = {
        str(p.relative_to(finished)) for p in finished.rglob("*") if p.suffix != ".safetensors"
    }
    assert {n for n in names if "/" not in n} == {
        *("checkpoints", "config.json", "manifest.json", "metrics.jsonl"),
        *("run.json", "tokenizer.json", "training.json"),
    }
    assert {p.name for p in (finished / "checkpoints").iterdir()} == {
        *("best", "step-00000015", "step-00000020"),
    }
    record = json.loads((finished / "training.json").read_text(encoding="utf-8"))
    run = json.loads((finished / "run.json").read_text(encoding="utf-8"))
    assert record["run"] == run["id"]
    assert record["settings"] == run["settings"]
    assert record["corpus"]["paths"] == [None]  # 模型会分享，不写完整的路径
    assert Path(*run["corpus"]["paths"]).is_absolute()
    assert record["environment"]["threads"] == 1
    lines = (finished / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert sum('"grad_norm"' in line for line in lines) == 20
    assert sum('"evaluation"' in line for line in lines) == 4


def test_starting_over_a_run_needs_a_decision(cli: Cli, finished: Path, text_file: Path) -> None:
    before = tree(finished)
    result = cli("train", "--corpus", text_file, "--out", finished, *TWENTY)
    assert_error(result, "做完 20 步的检查点", "--resume", "--restart", "--out 换一个文件夹")
    assert_error(cli("demo", "--out", finished), "一次训练", "不会覆盖", "--out 换一个文件夹")
    assert tree(finished) == before


def test_a_finished_run_says_so(cli: Cli, finished: Path) -> None:
    before = tree(finished)
    result = cli("train", "--out", finished, "--resume")
    assert (result.code, result.err) == (0, "")
    loss = json.loads((finished / "training.json").read_text(encoding="utf-8"))["result"][
        "test_loss"
    ]
    assert f"已经做完 20 步，测试损失 {loss:.4f} 奈特/字符，不必接着训练" in result.out
    assert tree(finished) == before


def test_resume_needs_nothing_but_the_folder(
    cli: Cli, unfinished: Path, finished: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    result = cli("train", "--out", "m", "--resume")
    assert (result.code, result.err) == (0, "")
    assert "做完 15 步，共 20 步" in result.out
    for name in ("model.safetensors", "checkpoints/best/model.safetensors"):
        assert (unfinished / name).read_bytes() == (finished / name).read_bytes()


def test_the_same_options_again_are_no_contradiction(
    cli: Cli, unfinished: Path, text_file: Path
) -> None:
    args = ("--corpus", text_file, *TWENTY, "--lr", "1e-3", "--min-lr", "1e-4", "--shuffle")
    assert cli("train", "--out", unfinished, "--resume", *args).code == 0


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["--lr", "0.01"], ["--lr 原来是 0.001，现在是 0.01"]),
        (
            ["--blocks", "3", "--tied"],
            ["--blocks 原来是 1，现在是 3", "--tied 原来没有给，现在给了"],
        ),
        (["--min-lr", "0"], ["--min-lr 原来没有给，现在是 0"]),
        (["--no-shuffle"], ["--shuffle 原来打乱，现在不打乱"]),
        (["--seed", "1"], ["--seed 原来是 42，现在是 1"]),
        (["--norm", "rms"], ["--norm 原来是 layer，现在是 rms"]),
        (["--steps", "40"], ["总步数原来是 20，现在是 40", "--schedule constant", "--restart"]),
        (["--epochs", "3"], ["总步数原来是 20，现在是 "]),
        (["--steps", "9", "--epochs", "3"], ["只能给一个"]),
        (["--restart"], ["--resume", "--restart", "只能给一个"]),
    ],
)
def test_contradictions_name_both_values(
    cli: Cli, unfinished: Path, args: list[str], parts: list[str]
) -> None:
    before = tree(unfinished)
    assert_error(cli("train", "--out", unfinished, "--resume", *args), *parts)
    assert tree(unfinished) == before


def test_how_often_to_save_may_change(cli: Cli, unfinished: Path, finished: Path) -> None:
    options = ("--save-every", "1", "--keep", "5", "--skip-nonfinite", "3", "--patience", "9")
    assert cli("train", "--out", unfinished, "--resume", *options).code == 0
    assert len(list((unfinished / "checkpoints").glob("step-*"))) == 5
    name = "model.safetensors"
    assert (unfinished / name).read_bytes() == (finished / name).read_bytes()
    run = json.loads((unfinished / "run.json").read_text(encoding="utf-8"))
    assert run["settings"]["skip_nonfinite"] == 3


def test_a_constant_schedule_can_be_lengthened(cli: Cli, text_file: Path, tmp_path: Path) -> None:
    args = ("--corpus", text_file, *SIZE, "--schedule", "constant", "--dropout", "0.2")
    long, short = tmp_path / "long", tmp_path / "short"
    assert cli("train", *args, "--out", long, "--steps", 30).code == 0
    assert cli("train", *args, "--out", short, "--steps", 12).code == 0
    assert "要加长，请给更大的 --steps" in cli("train", "--out", short, "--resume").out
    assert_error(cli("train", "--out", short, "--resume", "--steps", "7"), "已经做完 12 步")
    result = cli("train", "--out", short, "--resume", "--steps", 30)
    assert (result.code, result.err) == (0, "")
    name = "model.safetensors"
    assert (short / name).read_bytes() == (long / name).read_bytes()
    assert "已经做完 30 步" in cli("train", "--out", short, "--resume").out


def test_restart_drops_the_old_run(
    cli: Cli, finished: Path, text_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "m"
    shutil.copytree(finished, out)
    (out / "checkpoints" / "step-00000015").rename(
        out / "checkpoints" / "old-00000000-step-00000015"
    )
    args = ("--corpus", text_file, *SIZE, "--steps", "3")
    result = cli("train", "--out", out, "--restart", *args)
    assert (result.code, result.err) == (0, "")
    assert {p.name for p in (out / "checkpoints").iterdir()} == {"best", "step-00000003"}
    assert len((out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()) == 5
    assert "已经做完 3 步" in cli("train", "--out", out, "--resume").out


def test_a_mistake_with_restart_loses_nothing(cli: Cli, finished: Path, text_file: Path) -> None:
    before = tree(finished)
    for args in (["--heads", "3"], ["--corpus", "没有"], ["--embedding-size", "1000000"]):
        assert cli("train", "--corpus", text_file, "--out", finished, "--restart", *args).code == 2
    assert tree(finished) == before


def test_early_stopping_and_going_on(cli: Cli, text_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    args = ("--corpus", text_file, *SIZE, "--steps", "50", "--lr", "1e-9", "--eval-every", "2")
    result = cli("train", "--out", out, *args, "--patience", "1", "--warmup-steps", "0")
    assert (result.code, result.err) == (0, "")
    assert "提前停止：连续 1 次评估没有进步" in result.out
    again = cli("train", "--out", out, "--resume")
    assert "它提前停止了：连续 1 次" in again.out
    assert "更大的 --patience" in again.out
    more = cli("train", "--out", out, "--resume", "--patience", "1000")
    assert (more.code, more.err) == (0, "")
    assert "提前停止" not in more.out
    assert "步 50/50" in more.out


# ---------------------------------------------------------------- 语料


def test_a_changed_corpus_is_refused(cli: Cli, text_file: Path, tmp_path: Path) -> None:
    corpus, out = tmp_path / "a.txt", tmp_path / "m"
    shutil.copy(text_file, corpus)
    assert cli("train", "--corpus", corpus, "--out", out, *TWENTY).code == 0
    (out / "manifest.json").unlink()
    text = corpus.read_text(encoding="utf-8")
    corpus.write_text(text.replace("鸟", "雀", 1), encoding="utf-8")
    for args in ([], ["--corpus", corpus]):
        result = cli("train", "--out", out, "--resume", *args)
        assert_error(
            result,
            str(corpus),
            "与开始训练时的不同（同样是 ",
            "个字符，内容不同）",
            "换回原来的文件",
            "--restart",
        )
    corpus.unlink()
    assert_error(cli("train", "--out", out, "--resume"), f"{corpus} 不在了", "--corpus")
    moved = cli("train", "--out", out, "--resume", "--corpus", text_file)
    assert (moved.code, moved.err) == (0, "")
    run = json.loads((out / "run.json").read_text(encoding="utf-8"))
    assert run["corpus"]["paths"] == [str(text_file.resolve())]


def test_swapping_two_letters_everywhere_is_noticed(cli: Cli, tmp_path: Path) -> None:
    """编号的序列不变、只有词表变了的文本，也不是同一份。"""
    corpus, out = tmp_path / "a.txt", tmp_path / "m"
    corpus.write_text("abcab" * 60, encoding="utf-8")
    assert cli("train", "--corpus", corpus, "--out", out, *TWENTY).code == 0
    (out / "manifest.json").unlink()
    corpus.write_text("abdab" * 60, encoding="utf-8")
    assert_error(cli("train", "--out", out, "--resume"), "与开始训练时的不同")


# ---------------------------------------------------------------- 文件夹


def test_resume_without_a_run(cli: Cli, model_folder: Path, tmp_path: Path) -> None:
    for folder in (tmp_path / "没有", tmp_path):
        result = cli("train", "--out", folder, "--resume")
        assert_error(result, "--resume", "run.json", "--out", "去掉 --resume")
    assert not (tmp_path / "没有").exists()


@pytest.mark.parametrize("name", ["best", "step-00000020"])
def test_a_checkpoint_is_not_an_output(
    cli: Cli, finished: Path, text_file: Path, name: str
) -> None:
    before = tree(finished)
    out = finished / "checkpoints" / name
    result = cli("train", "--corpus", text_file, "--out", out, *TWENTY)
    assert_error(result, "是", "的一个检查点", f"请给出 {finished}")
    assert_error(cli("demo", "--out", out), "检查点")
    resumed = cli("train", "--out", out, "--resume")
    assert_error(resumed, f"gptcore train --out {finished} --resume")
    assert tree(finished) == before


def test_a_checkpoint_moved_away_from_its_run(
    cli: Cli, finished: Path, text_file: Path, tmp_path: Path
) -> None:
    """旁边没有 run.json：不能说它所在的文件夹就是那次训练。"""
    alone = tmp_path / "elsewhere" / "alone"
    shutil.copytree(finished / "checkpoints" / "step-00000020", alone)
    resumed = cli("train", "--out", alone, "--resume")
    assert_error(resumed, "单独的检查点", "没有 run.json", "trainer.resume")
    result = cli("train", "--corpus", text_file, "--out", alone, *TWENTY)
    assert_error(result, f"{alone} 是一个检查点，不能当作输出")
    assert "请给出" not in result.err


def test_best_alone_is_not_overwritten(cli: Cli, unfinished: Path, text_file: Path) -> None:
    for path in (unfinished / "checkpoints").glob("step-*"):
        shutil.rmtree(path)
    result = cli("train", "--corpus", text_file, "--out", unfinished, *TWENTY)
    assert_error(result, "checkpoints/best", "--resume", "--restart")


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda v: v.update(format="x"), "不是 gptcore train 的设置"),
        (lambda v: v.update(version=2), "格式版本是 2，这里只认识版本 1"),
        (lambda v: v.update(steps=0), "不合要求"),
        (lambda v: v.update(corpus=None), "不合要求"),
        (lambda v: v["settings"].update(heads=0), "heads 不合要求"),
        (lambda v: v["settings"].update(lr="1"), "lr 不合要求"),
        (lambda v: v["settings"].update(tied=1), "tied 不合要求"),
        (lambda v: v["settings"].update(norm="x"), "norm 不合要求"),
        (lambda v: v["settings"].update(rope=True), "不认识的设置 rope"),
        (lambda v: v.update(settings=[]), "没有训练的设置"),
    ],
)
def test_a_damaged_run_file(
    cli: Cli, unfinished: Path, change: Callable[[dict[str, Any]], object], part: str
) -> None:
    path = unfinished / "run.json"
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")
    assert_error(cli("train", "--out", unfinished, "--resume"), str(path), part)


# ---------------------------------------------------------------- NaN


def test_nan_keeps_the_checkpoint_and_can_be_skipped(
    cli: Cli, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gptcore import GPTLoss

    forward, calls = GPTLoss.__call__, iter(range(1, 10**6))
    bad = {13, 14}  # 第 12 步，以及报错之前再算的一遍

    def sometimes_nan(self: GPTLoss, p: Any, y: Any) -> Any:
        loss = forward(self, p, y)
        return loss * float("nan") if next(calls) in bad else loss

    monkeypatch.setattr(GPTLoss, "__call__", sometimes_nan)
    out = tmp_path / "m"
    args = ("--corpus", text_file, *SIZE, "--steps", "20", "--save-every", "5")
    result = cli("train", "--out", out, *args)
    kept = out / "checkpoints" / "step-00000010"
    command = f"gptcore train --out {out} --resume --skip-nonfinite 10"
    assert_error(result, "第 12 步", "损失是 nan", "学习率", f"检查点 {kept} 完好", command, "--lr")
    bad.update({next(calls) + 3})
    again = cli(*command.split()[1:])
    assert (again.code, again.err) == (0, "")
    assert "跳过了 1 步" in again.out


def test_a_full_disk_tells_where_to_go_on(
    cli: Cli, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gptcore.training import checkpoints

    save, out = checkpoints.save_checkpoint, tmp_path / "m"

    def full(trainer: Any, folder: Path) -> None:
        if trainer.state.step > 10:
            raise DataError(f"不能写入 {folder}：磁盘满了；请检查路径、权限与磁盘空间")
        save(trainer, folder)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save_checkpoint", full)
        result = cli("train", "--corpus", text_file, "--out", out, *TWENTY)
    kept = out / "checkpoints" / "step-00000010"
    assert_error(
        result,
        "磁盘满了",
        f"第 10 步之后的状态存在 {kept}，接着训练：gptcore train --out {out} --resume",
    )
    resumed = cli("train", "--out", out, "--resume")
    assert (resumed.code, resumed.err) == (0, "")
