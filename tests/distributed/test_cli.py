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
from distributed.launching import finish, gptcore, needs_mpi, start, start_each

from gptcore.cli.settings import TrainSettings, check_memory
from gptcore.cli.usage import UsageError

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


def test_memory_counts_every_process_on_the_machine() -> None:
    settings = TrainSettings(embedding_size=4096, blocks=4)
    check_memory(settings, 65, 1)
    with pytest.raises(UsageError, match="这台机器上的 2 个进程训练至少要 30 GiB"):
        check_memory(settings, 65, 2)


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
    batch = ("--batch-size", 120)  # 一个进程够，两个不够
    missing = ("--corpus", tmp_path / "没有")
    for arguments in (("--steps", "abc"), missing, batch, ("--batch-size", 9999)):
        outcome = gptcore(2, *common, *arguments)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.count("错误：") == 1
    assert not (tmp_path / "run").exists()
    diverged = gptcore(2, *common, "--steps", "30", "--lr", "1e30", "--clip", "0")
    assert diverged.code == 2
    assert diverged.err.count("错误：") == 1


@needs_mpi
@pytest.mark.parametrize("wrong", [0, 1])
@pytest.mark.parametrize("mistake", [("--heads", "x"), ()])
def test_a_mistake_before_connecting_is_told_to_the_others(
    tmp_path: Path, corpus: Path, wrong: int, mistake: tuple[str, ...]
) -> None:
    """例如各台机器上的命令不同：别的进程正在等着连上，不能一直等下去。"""
    common = ("-m", "gptcore", "train", "--corpus", corpus, *RUN, "--out", tmp_path / "run")
    commands = [(*common, "--distributed")] * 2
    commands[wrong] = (*common, "--distributed", *mistake) if mistake else common
    outcome = finish(start_each(*commands))
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.count("错误：") == 1
    said = "--heads 得到 'x'" if mistake else "mpiexec 启动了 2 个进程，却没有 --distributed"
    assert f"{'第 1 个进程出错：' if wrong else ''}{said}" in outcome.err


@needs_mpi
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["INT", "TERM"])
def test_a_signal_before_connecting_ends_all(tmp_path: Path, corpus: Path, number: int) -> None:
    program = (
        "import os, sys, gptcore.cli.app as app\n"
        f"app.open_ranks = lambda threads: os.kill(os.getpid(), {int(number)})\n"
        "from gptcore.cli import main; sys.exit(main())"
    )
    arguments = ("train", "--corpus", corpus, *RUN, "--distributed", "--out", tmp_path / "run")
    outcome = finish(start_each(("-m", "gptcore", *arguments), ("-c", program, *arguments)))
    assert outcome.code
    assert "Traceback" not in outcome.err


@needs_mpi
def test_mpi4py_missing_in_one_rank(tmp_path: Path, corpus: Path) -> None:
    """没有办法告诉别的进程，至少说出原因，Ctrl-C 一次就结束。"""
    program = (
        "import sys; sys.modules['mpi4py'] = None\nfrom gptcore.cli import main; sys.exit(main())"
    )
    arguments = ("train", "--corpus", corpus, *RUN, "--distributed", "--out", tmp_path / "run")
    running = start_each(("-m", "gptcore", *arguments), ("-c", program, *arguments))
    assert running.stderr
    said = running.stderr.readline().decode()
    assert said.startswith("错误：第 1 个进程：没有安装 mpi4py")
    os.killpg(running.pid, signal.SIGINT)
    outcome = finish(running)
    assert outcome.code
    assert "Traceback" not in outcome.err


@needs_mpi
@pytest.mark.skipif(sys.platform != "linux", reason="别的系统的文件名总是 UTF-8")
def test_a_folder_that_is_not_utf8(tmp_path: Path) -> None:
    out = os.fsdecode(bytes(tmp_path) + b"/n\xff")
    outcome = gptcore(2, "train", "--resume", "--distributed", "--out", out)
    assert (outcome.code, outcome.err.count("错误：")) == (2, 1)
    assert "里没有 run.json" in outcome.err


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
