"""生成的速度：gptcore 与 transformers 轮流运行，都用键值缓存

两边是同一组随机的权重、float32，总取分数最高的；写出的词元也应当相同，不同就报错。

- 每个词元：除去第一个，接着的每一步，平均下来的时间；
- 第一个词元：从给出提示到得到它的时间。

    python tests/benchmarks/generation.py                     # M，与 GPT-2 124M 的形状 G
    python tests/benchmarks/generation.py --sizes G --threads 1 --cpu
    python tests/benchmarks/generation.py --sizes M --threads 1 --alone   # 缓存的开与关

`--cpu` 量处理器时间，机器上有别的程序时用，只在一个线程时有意义。内存：`memory.py --generation`。
"""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from pairing import Times, alternate
from plan import Plan, add_options, plan_from, use_our_threads
from random_model import random_model
from rows import OURS, Row, make_row
from sizes import SIZES, Size
from worker import Jobs, Once

from gptcore import GPT

CONTEXTS = {"S": 32, "M": 64, "L": 256, "G": 1024}
PROMPTS = {"S": (4, 24), "M": (8, 48), "L": (8, 128), "G": (19, 512)}
"""短的与长的提示各多少个词元"""
TOKENS = 40
CLOCKS = {True: time.process_time, False: time.perf_counter}


def shape(size: str) -> Size:
    """生成用的尺寸：上下文是模型的，不是训练那一批的。"""
    return SIZES[size]._replace(context=CONTEXTS[size])


def make_model(name: str) -> GPT:
    """GPT-2 的样子：输出头与词元嵌入共用一个矩阵。"""
    return random_model(shape(name), tied=True)


def make_prompt(size: str, length: int) -> list[int]:
    return np.random.default_rng(length).integers(0, SIZES[size].vocab, length).tolist()


def token_count(size: str, length: int) -> int:
    """写多少个词元：不超过上下文。"""
    return min(TOKENS, CONTEXTS[size] - length)


def clocked(clock: Callable[[], float], write: Callable[[Callable[[], None]], list[int]]) -> Once:
    """`write(tick)` 每写出一个词元调用一次 `tick`，返回全部词元。"""
    facts: dict[str, Any] = {}

    def once() -> Times:
        moments: list[float] = []
        start = clock()
        facts["ids"] = write(lambda: moments.append(clock()))
        each = (moments[-1] - moments[0]) / max(1, len(moments) - 1)
        return {"first": moments[0] - start, "each": each}

    once()
    once.facts = facts
    return once


def sides(size: str, threads: int | None, cpu: bool) -> Jobs:
    """gptcore 的一方；名字是提示的长度，`没有缓存` 的另加一个星号。"""
    model = make_model(size)
    if threads is not None:
        use_our_threads(SIZES[size].parameters, threads)

    def prepare(length: int, use_cache: bool) -> Once:
        prompt, count = make_prompt(size, length), token_count(size, length)

        def write(tick: Callable[[], None]) -> list[int]:
            ids: list[int] = []
            for token in model.generate(prompt, count, temperature=0, use_cache=use_cache):
                tick()
                ids.append(int(token))
            return ids

        return clocked(CLOCKS[cpu], write)

    return {
        f"{length}{mark}": partial(prepare, length, not mark)
        for length in PROMPTS[size]
        for mark in ("", "*")
    }


def torch_sides(size: str, threads: int, cpu: bool) -> Jobs:
    """transformers 的一方，同一组权重。"""
    import torch
    import transformers
    from generation_torch import same_model

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(threads)
    model = same_model(make_model(size))

    def prepare(length: int) -> Once:
        ids = torch.tensor([make_prompt(size, length)])
        mask, count = torch.ones_like(ids), token_count(size, length)

        def write(tick: Callable[[], None]) -> list[int]:
            out = model.write(ids, mask, count, tick)
            return out[0, length:].tolist()

        return clocked(CLOCKS[cpu], write)

    return {str(length): partial(prepare, length) for length in PROMPTS[size]}


def measure(plan: Plan, cpu: bool = False, alone: bool = False) -> Iterator[Row]:
    """逐个尺寸，短的与长的提示各测一次。"""
    for size in plan.sizes_or(["M", "G"]):
        ours_start = ("generation:sides", size, plan.threads, cpu)
        theirs_start = ("generation:torch_sides", size, plan.torch_threads, cpu)
        other = "没有缓存" if alone else "transformers"
        with (
            plan.start(*ours_start) as ours,
            plan.start(*(ours_start if alone else theirs_start)) as theirs,
        ):
            for length in PROMPTS[size]:
                both = {
                    OURS: ours.choose(str(length)),
                    other: theirs.choose(f"{length}*" if alone else str(length)),
                }
                if ours.facts["ids"] != theirs.facts["ids"]:
                    raise ValueError(f"{size}，提示 {length}：两边写出的词元不同")
                times = alternate(both, plan.rounds_for("L" if size == "G" else "M"))
                for piece, title in (("each", "每个词元"), ("first", "第一个词元")):
                    part = {side: [{piece: t[piece]} for t in runs] for side, runs in times.items()}
                    yield make_row("generation", f"{title}，提示 {length}", size, part)


def main() -> int:
    from table import run

    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    add_options(parser)
    parser.add_argument("--alone", action="store_true", help="比较缓存的开与关，不用 transformers")
    parser.add_argument("--cpu", action="store_true", help="量处理器时间")
    options = parser.parse_args()
    return run(measure(plan_from(options), options.cpu, options.alone), options)


if __name__ == "__main__":
    raise SystemExit(main())
