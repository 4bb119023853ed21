"""“时间与内存怎样增长”一页的图：读 docs/book/results/growth.json，写 docs/guides/figures/growth-*.svg

    python docs/guides/code/growth_figures.py

图内嵌进网页，颜色用 docs/assets/figures.css 里的类，随浅色与深色切换；测试核对提交的图与这里画出的逐字相同。
"""

import json
from dataclasses import dataclass, field
from html import escape
from math import ceil, floor, log10
from pathlib import Path
from statistics import median

DOCS = Path(__file__).resolve().parents[2]
RESULTS, FIGURES = DOCS / "book" / "results" / "growth.json", DOCS / "guides" / "figures"
WIDTH, PANEL, GAP = 480, 280, 20
LEFT, RIGHT = 62, 366
MIB = 2**20


# ---------------------------------------------------------------- 画笔


def short(value):
    """坐标写成最短的形式"""
    return f"{value:.1f}".removesuffix(".0")


def classes(prefix, kind):
    return " ".join([prefix, *(f"{prefix}-{word}" for word in kind.split())])


def text(x, y, content, kind="", size=16):
    return (
        f'<text class="{classes("t", kind)}" x="{short(x)}" y="{short(y)}" font-size="{size}">'
        f"{escape(content)}</text>"
    )


def polyline(points, kind):
    path = " ".join(f"{short(x)},{short(y)}" for x, y in points)
    return f'<polyline class="{classes("l", kind)}" points="{path}"/>'


def dot(x, y, color):
    return f'<circle class="f-{color}" cx="{short(x)}" cy="{short(y)}" r="3.5"/>'


def svg(height, title, parts):
    """一幅图；中间没有空行，Markdown 才不会改动它"""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" class="fig" '
        f'role="img" aria-label="{escape(title)}" font-family="inherit">\n{body}\n</svg>\n'
    )


# ---------------------------------------------------------------- 坐标


@dataclass
class Series:
    """一条线：右端的名字，颜色，各点；`marks` 是在每个点上画圆点，`joined` 是把它们连起来"""

    label: str
    color: str
    points: dict
    marks: bool = True
    dash: bool = False
    joined: bool = True

    @property
    def kind(self):
        return f"{self.color} dash" if self.dash else self.color


@dataclass
class Panel:
    """一个坐标系；`ticks` 是横轴上写出的数，`log_x` 与 `log_y` 说明哪个轴取对数"""

    title: str
    axis: str
    ticks: list
    series: list
    log_x: bool = True
    log_y: bool = True
    slopes: list = field(default_factory=list)

    def draw(self, top):
        xs = [float(x) for s in self.series for x in s.points]
        ys = [y for s in self.series for y in s.points.values()]
        place_x = scale(min(*xs, *self.ticks), max(xs), LEFT, RIGHT, self.log_x)
        levels = powers(ys) if self.log_y else steps(max(ys))
        bottom = top + PANEL - 50
        low, high = bounds(ys, self.log_y, levels)
        place_y = scale(low, high, bottom, top + 30, self.log_y)
        parts = [text(8, top + 10, self.title, "strong", 17)]
        for level in levels:
            y = place_y(level)
            parts.append(polyline([(LEFT, y), (RIGHT, y)], "thin grid"))
            parts.append(text(LEFT - 8, y + 5, f"{level:,g}", "muted end", 15))
        parts.append(polyline([(LEFT, bottom), (RIGHT, bottom)], "thin"))
        for tick in self.ticks:
            x = place_x(tick)
            parts.append(polyline([(x, bottom), (x, bottom + 4)], "thin"))
            parts.append(text(x, bottom + 20, f"{tick:g}", "muted center", 15))
        parts.append(text((LEFT + RIGHT) / 2, bottom + 41, self.axis, "muted center", 15))
        for (x0, y0), (x1, y1) in self.slopes:
            points = [(place_x(x0), place_y(y0)), (place_x(x1), place_y(y1))]
            parts.append(polyline(points, "thin dash"))
        ends = []
        for s in self.series:
            points = [(place_x(float(x)), place_y(y)) for x, y in s.points.items()]
            if s.joined:
                parts.append(polyline(points, s.kind))
            if s.marks:
                parts += [dot(x, y, s.color) for x, y in points]
            if s.label:
                ends.append((points[-1][1], s.label, s.color))
        return parts + labels(ends)


def labels(ends):
    """右端的名字，由下往上，不让它们重叠"""
    parts, y = [], 1e9
    for wanted, label, color in sorted(ends, reverse=True):
        y = min(wanted, y - 20)
        parts.append(text(RIGHT + 9, y + 5, label, color))
    return parts


def scale(low, high, start, end, logarithmic):
    """数到坐标"""
    if logarithmic:
        low, high = log10(low), log10(high)
        return lambda v: start + (end - start) * (log10(v) - low) / (high - low)
    return lambda v: start + (end - start) * (v - low) / (high - low)


def powers(values):
    """对数轴上的刻度：10 的整数次方，至少两个；不够时加上 2 与 5 倍的"""
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    whole = [10.0**k for k in range(low, high + 1)]
    inside = [v for v in whole if min(values) * 0.7 <= v <= max(values) * 1.3]
    if len(inside) >= 2:
        return inside
    dense = [m * 10.0**k for k in range(low, high + 1) for m in (1, 2, 5)]
    return [v for v in dense if min(values) * 0.9 <= v <= max(values) * 1.1]


