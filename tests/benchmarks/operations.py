"""一遍运算要多久：同一个逐元素的运算，NumPy 与 PyTorch 各用一个线程轮流做

NumPy 没有融合的核，一个核函数是许多遍这样的运算。哪些运算与 PyTorch 一样快，哪些慢，慢多少，由此看得出
核函数的比值从哪里来。数组是 512 行 128 列的 float32，256 KiB，留在二级缓存里；结果写进现成的数组。

    python tests/benchmarks/operations.py
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from pairing import alternate
from plan import Plan, use_our_threads
from rows import OURS, Row, make_row
from worker import Jobs, Once, timed

ROWS, COLUMNS = 512, 128
REPEATS = 20
"""一次做几遍：单独一遍只有几微秒"""

OPERATIONS = {
    "multiply": "两个数组相乘",
    "scale": "乘以一个数",
    "divide": "两个数组相除",
    "sqrt": "开平方",
    "exp": "exp",
    "tanh": "tanh",
    "columns": "每列乘以一个数",
    "rows": "每行减去一个数",
    "row sums": "每行的和",
    "row maxima": "每行的最大值",
    "positive": "负数变成 0",
}


def _arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x, y = (rng.random((ROWS, COLUMNS), np.float32) + np.float32(0.5) for _ in range(2))
    return x, y, np.empty_like(x)


def numpy_sides() -> Jobs:
    """NumPy 的一方，用库里核函数的写法。"""
    from gptcore.kernels.activation import relu_forward
    from gptcore.kernels.array import row_maxima, row_sums

    use_our_threads(0, 1)
    x, y, out = _arrays()
    column, row = y[:, :1].copy(), y[0].copy()
    return _repeated(
        {
            "multiply": lambda: np.multiply(x, y, out=out),
            "scale": lambda: np.multiply(x, np.float32(0.5), out=out),
            "divide": lambda: np.divide(x, y, out=out),
            "sqrt": lambda: np.sqrt(x, out=out),
            "exp": lambda: np.exp(x, out=out),
            "tanh": lambda: np.tanh(x, out=out),
            "columns": lambda: np.multiply(x, row, out=out),
            "rows": lambda: np.subtract(x, column, out=out),
            "row sums": lambda: row_sums(x),
            "row maxima": lambda: row_maxima(x),
            "positive": lambda: relu_forward(x),
        }
    )


def torch_sides() -> Jobs:
    """PyTorch 的一方，一个线程。"""
    import torch

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    x, y, out = map(torch.from_numpy, _arrays())
    column, row = y[:, :1].clone(), y[0].clone()
    return _repeated(
        {
            "multiply": lambda: torch.mul(x, y, out=out),
            "scale": lambda: torch.mul(x, 0.5, out=out),
            "divide": lambda: torch.div(x, y, out=out),
            "sqrt": lambda: torch.sqrt(x, out=out),
            "exp": lambda: torch.exp(x, out=out),
            "tanh": lambda: torch.tanh(x, out=out),
            "columns": lambda: torch.mul(x, row, out=out),
            "rows": lambda: torch.sub(x, column, out=out),
            "row sums": lambda: x.sum(1),
            "row maxima": lambda: x.amax(1),
            "positive": lambda: torch.relu(x),
        }
    )


def _repeated(work: dict[str, Callable[[], Any]]) -> Jobs:
    return {name: partial(_once, function) for name, function in work.items()}


def _once(function: Callable[[], Any]) -> Once:
    def repeat() -> None:
        for _ in range(REPEATS):
            function()

    once = timed(repeat)
    return lambda: {part: seconds / REPEATS for part, seconds in once().items()}


def measure(plan: Plan) -> Iterator[Row]:
    """逐个运算测。"""
    with plan.start("operations:numpy_sides") as ours, plan.start("operations:torch_sides") as them:
        for name, title in OPERATIONS.items():
            sides = {OURS: ours.choose(name), "PyTorch": them.choose(name)}
            yield make_row("operations", title, "", alternate(sides, plan.rounds_for("M")))


if __name__ == "__main__":
    from table import command

    raise SystemExit(command(__doc__, measure))
