"""读 `metrics.jsonl`：训练每一步的记录，一行一个 JSON 对象

三种行：

- `{"run": {…环境与设置…}, "step": 0}`：一次训练开始，或者从第几步接着训练；
- `{"step": 12, "loss": 2.1, "lr": 0.001, "grad_norm": 0.7, "tokens": 128, "seconds": 1.93}`：
  一步，`seconds` 从这次开始（或接着训练）算起；没有的数写 `null`；
- `{"evaluation": 1.93, "step": 500, "seconds": 70.1}`：做完 500 步之后的一次评估。

接着训练时续写在后面，中断之前多做的那几步作废。进程被杀时最后一行可能只写了一半，不算错。
"""

import json
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from gptcore.errors import DataError, system_reason
from gptcore.files import open_regular
from gptcore.kernels.array import Array
from gptcore.kernels.convert import brief

FILE_NAME = "metrics.jsonl"
MAX_LINE = 1 << 20
"""一行至多多少字节；更长的不是训练的记录"""
MAX_STEP = 1 << 53


@dataclass(frozen=True, eq=False)
class Metrics:
    """一次训练的记录，按步数排好；没有的数是 NaN。

    Attributes:
        steps: 记录了的步，从 0 数起，形状 (N,)
        losses: 损失，跳过的步是 NaN。
        lrs: 学习率。
        grad_norms: 裁剪之前梯度的范数。
        tokens: 上一条记录以来处理的词元。
        seconds: 上一条记录以来用的秒数，不含评估。
        evaluation_steps: 做完多少步之后评估，形状 (M,)
        evaluations: 评估的损失。
        runs: 每次开始（或接着训练）时记下的环境与设置。
        restarts: 从哪几步接着训练过。
    """

    steps: Array
    losses: Array
    lrs: Array
    grad_norms: Array
    tokens: Array
    seconds: Array
    evaluation_steps: Array
    evaluations: Array
    runs: list[Any]
    restarts: list[int]


def read_metrics(path: str | os.PathLike[str]) -> Metrics:
    """读训练的记录；训练还在进行时也可以读。

    同一步出现几次，以最后的为准；从第 $n$ 步接着训练，之前第 $n$ 步及以后的记录就作废。

    Args:
        path: `metrics.jsonl`，或者它所在的文件夹。

    Returns:
        记录；文件是空的时，里面的数组也是空的。

    Raises:
        DataError: 文件读不了，或者有一行不是训练的记录；被打断的半行不算。
    """
    file = Path(path)
    if file.is_dir():
        file /= FILE_NAME
    try:
        with open_regular(file) as stream:
            return _parse(stream, file)
    except OSError as error:
        raise DataError(
            f"不能读 {file}（{system_reason(error)}）；请给出训练写成的 {FILE_NAME}，或者它所在的文件夹"
        ) from error


class _Row(NamedTuple):
    """一步的记录，各项的次序与 `Metrics` 相同。"""

    loss: float
    lr: float
    grad_norm: float
    tokens: float
    seconds: float


class _Timeline:
    """按行的次序收集记录。"""

    def __init__(self) -> None:
        self.rows: dict[int, _Row] = {}
        self.evaluations: dict[int, float] = {}
        self.runs: list[Any] = []
        self.restarts: list[int] = []
        self._last: int | None = None  # 上一条记录的步
        self._clock = 0.0  # 到那时为止的秒数

    def add(self, line: dict[str, Any]) -> None:
        """加上一行；有不合要求的值时抛出 `ValueError`，消息说明是哪一项。"""
        if "run" in line:
            self._add_run(line)
        elif "evaluation" in line:
            self._add_evaluation(line)
        elif "loss" in line:
            self._add_step(line)
        else:
            raise ValueError("既没有 loss，也没有 evaluation 或 run")

    def _add_run(self, line: dict[str, Any]) -> None:
        self._last, self._clock = None, 0.0
        if "step" in line:
            step = _step(line)
            self.rows = {i: row for i, row in self.rows.items() if i < step}
            self.evaluations = {i: x for i, x in self.evaluations.items() if i <= step}
            self.restarts = [i for i in self.restarts if i < step] + [step] * (step > 0)
            self._last = step - 1
        self.runs.append(line["run"])

    def _add_step(self, line: dict[str, Any]) -> None:
        step, now = _step(line), _number(line, "seconds")
        count = 1 if self._last is None else step - self._last
        elapsed = now - self._clock
        tokens = _number(line, "tokens") * max(count, 1)
        valid = count > 0 and elapsed >= 0
        self.rows[step] = _Row(
            _number(line, "loss"),
            _number(line, "lr"),
            _number(line, "grad_norm"),
            tokens,
            elapsed if valid else math.nan,
        )
        self._last, self._clock = step, now

    def _add_evaluation(self, line: dict[str, Any]) -> None:
        step, now = _step(line), _number(line, "seconds")
        self.evaluations[step] = _number(line, "evaluation")
        if self._last in (None, step - 1) and not math.isnan(now):
            self._clock = now  # 评估用的时间不算在下一步里

    def metrics(self) -> Metrics:
        """整理成数组。"""
        steps, evaluated = sorted(self.rows), sorted(self.evaluations)
        rows = np.array([self.rows[i] for i in steps], np.float64).reshape(-1, len(_Row._fields))
        losses, lrs, grad_norms, tokens, seconds = rows.T
        return Metrics(
            np.array(steps, np.int64),
            losses,
            lrs,
            grad_norms,
            tokens,
            seconds,
            np.array(evaluated, np.int64),
            np.array([self.evaluations[i] for i in evaluated], np.float64),
            self.runs,
            self.restarts,
        )


def _parse(stream: BufferedReader, path: Path) -> Metrics:
    timeline, broken = _Timeline(), 0
    for number, raw in _lines(stream):
        line = _parse_line(raw)
        if broken and (line is None or "run" not in line):
            raise DataError(f"{path} 第 {broken} 行不是 JSON 对象；请删去这一行，或换回原来的文件")
        broken = 0 if line is not None else number  # 半行只能是最后一行，或者在又一次开始之前
        if line is not None:
            try:
                timeline.add(line)
            except ValueError as error:
                raise DataError(
                    f"{path} 第 {number} 行{error}；请删去这一行，或换回原来的文件"
                ) from error
    return timeline.metrics()


def _lines(stream: BufferedReader) -> Iterable[tuple[int, bytes]]:
    """不空的各行与行号。"""
    for number, raw in enumerate(iter(lambda: stream.readline(MAX_LINE), b""), start=1):
        if raw.strip():
            yield number, raw


def _parse_line(raw: bytes) -> dict[str, Any] | None:
    """一行的对象；不是 JSON 对象时是 `None`。"""
    try:
        value: Any = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError):  # 不是 UTF-8 也是 ValueError
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _step(line: dict[str, Any]) -> int:
    step = line.get("step")
    if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step < MAX_STEP:
        raise ValueError(f"的 step 是 {brief(step)}，必须是非负整数")
    return step


def _number(line: dict[str, Any], key: str) -> float:
    """一个数；没有、`null` 与不是有限数的都是 NaN。"""
    value = line.get(key)
    if value is None:
        return math.nan
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"的 {key} 是 {brief(value)}，必须是数或 null")
    number = float(value) if abs(value) < 1e308 else math.nan
    return number if math.isfinite(number) else math.nan
