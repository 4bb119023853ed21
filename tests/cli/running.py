"""命令行测试共用：在新的进程里运行命令"""

import os
import subprocess
import sys

TINY = (
    *("--context-size", "8", "--embedding-size", "8", "--heads", "2", "--blocks", "1"),
    *("--steps", "5"),
)


class Outcome:
    """一次运行的结果。"""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


def process(
    *args: object,
    python: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
    encoding: str = "utf-8",
) -> Outcome:
    """在新的进程里运行命令。"""
    result = subprocess.run(
        [sys.executable, *python, "-m", "gptcore", *map(str, args)],
        capture_output=True,
        check=False,
        env=clean_environment(env),
        timeout=60,
    )
    return Outcome(
        result.returncode, result.stdout.decode(encoding), result.stderr.decode(encoding)
    )


def clean_environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """去掉会影响编码、颜色与宽度的变量。"""
    drop = ("PYTHONIOENCODING", "PYTHONUTF8", "LC_ALL", "NO_COLOR", "FORCE_COLOR", "COLUMNS")
    return {k: v for k, v in os.environ.items() if k not in drop} | (extra or {})
