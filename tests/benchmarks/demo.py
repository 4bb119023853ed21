"""检查 `gptcore demo`：时间、合格句子的比例、与下限的距离

    python tests/benchmarks/demo.py
    python tests/benchmarks/demo.py --picture docs/assets/demo.svg   顺便把画面存成图片

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
from rich.console import Console
from rich.terminal_theme import MONOKAI

from gptcore.cli.demo import DemoSettings, run_demo
from gptcore.cli.terminal import Terminal
from gptcore.data.stories import check_text
from gptcore.models import load_model
from gptcore.models.generation import generate_ids

# rich 自带的模板会从网上取字体；这里只用读者机器上的等宽字体
SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>gptcore demo 的一次运行</title>
<style>
.{unique_id}-matrix {{
  font-family: "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", "Noto Sans Mono CJK SC",
    "Sarasa Mono SC", "PingFang SC", "Microsoft YaHei", monospace;
  font-size: {char_height}px; line-height: {line_height}px;
}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="检查 gptcore demo")
    parser.add_argument("--picture", type=Path, help="把画面存成 SVG")
    parser.add_argument("--limit", type=float, default=60, help="时间上限，单位秒")
    options = parser.parse_args()

    plain = {"highlight": False, "markup": False, "emoji": False}
    if options.picture:
        options.picture = options.picture.resolve()
        console = Console(
            record=True, width=76, force_terminal=True, color_system="truecolor", **plain
        )
        console.print("$ gptcore demo", style="bold")
    else:
        console = Console(**plain)
    settings = DemoSettings()
    with tempfile.TemporaryDirectory() as temporary:
        before = Path.cwd()
        os.chdir(temporary)
        cpu = time.process_time()
        result = run_demo(Path("gptcore-demo"), Terminal(console), settings)
        cpu = time.process_time() - cpu
        model, tokenizer = load_model("gptcore-demo")
        os.chdir(before)

    if options.picture:
        text = console.export_svg(
            title="gptcore demo", theme=MONOKAI, code_format=SVG, unique_id="demo"
        )
        options.picture.write_text(
            "\n".join(line.rstrip() for line in text.splitlines()) + "\n", encoding="utf-8"
        )

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
