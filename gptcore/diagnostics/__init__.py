"""诊断：这台机器上的 gptcore 是否一切正常

命令 `gptcore doctor` 依次运行 `SECTIONS` 里的检查。每一项都真正地运行要检查的东西，返回一个
[`CheckResult`][gptcore.diagnostics.CheckResult]，出错也不影响其余的：

    from gptcore.diagnostics import run_checks
    for section, result in run_checks():
        print(section, result.name, result.status, result.value)

自己写了层、损失或运算，用 [`check_gradients`][gptcore.diagnostics.check_gradients] 检查它的梯度。
"""

from collections.abc import Callable, Iterator

from gptcore.diagnostics import blas, environment, files, speed, training
from gptcore.diagnostics.dtypes import DtypeAudit, audit_step
from gptcore.diagnostics.gradients import GradientReport, TensorGradient, check_gradients
from gptcore.diagnostics.results import CheckResult, Status, check, failure, ok, warning

__all__ = [
    "SECTIONS",
    "CheckResult",
    "DtypeAudit",
    "GradientReport",
    "Status",
    "TensorGradient",
    "audit_step",
    "check",
    "check_gradients",
    "failure",
    "ok",
    "run_checks",
    "warning",
]

SECTIONS: dict[str, tuple[Callable[[], CheckResult], ...]] = {
    "环境": (
        environment.gptcore_version,
        environment.python_version,
        environment.numpy_version,
        environment.packages,
        environment.optional_packages,
        environment.system,
    ),
    "BLAS": (blas.blas, blas.threads, blas.variables, blas.products),
    "编码与文件": (
        files.streams,
        files.encodings,
        files.current_folder,
        files.cache_folder,
        files.corpora,
    ),
    "训练": (
        training.gradients,
        training.dtypes,
        training.first_loss,
        training.overfit,
        training.reproducibility,
    ),
    "速度": (speed.product_speed, speed.training_speed),
}
"""全部检查，分成几节"""


def run_checks() -> Iterator[tuple[str, CheckResult]]:
    """依次运行全部检查，几秒钟。

    Yields:
        节名与结果。
    """
    for section, checks in SECTIONS.items():
        for function in checks:
            yield section, function()
