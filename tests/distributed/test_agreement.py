"""各个进程互相商量：回调只在第 0 个上运行，停止、出错、死去都传到每一个，从不一直等下去"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.running import clean_environment
from distributed.launching import PROGRAM, needs_mpi, ranks

from gptcore.training.checkpoints import find_checkpoints

pytestmark = needs_mpi


def results(folder: Path, count: int) -> list[Any]:
    files = [folder / f"result-{rank}.json" for rank in range(count)]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def test_callbacks_run_on_rank_zero_and_others_follow(tmp_path: Path) -> None:
    outcome = ranks(3, "callbacks", tmp_path, "evaluate")
    assert (outcome.code, outcome.err) == (0, "")
    assert [(tmp_path / f"called-{rank}").exists() for rank in range(3)] == [True, False, False]
    assert results(tmp_path, 3) == [[40, None, []]] * 3
    state = json.loads((tmp_path / "here" / "training_state.json").read_text(encoding="utf-8"))
    assert state["processes"]["parts"] == 3
    assert len(state["processes"]["others"]) == 2


def test_stop_in_a_callback_reaches_all(tmp_path: Path) -> None:
    assert ranks(2, "callbacks", tmp_path, "stop").code == 0
    assert results(tmp_path, 2) == [[5, "够了", []]] * 2


def test_early_stopping_is_the_same_everywhere(tmp_path: Path) -> None:
    assert ranks(2, "callbacks", tmp_path, "early").code == 0
    first, second = results(tmp_path, 2)
    assert first == second
    assert first[2]


def test_error_in_a_callback_ends_all_with_one_traceback(tmp_path: Path) -> None:
    outcome = ranks(3, "callbacks", tmp_path, "raise")
    assert outcome.code
    assert outcome.err.count("Traceback") == 1
    assert "ValueError: 回调坏了" in outcome.err


def test_an_error_with_a_lone_surrogate_is_told(tmp_path: Path) -> None:
    """文件名里不是 UTF-8 的字节，在 Python 的消息里是单独的代理字符。"""
    outcome = ranks(2, "callbacks", tmp_path, "surrogate")
    assert outcome.code
    assert outcome.err.count("Traceback") == 1
    assert "ValueError: 文件名里有 \\udcff" in outcome.err


def test_exit_in_a_callback_ends_all(tmp_path: Path) -> None:
    outcome = ranks(2, "callbacks", tmp_path, "exit")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("limit", "测试集：第 1 个进程的与第 0 个进程的不同"),
        ("data", "测试集：第 1 个进程的与第 0 个进程的不同"),
        ("threads", "DataParallel：threads 必须是正整数，这里是 0"),
    ],
)
def test_a_mistake_in_one_rank_is_told(tmp_path: Path, what: str, said: str) -> None:
    outcome = ranks(2, "apart", tmp_path, what)
    assert outcome.code
    assert outcome.err.count("Traceback") in ({1} if what == "threads" else {1, 2})
    assert said in outcome.err


@pytest.mark.parametrize(("what", "said"), [("raise", "循环坏了"), ("before", "还没有开始就坏了")])
def test_error_in_one_rank_ends_all(tmp_path: Path, what: str, said: str) -> None:
    outcome = ranks(3, "loop", tmp_path, what)
    assert outcome.code
    assert outcome.err.count("Traceback") == 1
    assert "第 1 个进程出错：\n" in outcome.err
    assert f"ValueError: {said}" in outcome.err


def test_error_everywhere_is_told_once(tmp_path: Path) -> None:
    outcome = ranks(3, "loop", tmp_path, "everywhere")
    assert outcome.code
    assert outcome.err.count("Traceback") == 1


def test_killed_rank_ends_all(tmp_path: Path) -> None:
    outcome = ranks(2, "loop", tmp_path, "kill")
    assert outcome.code
    assert len(find_checkpoints(tmp_path / "run")) == 2  # 之前保存的完好


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("break", "第 0 个进程在训练下一步，第 1 个进程在结束程序"),
        ("exit", "第 0 个进程在训练下一步，第 1 个进程在结束程序"),
        ("evaluate", "第 0 个进程在训练下一步，第 1 个进程在评估"),
        ("change", r"做完 12 步之后的参数：第 1 个进程的与第 0 个进程的不同"),
        ("different", "累积的次数 accumulation_steps：第 1 个进程的与第 0 个进程的不同"),
    ],
)
def test_ranks_that_disagree_say_so(tmp_path: Path, what: str, said: str) -> None:
    outcome = ranks(2, "loop", tmp_path, what)
    assert outcome.code
    assert re.search(said, outcome.err), outcome.err


def test_stop_in_one_rank_reaches_all(tmp_path: Path) -> None:
    assert ranks(2, "loop", tmp_path, "stop").code == 0
    assert results(tmp_path, 2) == [[11, "第 1 个进程说够了"]] * 2


def test_saving_and_resuming_together(tmp_path: Path) -> None:
    outcome = ranks(2, "loop", tmp_path, "save")
    assert (outcome.code, outcome.err) == (0, "")
    assert results(tmp_path, 2) == [[40, None]] * 2


def test_nan_on_one_rank_ends_all_and_names_it(tmp_path: Path) -> None:
    outcome = ranks(2, "nan", tmp_path, 0)
    assert outcome.code
    assert outcome.err.count("Traceback") == 1
    assert "NonFiniteError: 第 9 步（从 0 数起）" in outcome.err
    assert "第 1 个进程：损失是 NaN" in outcome.err
    assert "step-00000005 完好" in outcome.err


@pytest.mark.parametrize("count", [2, 4])
def test_nan_is_skipped_everywhere(tmp_path: Path, count: int) -> None:
    assert ranks(count, "nan", tmp_path, 1).code == 0
    assert np.load(tmp_path / "nan.npz")["skipped"] == 1


def test_alone_with_a_communicator(tmp_path: Path) -> None:
    environment = {k: v for k, v in clean_environment().items() if not k.startswith("PMI")}
    command = [sys.executable, PROGRAM, "alone", tmp_path]
    subprocess.run(command, check=True, timeout=60, env=environment)
    assert (tmp_path / "done").exists()


def test_one_thread_each_on_a_shared_machine(tmp_path: Path) -> None:
    assert ranks(2, "environment", tmp_path).code == 0
    for rank in range(2):
        said, threads, found = json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8"))
        assert said == "2 个进程，都在这台机器上，每个 1 个 BLAS 线程"
        assert (threads, found["threads"], found["processes"]) == (1, 1, 2)
