"""选项的解析，与用法错误的中文消息"""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import typer

from gptcore.errors import GptcoreError

PARSE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""typer 的各种用法错误共同的基类；它在各版本里的位置不同，所以从公开的子类找"""


class UsageError(GptcoreError):
    """命令行写得不对；消息写明选项、得到的值和该怎么办。

    它不是 `ValueError`：参数解析器会把 `ValueError` 换成自己的英文消息。
    """


def integer(
    option: str, minimum: int, maximum: int, example: int, alias: str = ""
) -> Callable[[object], int]:
    """解析整数的函数。

    Args:
        option: 选项名，写进消息。
        minimum: 最小值。
        maximum: 最大值。
        example: 消息里举例用的值。
        alias: 选项的另一个写法。

    Returns:
        由文字得到整数的函数；不合要求时抛出 `UsageError`。
    """

    def parse(given: object) -> int:
        value = str(given)  # 默认值也经过这里，它不是文字
        plain = re.fullmatch(r"[+-]?[0-9]+", value)  # 不认全角数字与下划线
        number = int(value[:100]) if plain else minimum - 1  # int 不接受几千位的数
        if not minimum <= number <= maximum:
            bound = f"不大于 {maximum}" if number > maximum else f"不小于 {minimum}"
            given_as = f"{option}（{alias}）" if alias else f"{option} "
            raise UsageError(
                f"{given_as}得到 {_short(value)}，它必须是{bound} 的整数；例如 {option} {example}"
            )
        return number

    return parse


def real(
    option: str,
    example: str,
    *,
    positive: bool = False,
    below: float = math.inf,
    at_most: float = math.inf,
) -> Callable[[object], float]:
    """解析小数的函数。

    Args:
        option: 选项名，写进消息。
        example: 消息里举例用的值。
        positive: 是否必须大于 0；否则 0 也可以。
        below: 必须小于多少。
        at_most: 至多是多少。

    Returns:
        由文字得到小数的函数；不合要求时抛出 `UsageError`。
    """

    def parse(given: object) -> float:
        value = str(given)
        plain = re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", value)
        number = float(value) if plain else math.nan
        inside = 0 <= number < below and number <= at_most and number != math.inf
        if not inside or (positive and number == 0):
            bound = "大于 0" if positive else "不小于 0"
            kind = f"{bound} 的有限数"
            if below < math.inf:
                kind = f"{bound}、小于 {below:g} 的数"
            elif at_most < math.inf:
                kind = f"{bound}、不大于 {at_most:g} 的数"
            raise UsageError(
                f"{option} 得到 {_short(value)}，它必须是{kind}；例如 {option} {example}"
            )
        return number

    return parse


def choice(option: str, known: Sequence[str]) -> Callable[[object], str]:
    """解析几种写法之一的函数。

    Args:
        option: 选项名，写进消息。
        known: 各种写法。

    Returns:
        由文字得到其中一种写法的函数；不合要求时抛出 `UsageError`。
    """

    def parse(given: object) -> str:
        value = str(given)
        if value not in known:
            raise UsageError(
                f"{option} 得到 {_short(value)}，它必须是 {'、'.join(known)} 之一"
                f"{suggestion(value, known)}；例如 {option} {known[0]}"
            )
        return value

    return parse


def path(option: str, example: str) -> Callable[[str], Path]:
    """解析路径的函数；空的文字不是路径，而 `Path("")` 是当前文件夹。

    Args:
        option: 选项名，写进消息。
        example: 消息里举例用的值。

    Returns:
        由文字得到路径的函数；不合要求时抛出 `UsageError`。
    """

    def parse(value: str) -> Path:
        if not value:
            raise UsageError(f"{option} 是空的；请写一个文件夹的名字，例如 {example}")
        return Path(value)

    return parse


def _short(value: str) -> str:
    """消息里的值；太长的只写开头。"""
    return repr(value if len(value) <= 40 else value[:40] + "…")


def suggestion(word: str, known: Iterable[str]) -> str:
    """消息里的一句“你要的是不是 …”；没有相近的就是空的。"""
    close = difflib.get_close_matches(word.lower(), list(known), n=1)
    return f"，你要的是不是 {close[0]}" if close else ""


def explain(error: Exception, command: str) -> str:
    """把 typer 的用法错误写成一句中文。

    Args:
        error: `PARSE_ERROR` 的某个子类。
        command: 出错的命令，例如 `gptcore train`。

    Returns:
        消息，包括出错的选项和补救办法。
    """
    kind = type(error).__name__
    help_command = f"请看 {command} --help"
    option = str(getattr(error, "option_name", "") or "")
    if kind == "NoSuchOption":
        hint = suggestion(option, getattr(error, "possibilities", None) or ())
        return f"没有选项 {option}{hint}；{help_command}"
    if kind == "BadOptionUsage":
        takes_value = "does not take" not in str(error)
        problem = "后面要写一个值" if takes_value else "后面不能写值"
        return f"选项 {option} {problem}；{help_command}"
    if kind == "MissingParameter":
        param = getattr(error, "param", None)
        name = getattr(param, "metavar", None) or getattr(param, "name", None) or ""
        return f"缺少参数 {name}；{help_command}"
    extra = re.search(r"unexpected extra argument(?:s|\(s\))? \((.*)\)", str(error), re.DOTALL)
    if extra:
        option = {"train": "--corpus", "eval": "--corpus", "generate": "--prompt"}.get(
            command.split()[-1]
        )
        name = f"；语料或提示要写在选项里：{option} {extra.group(1)}" if option else ""
        return f"多出了 {extra.group(1)!r}{name}；含空格的值请加引号，{help_command}"
    return f"命令行不对（{error}）；{help_command}"
