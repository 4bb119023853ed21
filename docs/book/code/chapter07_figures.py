"""第 7 章的插图：手算小例的数当场算出，曲线读 docs/book/results/chapter07.json，写进 docs/book/figures/

    python docs/book/code/chapter07_figures.py

图是内嵌进网页的 SVG，颜色和字体由 docs/assets/figures.css 里的类给出；测试核对提交的图与这里画出的逐字相同。
"""

import json
import math
from html import escape
from pathlib import Path

import numpy as np

BOOK = Path(__file__).resolve().parents[1]
FIGURES = BOOK / "figures"
WIDTH = 400

# 手算小例，与正文的单元格相同
VOCAB = "abcd"
TABLE = np.array([[1, 4], [3, -1], [4, 1], [-2, 5]])
IDS = [2, 0, 2]
GRADIENT = np.array([2, -1])


# ---------------------------------------------------------------- 画笔


def short(value):
    """坐标和整数写成最短的形式。"""
    return f"{value:.1f}".removesuffix(".0")


def signed(value):
    """图里的数，负号用减号。"""
    return f"{value:g}".replace("-", "−")


def text(x, y, content, kind="", size=15):
    classes = " ".join(["t", *(f"t-{word}" for word in kind.split())])
    return (
        f'<text class="{classes}" x="{short(x)}" y="{short(y)}" font-size="{size}">'
        f"{escape(str(content))}</text>"
    )


def line(x1, y1, x2, y2, kind="thin"):
    classes = " ".join(["l", *(f"l-{word}" for word in kind.split())])
    return f'<path class="{classes}" d="M{short(x1)} {short(y1)}L{short(x2)} {short(y2)}"/>'


def arrow(x1, y1, x2, y2, kind=""):
    """带箭头的线，水平或竖直。"""
    classes = " ".join(["l", *(f"l-{word}" for word in kind.split())])
    angle = math.atan2(y2 - y1, x2 - x1)
    wings = [
        (x2 - 8 * math.cos(angle + turn), y2 - 8 * math.sin(angle + turn)) for turn in (0.5, -0.5)
    ]
    (ax, ay), (bx, by) = wings
    head = f"M{short(ax)} {short(ay)}L{short(x2)} {short(y2)}L{short(bx)} {short(by)}"
    return f'<path class="{classes}" d="M{short(x1)} {short(y1)}L{short(x2)} {short(y2)}{head}"/>'


def curve(points, kind):
    classes = " ".join(["l", *(f"l-{word}" for word in kind.split())])
    path = " ".join(f"{short(x)},{short(y)}" for x, y in points)
    return f'<polyline class="{classes}" points="{path}"/>'


def dot(x, y, color):
    return f'<circle class="f-{color}" cx="{short(x)}" cy="{short(y)}" r="4"/>'


def cell(x, y, width, height, content, tint=None, kind="", size=16):
    """一个格子，中间写一个数。"""
    fill = f'<rect class="f-{tint}-tint" x="{short(x)}" y="{short(y)}" width="{width}" height="{height}"/>'
    border = (
        f'<rect class="f-cell" x="{short(x)}" y="{short(y)}" width="{width}" height="{height}"/>'
    )
    label = text(x + width / 2, y + height / 2 + 5.5, content, f"center {kind}".strip(), size)
    return (fill + "\n" if tint else "") + border + "\n" + label


def svg(name, height, title, parts):
    """一幅图；中间没有空行，Markdown 才不会改动它。"""
    body = "\n".join(parts)
    return (
        f'<svg class="fig" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-labelledby="{name}-title">\n'
        f'<title id="{name}-title">{escape(title)}</title>\n{body}\n</svg>\n'
    )


# ---------------------------------------------------------------- 图 7-1：查表就是独热乘法

ROW, COLUMN, TOP = 34, 46, 50
LEFT, MIDDLE, RIGHT = 58, 128, 290


