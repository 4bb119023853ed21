"""导入要多久：全新的解释器从启动到退出，`import gptcore` 并用到它，与 NumPy、PyTorch 相比

python tests/benchmarks/import_time.py
python tests/benchmarks/import_time.py --limit 0.15     # 比 `import numpy` 多花的秒数的上限
"""

import argparse
import importlib.util
import statistics
import subprocess
import sys
from collections.abc import Iterator

from pairing import Times, order, totals
from plan import Plan, add_options, plan_from
from rows import OURS, Row, make_row
from worker import timed

COMMANDS = {
    OURS: "import numpy, gptcore; gptcore.GPT",
    "NumPy": "import numpy",
    "PyTorch": "import torch",
}


def interpreter(code: str) -> Times:
    """在新的解释器里运行一段代码。"""
    return timed(lambda: subprocess.run([sys.executable, "-c", code], check=True))()


def alternating(plan: Plan) -> dict[str, list[Times]]:
    """各个命令轮流运行；先各跑一次，让字节码和磁盘缓存就位。"""
    commands = dict(COMMANDS)
    if importlib.util.find_spec("torch") is None:
        del commands["PyTorch"]
    for code in commands.values():
        interpreter(code)
    times: dict[str, list[Times]] = {name: [] for name in commands}
    for turn in range(plan.rounds or plan.rounds_for("M")):
        for name in order(list(commands), turn):
            times[name].append(interpreter(commands[name]))
    return times


def measure(plan: Plan) -> Iterator[Row]:
    """一项。"""
    yield make_row("import", "导入", "", alternating(plan))


def main() -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    add_options(parser)
    parser.add_argument(
        "--limit", type=float, default=0.15, help="比 import numpy 多花的秒数的上限"
    )
    options = parser.parse_args()
    from table import report

    times = alternating(plan_from(options))
    report([make_row("import", "导入", "", times)])
    extra = statistics.median(
        ours - base for ours, base in zip(totals(times[OURS]), totals(times["NumPy"]), strict=True)
    )
    print(f"比 import numpy 多 {extra:.3f} 秒（成对之差的中位数，上限 {options.limit} 秒）")
    return int(extra > options.limit)


if __name__ == "__main__":
    raise SystemExit(main())
