"""全部的测速，一条命令；打印表，也可以写成 JSON

    python tests/benchmarks/run.py                                   # 全部，约 20 分钟，要一台空闲的机器
    python tests/benchmarks/run.py --quick                           # 每项 3 轮，看看能不能运行
    python tests/benchmarks/run.py --only step kernels --sizes S M
    python tests/benchmarks/run.py --check                           # 有比值没有达到要求时，退出码是 1
    python tests/benchmarks/run.py --json docs/book/results/speed.json   # 写结果，并重画网页上的图

每个部分也能单独运行，说明在各个文件的开头。要比较的库没有安装（`pip install torch transformers tokenizers tiktoken`），
那个部分就失败，其余的照测。

各方各在自己的进程里，轮流运行，次序每轮交换，取各轮比值的中位数与中间一半；为什么这样，见 pairing.py 与 worker.py。
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import generation
import import_time
import kernels
import memory
import operations
import optimizer
import step
import tokenizer
from machine import ROOT, Busy, machine_facts, run_facts
from plan import Measure, Plan, add_options, plan_from
from rows import Row
from table import TITLES, breakdown_table, judge, progress, render, report, save
from worker import SideError

PARTS: dict[str, Measure] = {
    "step": step.measure,
    "kernels": kernels.measure,
    "operations": operations.measure,
    "optimizer": optimizer.measure,
    "memory": memory.measure,
    "generation": generation.measure,
    "tokenizer": tokenizer.measure,
    "import": import_time.measure,
}
FIGURES = ROOT / "docs" / "guides" / "code" / "speed_figures.py"


def everything(plan: Plan, parts: list[str], failed: dict[str, str]) -> Iterator[Row]:
    """逐个部分测；一个部分不能运行时记下来，接着测下一个。"""
    for part in parts:
        start = time.perf_counter()
        try:
            yield from PARTS[part](plan)
        except SideError as error:
            failed[part] = str(error)
        print(f"—— {TITLES[part]}：{time.perf_counter() - start:.0f} 秒", flush=True)


def main() -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    add_options(parser)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), help="只测哪几个部分")
    parser.add_argument("--json", type=Path, help="结果写到哪里")
    options = parser.parse_args()
    facts = {**run_facts(), "machine": machine_facts()}
    rows: list[Row] = []
    failed: dict[str, str] = {}
    with Busy() as busy:
        for row in everything(plan_from(options), options.only or list(PARTS), failed):
            print(progress(row), flush=True)
            rows.append(row)
    report(rows)
    if breakdown_table(rows)["rows"]:
        print("\n一步的时间花在哪里，毫秒")
        print(render(breakdown_table(rows)))
    for part, reason in failed.items():
        print(f"{TITLES[part]}没有测成：{reason}")
    facts["others_busy"] = busy.share
    if options.json:
        save(options.json, facts, rows)
        if options.json.resolve() == ROOT / "docs" / "book" / "results" / "speed.json":
            subprocess.run([sys.executable, str(FIGURES)], check=True)
    passed = judge(rows, busy) or not options.check
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