def grid(x, rows, tints=(), bold=(), top=TOP):
    """一个矩阵；tints 是要着色的行，bold 是要加粗的行。"""
    tints = dict(tints)
    return [
        cell(
            x + j * COLUMN,
            top + i * ROW,
            COLUMN,
            ROW,
            signed(value),
            tints.get(i),
            "strong" if i in bold else "",
        )
        for i, row in enumerate(rows)
        for j, value in enumerate(row)
    ]


def row_names(x=18):
    """每一行前面的字符和编号。"""
    return [
        text(x, TOP + i * ROW + 22, f"{char} {i}", "mono muted") for i, char in enumerate(VOCAB)
    ]


def step_look_up(token):
    parts = [text(MIDDLE, 34, "嵌入表 W"), text(RIGHT, 34, "取出的向量"), *row_names(92)]
    parts += grid(MIDDLE, TABLE, {token: "a"}, {token})
    y = TOP + token * ROW
    parts += [cell(8, y, 46, ROW, token, "b", "strong"), text(8, y - 8, "编号", size=14)]
    parts += [arrow(58, y + 17, 86, y + 17, "b"), arrow(226, y + 17, 284, y + 17, "a")]
    parts += grid(RIGHT, TABLE[[token]], {0: "a"}, {0}, top=y)
    return parts, f"编号 {token} 取出嵌入表的第 {token} 行，得到 {vector(TABLE[token])}"


def step_product(token):
    one_hot = np.eye(4, dtype=int)[token]
    parts = [text(LEFT, 34, "独热"), text(MIDDLE, 34, "嵌入表 W"), text(RIGHT, 34, "逐行相乘")]
    parts += row_names(14) + grid(LEFT, one_hot[:, None], {token: "b"}, {token})
    parts += grid(MIDDLE, TABLE, {token: "a"}) + grid(RIGHT, one_hot[:, None] * TABLE, {token: "a"})
    for i in range(4):
        y = TOP + i * ROW + 22
        parts += [text(116, y, "×", "center"), text(255, y, "=", "center")]
    return parts, f"编号 {token} 的独热向量与嵌入表逐行相乘：只有第 {token} 行留下，其余是 0"


def step_sum(token):
    one_hot = np.eye(4, dtype=int)[token]
    products = one_hot[:, None] * TABLE
    parts = [text(LEFT, 34, "逐行相乘"), text(172, 34, "按列相加"), *row_names(14)]
    parts += grid(LEFT, products, {token: "a"})
    for j in range(2):
        y = TOP + 22 + j * 68
        terms = " + ".join(signed(v) for v in products[:, j])
        parts += [text(172, y, terms, "mono"), text(304, y, "=", "center")]
        parts.append(cell(322, y - 22, COLUMN, ROW, signed(products[:, j].sum()), "a", "strong"))
    return parts, f"逐行的积按列相加，得到 {vector(products.sum(0))}，与查表取出的相同"


def step_backward(token):
    one_hot = np.eye(4, dtype=int)[token]
    parts = [text(LEFT, 34, "独热"), text(128, 34, "传回的梯度"), text(RIGHT, 34, "表的梯度")]
    parts += row_names(14) + grid(LEFT, one_hot[:, None], {token: "b"}, {token})
    y = TOP + token * ROW
    parts += grid(MIDDLE, GRADIENT[None], {0: "c"}, {0}, top=y)
    parts += [text(116, y + 22, "×", "center"), text(255, y + 22, "=", "center")]
    parts += grid(RIGHT, np.outer(one_hot, GRADIENT), {token: "c"}, {token})
    return parts, f"反向：传回的梯度 {vector(GRADIENT)} 只加到第 {token} 行，其余各行的梯度是 0"


