"""GPT-2 124M 的一步要算多久：文档“更大的规模”由它推算几台机器的情形

量四样：一个窗口（1024 个词元）的前向与反向，裁剪与 AdamW 更新，梯度排进连续的内存再写回，两份梯度相加。
内存约占 6 GB。

    python tests/benchmarks/scaling.py                     # 打印
    python tests/benchmarks/scaling.py --json docs/book/results/scaling_compute.json
    python tests/benchmarks/scaling.py --context 128 --rounds 1 --blocks 2      # 试一试
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine_facts, run_facts

from gptcore import GPT, AdamWOptimizer, GPTLoss, Tensor, blas_threads
from gptcore.distributed.gradients import GradientBuffer


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measure(context: int, blocks: int, rounds: int) -> dict[str, Any]:
    """各样的时间，取几轮的中位数；第一轮只作热身。"""
    rng = np.random.default_rng(0)
    model = GPT(50257, context, 768, 12, blocks, init="gpt2", tied=True, head_bias=False, rng=rng)
    optimizer, loss_fn = AdamWOptimizer(model.parameter_groups(0.1), lr=1e-4), GPTLoss()
    ids = rng.integers(0, 50257, (1, context + 1))
    x, y = Tensor(ids[:, :-1]), Tensor(ids[:, 1:])
    other = rng.standard_normal(model.num_parameters, dtype=np.float32)
    total, buffer = np.zeros_like(other), GradientBuffer()

    def compute() -> None:
        optimizer.zero_grad()
        loss_fn(model(x), y).backward()

    def update() -> None:
        optimizer.clip_grad_norm(1.0)
        optimizer.step()

    def pack() -> None:
        buffer.reduce(optimizer.parameters, 1.0, lambda _: None)

    def add() -> None:
        np.add(total, other, out=total)

    actions = {"compute": compute, "update": update, "pack": pack, "add": add}
    times = [{name: seconds(action) for name, action in actions.items()} for _ in range(rounds + 1)]
    return {
        "parameters": model.num_parameters,
        "context": context,
        "rounds": rounds,
        **{name: round(statistics.median(t[name] for t in times[1:]), 4) for name in actions},
        "spread": {
            name: [round(pick(t[name] for t in times[1:]), 4) for pick in (min, max)]
            for name in actions
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="GPT-2 124M 的一步要算多久")
    parser.add_argument("--context", type=int, default=1024, help="一个窗口有几个词元")
    parser.add_argument("--blocks", type=int, default=12, help="块数；减少只为试一试")
    parser.add_argument("--rounds", type=int, default=7, help="轮数")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="BLAS 的线程数")
    parser.add_argument("--json", type=Path, help="把结果写到哪里")
    options = parser.parse_args()
    with blas_threads(options.threads):
        row = {
            **run_facts(),
            "machine": machine_facts(),
            "dtype": "float32",
            "threads": options.threads,
            **measure(options.context, options.blocks, options.rounds),
        }
    if options.json:
        text = json.dumps({"gpt2": row}, ensure_ascii=False, indent=1) + "\n"
        options.json.write_text(text, encoding="utf-8", newline="\n")
    machine = row["machine"]
    print(f"{machine['cpu']}，{machine['cores']} 核，{row['threads']} 个线程，{machine['blas']}")
    for name, title in (
        ("compute", f"前向与反向，一个 {options.context} 个词元的窗口"),
        ("update", "裁剪与更新"),
        ("pack", "梯度排进连续的内存再写回"),
        ("add", "两份梯度相加"),
    ):
        low, high = row["spread"][name]
        print(f"{title}：中位数 {row[name]:.3f} 秒（{low:.3f} – {high:.3f}）")


if __name__ == "__main__":
    main()
