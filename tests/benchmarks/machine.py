"""这台机器、各个库的版本与这一次运行：结果里要有的事实"""

import datetime
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from plan import cpu_count

import gptcore
from gptcore.threads import blas_info

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("numpy", "torch", "transformers", "tokenizers", "tiktoken", "threadpoolctl")
SETTINGS = ("OPENBLAS_", "OMP_", "MKL_", "GOMP_", "MALLOC_")


def machine_facts() -> dict[str, Any]:
    """处理器、系统与各个版本。"""
    return {
        "cpu": cpu_name(),
        "cores": cpu_count(),
        "system": f"{platform.system()} {platform.release().split('-')[0]} {platform.machine()}",
        "python": platform.python_version(),
        "gptcore": gptcore.__version__,
        "packages": {name: package_version(name) for name in PACKAGES},
        "blas": blas_info(),
        "settings": {k: v for k, v in sorted(os.environ.items()) if k.startswith(SETTINGS)},
    }


def run_facts() -> dict[str, Any]:
    """这一次运行：命令、提交、时间、种子、机器忙不忙。"""
    return {
        "command": " ".join(["python", *map(_relative, sys.orig_argv[1:])]),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seed": 0,
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def cpu_name() -> str:
    """处理器的型号。"""
    if sys.platform == "linux":
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        if names:
            return names[0]
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return platform.processor() or platform.machine()


def package_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def commit() -> str | None:
    """代码是哪一次提交；有没提交的改动时加一个加号。"""
    try:
        head, changes = (
            subprocess.run(
                ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
            )
            for arguments in (
                ("rev-parse", "--short", "HEAD"),
                ("status", "--porcelain", "--untracked-files=no", "--", "gptcore"),
            )
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + "+" * bool(changes.stdout.strip())


def _relative(argument: str) -> str:
    path = Path(argument)
    if path.is_absolute() and path.is_relative_to(ROOT):
        return path.relative_to(ROOT).as_posix()
    return argument


IDLE = 0.1
"""别的程序占用不到这么多个核，就算机器是空闲的"""


class Busy:
    """运行期间别的程序占了多少处理器：机器的全部用量减去自己与子进程的，只有 Linux 有。

    几个线程的一方在忙的机器上会慢几倍到几十倍：它的线程互相空等，等的那个却没有核可用。PyTorch 一方常是这样，
    所以机器忙时比值好看得不真实，`--check` 不算数。

    进入时记下，离开时算出 `share`：平均占几个核。
    """

    share: float | None = None

    @property
    def idle(self) -> bool:
        """机器是不是空闲的；不知道时当作是。"""
        return self.share is None or self.share < IDLE

    def __str__(self) -> str:
        """一句话；不知道时是空的。"""
        if self.share is None:
            return ""
        advice = "" if self.idle else "：比值不可靠，请在空闲的机器上重测"
        return f"运行期间，别的程序平均占用 {self.share:.2f} 个核{advice}"

    def __enter__(self) -> "Busy":
        self._start = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        end = self._now()
        if self._start and end:
            wall, everyone, own = (b - a for a, b in zip(self._start, end, strict=True))
            self.share = max(0.0, (everyone - own) / wall) if wall else 0.0

    @staticmethod
    def _now() -> tuple[float, float, float] | None:
        """经过的、全机用去的、自己与已结束的子进程用去的处理器秒数。"""
        stat = Path("/proc/stat")
        if not stat.is_file():
            return None
        user, nice, system, _idle, _wait, *rest = map(
            int, stat.read_text(encoding="ascii").splitlines()[0].split()[1:]
        )
        everyone = (user + nice + system + sum(rest[:2])) / os.sysconf("SC_CLK_TCK")
        times = os.times()
        return times.elapsed, everyone, sum(times[:4])
