"""一步训练的时间：前向、损失、反向、梯度裁剪与 AdamW，都走公开的接口

比较的各方，各在自己的进程里，轮流运行：

- gptcore：线程数与 `GPTTrainer` 训练同样大小的模型时相同；
- PyTorch：eager，全部的核，融合的 AdamW，scaled_dot_product_attention；另有一个线程的，模型小时它更快；
- torch.compile：同一个模型，编译不计在内；
- 书里的程序：第 15 章的模型与损失，反向写成闭包；线性层、softmax 与优化器用库里的；只测 S 与 M；
- 下限：一步必须做的乘加，按这台机器做一次大的矩阵乘法的速度来做要多久，乘法之外的都不算。

    python tests/benchmarks/step.py                        # 全部尺寸
    python tests/benchmarks/step.py --sizes S M --threads 1
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from floor import floor_seconds
from pairing import ALL, Times, alternate
from plan import Plan, cpu_count, use_our_threads
from rows import OURS, Row, make_row
from sizes import SIZES, Size
from worker import Jobs, Local, Once, SideError, Worker, timed

from gptcore import GPT, AdamWOptimizer, GPTLoss, Tensor

BOOK_CODE = Path(__file__).resolve().parents[2] / "docs" / "book" / "code"
BOOK, FLOOR = "书里的程序", "下限"
EAGER, COMPILED, ONE = "PyTorch", "torch.compile", "PyTorch，1 个线程"


def gptcore_training(
    size: Size, ids: np.ndarray, labels: np.ndarray
) -> tuple[Callable[[], Tensor], AdamWOptimizer]:
    """求出梯度的函数，优化器。"""
    _, length, embedding, heads, blocks, vocab = size
    model = GPT(vocab, length, embedding, heads, blocks, head_bias=not size.tied, tied=size.tied)
    return _training(model, GPTLoss(), ids, labels)


def gptcore_step(size: Size, ids: np.ndarray, labels: np.ndarray) -> Callable[[], float]:
    """完整的一步，给出损失。"""
    return _step(*gptcore_training(size, ids, labels))


def book_step(size: Size, ids: np.ndarray, labels: np.ndarray) -> Callable[[], float]:
    """第 15 章的程序的一步。"""
    sys.path.insert(0, str(BOOK_CODE))
    import chapter15

    _, *shape = size
    length, embedding, heads, blocks, vocab = shape
    model = chapter15.GPT(vocab, length, embedding, heads, blocks)
    return _step(*_training(model, chapter15.GPTLoss(), ids, labels))


def _training(
    model: Any, loss_fn: Any, ids: np.ndarray, labels: np.ndarray
) -> tuple[Callable[[], Tensor], AdamWOptimizer]:
    optimizer = AdamWOptimizer(model.parameters, lr=1e-3)
    x, y = Tensor(ids), Tensor(labels)

    def gradients() -> Tensor:
        loss = loss_fn(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        return loss

    return gradients, optimizer


def _step(gradients: Callable[[], Tensor], optimizer: AdamWOptimizer) -> Callable[[], float]:
    def step() -> float:
        loss = gradients()
        optimizer.clip_grad_norm(1.0)
        optimizer.step()
        return float(loss.data)

    step.parameters = sum(p.size for p in optimizer.parameters)
    return step


def sides(threads: int | None, book: bool = False) -> Jobs:
    """各个尺寸，gptcore 或书里的程序。"""
    np.random.seed(0)

    def prepare(size: Size) -> Once:
        step = (book_step if book else gptcore_step)(size, *size.random_batch())
        once = timed(step)
        used = use_our_threads(step.parameters, threads)
        once.facts = {"parameters": step.parameters, "first_loss": step(), **used}
        return once

    return {name: partial(prepare, size) for name, size in SIZES.items()}


def contenders(plan: Plan, size: str) -> dict[str, tuple[Any, ...]]:
    """一个尺寸有哪几方：名字，与怎样开始它。"""
    found: dict[str, tuple[Any, ...]] = {
        OURS: ("step:sides", plan.threads),
        EAGER: ("step_torch:sides", plan.torch_threads),
        ONE: ("step_torch:sides", 1),
        COMPILED: ("step_torch:sides", plan.torch_threads, True),
        BOOK: ("step:sides", plan.threads, True),
        FLOOR: ("floor:sides",),
    }
    if size not in ("S", "M"):
        del found[BOOK], found[ONE]
    if plan.torch_threads == 1:
        found.pop(ONE, None)
    return {name: start for name, start in found.items() if name not in plan.without}


def measure(plan: Plan) -> Iterator[Row]:
    """逐个尺寸测；各方的进程中途重新开始几次。

    同一个程序，这次启动与下次启动，快慢可以差三成，而且一直差到结束：PyTorch 的 S 有两档，1.8 与 2.4 毫秒。
    """
    for name in plan.sizes_or(list(SIZES)):
        facts: dict[str, Any] = {}
        problems: dict[str, str] = {}
        times: dict[str, list[Times]] = {}
        for rounds in plan.sessions_for(name):
            with ExitStack() as stack:
                running = _started(plan, name, stack, problems)
                facts |= {side: one.facts for side, one in running.items()}
                _require_same(facts)
                for side, found in alternate(running, rounds).items():
                    times.setdefault(side, []).extend(found)
        times = {side: found for side, found in times.items() if side not in problems}
        if FLOOR in times:
            threads = plan.threads or cpu_count()
            facts[FLOOR] |= {"multiply_adds": SIZES[name].multiply_adds, "threads": threads}
            times[FLOOR] = _floor(times[FLOOR], SIZES[name], threads)
        yield make_row("step", name, name, times, facts, problems)


def _started(
    plan: Plan, name: str, stack: ExitStack, problems: dict[str, str]
) -> dict[str, Local | Worker]:
    """各方的进程；不能运行的记在 `problems` 里，以后也不再试。"""
    running: dict[str, Local | Worker] = {}
    for side, start in contenders(plan, name).items():
        if side in problems:
            continue
        try:
            one = stack.enter_context(plan.start(*start)).choose(name)
            one.run(1)  # 编译要到运行时才失败
        except SideError as error:
            if side == OURS:
                raise
            problems[side] = str(error)
        else:
            running[side] = one
    return running


def _floor(runs: list[Times], size: Size, threads: int) -> list[Times]:
    return [{ALL: floor_seconds(size.multiply_adds, run[ALL], threads)} for run in runs]


def _require_same(facts: Mapping[str, Mapping[str, Any]]) -> None:
    """各方的模型要一样大。"""
    counts = {side: found["parameters"] for side, found in facts.items() if "parameters" in found}
    if len(set(counts.values())) > 1:
        raise ValueError(f"各方的参数个数不同：{counts}")


if __name__ == "__main__":
    from table import command

    raise SystemExit(command(__doc__, measure))
