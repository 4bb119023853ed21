"""环境：版本、操作系统与处理器"""

import importlib
import math
import os
import platform
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from gptcore.diagnostics.results import CheckResult, check, failure, ok, warning
from gptcore.version import __version__

REQUIRED = ("safetensors", "threadpoolctl", "pooch", "typer", "rich")
"""NumPy 以外必需的库；名字也是导入时的名字"""
OPTIONAL = {"matplotlib": "画图用，安装：pip install 'gptcore[plot]'"}


@check("gptcore")
def gptcore_version() -> CheckResult:
    """版本，装在哪里；导入的与安装的是不是同一个版本。"""
    folder = Path(__file__).parents[1]
    installed = installed_version("gptcore")
    if installed not in (None, __version__):
        return warning(
            f"{__version__}，在 {folder}",
            f"pip 登记的版本是 {installed}，导入的是 {__version__}：同时有两份，或者更新之后没有重新安装",
            "在同一个文件夹里重新安装：pip install -e . 或 pip install .",
        )
    return ok(f"{__version__}，在 {folder}")


@check("Python")
def python_version() -> CheckResult:
    """版本与解释器的位置：装了几个 Python 时，看得出用的是哪一个。"""
    bits = 64 if sys.maxsize > 2**32 else 32
    value = f"{platform.python_version()}（{platform.python_implementation()}，{bits} 位）"
    return ok(f"{value}，{sys.executable}")


@check("NumPy")
def numpy_version() -> CheckResult:
    """能不能导入，版本够不够新。"""
    result = _package("numpy")
    return replace(result, value=result.value.removeprefix("numpy "))


@check("其他的库")
def packages() -> CheckResult:
    """必需的库能不能导入，版本够不够新。"""
    results = [_package(name) for name in REQUIRED]
    wrong = [r for r in results if r.remedy]
    value = "，".join(r.value for r in results)
    if wrong:
        return failure(
            value,
            "；".join(r.explanation for r in wrong),
            "；".join(r.remedy for r in wrong),
        )
    return ok(value)


@check("可选的库")
def optional_packages() -> CheckResult:
    """没有也能用的库。"""
    found = {name: installed_version(name) for name in OPTIONAL}
    return ok(
        "，".join(
            f"{name} {version}" if version else f"{name} 没有安装（{OPTIONAL[name]}）"
            for name, version in found.items()
        )
    )


@check("系统")
def system() -> CheckResult:
    """操作系统、处理器与可以用的核数。"""
    cpus, usable = os.cpu_count() or 1, usable_cpus()
    limited = f"，这个进程只能用 {usable} 个" if usable < cpus else ""
    return ok(
        f"{platform.system()} {platform.release()}，{platform.machine()}，{cpus} 个核{limited}"
    )


def installed_version(name: str) -> str | None:
    """一个库登记的版本；没有安装时是 None。

    Args:
        name: 发行包的名字。
    """
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def minimum_version(name: str) -> str | None:
    """gptcore 要求的最低版本；gptcore 没有经 pip 安装、或没有要求时是 None。

    Args:
        name: 发行包的名字。
    """
    try:
        requirements = metadata.requires("gptcore") or []
    except metadata.PackageNotFoundError:
        return None
    for requirement in requirements:
        found = re.match(rf"{re.escape(name)}\s*\(?>=\s*([0-9.]+)", requirement)
        if found:
            return found[1]
    return None


def usable_cpus(root: Path = Path("/")) -> int:
    """这个进程可以用几个核：处理器的个数、绑定的核与容器的配额，取最小的。

    Args:
        root: 根文件夹，测试时换成别的。
    """
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, math.ceil(min(count, _quota(root))))


def _quota(root: Path) -> float:
    """Linux 控制组给的处理器配额，单位是核；没有限制时是无穷。"""
    group = root / "sys/fs/cgroup"
    limits = [math.inf]
    for line in _read(root / "proc/self/cgroup").splitlines():
        path = line.split(":", 2)[-1].strip("/")
        parts = path.split("/") if path else []
        for depth in range(len(parts) + 1):
            inner = "/".join(parts[:depth])
            two = _read(group / inner / "cpu.max").split()  # 第二版
            one = [  # 第一版
                _read(group / "cpu" / inner / f"cpu.cfs_{name}_us").strip()
                for name in ("quota", "period")
            ]
            limits += [_ratio(*pair) for pair in (two, one) if len(pair) == 2]
    return min(limits)


def _ratio(quota: str, period: str) -> float:
    """每个周期里可以用多少时间；`max` 与 -1 表示没有限制。"""
    if not quota.isdigit() or not period.isdigit() or not int(period):
        return math.inf
    return int(quota) / int(period)


def _read(path: Path) -> str:
    """小文件的内容；没有或读不了时是空的。"""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _package(name: str) -> CheckResult:
    """一个必需的库：能不能导入，版本够不够新。"""
    minimum = minimum_version(name)
    install = f'pip install "{name}>={minimum}"' if minimum else f"pip install {name}"
    try:
        importlib.import_module(name)
    except ImportError as error:
        reason = " ".join(str(error).split())
        return failure(f"{name} 不能导入", f"{name} 不能导入：{reason}", f"运行 {install}")
    version = installed_version(name)
    if version is None:
        return ok(f"{name}（版本未知）")
    if minimum and _numbers(version) < _numbers(minimum):
        return failure(
            f"{name} {version}", f"{name} 太旧：{version}，至少要 {minimum}", f"运行 {install}"
        )
    return ok(f"{name} {version}")


def _numbers(version: str) -> tuple[int, ...]:
    """版本号开头的几个数，例如 `2.0.0rc1` 是 (2, 0, 0)。"""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[a-zA-Z+]", version)[0]))
