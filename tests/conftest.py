"""各个测试共用的夹具"""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from cli.running import Outcome
from threadpoolctl import threadpool_limits

from gptcore.data.corpora import find_corpus
from gptcore.tensor import is_grad_enabled


def pytest_configure() -> None:
    """测试里的矩阵都小：一个 BLAS 线程最快，结果也与核数无关。

    在后台运行测试时，Ctrl-C 或 SIGHUP 也许被忽略（shell 里的 `&`，`nohup`），子进程会继承；中断的测试要用它们。
    """
    threadpool_limits(1, "blas")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def tinyshakespeare_path() -> Path:
    """tiny Shakespeare 的路径；只在没有设置 GPTCORE_DATA、缓存里也没有时跳过，从不下载。"""
    path = find_corpus("tinyshakespeare")
    if path is None:
        if os.environ.get("GPTCORE_DATA"):
            pytest.fail("GPTCORE_DATA 指定的文件夹里没有 tinyshakespeare.txt")
        pytest.skip("没有 tinyshakespeare：请设置 GPTCORE_DATA")
    return path


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """在本进程里运行命令。"""
    from gptcore.cli.app import run

    def call(*args: object) -> Outcome:
        code = run([str(a) for a in args])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture(autouse=True)
def clean_state() -> Iterator[None]:
    """测试不得留下改动过的全局状态。"""
    errors = np.geterr()
    yield
    assert is_grad_enabled(), "测试之后没有恢复梯度模式"
    assert np.geterr() == errors, "测试之后没有恢复 NumPy 的浮点错误设置"
