"""内存：训练几步的峰值，比只有解释器与导入的库时多多少；生成时除了权重与缓存还用多少

各在自己的新进程里：先训练一步很小的模型，用到的模块都已导入，线程都已建立，此时的内存是基线；
再建立模型与优化器，训练几步，峰值减去基线。峰值由操作系统给出（Linux 的 VmHWM），所以分配器留着没有归还的、
各个线程的缓冲，都算在内。

    python tests/benchmarks/memory.py                  # M 与 L 的训练
    python tests/benchmarks/memory.py --generation     # GPT-2 124M 形状的生成
"""

import gc
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pairing import ALL, Times, order
from plan import Plan, use_our_threads
from rows import OURS, Row, make_row
from sizes import SIZES, Size
from worker import Jobs, Once

STEPS = 4
TINY = Size(2, 8, 16, 2, 1, 65)
STATUS = Path("/proc/self/status")


def resident() -> int:
    """此刻占用的内存，字节；不是 Linux 时是到目前为止的峰值。"""
    return _status("VmRSS") if STATUS.is_file() else peak()


def peak() -> int:
    """到目前为止的峰值，字节；Windows 上没有。"""
    if STATUS.is_file():
        return _status("VmHWM")
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(key: str) -> int:
    lines = STATUS.read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def forget_peak() -> None:
    """让峰值从此刻重新算起；不能时不管，导入时的峰值通常低于训练时的。"""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def growth(make_step: Callable[[Size], Callable[[], Any]], size: Size) -> Times:
    """训练几步，峰值比基线多多少字节。"""
    make_step(TINY)()
    gc.collect()
    forget_peak()
    baseline = resident()
    step = make_step(size)
    for _ in range(STEPS):
        step()
    return {ALL: peak() - baseline}


def sides(threads: int | None) -> Jobs:
    """gptcore 的一方。"""
    from step import gptcore_step

    def make_step(size: Size) -> Callable[[], float]:
        use_our_threads(size.parameters, threads)
        return gptcore_step(size, *size.random_batch())

    return _jobs(make_step)


def torch_sides(threads: int) -> Jobs:
    """PyTorch 的一方。"""
    import torch
    from step_torch import torch_step

    torch.set_num_threads(threads)
    return _jobs(lambda size: torch_step(size, *size.random_batch()))


def _jobs(make_step: Callable[[Size], Callable[[], Any]]) -> Jobs:
    def prepare(size: Size) -> Once:
        return lambda: growth(make_step, size)

    return {name: partial(prepare, size) for name, size in SIZES.items()}


def measure(plan: Plan) -> Iterator[Row]:
    """逐个尺寸，每一轮都用新的进程。"""
    starts = {
        OURS: ("memory:sides", plan.threads),
        "PyTorch": ("memory:torch_sides", plan.torch_threads),
    }
    for size in plan.sizes_or(["M", "L"]):
        used: dict[str, list[Times]] = {name: [] for name in starts}
        for turn in range(plan.rounds or (1 if plan.quick else 5)):
            for name in order(list(starts), turn):
                with plan.start(*starts[name]) as side:
                    used[name] += side.choose(size).run(1)
        yield make_row("memory", size, size, used)


def generation_sides(size: str, length: int, count: int) -> Jobs:
    """生成：权重与缓存之外最多还占多少，解释器与 NumPy 在内。"""
    import generation

    def prepare() -> Once:
        model, prompt = generation.make_model(size), generation.make_prompt(size, length)

        def once() -> Times:
            list(model.generate(prompt, count, temperature=0.8, top_k=50, top_p=0.95))
            weights = sum(p.data.nbytes for p in model.parameters)
            cache = model.new_cache(1, min(model.context_size, length + count)).nbytes
            return {"weights": weights, "cache": cache, "extra": peak() - weights - cache}

        return once

    return {"generate": prepare}


def report_generation(plan: Plan, size: str = "G", length: int = 512, count: int = 40) -> None:
    """打印生成时的内存。"""
    with plan.start("memory:generation_sides", size, length, count) as side:
        (used,) = side.choose("generate").run(1)
    weights, cache, extra = (used[name] / 2**20 for name in ("weights", "cache", "extra"))
    print(
        f"生成，提示 {length} 个词元：权重 {weights:.0f} MiB，缓存 {cache:.0f} MiB，"
        f"另加 {extra:.0f} MiB，解释器与 NumPy 在内"
    )


if __name__ == "__main__":
    from table import command

    if "--generation" in sys.argv:
        raise SystemExit(report_generation(Plan()))
    raise SystemExit(command(__doc__, measure))
