"""文本的检查：类型，以及不是有效字符的代理码位"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from gptcore.errors import DataError, DtypeError

_SURROGATE = re.compile("[\ud800-\udfff]")


def describe(character: str) -> str:
    """写出一个字符和它的码位，供错误消息使用，例如 `'龙'（U+9F99）`。

    Args:
        character: 单个字符。

    Returns:
        字符的 `repr` 和十六进制码位；孤立的代理码位另加说明。
    """
    note = "，孤立的代理码位，不是有效字符" if is_surrogate(character) else ""
    return f"{character!r}（U+{ord(character):04X}{note}）"


def is_surrogate(character: str) -> bool:
    """是不是代理码位：UTF-16 用它们成对表示一个字符，单独出现不是字符。"""
    return "\ud800" <= character <= "\udfff"


def invalid(operation: str, character: str, position: int) -> DataError:
    """孤立的代理码位的错误。"""
    return DataError(
        f"{operation}：位置 {position}（从 0 数起）上的字符 {describe(character)}不能写成 UTF-8；"
        "请从文本里删去它"
    )


def check_text(operation: str, text: Any) -> None:
    """检查参数是不是字符串。

    Args:
        operation: 操作名，写进错误消息。
        text: 要检查的值。

    Raises:
        DtypeError: 不是字符串。
    """
    if not isinstance(text, str):
        raise DtypeError(
            f"{operation}：text 得到 {type(text).__name__}，它必须是字符串；"
            '字节请先解码，例如 data.decode("utf-8")'
        )


def well_formed(texts: Iterable[str]) -> Iterator[str]:
    """使文本能写成 UTF-8：成对的代理码位合成它们表示的字符，孤立的换成 `�`（U+FFFD）；与 tiktoken 相同。

    Args:
        texts: 首尾相接的各段；一对代理码位可以分在两段里。

    Yields:
        能写成 UTF-8 的各段。

    Raises:
        DtypeError: 有一段不是字符串。
    """
    held = ""
    for text in texts:
        check_text("encode", text)
        text, held = held + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, held = text[:-1], text[-1]
        yield _repaired(text)
    yield _repaired(held)


def _repaired(text: str) -> str:
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
