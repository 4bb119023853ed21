"""时间与内存怎样增长：对上下文、嵌入尺寸、层数，与生成时已有的词元数

一步是前向、损失、反向、梯度裁剪与 AdamW。时间分成三份：注意力的核函数，更新（裁剪与 AdamW），其余。
各个尺寸轮流测，一轮正、一轮反，每次取几遍里最快的；指数按轮拟合，再取中位数。
内存在单独的进程里由 tracemalloc 量，不计时。

    python tests/benchmarks/growth.py                        # 只打印，全部约三分钟
    python tests/benchmarks/growth.py --json docs/book/results/growth.json    # 写结果，并重画页面的图
    python tests/benchmarks/growth.py --rounds 1 --small     # 试一试，十几秒
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from growth_fits import GENERATION, POSITIONS, SWEEPS, WIDTHS, needed_bytes, significant, summary
from pairing import Times, order, repeats_for
from random_model import random_model
from sizes import Size

import gptcore
from gptcore import GPT, AdamWOptimizer, GPTLoss, Tensor, blas_threads
from gptcore.models import blocks
from gptcore.threads import blas_info

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs" / "guides" / "code" / "growth_figures.py"
SEED = 0
Once = Callable[[], Times]
spent = {"attention": 0.0}
"""注意力的核函数用去的秒数，由 `watching_attention` 累加"""


# ---------------------------------------------------------------- 一步训练


@contextmanager
def watching_attention() -> Any:
    """给注意力的两个核函数套上计时。"""
    originals = {name: getattr(blocks, f"attention_{name}") for name in ("forward", "backward")}

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            result = function(*args, **options)
            spent["attention"] += time.perf_counter() - start
            return result

        return call

    for name, function in originals.items():
        setattr(blocks, f"attention_{name}", watched(function))
    try:
        yield
    finally:
        for name, function in originals.items():
            setattr(blocks, f"attention_{name}", function)


def training(size: Size) -> Once:
    """一步训练，返回三份时间。"""
    rng = np.random.default_rng(SEED)
    batch, context, embedding, heads, layers, vocab = size
    model = GPT(vocab, context, embedding, heads, layers, init="gpt2", rng=rng)
    optimizer, loss_fn = AdamWOptimizer(model.parameters, lr=1e-4), GPTLoss()
    x, y = (Tensor(rng.integers(0, vocab, (batch, context))) for _ in range(2))

    def once() -> Times:
        spent["attention"] = 0.0
        start = time.perf_counter()
        loss = loss_fn(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        computed = time.perf_counter()
        optimizer.clip_grad_norm(1.0)
        optimizer.step()
        end = time.perf_counter()
        return {
            "rest": computed - start - spent["attention"],
            "attention": spent["attention"],
            "update": end - computed,
        }

    return once


def product(width: int) -> Once:
    """前馈网络的第一个矩阵乘法，单独地做。"""
    rng = np.random.default_rng(SEED)
    x = rng.standard_normal((512, width), np.float32)
    weight = rng.standard_normal((4 * width, width), np.float32)
    out = np.empty((512, 4 * width), np.float32)

    def once() -> Times:
        start = time.perf_counter()
        np.matmul(x, weight.T, out=out)
        return {"product": time.perf_counter() - start}

    return once


# ---------------------------------------------------------------- 生成


def next_token(model: GPT, use_cache: bool) -> dict[int, Once]:
    """已经有几个词元时，再算下一个的分数；缓存里是随机的键与值，测完退回原来的长度。"""
    rng = np.random.default_rng(SEED)
    ids = rng.integers(0, model.vocab_size, (1, model.context_size))
    cache = model.new_cache() if use_cache else None
    if cache is not None:
        for array in (cache.keys, cache.values):
            array[...] = rng.standard_normal(array.shape, np.float32)

    def at(seen: int) -> Once:
        def once() -> Times:
            if cache is not None:
                cache.lengths[:] = seen
            new = ids[:, : seen + 1] if cache is None else ids[:, seen : seen + 1]
            start = time.perf_counter()
            model.next_scores(new, cache)
            return {"token": time.perf_counter() - start}

        return once

    return {seen: at(seen) for seen in POSITIONS}


# ---------------------------------------------------------------- 轮流测


def alternate(
    sides: Mapping[Any, Once], rounds: int, turn: float
) -> dict[str, dict[str, list[float]]]:
    """各个尺寸轮流测；每一次先不计时地运行一遍，再测大约 `turn` 秒，取最快的一遍。

    Returns:
        每个尺寸、每一部分、每一轮的秒数。
    """
    names = [str(name) for name in sides]
    runs = dict(zip(names, sides.values(), strict=True))
    repeats = {
        name: repeats_for(min(sum(once().values()) for _ in range(2)), turn)
        for name, once in runs.items()
    }
    times: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    for number in range(rounds):
        for name in order(names, number):
            runs[name]()
            for part, seconds in fastest([runs[name]() for _ in range(repeats[name])]).items():
                times[name].setdefault(part, []).append(significant(seconds))
    return {name: times[name] for name in names}


def fastest(runs: Sequence[Times]) -> Times:
    """总共最快的一遍：别的程序只会让它变慢。"""
    return min(runs, key=lambda run: sum(run.values()))


def only(part: str, times: Mapping[str, Mapping[str, list[float]]]) -> dict[str, list[float]]:
    return {name: parts[part] for name, parts in times.items()}


def peak(size: Size) -> int:
    """在单独的进程里，从空的内存开始：第二、三步的峰值，字节。"""
    command = [sys.executable, __file__, "--peak", *map(str, size)]
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def print_peak(size: Size) -> None:
    tracemalloc.start()
    once = training(size)
    once()
    tracemalloc.reset_peak()  # 抽初值时的 float64 不算
    once()
    once()
    print(tracemalloc.get_traced_memory()[1])


def measure(rounds: int, turn: float, small: bool) -> dict[str, Any]:
    """全部测量；每做完一组，在标准错误里说一声。"""
    data: dict[str, Any] = {}
    for sweep, sizes in SWEEPS.items():
        memory = {str(x): peak(size) for x, size in sizes.items()}
        with watching_attention():
            time_of = alternate({x: training(s) for x, s in sizes.items()}, rounds, turn)
        data[sweep] = {
            "sizes": {str(x): list(s) for x, s in sizes.items()},
            "time": time_of,
            "memory": memory,
            "needed": {str(x): needed_bytes(s) for x, s in sizes.items()},
        }
        print(f"{sweep} 测完", file=sys.stderr)
    products = alternate({x: product(x) for x in WIDTHS}, rounds, turn / 4)
    data["width"]["product"] = only("product", products)
    data["generation"] = generation = {}
    for kind, size in GENERATION.items():
        if small and kind == "G":
            generation[kind] = generation["M"]  # 试一试时不建 124M 的模型
            continue
        model = random_model(size, tied=size.tied)
        generation[kind] = only("token", alternate(next_token(model, True), rounds, turn))
        if kind == "M":
            generation["whole"] = only("token", alternate(next_token(model, False), rounds, turn))
        print(f"生成 {kind} 测完", file=sys.stderr)
    return data


def facts(threads: int, rounds: int) -> dict[str, Any]:
    """结果从哪里来：命令、版本、机器。"""
    info = blas_info()
    return {
        "command": " ".join(["python", "tests/benchmarks/growth.py", *sys.argv[1:]]),
        "seed": SEED,
        "dtype": "float32",
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "gptcore": gptcore.__version__,
        },
        "machine": f"{os.cpu_count()} 核 {platform.machine().replace('_', '-')} 云主机",
        "blas": info["blas"],
        "blas_kernel": info["blas_kernel"],
        "threads": threads,
        "rounds": rounds,
    }


def show(result: Mapping[str, Any]) -> None:
    """打印各张表与指数。"""
    for name, spec in {**result["tables"], "token": result["token_table"]}.items():
        print(f"\n{name}")
        for row in [spec["head"], *spec["rows"]]:
            print("  ".join(f"{cell:>10}" for cell in row))
    for sweep in SWEEPS:
        fit = result[f"{sweep}_fit"]
        print(
            f"\n{sweep} {fit['from']} – {fit['to']} 的指数：内存 {fit['memory']:.2f}；数出来的 {fit['counted']}"
        )
        for part, k in fit["time"].items():
            print(f"  {part:10} {k['median']:.2f}（{k['low']:.2f} – {k['high']:.2f}）")
    for name in ("product_rate", "layer_line", "token_M", "token_G", "whole_exponent"):
        print(f"\n{name} {result[name]}")


def main() -> None:
    parser = argparse.ArgumentParser(description="时间与内存怎样随尺寸增长")
    parser.add_argument("--rounds", type=int, default=11, help="轮数")
    parser.add_argument("--turn", type=float, default=0.1, help="每一轮里每个尺寸大约测多少秒")
    parser.add_argument("--threads", type=int, default=1, help="BLAS 的线程数")
    parser.add_argument("--small", action="store_true", help="只为试一试：不建 124M 的模型")
    parser.add_argument("--json", type=Path, help="把结果写到哪里，并重画页面的图")
    parser.add_argument("--peak", type=int, nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print_peak(Size(*options.peak))
        return
    start = time.perf_counter()
    with blas_threads(options.threads):
        data = {"facts": facts(options.threads, options.rounds)}
        data |= measure(options.rounds, options.turn, options.small)
    data |= summary(data)
    data["facts"]["minutes"] = significant((time.perf_counter() - start) / 60)
    show(data)
    print(f"\n全部用了 {data['facts']['minutes']:.1f} 分钟")
    if options.json:
        text = json.dumps(data, ensure_ascii=False, indent=1) + "\n"
        options.json.write_text(text, encoding="utf-8", newline="\n")
        if FIGURES.is_file():
            subprocess.run([sys.executable, str(FIGURES)], check=True)


if __name__ == "__main__":
    main()
