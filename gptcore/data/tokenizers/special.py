"""特殊词元：检查名字，从文本里把点了名的找出来"""

import functools
import re
import reprlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Literal, cast

from gptcore.data.tokenizers.texts import describe, is_surrogate
from gptcore.errors import ArgumentError, DataError, DtypeError

AllowedSpecial = Collection[str] | Literal["all"]
"""哪些特殊词元算数：名字的集合，或 `"all"`。"""
ID_LIMIT = 2**31
"""编号的上限。"""


def select_special(
    operation: str, special: Mapping[str, int], allowed: AllowedSpecial
) -> Mapping[str, int]:
    """`allowed` 点了名的特殊词元。

    Args:
        operation: 操作名，写进错误消息。
        special: 分词器的全部特殊词元。
        allowed: 名字的集合，或 `"all"`。

    Returns:
        名字与编号。

    Raises:
        ArgumentError: `allowed` 不是名字的集合，或有不认识的名字。
    """
    given: Any = allowed
    if isinstance(given, str):
        if given == "all":
            return special
        raise ArgumentError(
            f"{operation}：allowed_special 得到字符串 {reprlib.repr(given)}；"
            f'请写成集合，例如 {{{reprlib.repr(given)}}}，或用 "all" 表示全部'
        )
    if not isinstance(given, Iterable):
        raise ArgumentError(
            f"{operation}：allowed_special 得到 {reprlib.repr(given)}；"
            '它必须是特殊词元名字的集合，或 "all" 表示全部'
        )
    chosen: dict[str, int] = {}
    for name in cast("Iterable[Any]", given):
        if not isinstance(name, str) or name not in special:
            known = "、".join(map(reprlib.repr, list(special)[:10])) or "无"
            raise ArgumentError(
                f"{operation}：allowed_special 里的 {reprlib.repr(name)} 不是这个分词器的特殊词元；"
                f"它的特殊词元有：{known}"
            )
        chosen[name] = special[name]
    return chosen


def check_names(
    operation: str, names: Iterable[str] | Mapping[str, int], start: int
) -> dict[str, int]:
    """检查特殊词元的名字，没有编号的从 `start` 起依次编号。

    Args:
        operation: 操作名，写进错误消息。
        names: 名字的列表，或名字与编号的字典。
        start: 第一个编号。

    Returns:
        名字与编号。

    Raises:
        DataError: 名字为空、重复、含有孤立的代理码位，或编号无效。
        DtypeError: 名字不是字符串，编号不是整数。
    """
    given: Any = names
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise DtypeError(
            f"{operation}：special_tokens 得到 {reprlib.repr(given)}；"
            "它必须是名字的列表，或名字与编号的字典"
        )
    pairs: Iterable[tuple[Any, Any]]
    if isinstance(given, Mapping):
        pairs = cast("Mapping[Any, Any]", given).items()
    else:
        pairs = ((name, start + i) for i, name in enumerate(cast("Iterable[Any]", given)))
    checked: dict[str, int] = {}
    for name, number in pairs:
        _check_name(operation, name)
        if name in checked:
            raise DataError(f"{operation}：特殊词元 {reprlib.repr(name)} 出现了两次；请去掉重复的")
        checked[name] = check_id(operation, name, number)
    return checked


def check_id(operation: str, name: object, number: Any) -> int:
    """检查一个词元的编号。

    Args:
        operation: 操作名，写进错误消息。
        name: 词元，写进错误消息。
        number: 编号。

    Returns:
        编号。

    Raises:
        DataError: 不是整数，或超出范围。
    """
    if type(number) is not int or not 0 <= number < ID_LIMIT:
        raise DataError(
            f"{operation}：词元 {reprlib.repr(name)} 的编号是 {reprlib.repr(number)}，"
            f"它必须是 0 到 {ID_LIMIT - 1} 的整数"
        )
    return number


def split_tokens(parts: Iterable[str | int], tokens: Mapping[str, int]) -> Iterator[str | int]:
    """从一串文字里找出指定的词元：最靠左的优先，同一位置最长的优先。

    Args:
        parts: 首尾相接的各段文字；夹在中间的编号原样给出，词元不会跨过它。
        tokens: 要找的词元与编号。

    Yields:
        不含这些词元的文字（不为空），以及找到的词元的编号。
    """
    if not tokens:
        yield from (part for part in parts if part != "")
        return
    pattern, longest = _matcher(tuple(tokens))
    held = ""  # 还看不出是不是词元的末尾，比最长的词元短
    for part in chain(parts, (None,)):
        text = held + part if isinstance(part, str) else held
        stop = max(0, len(text) - longest + 1) if isinstance(part, str) else len(text)
        position = 0
        for match in pattern.finditer(text):
            if match.start() >= stop:
                break
            if match.start() > position:
                yield text[position : match.start()]
            yield tokens[match[0]]
            position = match.end()
        if stop > position:
            yield text[position:stop]
        held = text[max(position, stop) :]
        if isinstance(part, int):
            yield part


@functools.lru_cache(maxsize=16)
def _matcher(names: tuple[str, ...]) -> tuple[re.Pattern[str], int]:
    """找这些词元的正则表达式，长的在前；最长的长度。"""
    ordered = sorted(names, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))), len(ordered[0])


def _check_name(operation: str, name: Any) -> None:
    if not isinstance(name, str):
        raise DtypeError(
            f"{operation}：特殊词元 {reprlib.repr(name)} 是 {type(name).__name__}，名字必须是字符串"
        )
    if not name:
        raise DataError(f"{operation}：特殊词元的名字是空的；请给出至少一个字符")
    for position, character in enumerate(name):
        if is_surrogate(character):
            raise DataError(
                f"{operation}：特殊词元 {reprlib.repr(name)} 的位置 {position} 上是 "
                f"{describe(character)}，不能写成 UTF-8；请从名字里删去它"
            )
