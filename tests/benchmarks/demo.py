"""检查 `gptcore demo`：时间、合格句子的比例、与下限的距离

    python tests/benchmarks/demo.py

60 秒的上限只在安静的双核机器上有意义，机器忙时请看每步的 CPU 时间；其余两项与机器无关。
最后的样本只有二十几句，比例有几个百分点的偶然，所以另用 3000 个字符再数一次。
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from gptcore.cli.demo import DemoSettings, run_demo
from gptcore.cli.terminal import open_terminal
from gptcore.data.stories import check_text
from gptcore.models import load_model
from gptcore.models.generation import generate_ids


def main() -> int:
    parser = argparse.ArgumentParser(description="检查 gptcore demo")
    parser.add_argument("--limit", type=float, default=60, help="时间上限，单位秒")
    options = parser.parse_args()

    settings = DemoSettings()
    with tempfile.TemporaryDirectory() as temporary:
        before = Path.cwd()
        os.chdir(temporary)
        cpu = time.process_time()
        result = run_demo(Path("gptcore-demo"), open_terminal(), settings)
        cpu = time.process_time() - cpu
        model, tokenizer = load_model("gptcore-demo")
        os.chdir(before)

    print()
    print(
        f"负载 {os.getloadavg() if hasattr(os, 'getloadavg') else '未知'}，CPU 数 {os.cpu_count()}"
    )
    print(
        f"全部 {result.seconds:.1f} 秒（CPU {cpu:.1f} 秒），训练 {result.training_seconds:.1f} 秒，"
        f"每秒 {result.steps_per_second:.1f} 步"
    )
    rates = {}
    for temperature in (settings.temperature, 1.0):
        ids = generate_ids(
            model,
            tokenizer.encode("\n"),
            3000,
            model.context_size,
            temperature=temperature,
            rng=np.random.default_rng(0),
        )
        report = check_text(tokenizer.decode(list(ids)))
        rates[temperature] = report.sentence_rate
        print(
            f"温度 {temperature:g}：合格句子 {report.valid_sentences}/{report.sentences}"
            f"（{report.sentence_rate:.0%}），合格故事 {report.valid_stories}/{report.stories}"
        )
    checks = {
        f"全部时间 {result.seconds:.1f} ≤ {options.limit:g} 秒": result.seconds <= options.limit,
        f"样本的合格句子 {result.story.sentence_rate:.0%} ≥ 70%": result.story.sentence_rate >= 0.7,
        f"3000 字的合格句子 {rates[settings.temperature]:.0%} ≥ 70%": rates[settings.temperature]
        >= 0.7,
        f"与下限的距离 {result.gap:.3f} ≤ 0.15": result.gap <= 0.15,
    }
    for text, passed in checks.items():
        print("通过" if passed else "不通过", text)
    return int(not all(checks.values()))


if __name__ == "__main__":
    sys.exit(main())
