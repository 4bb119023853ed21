"""JSON：写得标准，读得严格"""

import json
import math
import re
from collections.abc import Iterable
from typing import Any, cast

from gptcore.errors import DataError

JSON_MEMORY = 64 << 20
"""解析 JSON 时最多另占多少内存：三个字节的 `{},` 就是一个几十字节的字典"""
JSON_DEPTH = 50
"""JSON 最多嵌套几层"""


def dump_json(value: Any) -> bytes:
    """把一个值变成 JSON 的字节：UTF-8，缩进两格，末尾换行。

    Raises:
        DataError: 有 JSON 写不了的值，例如 NaN 或 NumPy 的数组。
    """
    try:
        text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(
            f"dump_json：有写不成 JSON 的值（{error}）；请换成字典、列表、字符串、布尔值、整数与有限的小数"
        ) from error
    # UTF-8 写不了的孤立代理码位变成 \udXXX，恰好也是 JSON 的写法
    return (text + "\n").encode("utf-8", "backslashreplace")


def parse_json(content: bytes | bytearray, name: object, memory: int | None = None) -> Any:
    """把 JSON 的字节变回值；NaN、无穷、重复的键与超过 `JSON_DEPTH` 层的嵌套不接受。

    Args:
        content: 字节。
        name: 文件的名字，写进错误消息。
        memory: 最多另占多少字节的内存；不给时是 `JSON_MEMORY`。

    Returns:
        值。

    Raises:
        DataError: 不是 JSON，或者解析它占用的内存太多。
    """
    try:
        if _json_memory(content) > (JSON_MEMORY if memory is None else memory):
            raise ValueError("数字、文字与括号太多，解析它要占用太多内存")
        value = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_float=_finite,
            parse_constant=_finite,
        )
        _check_depth(value)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name} 不是有效的 JSON：{error}；文件可能被截断或改动过") from error
    return value


def _json_memory(content: bytes | bytearray) -> int:
    """解析之后最多另占多少内存：各种符号带来的对象，加上解码后的文字。"""
    costs = {b"{": 80, b"[": 80, b",": 40, b":": 140, b'"': 32}
    # 字符串里有一个大于 U+FFFF 的字符，就每个字符占 4 字节；解码的全文与其中的字符串各占一份
    astral = re.search(rb"[\xf0-\xff]|\\u", content)
    width = 8 if astral else 2 if content.isascii() else 4
    return width * len(content) + sum(cost * content.count(sign) for sign, cost in costs.items())


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"键 {key[:60]!r} 出现了两次")
            seen.add(key)
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:60]} 不是有限的数")
    return value


def _check_depth(value: Any) -> None:
    level: list[Any] = [value]
    for _ in range(JSON_DEPTH + 1):
        level = [item for outer in level for item in items(outer) if isinstance(item, dict | list)]
        if not level:
            return
    raise ValueError(f"嵌套超过 {JSON_DEPTH} 层")


def items(value: Any) -> Iterable[Any]:
    """字典的各个值，列表的各项；别的没有。"""
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()