def step_repeat():
    total = np.zeros_like(TABLE)
    parts = [text(8, 34, "三个位置传回的梯度"), text(RIGHT, 34, "表的梯度"), *row_names(254)]
    for position, token in enumerate(IDS):
        total[token] += GRADIENT
        y = TOP + position * 50
        parts.append(cell(8, y, COLUMN, ROW, f"{VOCAB[token]} {token}", "b", "mono"))
        parts += grid(70, GRADIENT[None], {0: "c"}, top=y)
        parts.append(arrow(168, y + 17, 246, TOP + token * ROW + 17, "c"))
    parts += grid(RIGHT, total, {0: "c", 2: "c"}, {0, 2})
    return parts, (
        f"文字 cac：编号 2 出现两次，第 2 行的梯度是两份之和 {vector(total[2])}；编号 0 出现一次，{vector(total[0])}"
    )


def vector(values):
    return "[" + ", ".join(signed(v) for v in values) + "]"


# ---------------------------------------------------------------- 图 7-2：形状的变化


def shapes():
    layers = [
        ("输入", "32 个字符的编号", ("4", "32"), 1),
        ("Embedding", "每个编号换成 16 个数", ("4", "32", "16"), 1),
        ("MeanPool", "32 个位置求平均", ("4", "16"), None),
        ("Linear + ReLU", "16 个数变成 32 个", ("4", "32"), None),
        ("Linear", "每个字符一个分数", ("4", "65"), None),
        ("Softmax", "分数变成概率", ("4", "65"), None),
    ]
    parts = []
    for i, (name, note, shape, position) in enumerate(layers):
        y = 8 + i * 62
        tint = "b" if position else "a"
        parts.append(f'<rect class="f-{tint}-tint" x="8" y="{y}" width="228" height="44" rx="4"/>')
        parts += [text(20, y + 18, name, "strong", 15), text(20, y + 37, note, "", 14)]
        x = 256
        for j, size in enumerate(shape):
            mark = "(" if j == 0 else ""
            end = ")" if j == len(shape) - 1 else ","
            if mark:
                parts.append(text(x, y + 28, mark, "mono", 17))
                x += 10
            kind = "mono b strong" if j == position else "mono"
            parts.append(text(x, y + 28, size, kind, 17))
            x += 10.5 * len(size)
            parts.append(text(x, y + 28, end, "mono", 17))
            x += 18
        if i < len(layers) - 1:
            parts.append(arrow(122, y + 46, 122, y + 60))
    parts.append(text(256, 8 + 2 * 62 - 8, "位置这一轴到此为止", "b", 14))
    return parts, "各层的输出形状：位置这一轴经过平均池化之后消失"


# ---------------------------------------------------------------- 图 7-3、7-4：曲线


def axes(x_ticks, y_ticks, to_x, to_y, x_title, y_title, bottom):
    left, right = to_x(None), WIDTH - 12
    parts = [text(8, 18, y_title, "muted", 14), text(right, bottom + 40, x_title, "muted end", 14)]
    parts.append(line(left, bottom, right, bottom))
    for value in y_ticks:
        y = to_y(value)
        parts += [
            line(left, y, right, y, "thin grid"),
            text(left - 8, y + 5, f"{value:g}", "muted end", 14),
        ]
    parts += [text(to_x(value), bottom + 20, f"{value:g}", "muted center", 14) for value in x_ticks]
    return parts


def level(y, left, label, at, anchor="end"):
    """一条基线和它的名字。"""
    return [line(left, y, WIDTH - 12, y, "dash"), text(at, y - 6, label, anchor, 14)]


