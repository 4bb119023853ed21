"""每个核函数的前向与反向：gptcore 与 PyTorch 轮流运行

前向与反向分别计时，比的是两者之和。gptcore 直接调用核函数，PyTorch 用它自己的运算与自动求导，输入的形状是
一步训练里的。注意力从并排的查询、键、值开始，到各头的结果并排为止。

    python tests/benchmarks/kernels.py                        # M、L 与 G 的形状
    python tests/benchmarks/kernels.py --sizes M --only GELU softmax
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from pairing import alternate
from plan import Plan
from rows import OURS, Row, make_row
from sizes import Size


class Kernel(NamedTuple):
    """表里的名字，与一步训练里用几次；不用的只单独测。"""

    title: str
    per_step: Callable[[Size], int] = lambda _: 0


def _each_block(size: Size) -> int:
    return size.blocks


KERNELS = {
    "linear E→3E": Kernel("线性 E→3E", _each_block),
    "linear E→E": Kernel("线性 E→E", _each_block),
    "linear E→4E": Kernel("线性 E→4E", _each_block),
    "linear 4E→E": Kernel("线性 4E→E", _each_block),
    "linear E→V": Kernel("线性 E→V", lambda _: 1),
    "attention": Kernel("注意力", _each_block),
    "GELU": Kernel("GELU", _each_block),
    "layer norm": Kernel("层归一化", lambda size: 2 * size.blocks + 1),
    "embedding": Kernel("嵌入", lambda _: 1),
    "cross entropy": Kernel("交叉熵", lambda _: 1),
    "RMSNorm": Kernel("均方根归一化"),
    "ReLU": Kernel("ReLU"),
    "softmax": Kernel("softmax"),
    "dropout": Kernel("随机失活"),
    "attention, dropout": Kernel("注意力，失活"),
}


def measure(plan: Plan) -> Iterator[Row]:
    """逐个尺寸、逐个核函数测。"""
    names = [name for name in KERNELS if plan.only is None or name in plan.only]
    for size in plan.sizes_or(["M", "L", "G"]):
        with (
            plan.start("kernels_ours:sides", size, plan.threads) as ours,
            plan.start("kernels_torch:sides", size, plan.torch_threads) as theirs,
        ):
            for name in names:
                both = {OURS: ours.choose(name), "PyTorch": theirs.choose(name)}
                times = alternate(both, plan.rounds_for("L" if size == "G" else "M"))
                yield make_row("kernels", KERNELS[name].title, size, times)


if __name__ == "__main__":
    from table import command

    raise SystemExit(command(__doc__, measure, only=list(KERNELS)))
