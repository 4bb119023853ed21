"""参数一览：名字、形状、个数与内存，写成对齐的文字表"""

import unicodedata
from collections.abc import Sequence

from gptcore.tensor import Tensor

HEADERS = ("名字", "层", "形状", "个数", "内存", "备注")
RIGHT = (False, False, False, True, True, False)


class Summary(str):
    """一张文字表；在 Jupyter 与 Python 的提示符下不写 `print` 也照样分行。"""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def summarize(title: str, rows: Sequence[tuple[str, str, Tensor]], trainable: set[int]) -> Summary:
    """把参数写成一张表，最后是合计。

    Args:
        title: 表的标题，例如模型的类名。
        rows: 名字、所在的层的类名与张量；同一个张量可以有几个名字，第二个起注明与谁共用，不再计数。
        trainable: 能训练的张量的 `id`；其余的注明“冻结”。

    Returns:
        文字，各列按等宽字体对齐，汉字占两格。
    """
    first: dict[int, str] = {}
    for name, _, tensor in rows:
        first.setdefault(id(tensor), name)
    cells: list[tuple[str, ...]] = [HEADERS]
    learned = frozen = memory = 0
    for name, layer, tensor in rows:
        shape, whole = str(tensor.shape), first.get(id(tensor.view_of))
        if whole is not None:
            cells.append((name, layer, shape, "", "", f"{whole} 的几行"))
        elif first[id(tensor)] != name:
            cells.append((name, layer, shape, "", "", f"与 {first[id(tensor)]} 共用"))
        else:
            count, size = tensor.size, tensor.data.nbytes
            learned += count if id(tensor) in trainable else 0
            frozen += 0 if id(tensor) in trainable else count
            memory += size
            note = "" if id(tensor) in trainable else "冻结"
            cells.append((name, layer, shape, f"{count:,}", format_bytes(size), note))
    if not first:
        return Summary(f"{title}\n没有参数")
    table = _align(cells)
    rule = "─" * max(map(display_width, table))
    split = f"可训练 {learned:,} 个，冻结 {frozen:,} 个" if frozen else "都可训练"
    end = f"合计 {learned + frozen:,} 个参数，{split}；{format_bytes(memory)}"
    return Summary("\n".join([title, table[0], rule, *table[1:], rule, end]))


def format_bytes(count: int) -> str:
    """字节数：`24 B`、`1.5 KiB`、`474.7 MiB`；1 KiB 是 1024 字节。"""
    if count < 1 << 10:
        return f"{count} B"
    if count < 1 << 20:
        return f"{count / (1 << 10):.1f} KiB"
    return f"{count / (1 << 20):,.1f} MiB"


def display_width(text: str) -> int:
    """在等宽字体里占几格：汉字与全角符号两格，附加符号不占。"""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _align(rows: list[tuple[str, ...]]) -> list[str]:
    """各列对齐，列间两个空格；最后一列全是空的就不写。"""
    columns = list(zip(*rows, strict=True))
    if not any(columns[-1][1:]):
        columns.pop()
    widths = [max(map(display_width, column)) for column in columns]
    lines: list[str] = []
    for row in zip(*columns, strict=True):
        cells: list[str] = []
        for cell, width, right in zip(row, widths, RIGHT, strict=False):
            space = " " * (width - display_width(cell))
            cells.append(space + cell if right else cell + space)
        lines.append("  ".join(cells).rstrip())
    return lines
