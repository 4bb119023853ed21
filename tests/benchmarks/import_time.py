"""`import gptcore` 并用到它，比 `import numpy` 多花多少时间

两个命令在全新的子进程里交替运行，比较每一对的差，取中位数：机器忽快忽慢时，
单独的两个平均数没有意义，成对的差才可靠。

    python tests/benchmarks/import_time.py
"""

import argparse
import statistics
import subprocess
import sys
import time


def run(code: str) -> float:
    """在新的解释器里运行一段代码，返回从启动到退出的秒数。"""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description="import gptcore 与 import numpy 的耗时之差")
    parser.add_argument("--rounds", type=int, default=30, help="成对运行的次数")
    parser.add_argument("--limit", type=float, default=0.15, help="允许多花的秒数")
    options = parser.parse_args()

    commands = {"numpy": "import numpy", "gptcore": "import numpy, gptcore; gptcore.GPT"}
    for code in commands.values():  # 先各跑一次，让字节码和磁盘缓存就位
        run(code)
    pairs: list[tuple[float, float]] = []
    for index in range(options.rounds):
        order = list(commands) if index % 2 == 0 else list(reversed(commands))
        seconds = {name: run(commands[name]) for name in order}
        pairs.append((seconds["numpy"], seconds["gptcore"]))

    difference = statistics.median(ours - base for base, ours in pairs)
    ratio = statistics.median(ours / base for base, ours in pairs)
    print(f"import numpy           {statistics.median(base for base, _ in pairs):.3f} 秒（含启动）")
    print(f"import numpy, gptcore  {statistics.median(ours for _, ours in pairs):.3f} 秒（含启动）")
    print(f"成对之差的中位数 {difference:+.3f} 秒，比值 {ratio:.2f}，上限 {options.limit} 秒")
    return int(difference > options.limit)


if __name__ == "__main__":
    raise SystemExit(main())
