"""AdamW 的一次更新与一次梯度裁剪：gptcore 与 PyTorch（融合的 AdamW）轮流运行

参数就是那个尺寸的模型的参数，梯度来自真的一次反向传播，之后不再变，所以量到的只有优化器自己。
裁剪的上限每次取上一次范数的 0.999 倍：每一次都真的要缩短。

    python tests/benchmarks/optimizer.py                       # M、L 与 G
    python tests/benchmarks/optimizer.py --sizes G --only AdamW
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from pairing import alternate
from plan import Plan, use_our_threads
from rows import OURS, Row, make_row
from sizes import SIZES, Size
from worker import Jobs, Once, timed

NAMES = {"AdamW": "AdamW", "clip": "梯度裁剪"}
"""名字，与表里的名字"""


def clipping(clip: Callable[[float], Any]) -> Callable[[], None]:
    """由“按这个上限裁剪，给出范数”得到总要缩短的裁剪。"""
    norm = 1.0

    def once() -> None:
        nonlocal norm
        norm = min(norm, float(clip(norm * 0.999)))

    return once


def sides(name: str, threads: int | None) -> Jobs:
    """gptcore 的一方。"""
    from step import gptcore_training

    size = SIZES[name]
    use_our_threads(size.parameters, threads)

    def prepare(work: str) -> Once:
        gradients, optimizer = gptcore_training(size, *short_batch(size))
        gradients()
        return timed(optimizer.step if work == "AdamW" else clipping(optimizer.clip_grad_norm))

    return {work: partial(prepare, work) for work in NAMES}


def torch_sides(name: str, threads: int) -> Jobs:
    """PyTorch 的一方。"""
    import torch
    from step_torch import torch_training

    size = SIZES[name]
    torch.set_num_threads(threads)

    def prepare(work: str) -> Once:
        gradients, optimizer, model = torch_training(size, *short_batch(size))
        gradients()
        clip = partial(torch.nn.utils.clip_grad_norm_, list(model.parameters()))
        return timed(optimizer.step if work == "AdamW" else clipping(clip))

    return {work: partial(prepare, work) for work in NAMES}


def short_batch(size: Size) -> Any:
    """只要有梯度就行，所以批大小是 1。"""
    return size._replace(batch=1).random_batch()


def measure(plan: Plan) -> Iterator[Row]:
    """逐个尺寸测。"""
    for size in plan.sizes_or(["M", "L", "G"]):
        with (
            plan.start("optimizer:sides", size, plan.threads) as ours,
            plan.start("optimizer:torch_sides", size, plan.torch_threads) as theirs,
        ):
            for name in NAMES:
                if plan.only is None or name in plan.only:
                    both = {OURS: ours.choose(name), "PyTorch": theirs.choose(name)}
                    times = alternate(both, plan.rounds_for("M"))
                    yield make_row("optimizer", NAMES[name], size, times)


if __name__ == "__main__":
    from table import command

    raise SystemExit(command(__doc__, measure, only=list(NAMES)))
