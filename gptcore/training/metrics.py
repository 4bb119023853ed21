"""把训练的每一步写进 `metrics.jsonl`：一行一个 JSON 对象，写一行落一行"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptcore.errors import DataError, system_reason
from gptcore.models.generation import require_count
from gptcore.serialization.single import as_path
from gptcore.training.callbacks import Callback

if TYPE_CHECKING:
    from gptcore.training.evaluation import Evaluation
    from gptcore.training.state import StepReport
    from gptcore.training.trainer import Trainer


class MetricsFile(Callback):
    """把训练的过程记进文件；进程被杀，最多丢掉最后一行。用 `gptcore plot` 或 `plot_metrics` 画成图。

    三种行：

    - `{"run": {…环境…}, "step": 0}`：一次训练开始，或者从第几步接着训练；
    - `{"step": 12, "loss": 2.1, "lr": 0.001, "grad_norm": 0.7, "tokens": 128, "seconds": 1.93}`：
      一步，`step` 从 0 数起，`seconds` 从这次开始（或接着训练）算起，损失不是有限数时写 `null`；
    - `{"evaluation": 1.93, "step": 500, "seconds": 70.1}`：做完 `step` 步之后的一次评估。

    从头训练时替换旧的，接着训练时续写在后面：检查点之后、中断之前的那几步会出现两次，后写的为准。

    Args:
        path: 文件；文件夹不存在时建立。
        every: 每隔几步记一行。
    """

    def __init__(self, path: str | os.PathLike[str], every: int = 1) -> None:
        require_count("MetricsFile", "every", every, 1)
        self.path, self.every = as_path("MetricsFile", "path", path), every
        self._file: FileIO | None = None
        self._start = 0.0
        self._opening, self._fresh = "", False  # 开头的一行还没有写；是不是从头训练

    def on_start(self, trainer: Trainer) -> None:
        """打开文件。写第一行时才清空旧的：别的回调也许不让这次训练开始，那时旧的记录还要。"""
        step = trainer.state.step
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            torn = step > 0 and self.path.is_file() and not _ends_with_newline(self.path)
            self._file = self.path.open("ab", buffering=0)
            if torn:  # 上次被杀时写了半行
                self._file.write(b"\n")
        except (OSError, ValueError) as error:  # ValueError：路径里有 NUL
            raise self._failed(error) from error
        self._start = time.perf_counter()
        self._fresh = step == 0
        self._opening = _line({"run": trainer.strategy.environment(), "step": step})

    def on_step(self, trainer: Trainer, report: StepReport) -> None:
        """记一步。"""
        if report.step % self.every == 0:
            # 每一步都写，所以不用 json.dumps：直接拼出来只要三分之一的时间
            self._write(
                f'{{"step": {report.step}, "loss": {_number(report.loss)}, '
                f'"lr": {_number(report.lr)}, "grad_norm": {_number(report.grad_norm)}, '
                f'"tokens": {report.tokens}, "seconds": {self._seconds()}}}'
            )

    def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
        """记一次评估。"""
        self._write(
            f'{{"evaluation": {_number(evaluation.loss)}, "step": {evaluation.step}, '
            f'"seconds": {self._seconds()}}}'
        )

    def close(self, trainer: Trainer) -> None:
        """关闭文件。"""
        if self._file is not None:
            with contextlib.suppress(OSError):  # 磁盘满了：写的时候已经报过错
                self._file.close()
            self._file = None

    def _seconds(self) -> str:
        return f"{time.perf_counter() - self._start:.4f}"

    def _write(self, line: str) -> None:
        if self._file is None:
            return
        content = f"{self._opening}{line}\n".encode()
        try:
            if self._opening and self._fresh:
                self._file.truncate(0)
            self._opening = ""
            while content:  # 没有缓冲：写一行就是一次系统调用；磁盘快满时也许只写进一部分
                content = content[self._file.write(content) :]
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> DataError:
        known = isinstance(error, OSError)
        reason = system_reason(error) if known else "路径里有不能用的字符"
        return DataError(f"MetricsFile：不能写入 {self.path}：{reason}；请检查路径、权限与磁盘空间")


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


def _number(value: float) -> str:
    """JSON 的写法；NaN 与无穷是 `null`。"""
    return repr(float(value)) if math.isfinite(value) else "null"


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        if not file.tell():
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
