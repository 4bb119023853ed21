"""结果的表：打印在终端，也展开在网页上；各个脚本共用的命令行"""

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypedDict

from breakdown import PIECES as SHARES
from breakdown import breakdowns
from machine import Busy
from plan import Measure, add_options, plan_from
from rich.cells import cell_len
from rows import OURS, Row, Spread
from targets import checks


class Table(TypedDict):
    """一张表；每一格都是文字，`align` 里 l 靠左、r 靠右。"""

    head: list[str]
    align: str
    rows: list[list[str]]


TITLES = {
    "step": "一步训练",
    "kernels": "核函数，前向与反向",
    "operations": "一遍运算，一个线程",
    "optimizer": "优化器",
    "generation": "生成",
    "tokenizer": "分词器",
    "memory": "内存的峰值",
    "import": "导入",
}


NO_BREAK = "\u2060"
"""网页上不在这里换行"""
PIECES = {"forward": "前向", "backward": "反向"}


def duration(seconds: float) -> str:
    """时间，三位有效数字。"""
    for unit, scale in (("秒", 1.0), ("毫秒", 1e-3)):
        if seconds >= scale:
            return f"{significant(seconds / scale)} {unit}"
    return f"{significant(seconds * 1e6)} 微秒"


def significant(value: float) -> str:
    """三位有效数字，不用科学记数法。"""
    decimals = max(0, 2 - len(str(int(value))) + 1) if value >= 1 else 3
    return f"{value:,.{decimals}f}"


def size_of(count: float) -> str:
    """内存的大小。"""
    return f"{significant(count / 2**20)} MiB"


def ratio(spread: Spread) -> str:
    """比值，括号里是中间一半的范围。"""
    return f"{spread['median']:.2f}（{spread['low']:.2f}–{NO_BREAK}{spread['high']:.2f}）"


def side_names(rows: Iterable[Row]) -> list[str]:
    """出现过的各方，gptcore 在前。"""
    return list(dict.fromkeys([OURS, *(side for row in rows for side in row["sides"])]))


def part_table(rows: Sequence[Row]) -> Table:
    """一个部分的表：时间的中位数，与另一方 ÷ gptcore 的比值。

    只有一个对手时，两边的时间都写；对手多的只写 gptcore 的，别的可以由比值算出。有前向与反向的，另写各自的比值。
    """
    show = size_of if rows[0]["part"] == "memory" else duration
    sides = side_names(rows)
    others, shown = sides[1:], sides if len(sides) == 2 else sides[:1]
    named = any(row["name"] != row["size"] for row in rows)
    sized = any(row["size"] for row in rows)
    pieces = list(dict.fromkeys(piece for row in rows for piece in row.get("pieces", {})))
    head = ["项目"] * named + ["尺寸"] * sized + shown
    head += [f"{side} ÷ {OURS}" for side in others] + [PIECES[piece] for piece in pieces]
    body = [
        [row["name"]] * named
        + [row["size"]] * sized
        + [show(row["sides"][s]["median"]) if s in row["sides"] else "–" for s in shown]
        + [ratio(row["ratios"][s]) if s in row["ratios"] else "–" for s in others]
        + [f"{row['pieces'][piece][others[0]]['median']:.2f}" for piece in pieces]
        for row in rows
    ]
    labels = named + sized
    return {"head": head, "align": "l" * labels + "r" * (len(head) - labels), "rows": body}


def kernels_table(rows: Sequence[Row]) -> Table:
    """网页上的核函数：一行一个，各个尺寸的比值并排，括号里是前向与反向各自的。"""
    sizes = list(dict.fromkeys(row["size"] for row in rows))
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        forward, backward = (row["pieces"][p]["PyTorch"]["median"] for p in PIECES)
        whole = row["ratios"]["PyTorch"]["median"]
        cells.setdefault(row["name"], {})[row["size"]] = (
            f"{whole:.2f}（{forward:.2f}，{NO_BREAK}{backward:.2f}）"
        )
    body = [[name, *(found.get(size, "–") for size in sizes)] for name, found in cells.items()]
    return {"head": ["核函数", *sizes], "align": "l" + "r" * len(sizes), "rows": body}


