"""`mpiexec -n 2 gptcore train --distributed`"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.running import Outcome, process
from distributed.launching import finish, gptcore, needs_mpi, start

SIZE = ("--context-size", "8", "--embedding-size", "8", "--heads", "2", "--blocks", "1")
RUN = (*SIZE, "--eval-every", "10", "--save-every", "10")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "诗.txt"
    path.write_text("春眠不觉晓，处处闻啼鸟。夜来风雨声，花落知多少。\n" * 40, encoding="utf-8")
    return path


def records(folder: Path, key: str) -> list[Any]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [value[key] for value in map(json.loads, lines) if key in value]


# ---------------------------------------------------------------- 不需要 MPI


def test_flag_outside_mpiexec(cli: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    outcome = cli("train", "--distributed")
    assert (outcome.code, outcome.out) == (2, "")
    assert "错误：--distributed 要由 mpiexec 启动几个进程，例如 mpiexec -n 2 gptcore" in outcome.err


def test_without_mpi4py(cli: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    outcome = cli("train", "--distributed")
    assert (outcome.code, outcome.out) == (2, "")
    assert '没有安装 mpi4py；请运行 pip install "gptcore[mpi]"' in outcome.err
    assert "Traceback" not in outcome.err


def test_without_a_runtime(cli: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise RuntimeError("cannot load MPI library")

    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setattr("gptcore.distributed.launch.import_module", missing)
    outcome = cli("train", "--distributed")
    assert outcome.code == 2
    assert "mpi4py 找不到 MPI 的运行库（cannot load MPI library）" in outcome.err


# ---------------------------------------------------------------- 需要


@needs_mpi
def test_same_as_one_process_with_a_larger_batch(tmp_path: Path, corpus: Path) -> None:
    common = ("train", "--corpus", corpus, *RUN, "--epochs", "2", "--out")
    one = process(*common, tmp_path / "one", "--batch-size", "12")
    many = gptcore(3, *common, tmp_path / "many", "--batch-size", "4", "--distributed")
    assert (one.code, many.code, many.err) == (0, 0, "")
    assert many.out.count("参数：") == 1
    assert "3 个进程，都在这台机器上，每个 1 个 BLAS 线程" in many.out
    for key in ("loss", "evaluation", "grad_norm"):
        expected = pytest.approx(records(tmp_path / "one", key), abs=1e-4)
        assert records(tmp_path / "many", key) == expected
    assert records(tmp_path / "many", "tokens") == records(tmp_path / "one", "tokens")
    saved = json.loads((tmp_path / "many" / "training.json").read_text(encoding="utf-8"))
    assert saved["environment"]["processes"] == 3
    assert saved["environment"]["threads"] == 1
    assert saved["settings"]["processes"] == 3


@needs_mpi
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
def test_interrupted_saves_and_resumes(
    tmp_path: Path, corpus: Path, number: int, code: int
) -> None:
    """中断、换成 3 个进程接着训练；学习率不变，所以可以改短。"""
    common = ("train", "--corpus", corpus, *SIZE, "--schedule", "constant", "--tokenizer", "bpe")
    options = ("--vocab-size", "280", "--distributed", "--out", tmp_path / "run")
    running = start(2, "-m", "gptcore", *common, "--steps", "1000000", *options)
    metrics, deadline = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 30
    while not (metrics.exists() and metrics.stat().st_size > 3000):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(running.pid, number)
    outcome = finish(running)
    assert outcome.code == code, outcome.err
    assert outcome.err.count("已中断") == 1
    assert "接着训练：mpiexec -n 2 gptcore train --out" in outcome.err
    (found,) = (tmp_path / "run" / "checkpoints").glob("step-*")
    more = int(found.name.removeprefix("step-")) + 20
    again = gptcore(3, "train", "--resume", "--steps", more, "--distributed", *options[3:])
    assert again.code == 0, again.err
    assert "提醒：" in again.err
    assert "进程数由 2 变成 3" in again.err


@needs_mpi
def test_several_processes_need_the_flag(tmp_path: Path, corpus: Path) -> None:
    outcome = gptcore(2, "train", "--corpus", corpus, *RUN, "--out", tmp_path / "run")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.count("mpiexec 启动了 2 个进程，却没有 --distributed") == 1
    assert not (tmp_path / "run").exists()


@needs_mpi
def test_errors_are_told_once(tmp_path: Path, corpus: Path) -> None:
    common = ("train", "--corpus", corpus, *RUN, "--distributed", "--out", tmp_path / "run")
    for arguments in (("--steps", "abc"), ("--corpus", tmp_path / "没有"), ("--batch-size", 9999)):
        outcome = gptcore(2, *common, *arguments)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.count("错误：") == 1
    assert not (tmp_path / "run").exists()
    diverged = gptcore(2, *common, "--steps", "30", "--lr", "1e30", "--clip", "0")
    assert diverged.code == 2
    assert diverged.err.count("错误：") == 1


@needs_mpi
def test_resume_before_the_first_checkpoint_needs_the_same_ranks(
    tmp_path: Path, corpus: Path
) -> None:
    options = ("--corpus", corpus, *SIZE, "--steps", "10", "--distributed", "--out", tmp_path / "a")
    assert gptcore(2, "train", *options).code == 0
    for path in (tmp_path / "a").iterdir():
        if path.name == "training.json":
            path.unlink()
    for path in (tmp_path / "a" / "checkpoints").glob("step-*"):
        path.rename(path.with_name("away"))
    outcome = gptcore(1, "train", "--resume", "--distributed", "--out", tmp_path / "a")
    assert outcome.code == 2
    assert "还没有检查点，开始时有 2 个进程，现在有 1 个" in outcome.err
