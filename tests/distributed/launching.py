"""分布式测试共用的：由 mpiexec 启动几个进程，不会等到天荒地老"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from cli.running import Outcome, clean_environment

PROGRAM = Path(__file__).with_name("program.py")
HERE = Path(sys.executable).parent
MPIEXEC = shutil.which("mpiexec", path=f"{HERE}{os.pathsep}{os.environ.get('PATH', '')}")
SECONDS = 60

needs_mpi = pytest.mark.skipif(
    find_spec("mpi4py") is None or MPIEXEC is None,
    reason="没有 mpi4py 与 mpiexec：pip install -e '.[mpi]' mpich",
)

ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    # Open MPI 默认不许 root 运行，也不许进程比核多
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def start(ranks: int, *command: object) -> subprocess.Popen[bytes]:
    """启动几个进程，不等它们。"""
    return launch(["-n", str(ranks), sys.executable, *map(str, command)])


def start_each(*commands: Sequence[object]) -> subprocess.Popen[bytes]:
    """每个进程运行自己的命令，不等它们。"""
    words: list[str] = []
    for command in commands:
        words += [*([":"] if words else []), "-n", "1", sys.executable, *map(str, command)]
    return launch(words)


def launch(words: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [str(MPIEXEC), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(ENVIRONMENT),
        start_new_session=True,
    )


def finish(process: subprocess.Popen[bytes]) -> Outcome:
    """等它们结束；超时就全部杀死，测试失败。"""
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        pytest.fail(f"{SECONDS} 秒还没有结束\n{out.decode()}\n{err.decode()}")
    return Outcome(process.returncode, out.decode(), err.decode())


def ranks(count: int, scenario: str, *arguments: object) -> Outcome:
    """在几个进程上运行 `program.py` 里的一个函数。"""
    return finish(start(count, PROGRAM, scenario, *arguments))


def gptcore(count: int, *arguments: object) -> Outcome:
    """在几个进程上运行命令。"""
    return finish(start(count, "-m", "gptcore", *arguments))