def breakdown_table(rows: Sequence[Row]) -> Table:
    """一步的时间花在哪里，毫秒。"""
    found = [
        (size, side, pieces)
        for size, sides in breakdowns(rows).items()
        for side, pieces in sides.items()
    ]
    body = [
        [size, side, *(significant(seconds * 1e3) for seconds in pieces.values())]
        for size, side, pieces in found
    ]
    return {"head": ["尺寸", "", *SHARES], "align": "ll" + "r" * len(SHARES), "rows": body}


def checks_table(rows: Sequence[Row]) -> Table:
    """各项要求达到没有。"""
    body = [
        [
            TITLES[check.row["part"]],
            check.row["name"] if check.row["name"] != check.row["size"] else "",
            check.row["size"],
            f"{check.ratio:.2f}",
            f"≥ {check.target.at_least:g}",
            "达到" if check.passed else "**没有达到**",
        ]
        for check in checks(rows)
    ]
    head = ["部分", "项目", "尺寸", "PyTorch ÷ gptcore", "要求", ""]
    return {"head": head, "align": "lllrrl", "rows": body}


def by_part(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """按部分归到一起。"""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["part"], []).append(row)
    return found


def render(table: Table) -> str:
    """终端里的表；汉字占两列。"""
    lines = [table["head"], *table["rows"]]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            " " * (width - cell_len(cell)) + cell
            if side == "r"
            else cell + " " * (width - cell_len(cell))
            for cell, width, side in zip(line, widths, table["align"], strict=True)
        ).rstrip()
        for line in lines
    )


def progress(row: Row) -> str:
    """一项测完时的一行。"""
    name = row["name"] if row["name"] == row["size"] else f"{row['name']} {row['size']}".rstrip()
    found = "，".join(f"{side} {ratio(r)}" for side, r in row["ratios"].items())
    pieces = "".join(
        f"；{PIECES[piece]} " + "、".join(f"{r['median']:.2f}" for r in sides.values())
        for piece, sides in row.get("pieces", {}).items()
    )
    problems = "".join(f"；没有测成 {s}：{p}" for s, p in row.get("problems", {}).items())
    return f"{TITLES[row['part']]} {name}：{found}{pieces}{problems}"


def report(rows: Sequence[Row]) -> None:
    """打印全部的表。"""
    for part, found in by_part(rows).items():
        print(
            f"\n{TITLES[part]}（÷ {OURS} 是各轮时间之比的中位数与中间一半，大于 1 表示 {OURS} 更好）"
        )
        print(render(part_table(found)))


def judge(rows: Sequence[Row], busy: Busy) -> bool:
    """打印各项要求达到没有，与机器忙不忙；机器空闲，并且全部达到，才是真。"""
    found = list(checks(rows))
    if found:
        print("\n要求")
        print(render(checks_table(rows)))
    print(busy)
    return busy.idle and all(check.passed for check in found)


def command(title: str | None, measure: Measure, only: Sequence[str] | None = None) -> int:
    """一个部分单独运行。"""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=title, formatter_class=formatter)
    add_options(parser)
    if only is not None:
        parser.add_argument("--only", nargs="+", choices=only, help="只测哪几项")
    options = parser.parse_args()
    return run(measure(plan_from(options, getattr(options, "only", None))), options)


def run(rows: Iterable[Row], options: argparse.Namespace) -> int:
    """一项一项地测，最后打印表；有 `--check` 时看达到没有。"""
    found: list[Row] = []
    with Busy() as busy:
        for row in rows:
            print(progress(row), flush=True)
            found.append(row)
    report(found)
    return 0 if judge(found, busy) or not options.check else 1


def page_tables(rows: Sequence[Row]) -> dict[str, Table]:
    """网页上的表；没有测的部分没有。"""
    parts = by_part(rows)
    tables = {part: part_table(found) for part, found in parts.items()}
    if "kernels" in parts:
        tables["kernels"] = kernels_table(parts["kernels"])
    return tables | {"breakdown": breakdown_table(rows), "checks": checks_table(rows)}


def save(path: Path, facts: dict[str, Any], rows: Sequence[Row]) -> None:
    """写成 JSON：事实、每一项结果，以及网页上的表。"""
    results = {**facts, "breakdown": breakdowns(rows), "tables": page_tables(rows), "rows": rows}
    text = json.dumps(results, ensure_ascii=False, indent=1)
    path.write_text(text + "\n", encoding="utf-8")
