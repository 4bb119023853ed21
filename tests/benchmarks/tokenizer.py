"""BPE 分词器的速度：训练、编码、解码，与 tiktoken、tokenizers 轮流运行

词表是 GPT-2 的，训练是 2000 次合并。gptcore 记着切过的片段，所以编码分冷、热两种：冷的从空的缓存开始，
热的是再编码一次同样的文字；另外两个没有这个区别。都只用一个线程编码，tokenizers 的训练用全部的核。

    GPTCORE_DATA=放有 tinyshakespeare.txt 与 gpt2/ 的文件夹 python tests/benchmarks/tokenizer.py
    …… tokenizer.py --megabytes 10 --strange      # 更长的文字；很长的片段，例如一百万个空格
"""

import argparse
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from pairing import alternate
from plan import Plan, add_options, plan_from
from rows import OURS, Row, make_row
from tokenizer_texts import STRANGE
from worker import SideError

WORKS = (
    "训练，英文",
    "训练，中文",
    "编码（冷），英文",
    "编码（热），英文",
    "编码（冷），几十万种词",
    "编码（热），几十万种词",
    "编码（冷），中文",
    "解码，英文",
)
LIMITS = {"训练": 20.0, "编码": 1.0}
"""1 MB 至多多少秒"""


def measure(plan: Plan, works: Sequence[str] = WORKS, megabytes: int = 1) -> Iterator[Row]:
    """逐件事测；没有语料时什么也不测。"""
    if "GPTCORE_DATA" not in os.environ:
        print("没有测分词器：请把 GPTCORE_DATA 设为放有语料与 gpt2/ 的文件夹", file=sys.stderr)
        return
    with ExitStack() as stack:

        def begin(name: str) -> Any:
            return plan.start(f"tokenizer_sides:{name}", megabytes)

        sides = {
            name: stack.enter_context(begin(name))
            for name in (OURS, "tiktoken", "tokenizers")
            if name == OURS or importlib.util.find_spec(name)
        }
        for work in works:
            ready: dict[str, Any] = {}
            problems: dict[str, str] = {}
            for name in [n for n in sides if n != "tiktoken" or not work.startswith("训练")]:
                try:
                    ready[name] = sides[name].choose(work)
                    sides[name].run(1)
                except SideError as error:  # 很长的空白让 tiktoken 的正则栈溢出，进程就没有了
                    if name == OURS:
                        raise
                    problems[name] = str(error)
                    ready.pop(name, None)
                    sides[name] = stack.enter_context(begin(name))
            rounds = min(plan.rounds_for("L"), 3 if work.startswith("训练") else 8)
            size = f"{megabytes} MB" if work.split("，")[1] not in STRANGE else ""
            yield make_row("tokenizer", work, size, alternate(ready, rounds), problems=problems)


def within_limits(row: Row, megabytes: int) -> bool:
    """gptcore 自己有没有慢过上限。"""
    limit = LIMITS.get(row["name"][:2])
    return limit is None or row["sides"][OURS]["median"] <= limit * megabytes


def main() -> int:
    from table import run

    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    add_options(parser)
    parser.add_argument("--megabytes", type=int, default=1, help="文字有多少 MB")
    parser.add_argument("--strange", action="store_true", help="另测很长的片段")
    options = parser.parse_args()
    works = [*WORKS, *(f"编码（冷），{kind}" for kind in STRANGE if options.strange)]
    slow: list[str] = []

    def watched() -> Iterator[Row]:
        for row in measure(plan_from(options), works, options.megabytes):
            if not within_limits(row, options.megabytes):
                slow.append(row["name"])
            yield row

    code = run(watched(), options)
    if slow:
        print("太慢：" + "、".join(slow))
    return int(bool(slow)) or code


if __name__ == "__main__":
    raise SystemExit(main())
