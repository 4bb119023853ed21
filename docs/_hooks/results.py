"""MkDocs 钩子：页面里的实验数字取自 docs/book/results/，不手工抄写

    {{ chapter15.main.test_2:.4f }}     结果文件 chapter15.json 里的一个数，冒号之后是格式
    {{ table chapter15.ablation }}      独占一行：结果文件里的一张表，展开成 Markdown 表格

表是 `{"head": […], "align": "lrr…", "rows": [[…], …]}`，每一格都是文字。名字写错，构建就失败。
"""

import json
import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "book" / "results"
PLACEHOLDER = re.compile(
    r"\{\{ *(?P<table>table +)?(?P<key>\w+(?:\.\w+)+)(?P<format>:[^}\s]+)? *\}\}"
)
RULES = {"l": ":---", "r": "---:", "c": ":---:"}


class ResultError(Exception):
    """页面要的数字不在结果文件里，或者格式不合。"""


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """MkDocs 读入一页之后调用。"""
    try:
        return fill(markdown)
    except ResultError as error:
        from mkdocs.exceptions import PluginError

        raise PluginError(f"{error}（{page.file.src_uri}）") from error


def fill(markdown: str, folder: Path = RESULTS) -> str:
    """把页面里的占位换成结果文件里的数与表。"""

    def replace(match: re.Match[str]) -> str:
        value = look_up(match["key"], folder)
        if match["table"]:
            return table(value, match["key"])
        if isinstance(value, dict | list):
            raise ResultError(f"{match['key']} 不是一个数")
        try:
            return format(value, (match["format"] or ":")[1:])
        except (ValueError, TypeError) as error:
            raise ResultError(f"{match[0]}：格式不合，{error}") from None

    return PLACEHOLDER.sub(replace, markdown)


def look_up(key: str, folder: Path = RESULTS) -> Any:
    """取出一个名字对应的值；第一段是文件名，其余是逐层的键，列表用序号。"""
    name, *parts = key.split(".")
    path = folder / f"{name}.json"
    if not path.is_file():
        raise ResultError(f"{key}：没有结果文件 {path.name}")
    value = json.loads(path.read_text(encoding="utf-8"))
    for part in parts:
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, TypeError, ValueError):
            raise ResultError(f"{key}：{path.name} 里没有 {part}") from None
    return value


def table(spec: Any, key: str) -> str:
    """一张表的 Markdown。"""
    try:
        head, rows = spec["head"], spec["rows"]
        rules = [RULES[letter] for letter in spec.get("align", "l" * len(head))]
    except (KeyError, TypeError):
        raise ResultError(f"{key} 不是一张表") from None
    if any(len(row) != len(head) for row in [rules, *rows]):
        raise ResultError(f"{key}：各行的格数不同")
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rules, *rows])
