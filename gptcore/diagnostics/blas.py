"""BLAS：NumPy 的矩阵乘法由谁来算，用几个线程，算得对不对"""

import os
from typing import Any

import numpy as np

from gptcore.diagnostics.environment import usable_cpus
from gptcore.diagnostics.results import CheckResult, check, failure, ok, warning
from gptcore.threads import blas_info

NAMES = {"openblas": "OpenBLAS", "mkl": "MKL", "blis": "BLIS", "flexiblas": "FlexiBLAS"}
THREADS = {
    "openblas": ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"),
    "mkl": ("MKL_NUM_THREADS", "OMP_NUM_THREADS"),
    "blis": ("BLIS_NUM_THREADS", "OMP_NUM_THREADS"),
    "accelerate": ("VECLIB_MAXIMUM_THREADS",),
}
"""各个 BLAS 的线程数由哪些环境变量定，前面的优先"""
OTHERS = (
    "OPENBLAS_CORETYPE",
    "OPENBLAS_THREAD_TIMEOUT",
    "MKL_CBWR",
    "MKL_DYNAMIC",
    "MKL_ENABLE_INSTRUCTIONS",
    "OMP_DYNAMIC",
    "OMP_PROC_BIND",
    "OMP_WAIT_POLICY",
    "KMP_AFFINITY",
    "GOMP_CPU_AFFINITY",
    "NPY_DISABLE_CPU_FEATURES",
)
"""会改变速度或结果末位的其他变量"""


@check("BLAS")
def blas() -> CheckResult:
    """名字、版本与按处理器选出的核函数。"""
    info = blas_info()
    if info["blas"] is None:
        return ok(f"{_built_with()}（线程数读不出来）")
    name, _, version = str(info["blas"]).partition(" ")
    kernel = f"，按 {info['blas_kernel']} 优化" if info["blas_kernel"] else ""
    return ok(f"{NAMES.get(name, name)} {version}{kernel}")


@check("BLAS 线程")
def threads() -> CheckResult:
    """线程数与可以用的核数；比核数多的线程互相争抢，慢好几倍。"""
    info, usable, names = blas_info(), usable_cpus(), thread_variables()
    given = {name: os.environ[name] for name in names if os.environ.get(name)}
    value = f"{info['threads'] or '未知'} 个，可以用的核 {usable} 个"
    if given:
        value += f"，{_assignments(given)}"
    for name, text in given.items():
        if not text.strip().isdecimal() or not int(text):
            return warning(
                value,
                f"环境变量 {name}={text!r} 不是正整数，会被忽略",
                f"取消设置 {name}，或改成例如 {name}={usable}",
            )
    wanted = max([info["threads"] or 0, *map(int, given.values())])
    if wanted > usable:
        name = next(iter(given), names[0])
        return warning(
            value,
            f"线程（{wanted} 个）比可以用的核（{usable} 个）多，互相争抢，训练大模型会慢好几倍",
            f"把环境变量 {name} 设为 {usable}，再重新打开 Python",
        )
    return ok(value, "小模型训练时只用一个")


@check("环境变量")
def variables() -> CheckResult:
    """已经设置的、会改变速度或结果末位的变量，与 gptcore 自己的。"""
    threads = {name for names in THREADS.values() for name in names}
    names = [*sorted(threads), *OTHERS, "GPTCORE_CACHE", "GPTCORE_DATA", "GPTCORE_MIRROR"]
    given = {name: os.environ[name] for name in names if os.environ.get(name)}
    return ok(_assignments(given) if given else "没有设置与 BLAS 或 gptcore 有关的变量")


@check("矩阵乘法")
def products(size: int = 129) -> CheckResult:
    """小整数的矩阵，乘积里的每个数 float32 都表示得出：无论怎样分块求和，结果都要一位不差。

    Args:
        size: 矩阵的大小；不是 2 的幂，边上凑不满一块的也算得到。
    """
    rng = np.random.default_rng(0)
    a, b = rng.integers(-8, 9, (size, 2 * size)), rng.integers(-8, 9, (2 * size, size))
    exact = a @ b  # 整数的乘法不经过 BLAS
    wrong: list[str] = []
    for dtype in (np.float32, np.float64):
        x, y = a.astype(dtype), b.astype(dtype)
        plain, turned = x @ y, (y.T.copy() @ x.T.copy()).T
        vector = x @ y[:, 0]
        same = (plain == exact).all() and (turned == exact).all() and (vector == exact[:, 0]).all()
        if not same:
            wrong.append(np.dtype(dtype).name)
    if wrong:
        return failure(
            f"{'、'.join(wrong)} 的结果不对",
            "整数矩阵的乘积应当一位不差；BLAS 算错了，训练的结果不能相信",
            "重新安装 NumPy：pip install --force-reinstall numpy；"
            "用 OpenBLAS 时，可以先设环境变量 OPENBLAS_CORETYPE=Haswell 再试（Intel 与 AMD 的处理器）",
        )
    return ok("整数矩阵的乘积一位不差", "float32 与 float64")


def thread_variables() -> tuple[str, ...]:
    """这个 BLAS 的线程数由哪些环境变量定，前面的优先。"""
    name = blas_info()["blas"] or _built_with()
    return THREADS.get(str(name).split()[0].lower(), ("OMP_NUM_THREADS",))


def _built_with() -> str:
    """线程库认不出的 BLAS：编译 NumPy 时登记的名字，例如 macOS 的 accelerate。"""
    config: Any = np.show_config(mode="dicts")  # type: ignore[func-returns-value]
    found: dict[str, Any] = config.get("Build Dependencies", {}).get("blas", {})
    return str(found.get("name") or "未知")


def _assignments(given: dict[str, str]) -> str:
    return "，".join(f"{name}={value}" for name, value in given.items())
