"""第 15 章由数据画出的图：读 docs/book/results/，写 docs/book/figures/

    python docs/book/code/chapter15_figures.py

图是内嵌进网页的 SVG：颜色用 CSS 变量，随浅色与深色切换；测试核对提交的图与这里画出的逐字相同。
"""

import json
import math
from html import escape
from pathlib import Path

BOOK = Path(__file__).resolve().parents[1]
RESULTS, FIGURES = BOOK / "results", BOOK / "figures"
WIDTH = 480

# 变量在 docs/assets/figures.css 里定义，逗号之后是没有样式表时的颜色
COLORS = {
    "a": "var(--fig-a, #1864ab)",
    "b": "var(--fig-b, #b4430e)",
    "c": "var(--fig-c, #287a39)",
    "d": "var(--fig-d, #862e9c)",
    "muted": "var(--fig-muted, #5c636a)",
    "text": "currentColor",
}


# ---------------------------------------------------------------- 画笔


def number(value):
    """坐标写成最短的形式"""
    return f"{value:.1f}".removesuffix(".0")


def text(x, y, content, color="text", anchor="start", size=15, weight=None):
    bold = f' font-weight="{weight}"' if weight else ""
    return (
        f'<text x="{number(x)}" y="{number(y)}" text-anchor="{anchor}" font-size="{size}"{bold} '
        f'style="fill:{COLORS[color]}">{escape(content)}</text>'
    )


def line(x1, y1, x2, y2, color="muted", width=1.0, dash=None):
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}" '
        f'stroke-width="{number(width)}"{dashes} style="stroke:{COLORS[color]}"/>'
    )


def curve(points, color, dash=None):
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    path = " ".join(f"{number(x)},{number(y)}" for x, y in points)
    return (
        f'<polyline points="{path}" fill="none" stroke-width="2.2" stroke-linejoin="round"{dashes} '
        f'style="stroke:{COLORS[color]}"/>'
    )


def dot(x, y, color, radius=4.5):
    return (
        f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" '
        f'style="fill:{COLORS[color]}"/>'
    )


def box(x, y, width, height, color, opacity=1.0):
    return (
        f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" '
        f'height="{number(height)}" fill-opacity="{opacity}" style="fill:{COLORS[color]}"/>'
    )


def svg(height, title, parts):
    """一幅图；开头与结尾各占一行，中间没有空行，Markdown 才不会改动它"""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'class="fig" role="img" aria-label="{escape(title)}" font-family="inherit">\n'
        f"{body}\n</svg>\n"
    )


