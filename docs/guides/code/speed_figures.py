"""“速度”一页的图：读 docs/book/results/speed.json，写 docs/guides/figures/speed-*.svg

    python docs/guides/code/speed_figures.py

`tests/benchmarks/run.py --json docs/book/results/speed.json` 写完结果会调用它；测试核对提交的图与这里画出的逐字相同。
"""

import json

from growth_figures import DOCS, FIGURES, polyline, short, svg, text

RESULTS = DOCS / "book" / "results" / "speed.json"
SIDES = {
    "PyTorch": "a",
    "torch.compile": "c",
    "PyTorch，1 个线程": "a-half",
    "书里的程序": "b",
    "下限": "d",
}
PIECES = {
    "矩阵乘法": "a",
    "注意力": "b",
    "GELU": "c",
    "归一化": "d",
    "嵌入与损失": "b-half",
    "更新": "d-half",
    "其余": "c-half",
}
LEFT, RIGHT, ROW = 150, 424, 24
LIMIT = 3
"""比值的横轴到这里为止，更长的条画到头，写出数"""


def bar(x, y, width, height, color):
    return (
        f'<rect class="f-{color}" x="{short(x)}" y="{short(y)}" width="{short(width)}" '
        f'height="{short(height)}"/>'
    )


def ratio_figure(results):
    """一步训练的时间，以 gptcore 的为 1；细线是中间一半的轮"""

    def at(ratio):
        return LEFT + (RIGHT - LEFT) * min(ratio, LIMIT) / LIMIT

    parts, y = [], 30
    for row in (row for row in results["rows"] if row["part"] == "step"):
        milliseconds = row["sides"]["gptcore"]["median"] * 1e3
        digits = 0 if milliseconds >= 100 else 1
        parts.append(
            text(8, y, f"{row['size']}：gptcore {milliseconds:.{digits}f} 毫秒", "strong", 15)
        )
        y += 10
        for side, color in SIDES.items():
            spread = row["ratios"].get(side)
            if spread is None:
                continue
            middle = y + ROW / 2
            parts.append(text(LEFT - 8, middle + 5, side, "end"))
            parts.append(bar(LEFT, y + 4, at(spread["median"]) - LEFT, ROW - 8, color))
            end = max(at(spread["median"]), at(spread["high"]))
            parts.append(
                polyline([(at(spread["low"]), middle), (at(spread["high"]), middle)], "thin")
            )
            parts.append(text(end + 6, middle + 5, f"{spread['median']:.2f}"))
            y += ROW
        y += 34
    bottom = y - 40
    grid = []
    for value in range(LIMIT + 1):
        kind = "" if value == 1 else "thin grid"
        grid.append(polyline([(at(value), 14), (at(value), bottom)], f"thin {kind}".strip()))
        grid.append(text(at(value), bottom + 18, f"{value}", "muted center", 13))
    label = text((LEFT + RIGHT) / 2, bottom + 38, "时间 ÷ gptcore 的时间", "muted center", 13)
    return svg(bottom + 48, "一步训练：各方的时间除以 gptcore 的", [*grid, *parts, label])


def share_figure(results):
    """一步的时间花在哪里，同一个尺寸的两条长度可以相比"""
    parts, y = [], 14
    for i, (piece, color) in enumerate(PIECES.items()):
        x, row = 8 + 116 * (i % 4), y + 22 * (i // 4)
        parts.append(bar(x, row, 14, 14, color))
        parts.append(text(x + 20, row + 12, piece))
    y += 72
    for size, sides in results["breakdown"].items():
        longest = max(sum(pieces.values()) for pieces in sides.values())
        parts.append(text(8, y + 4, size, "strong", 15))
        for side, pieces in sides.items():
            parts.append(text(100, y + 4, side, "end"))
            x = 110
            for piece, color in PIECES.items():
                width = 300 * pieces[piece] / longest
                parts.append(bar(x, y - 10, width, 20, color))
                x += width
            total = sum(pieces.values()) * 1e3
            digits = 0 if total >= 100 else 1
            parts.append(text(x + 6, y + 5, f"{total:.{digits}f}", "", 13))
            y += 26
        y += 14
    parts.append(text(110, y, "毫秒；同一个尺寸的两条可以比长短", "muted", 13))
    return svg(y + 12, "一步训练的时间花在哪里", parts)


def figures():
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    return {"speed-ratios": ratio_figure(results), "speed-shares": share_figure(results)}


if __name__ == "__main__":
    FIGURES.mkdir(exist_ok=True)
    for name, content in figures().items():
        (FIGURES / f"{name}.svg").write_text(content, encoding="utf-8")
