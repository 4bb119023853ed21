r"""GPT-2 的切分规则：编码之前，先把文字切成片段，合并不会跨过片段

规则是一条正则表达式（Radford 等 2019，https://github.com/openai/gpt-2 的 encoder.py）：

```text
's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
```

依次是：英语的缩写；一个词、一个数、一串标点，各带上前面的一个空格；除最后一个以外的空白
（最后一个留给后面的词）；其余的空白。词与词的边界因此不会被合并抹掉：`dog.` 与 `dog!` 里的 `dog` 是同一个词元。

Python 的 `re` 没有 `\p{L}`，第三方的 `regex` 有，但它跟着新版的 Unicode 走，判断与 tiktoken 有一万多处不同。
这里写出每一类的全部码位，取自 Unicode 16.0.0：tiktoken 与 tokenizers 对每一个码位的判断都与它相同。
"""

import functools
import re
from collections.abc import Generator, Iterator

from gptcore.data.tokenizers.unicode_ranges import LETTERS, NUMBERS, SPACES

GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""原来的写法，用来认出别人的文件里的同一条规则。"""
BLOCK = 1 << 16
"""每次切多少个字符，限制临时列表的大小。"""

_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


class PieceStream:
    """把首尾相接的各段文字切成片段，结果与一次切全文相同。

    只有末尾的片段会受后面文字的影响：最后两个留着，等后面的来了再切。
    两个而不是一个，是因为 `'r` 先切成 `'` 与 `r`，后面来了 `e` 才是一个 `'re`。

    Args:
        split: 是否切分；否则全文是一个片段。
    """

    def __init__(self, split: bool = True) -> None:
        self._split = split
        self._held: list[str] = []
        self._waiting = 0
        self._needed = 0

    def feed(self, text: str) -> Iterator[list[str]]:
        """收下一段文字。

        Yields:
            已经确定的片段，每次一批。
        """
        self._held.append(text)
        self._waiting += len(text)
        if (
            not self._split or self._waiting < self._needed
        ):  # 很长的片段还没有结束：攒到两倍再切，总时间才是线性的
            return
        rest = yield from _blocks("".join(self._held), final=False)
        self._held, self._waiting = [rest], 0
        self._needed = len(rest)

    def finish(self) -> Iterator[list[str]]:
        """文字到此为止；之后可以从头再用。

        Yields:
            剩下的片段。
        """
        text = "".join(self._held)
        if self._split:
            yield from _blocks(text, final=True)
        elif text:
            yield [text]
        self._held, self._waiting, self._needed = [], 0, 0


def split_pieces(text: str) -> Iterator[list[str]]:
    """切分一段文字。

    Args:
        text: 文字，可以为空；不含代理码位。

    Yields:
        片段，每次一批；全部连起来就是原文。

    Examples:
        >>> list(split_pieces("Hello  world's 3.5"))
        [['Hello', ' ', ' world', "'s", ' 3', '.', '5']]
    """
    yield from _blocks(text, final=True)


def _blocks(text: str, final: bool) -> Generator[list[str], None, str]:
    """切分，每次一批；返回还不能确定的末尾。"""
    start, size = 0, BLOCK
    while True:
        end = min(start + size, len(text))
        last = end == len(text)
        astral = not text.isascii() and _ASTRAL.search(text, start, end) is not None
        found = _compiled(astral).findall(text, start, end)
        if last and final:
            if found:
                yield found
            return ""
        if len(found) > 2:
            start, size = end - sum(map(len, found[-2:])), BLOCK
            del found[-2:]
            yield found
        else:
            size *= 2  # 一个片段比一批还长
        if last:
            return text[start:]


@functools.cache
def _compiled(astral: bool) -> re.Pattern[str]:
    """编译好的规则。

    `re` 用一张表判断 U+FFFF 以内的字符，更大的则逐段比较，慢好几倍；没有这样的字符时用不含它们的规则。
    规则与原来的等价：带空格的与不带空格的分开写，连续的同类字符不回退，都只为了快。
    """
    last = 0x10FFFF if astral else 0xFFFF
    letters, numbers, spaces = (_members(text, last) for text in (LETTERS, NUMBERS, SPACES))
    runs = f"[{letters}]++|[{numbers}]++|[^{spaces}{letters}{numbers}]++"
    return re.compile(
        f"'(?:[stmd]|re|ve|ll)|[{letters}]++| (?:{runs})|{runs}|[{spaces}]+(?![^{spaces}])|[{spaces}]+"
    )


def _members(ranges: str, last: int) -> str:
    """方括号里的写法。"""
    parts: list[str] = []
    for part in ranges.split():
        first, _, final = part.partition("-")
        if int(first, 16) <= last:
            parts.append(rf"\U{first:0>8}" + (rf"-\U{final:0>8}" if final else ""))
    return "".join(parts)
