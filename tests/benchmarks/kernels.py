"""每个核函数的前向与反向：gptcore 与 PyTorch 轮流运行

前向与反向分别计时，比的是两者之和。gptcore 直接调用核函数，PyTorch 用它自己的运算与自动求导，输入的形状是
一步训练里的。`attention` 从并排的查询、键、值开始，到各头的结果并排为止。

    python tests/benchmarks/kernels.py                        # M、L 与 G 的形状
    python tests/benchmarks/kernels.py --sizes M --only GELU softmax
"""

from collections.abc import Callable, Iterator

from pairing import alternate
from plan import Plan
from rows import OURS, Row, make_row
from sizes import Size

PER_STEP: dict[str, Callable[[Size], int]] = {
    "linear E→3E": lambda size: size.blocks,
    "linear E→E": lambda size: size.blocks,
    "linear E→4E": lambda size: size.blocks,
    "linear 4E→E": lambda size: size.blocks,
    "linear E→V": lambda _: 1,
    "attention": lambda size: size.blocks,
    "GELU": lambda size: size.blocks,
    "layer norm": lambda size: 2 * size.blocks + 1,
    "embedding": lambda _: 1,
    "cross entropy": lambda _: 1,
    "RMSNorm": lambda _: 0,
    "ReLU": lambda _: 0,
    "softmax": lambda _: 0,
    "dropout": lambda _: 0,
    "attention, dropout": lambda _: 0,
}
"""核函数，与一步训练里各用几次；用 0 次的只单独测"""


def measure(plan: Plan) -> Iterator[Row]:
    """逐个尺寸、逐个核函数测。"""
    names = [name for name in PER_STEP if plan.only is None or name in plan.only]
    for size in plan.sizes_or(["M", "L", "G"]):
        with (
            plan.start("kernels_ours:sides", size, plan.threads) as ours,
            plan.start("kernels_torch:sides", size, plan.torch_threads) as theirs,
        ):
            for name in names:
                both = {OURS: ours.choose(name), "PyTorch": theirs.choose(name)}
                times = alternate(both, plan.rounds_for("L" if size == "G" else "M"))
                yield make_row("kernels", name, size, times, {OURS: ours.facts})


if __name__ == "__main__":
    from table import command

    raise SystemExit(command(__doc__, measure, only=list(PER_STEP)))
