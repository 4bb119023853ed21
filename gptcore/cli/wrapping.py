"""折行：汉字之间可以断开，标点不落在行首，数和后面的量词、西文的一个词不拆开

rich 只在空格处折行，中文里夹着数字时，一行常常没写满就断了。
"""

import re

from rich.cells import cell_len
from rich.text import Text

_OPEN, _CLOSE = "（“《", "，。：；！？）”》、…"
_WIDE = "\u2e80-\uffff"
_WORD = rf"[^\s{_WIDE}{_OPEN}{_CLOSE}]+(?:(?<=\d) [{_WIDE}])?"
_TOKEN = re.compile(
    rf"\s+|[{_OPEN}]*(?:{_WORD}|[^\s{_OPEN}{_CLOSE}])[{_CLOSE}]*|[{_OPEN}{_CLOSE}]+"
)


def wrap(text: Text, width: int) -> list[Text]:
    """把一段文字折成若干行，样式不变。

    Args:
        text: 文字，可以有换行。
        width: 一行有多宽，单位列；汉字占两列。

    Returns:
        各行，行尾没有空格。
    """
    return [line for part in text.split("\n", allow_blank=True) for line in _wrap(part, width)]


def _wrap(text: Text, width: int) -> list[Text]:
    lines: list[tuple[int, int]] = []  # 各行的起止
    start = end = used = 0
    for token in _pieces(text.plain, width):
        size = cell_len(token)
        if used + size > width and not token.isspace():
            lines.append((start, end))
            start, used = end, 0
        end += len(token)
        if used or not token.isspace() or not lines:  # 折行处的空格不写
            used += size
        else:
            start = end
    lines.append((start, end))
    wrapped = [text[i:j] for i, j in lines]
    for line in wrapped:
        line.rstrip()
    return wrapped


def _pieces(text: str, width: int) -> list[str]:
    """不可再分的各段；比一行还宽的（例如长路径）按字符切开。"""
    pieces: list[str] = []
    for token in _TOKEN.findall(text):
        while cell_len(token) > width:
            cut = next(
                i for i in range(len(token), 0, -1) if cell_len(token[:i]) <= width or i == 1
            )
            pieces.append(token[:cut])
            token = token[cut:]
        pieces.append(token)
    return [piece for piece in pieces if piece]
