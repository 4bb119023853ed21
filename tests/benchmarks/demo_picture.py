"""把 `gptcore demo` 的输出画成 SVG，给 README 用

    COLUMNS=76 FORCE_COLOR=1 gptcore demo --out 临时文件夹 > demo.txt
    python tests/benchmarks/demo_picture.py demo.txt docs/assets/demo.svg

rich 自带的 SVG 模板要从网上取字体，又把汉字按一列宽来排；这里只用读者机器上的等宽字体，
宽窄字符分开，各自占准列数。
"""

import argparse
from html import escape
from itertools import groupby
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import MONOKAI
from rich.text import Text

COLUMN, ROW, MARGIN, TOP = 9.6, 22, 18, 44  # 单位像素
FONTS = (
    "'Cascadia Mono', 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', "
    "'Noto Sans Mono CJK SC', 'PingFang SC', 'Microsoft YaHei', monospace"
)


def picture(output: str) -> str:
    """由带颜色控制码的终端输出画出 SVG。"""
    console = Console(color_system="truecolor", force_terminal=True, width=200)
    lines = Text.from_ansi(output).split("\n", allow_blank=True)
    parts: list[str] = []
    columns = 0
    for row, line in enumerate(lines):
        column = 0
        line.rstrip()
        for segment in line.render(console):
            for run in map("".join, (g for _, g in groupby(segment.text, cell_len))):
                width = cell_len(run)
                if run.strip():
                    parts.append(_text(run, column, width, row, segment.style or Style()))
                column += width
        columns = max(columns, column)
    width = round(columns * COLUMN + 2 * MARGIN)
    height = round(len(lines) * ROW + TOP + MARGIN)
    dots = "".join(
        f'<circle cx="{MARGIN + 6 + 20 * i}" cy="20" r="6" fill="{color}"/>'
        for i, color in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    size = f'width="{width}" height="{height}"'
    style = f"text {{ font: 16px {FONTS}; fill: #d9d9d9; white-space: pre }}"
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size} role="img">',
        "<title>gptcore demo 的一次运行</title>",
        f"<style>{style} .b {{ font-weight: bold }} .w {{ font-size: 18px }}</style>",
        f'<rect {size} rx="8" fill="#0c0c0c"/>',
    ]
    return "\n".join([*head, dots, *parts, "</svg>\n"])


def _text(run: str, column: int, width: int, row: int, style: Style) -> str:
    """一段同样宽窄的字符；汉字逐个定位，字号大一些，正好占两列。"""
    indent, end = len(run) - len(run.lstrip(" ")), len(run.rstrip(" "))
    each = width // len(run)
    starts = [MARGIN + (column + each * i) * COLUMN for i in range(indent, end)]
    classes = [name for name, used in (("b", style.bold), ("w", each == 2)) if used]
    attributes = f' class="{" ".join(classes)}"' if classes else ""
    if style.color is not None:
        attributes += f' style="fill: {style.color.get_truecolor(MONOKAI).hex}"'
    if each == 2:
        x = " ".join(f"{start:.1f}" for start in starts)
    else:
        x = f"{starts[0]:.1f}"
        attributes += f' textLength="{len(starts) * COLUMN:.1f}"'
    y = TOP + row * ROW + 16
    return f'<text x="{x}" y="{y}"{attributes}>{escape(run[indent:end])}</text>'


def main() -> None:
    parser = argparse.ArgumentParser(description="把终端输出画成 SVG")
    parser.add_argument("output", type=Path, help="gptcore demo 的输出")
    parser.add_argument("svg", type=Path, help="写到哪里")
    options = parser.parse_args()
    text = "\x1b[1m$ gptcore demo\x1b[0m\n" + options.output.read_text(encoding="utf-8").rstrip()
    options.svg.write_text(picture(text), encoding="utf-8")


if __name__ == "__main__":
    main()
