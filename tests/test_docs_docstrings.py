"""文档字符串的写法：接口页由它们生成，写错的小节与链接在这里就看得出，不必等到构建文档站"""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "gptcore").rglob("*.py"))
SECTIONS = {"Args", "Attributes", "Examples", "Note", "Raises", "Returns", "Yields"}
HEADING = re.compile(r"^(?P<name>[A-Z][A-Za-z ]*):(?P<title>.*)$", re.MULTILINE)
REFERENCE = re.compile(r"\]\[(gptcore[\w.]*)\]")


def docstrings(source: str) -> Iterator[str]:
    """模块、类、函数的 docstring，以及属性下面的字符串。"""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str):
                yield inspect.cleandoc(text)


def wrong_sections(text: str) -> list[str]:
    """mkdocstrings 不认得的小节；Note 要有标题，其余的不能有。"""
    return [
        heading[0]
        for heading in HEADING.finditer(text)
        if heading["name"] not in SECTIONS
        or (heading["name"] == "Note") != bool(heading["title"].strip())
    ]


def outside_examples(text: str) -> list[str]:
    """不在 Examples 一节里的 `>>>`：会变成引用，而不是代码块。"""
    section, found = "", []
    for line in text.split("\n"):
        if line.strip() and not line.startswith(" "):
            heading = HEADING.match(line)
            section = heading["name"] if heading else ""
        if line.lstrip().startswith(">>>") and section != "Examples":
            found.append(line.strip())
    return found


def exists(name: str) -> bool:
    """`gptcore.…` 这个名字是不是真的有。"""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_docstrings(path: Path) -> None:
    texts = list(docstrings(path.read_text(encoding="utf-8")))
    assert [wrong for text in texts for wrong in wrong_sections(text)] == []
    assert [line for text in texts for line in outside_examples(text)] == []
    references = {name for text in texts for name in REFERENCE.findall(text)}
    assert sorted(name for name in references if not exists(name)) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("摘要。\n\nExamples:\n    >>> 1\n    1\n\nNote: 前向\n    文字。", []),
        ("摘要。\n\nExample:\n    >>> 1\n    1", ["Example:", ">>> 1"]),
        ("摘要。\n\nReturn:\n    结果。", ["Return:"]),
        ("摘要。\n\nNote:\n    没有标题。", ["Note:"]),
        ("摘要：\n\n>>> 1\n1", [">>> 1"]),
    ],
)
def test_the_check_sees_what_is_wrong(text: str, wrong: list[str]) -> None:
    assert wrong_sections(text) + outside_examples(text) == wrong


def test_names_are_looked_up() -> None:
    assert exists("gptcore.training.trainer.Trainer.resume")
    assert exists("gptcore.data.stories")
    assert not exists("gptcore.training.trainer.Trainer.resumes")
    assert not exists("gptcore.no_such_module")