def learning(results):
    """测试集上的交叉熵：均方误差两种学习率，与交叉熵。"""

    def to_x(epoch):
        return 44 if epoch is None else 44 + epoch * 33.5

    def to_y(value):
        return 30 + (4.6 - value) * 118

    parts = axes(range(0, 11, 2), (3, 3.5, 4, 4.5), to_x, to_y, "轮", "交叉熵（奈特）", 296)
    base = results["baselines"]
    for key, label in (("uniform", "均匀"), ("unigram", "单字频率"), ("bigram", "二元模型")):
        y = to_y(base[key]["cross_entropy"])
        parts += level(y, 44, f"{label} {base[key]['cross_entropy']:.3f}", WIDTH - 12)
    for name, kind in (
        ("loss_mse", "b"),
        ("loss_mse_scaled", "a"),
        ("loss_cross_entropy", "c dash"),
    ):
        run = results["runs"][name]
        values = [run["before"], *run["curve"]]
        parts.append(
            curve([(to_x(i), to_y(v["cross_entropy"])) for i, v in enumerate(values)], kind)
        )
    ends = {name: results["runs"][name]["after"]["cross_entropy"] for name in results["runs"]}
    parts += [
        text(52, to_y(3.87), f"均方误差，学习率 0.01：{ends['loss_mse']:.3f}", "b strong", 14),
        text(78, to_y(3.55), f"均方误差，21.125：{ends['loss_mse_scaled']:.3f}", "a strong", 14),
        text(78, to_y(3.08), f"交叉熵，0.01：{ends['loss_cross_entropy']:.3f}", "c strong", 14),
    ]
    return parts, (
        "测试集上的交叉熵随轮数的变化："
        f"均方误差、学习率 0.01 停在 {ends['loss_mse']:.3f}；学习率放大 2112.5 倍之后降到 "
        f"{ends['loss_mse_scaled']:.3f}，与直接用交叉熵的 {ends['loss_cross_entropy']:.3f} 相近"
    )


def order(results):
    """看最后几个字符：平均与拼接。"""
    lasts = (1, 2, 4, 8, 16, 32)

    def to_x(last):
        return 44 if last is None else 62 + math.log2(last) * 63

    def to_y(value):
        return 30 + (3.6 - value) * 146

    parts = axes(lasts, (2, 3, 3.5), to_x, to_y, "看最后几个字符", "交叉熵（奈特）", 306)
    base = results["baselines"]
    for key, label in (("unigram", "单字频率"), ("bigram", "二元模型")):
        value = base[key]["cross_entropy"]
        at, anchor = (48, "") if key == "unigram" else (WIDTH - 12, "end")
        parts += level(to_y(value), 44, f"{label} {value:.3f}", at, anchor)
    ends = []
    for pooling, color, label in (("mean", "b", "平均"), ("concatenate", "a", "拼接")):
        values = [results["runs"][f"{pooling}_{last}"]["after"]["cross_entropy"] for last in lasts]
        points = [(to_x(last), to_y(v)) for last, v in zip(lasts, values, strict=True)]
        parts += [curve(points, color), *(dot(x, y, color) for x, y in points)]
        best = min(values)
        ends.append(f"{label}：1 个字符 {values[0]:.3f}，32 个 {values[-1]:.3f}，最低 {best:.3f}")
        x, y = points[4]
        parts.append(text(x, y + 26, label, f"center strong {color}", 15))
    return parts, "测试集上的交叉熵随所看字符数的变化。" + "；".join(ends)


def figures(results):
    """每幅图的文件名与内容。"""
    drawn = {
        "fig-7-1-1": (200, *step_look_up(2)),
        "fig-7-1-2": (200, *step_product(2)),
        "fig-7-1-3": (200, *step_sum(2)),
        "fig-7-1-4": (200, *step_backward(2)),
        "fig-7-1-5": (200, *step_repeat()),
        "fig-7-2": (372, *shapes()),
        "fig-7-3": (342, *learning(results)),
        "fig-7-4": (352, *order(results)),
    }
    return {name: svg(name, h, title, parts) for name, (h, parts, title) in drawn.items()}


def main():
    path = BOOK / "results" / "chapter07.json"
    results = json.loads(path.read_text(encoding="utf-8"))
    for name, content in figures(results).items():
        (FIGURES / f"{name}.svg").write_text(content, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