def steps(high):
    """线性轴上的刻度：从 0 起，至多六个"""
    unit = 10.0 ** floor(log10(high))
    step = next(s for s in (unit / 5, unit / 2, unit, 2 * unit) if high / s <= 5)
    return [step * i for i in range(floor(high / step) + 1)]


def bounds(values, logarithmic, levels):
    if logarithmic:
        return min(*values, levels[0]) * 0.93, max(*values, levels[-1]) * 1.05
    return 0, max(*values, levels[-1]) * 1.04


# ---------------------------------------------------------------- 数据


def milliseconds(row, *parts):
    """各个尺寸的中位数；几部分是按轮相加"""
    return {
        float(x): 1e3
        * median(sum(values) for values in zip(*(times[p] for p in parts), strict=True))
        for x, times in row["time"].items()
    }


def mebibytes(bytes_of):
    return {float(x): count / MIB for x, count in bytes_of.items()}


def slope(points, start, power):
    """过 `start` 那一点、斜率为 `power` 的线段，画到最后"""
    end = max(points)
    y = points[start]
    return (start, y), (end, y * (end / start) ** power)


def time_series(row):
    return [
        Series("一步", "a", milliseconds(row, "rest", "attention", "update")),
        Series("注意力", "b", milliseconds(row, "attention")),
        Series("更新", "d", milliseconds(row, "update")),
        Series("其余", "c", milliseconds(row, "rest")),
    ]


def memory_series(row):
    needed = row["needed"]
    return [
        Series("峰值", "a", mebibytes(row["memory"])),
        Series(
            "必需量", "c", mebibytes({x: sum(n.values()) for x, n in needed.items()}), dash=True
        ),
        Series("权重 e", "b", mebibytes({x: n["weights"] for x, n in needed.items()}), dash=True),
        Series(
            "参数等", "d", mebibytes({x: n["parameters"] for x, n in needed.items()}), dash=True
        ),
    ]


def stacked(title, panels):
    parts = []
    for i, panel in enumerate(panels):
        parts += panel.draw(10 + i * (PANEL + GAP))
    return svg(len(panels) * (PANEL + GAP) + 2, title, parts)


def sweep(data, name, axis, ticks, title, logarithmic=True, power=None):
    """一组测量的两个坐标系：时间与内存"""
    row = data[name]
    times, memory = time_series(row), memory_series(row)
    slopes = (
        [] if power is None else [slope(times[1].points, float(data[f"{name}_fit"]["from"]), power)]
    )
    options = {"log_x": logarithmic, "log_y": logarithmic}
    return stacked(
        title,
        [
            Panel("一步的时间（ms）", axis, ticks, times, **options, slopes=slopes),
            Panel("内存的峰值（MiB）", axis, ticks, memory, **options),
        ],
    )


def per_token(times):
    return {float(t): 1e3 * median(values) for t, values in times.items()}


def token_panel(title, times, fit):
    """每个词元的时间与直线 a + b·t；虚线是与 t 无关的 a"""
    start, each = fit["fixed"]["value"], fit["each"]["value"] / 1e3  # 毫秒
    return Panel(
        title,
        "前面已有的词元 t",
        [0, 256, 512, 768, 1024],
        [
            Series("a + bt", "a", {0.0: start, 1024.0: start + 1024 * each}, marks=False),
            Series("", "b", per_token(times), joined=False),
            Series("a", "c", {0.0: start, 1024.0: start}, marks=False, dash=True),
        ],
        log_x=False,
        log_y=False,
    )


def figures(data):
    """文件名与内容"""
    generation = data["generation"]
    lengths, widths = [64, 128, 256, 512, 1024], [64, 128, 256, 512, 768]
    both = Panel(
        "每个词元的时间（ms），E = 128，4 块",
        "前面已有的词元 t",
        [0, 256, 512, 768, 1024],
        [
            Series("不用缓存", "b", per_token(generation["whole"])),
            Series("用缓存", "a", per_token(generation["M"])),
        ],
        log_x=False,
    )
    return {
        "growth-length": sweep(
            data,
            "length",
            "序列长度 T",
            lengths,
            "一步的时间与内存随序列长度的增长，两个轴都是对数：越长，注意力占得越多，线也越陡",
        ),
        "growth-width": sweep(
            data,
            "width",
            "嵌入尺寸 E",
            widths,
            "一步的时间与内存随嵌入尺寸的增长，两个轴都是对数：权重的乘法接近平方，注意力接近一次方",
        ),
        "growth-layers": sweep(
            data,
            "layers",
            "层数",
            [1, 2, 4, 6, 8, 10, 12],
            "一步的时间与内存随层数的增长，两个轴都从 0 起：都是直线",
            logarithmic=False,
        ),
        "growth-cache": stacked(
            "生成一个词元的时间，纵轴是对数：不用缓存时越写越慢，用缓存时几乎不变", [both]
        ),
        "growth-token": stacked(
            "用缓存时生成一个词元的时间，从 0 起：一条很平的直线 a + b·t，虚线是与 t 无关的 a",
            [
                token_panel("E = 128，4 块（ms）", generation["M"], data["token_M"]),
                token_panel("GPT-2 124M 的形状（ms）", generation["G"], data["token_G"]),
            ],
        ),
    }


if __name__ == "__main__":
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    FIGURES.mkdir(exist_ok=True)
    for name, content in figures(results).items():
        (FIGURES / f"{name}.svg").write_text(content, encoding="utf-8", newline="\n")
