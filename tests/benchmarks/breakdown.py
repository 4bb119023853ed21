"""一步的时间花在哪里：由各个核函数单独测得的时间，乘以一步里用的次数

剩下的是“其余”：残差相加、建计算图与反向传播的调度、分配内存，以及单独测时在缓存里、真的一步里不在的数据。
各项是中位数，不是成对的，所以只看大概。
"""

from collections.abc import Sequence

from kernels import KERNELS
from optimizer import NAMES
from rows import OURS, Row
from sizes import SIZES

PIECES = ("矩阵乘法", "注意力", "GELU", "归一化", "嵌入与损失", "更新", "其余")
SIDES = (OURS, "PyTorch")
_PIECE_OF = {"注意力": "注意力", "GELU": "GELU", "层归一化": "归一化"}


def piece_of(title: str) -> str:
    """一个核函数算在哪一份里。"""
    return "矩阵乘法" if title.startswith("线性") else _PIECE_OF.get(title, "嵌入与损失")


def breakdown(rows: Sequence[Row], size: str, side: str) -> dict[str, float] | None:
    """各份的秒数；缺了哪一项没有测，就是 `None`。"""
    found = {
        (row["part"], row["name"]): row["sides"][side]["median"]
        for row in rows
        if row["size"] == size and side in row["sides"]
    }
    uses = {k.title: k.per_step(SIZES[size]) for k in KERNELS.values()}
    pieces = dict.fromkeys(PIECES, 0.0)
    try:
        for title, count in uses.items():
            if count:
                pieces[piece_of(title)] += count * found["kernels", title]
        pieces["更新"] = sum(found["optimizer", title] for title in NAMES.values())
        pieces["其余"] = max(0.0, found["step", size] - sum(pieces.values()))
    except KeyError:
        return None
    return pieces


def breakdowns(rows: Sequence[Row]) -> dict[str, dict[str, dict[str, float]]]:
    """测全了的尺寸与各方。"""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for size in SIZES:
        both = {side: breakdown(rows, size, side) for side in SIDES}
        if all(both.values()):
            found[size] = {side: pieces for side, pieces in both.items() if pieces}
    return found
