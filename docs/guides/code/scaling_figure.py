"""“更大的规模”一页的图：节点数与一步的时间，写成 docs/guides/figures/scaling.svg

由 scaling.py 调用。图内嵌进网页，颜色用 docs/assets/figures.css 里的类，随浅色与深色切换。
"""

from math import log2, log10

import scaling
from growth_figures import FIGURES, polyline, svg, text

FIGURE = FIGURES / "scaling.svg"
HEIGHT, PANEL = 556, 262
COLORS = {"1 Gbit/s": "b", "10 Gbit/s": "a", "100 Gbit/s": "c"}


def panel(top, title, faster, low):
    """一种节点：横轴节点数，纵轴一步的时间，都是对数"""
    left, right, bottom = 70, 366, top + PANEL - 46
    high = low + 4

    def at(nodes, seconds):
        x = left + (right - left) * log2(nodes) / log2(scaling.NODES[-1])
        return x, bottom - (bottom - top - 26) * (log10(seconds) - low) / (high - low)

    parts = [text(8, top + 8, title, "strong", 15)]
    for power in range(low, high + 1):
        y = at(1, 10.0**power)[1]
        parts.append(polyline([(left, y), (right, y)], "thin grid"))
        parts.append(text(left - 8, y + 5, f"{10.0**power:,g} 秒", "muted end", 13))
    for nodes in scaling.NODES:
        x = at(nodes, 1)[0]
        parts.append(polyline([(x, bottom), (x, bottom + 4)], "thin"))
        if nodes in {1, 8, 64, 512}:
            parts.append(text(x, bottom + 19, f"{nodes}", "muted center", 13))
    parts.append(text((left + right) / 2, bottom + 38, "节点数", "muted center", 13))
    single = scaling.gpt2("1 Gbit/s", 1, faster)[0]
    ideal = [at(nodes, single / nodes) for nodes in scaling.NODES]
    parts.append(polyline([ideal[0], ideal[-1]], "thin dash"))
    ends = [(ideal[-1][1], "理想", "muted")]
    for network, color in COLORS.items():
        points = [at(n, scaling.gpt2(network, n, faster)[0]) for n in scaling.NODES]
        parts.append(polyline(points, color))
        ends.append((points[-1][1], network, color))
    y = 1e9
    for wanted, label, color in sorted(ends, reverse=True):  # 由下往上，不让名字重叠
        y = min(wanted, y - 17)
        parts.append(text(right + 8, y + 5, label, color, 14))
    return parts


def figure():
    cores = scaling.read("scaling_compute")["gpt2"]["machine"]["cores"]
    parts = panel(10, f"本机这样的节点（{cores} 核）", 1, 0)
    parts += panel(10 + PANEL + 14, f"快 {scaling.FASTER} 倍的节点", scaling.FASTER, -1)
    title = (
        "124M 参数的一步要多少秒，随节点数与网络变化，两个轴都是对数：节点越快，越早离开理想的直线"
    )
    return svg(HEIGHT, title, parts)


def main():
    FIGURE.write_text(figure(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