def read(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


# ---------------------------------------------------------------- 图 15-1：一行数怎样被归一化

ROW = (1, 3, 3, 9)
WEIGHT, BIAS = (0.5, 1.5, 3.0, 1.2), (1.0, 0.0, 0.5, -0.5)


def row_steps():
    """五步，每一步是（名字，四个数，下面的说明，另画的水平线）"""
    mean = sum(ROW) / 4
    centred = [x - mean for x in ROW]
    variance = sum(x * x for x in centred) / 4
    deviation = math.sqrt(variance)
    normalized = [x / deviation for x in centred]
    result = [w * x + b for w, x, b in zip(WEIGHT, normalized, BIAS, strict=True)]
    return [
        ("x", ROW, f"求平均：μ = (1 + 3 + 3 + 9) / 4 = {short(mean)}", (mean, "μ")),
        ("x − μ", centred, statistics(centred), None),
        (
            "(x − μ)²",
            [x * x for x in centred],
            f"求平均：σ² = {short(variance)}，标准差 σ = {short(deviation)}",
            (variance, "σ²"),
        ),
        ("x̂ = (x − μ) / σ", normalized, statistics(normalized), None),
        ("y = w x̂ + b", result, statistics(result), None),
    ]


def statistics(values):
    mean = sum(values) / 4
    variance = sum((v - mean) ** 2 for v in values) / 4
    return f"均值 {short(mean)}，方差 {short(variance)}"


def short(value):
    """至多两位小数，负号用减号"""
    rounded = round(value, 2) + 0.0
    return f"{rounded:.2f}".rstrip("0").rstrip(".").replace("-", "−")


def row_figure(index):
    name, values, note, level = row_steps()[index]
    top, bottom, zero_floor = 58, 190, min(0.0, *values)
    span = max(0.0, *values) - zero_floor
    scale = (bottom - top) / span

    def height(value):
        return bottom - (value - zero_floor) * scale

    parts = [text(16, 26, name, weight="bold", size=18)]
    parts.append(line(16, height(0), WIDTH - 44, height(0)))
    parts.append(text(WIDTH - 36, height(0) + 5, "0", "muted"))
    for i, value in enumerate(values):
        x, y = 44 + 104 * i, height(value)
        parts.append(box(x, min(y, height(0)), 60, max(abs(y - height(0)), 1), "a", 0.75))
        parts.append(text(x + 30, 216, short(value), anchor="middle", size=17))
    if level:
        y = height(level[0])
        parts.append(line(16, y, WIDTH - 44, y, "b", 2, "6 4"))
        parts.append(text(WIDTH - 38, y + 5, level[1], "b"))
    parts.append(text(16, 248, note, "b" if level else "text", size=16))
    if index == 4:
        weights = "，".join(short(w) for w in WEIGHT)
        biases = "，".join(short(b) for b in BIAS)
        parts.append(text(150, 26, f"w = ({weights})", "muted", size=14))
        parts.append(text(150, 46, f"b = ({biases})", "muted", size=14))
    shown = "，".join(short(v) for v in values)
    return svg(262, f"第 {index + 1} 步，{name}：四个数是 {shown}。{note}", parts)


# ---------------------------------------------------------------- 图 15-2：残差流的方差随深度


def stream_figure():
    row = read("chapter15_stream")["initial"]
    left, right, top, bottom = 52, 330, 16, 268
    low, high = -4, 11

    def at(step, value):
        x = left + (right - left) * step / 24
        return x, bottom - (bottom - top) * (math.log10(value) - low) / (high - low)

    parts = []
    for power in range(-3, 12, 2):
        y = at(0, 10.0**power)[1]
        parts.append(line(left, y, right, y, width=0.5))
        parts.append(text(left - 8, y + 5, f"10{superscript(power)}", "muted", "end", 13))
    for blocks in (0, 2, 6, 12):
        x = at(2 * blocks, 1)[0]
        parts.append(line(x, top, x, bottom, width=0.8, dash="3 4"))
        parts.append(text(x, bottom + 20, f"{blocks}", "muted", "middle", 13))
    parts.append(
        text((left + right) / 2, bottom + 42, "经过的 Transformer 块", "muted", "middle", 14)
    )
    for key, color, label, dash in (
        ("none", "b", "没有归一化", None),
        ("layer", "a", "层归一化", None),
        ("none_shrunk", "c", "没有归一化，", "7 4"),
    ):
        points = [at(i, value) for i, value in enumerate(row[key])]
        parts.append(curve(points, color, dash))
        parts.append(text(right + 8, points[-1][1] + 5, label, color, size=14))
        if dash:
            parts.append(text(right + 8, points[-1][1] + 25, "缩小残差支路", color, size=14))
    title = (
        "残差流的方差随深度的变化，纵轴是对数：没有归一化时近似成指数增长，有层归一化时近似成正比"
    )
    return svg(320, title, parts)


def superscript(power):
    digits = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    return str(power).translate(digits)


# ---------------------------------------------------------------- 图 15-5：训练曲线


def training_figure():
    row, base = read("chapter15_train")["main"], read("chapter15_baselines")["baselines"]
    left, right, top, bottom = 40, 380, 14, 268
    low, high, last = 1.5, 4.5, row["curve"][-1][0]

    def at(step, loss):
        x = left + (right - left) * step / last
        return x, bottom - (bottom - top) * (loss - low) / (high - low)

    parts = []
    for loss in (2, 3, 4):
        y = at(0, loss)[1]
        parts.append(line(left, y, right, y, width=0.5))
        parts.append(text(left - 8, y + 5, str(loss), "muted", "end", 13))
    for key, label in (("uniform", "均匀"), ("unigram", "一元"), ("bigram", "二元")):
        y = at(0, base[key])[1]
        parts.append(line(left, y, right, y, "b", 1.4, "6 4"))
        parts.append(text(right + 8, y + 5, f"{label} {base[key]:.2f}", "b", size=14))
    points = [at(step, loss) for step, loss in row["curve"]]
    parts.append(curve(points, "a"))
    x, y = at(last, row["test_2"])
    parts.append(dot(x, y, "d"))
    parts.append(text(right + 8, y + 8, f"测试 {row['test_2']:.2f}", "d", size=14))
    parts.append(line(left, bottom, right, bottom))
    for epoch in (0, 1, 2):
        x = at(last * epoch / 2, low)[0]
        parts.append(text(x, bottom + 20, f"{epoch}", "muted", "middle", 13))
    parts.append(text((left + right) / 2, bottom + 42, "训练的轮数", "muted", "middle", 14))
    title = "训练损失（每 200 步的平均）很快低于二元模型，两轮之后的测试损失也画在上面"
    return svg(320, title, parts)


# ---------------------------------------------------------------- 图 15-6：消融

PANELS = (
    ("2 块，一轮", "chapter15_ablation2", "test_1", ("layer", "rms", "none")),
    ("6 块，一轮", "chapter15_ablation6", "test_1", ("layer", "rms", "none", "none_shrunk")),
)
NAMES = {
    "layer": ("层归一化", "a"),
    "rms": ("RMSNorm", "d"),
    "none": ("没有归一化", "b"),
    "none_shrunk": ("没有，缩小支路", "c"),
}


def ablation_figure():
    left, right, low, high = 140, 464, 1.76, 1.92
    rows = {name: read(name) for _, name, _, _ in PANELS}

    def at(loss):
        return left + (right - left) * (loss - low) / (high - low)

    parts, y = [], 30
    for title, name, key, norms in PANELS:
        parts.append(text(8, y, title, weight="bold"))
        y += 12
        top = y
        reference = [rows[name][f"layer_{seed}"][key] for seed in range(3)]
        centre = sum(reference) / 3
        shade = at(centre + 0.01) - at(centre - 0.01)
        parts.append(box(at(centre - 0.01), top, shade, 30 * len(norms), "a", 0.16))
        for norm in norms:
            label, color = NAMES[norm]
            parts.append(line(left, y + 15, right, y + 15, width=0.5))
            parts.append(text(left - 10, y + 20, label, color, "end", 14))
            values = [rows[name][f"{norm}_{seed}"][key] for seed in range(3)]
            parts += [dot(at(value), y + 15, color) for value in values]
            y += 30
        y += 34
    y -= 24
    for i in range(5):
        loss = low + (high - low) * i / 4
        parts.append(line(at(loss), y - 8, at(loss), y - 2))
        parts.append(text(at(loss), y + 14, f"{loss:.2f}", "muted", "middle", 13))
    parts.append(
        text((left + right) / 2, y + 36, "测试损失，每个点是一个种子", "muted", "middle", 14)
    )
    title = "各种归一化在三个种子下的测试损失；浅色带是层归一化的平均值上下 0.01"
    return svg(y + 48, title, parts)


def figures():
    """文件名与内容"""
    drawn = {f"fig-15-1-{i + 1}.svg": row_figure(i) for i in range(5)}
    drawn["fig-15-2.svg"] = stream_figure()
    drawn["fig-15-5.svg"] = training_figure()
    drawn["fig-15-6.svg"] = ablation_figure()
    return drawn


if __name__ == "__main__":
    for name, content in figures().items():
        (FIGURES / name).write_text(content, encoding="utf-8", newline="\n")
