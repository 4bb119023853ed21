"""安全的代价：第二本里那次训练，每 500 步评估一次、存一个检查点，并且每一步都记录，慢多少

两次训练在同一个进程里轮流进行，一次什么回调也没有，一次有 `Evaluate`、`MetricsFile` 与 `Checkpoints`。机器忽快忽慢，
所以每次只走一小段就换另一边，次序交替；走满 500 步算一轮，比较每一轮的时间，取比值的中位数。

    GPTCORE_DATA=文件夹 python tests/benchmarks/safety.py
    GPTCORE_DATA=文件夹 python tests/benchmarks/safety.py --limit 512 --folder 另一个磁盘上的文件夹
"""

import argparse
import platform
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import gptcore
from gptcore import (
    GPT,
    AdamWOptimizer,
    CharDataset,
    Checkpoints,
    Evaluate,
    GPTLoss,
    GPTTrainer,
    MetricsFile,
    corpus_path,
)

EVERY, PIECE = 500, 50
NAMES = {"evaluate_now": "评估（连同最好的模型）", "save": "检查点", "on_step": "记录"}


def make_steps(steps: int, callbacks: list[Any]) -> Iterator[Any]:
    """一次训练：批大小 4，上下文 32，嵌入 64，两头，两块。"""
    dataset = CharDataset(corpus_path("tinyshakespeare"), batch_size=4, context_size=32)
    np.random.seed(42)
    model = GPT(dataset.vocab_size, 32, 64, 2, 2)
    trainer = GPTTrainer(model, GPTLoss(), AdamWOptimizer(model.parameters, lr=1e-3))
    return trainer.steps(dataset, steps, callbacks=callbacks)


def seconds(steps: Iterator[Any], count: int) -> float:
    """走 `count` 步的时间。"""
    start = time.perf_counter()
    done = sum(1 for _ in islice(steps, count))
    assert done == count
    return time.perf_counter() - start


def timed(owner: Any, name: str, spent: dict[str, list[float]]) -> None:
    """把一个方法换成计时的。"""
    method: Callable[..., Any] = getattr(owner, name)

    def timing(*args: Any) -> Any:
        start = time.perf_counter()
        try:
            return method(*args)
        finally:
            spent[name].append(time.perf_counter() - start)

    setattr(owner, name, timing)


def one_round(plain: Iterator[Any], safe: Iterator[Any]) -> tuple[float, float]:
    """各走 500 步，一小段一小段地轮流。"""
    totals = [0.0, 0.0]
    for i in range(EVERY // PIECE):
        for side in (0, 1) if i % 2 == 0 else (1, 0):
            totals[side] += seconds((plain, safe)[side], PIECE)
    return totals[0], totals[1]


def main() -> int:
    parser = argparse.ArgumentParser(description="评估、记录与检查点使训练慢多少")
    parser.add_argument("--rounds", type=int, default=20, help="轮数，每一轮两边各 500 步")
    limit = Evaluate().limit
    parser.add_argument("--limit", type=int, default=limit, help="每次评估多少个窗口")
    parser.add_argument("--folder", help="检查点写在哪里；默认是系统的临时文件夹")
    parser.add_argument("--at-most", type=float, default=5.0, help="百分数的上限")
    options = parser.parse_args()

    spent: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        metrics = MetricsFile(Path(folder) / "metrics.jsonl")
        checkpoints = Checkpoints(Path(folder) / "run", EVERY)
        callbacks = [Evaluate(EVERY, options.limit), metrics, checkpoints]
        count = (options.rounds + 1) * EVERY
        plain, safe = make_steps(count, []), make_steps(count, callbacks)
        one_round(plain, safe)  # 热身
        timed(checkpoints, "save", spent)
        timed(metrics, "on_step", spent)
        timed(GPTTrainer, "evaluate_now", spent)
        rounds = [one_round(plain, safe) for _ in range(options.rounds)]
        del plain, safe

    costs = [100 * (safe / plain - 1) for plain, safe in rounds]
    low, cost, high = statistics.quantiles(costs, n=4)
    usual = statistics.median(plain for plain, _ in rounds)
    print(
        f"{options.rounds} 轮，每轮 {EVERY} 步；每轮评估 {options.limit} 个窗口、存一个检查点，每步记录一行"
    )
    print(
        f"Python {platform.python_version()}，NumPy {np.__version__}，gptcore {gptcore.__version__}"
    )
    print(f"{EVERY} 步，没有回调：中位数 {usual:.3f} 秒")
    for name, title in NAMES.items():
        median = statistics.median(spent[name])
        total = median * len(spent[name]) / options.rounds
        print(f"  {title}：每次 {median * 1e3:.3f} 毫秒，占 {100 * total / usual:.2f}%")
    print(
        f"慢 {cost:.2f}%（中间一半的轮在 {low:.2f}% 到 {high:.2f}% 之间；上限 {options.at_most:g}%）"
    )
    return int(cost > options.at_most)


if __name__ == "__main__":
    raise SystemExit(main())
