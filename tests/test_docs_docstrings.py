"""文档字符串的写法：接口页由它们生成，写错的小节与链接在这里就看得出，不必等到构建文档站"""

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import gptcore

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


def documented_names(path: Path) -> Iterator[str]:
    """一个文件里有说明的名字：有 docstring 的类与函数，后面跟着字符串的赋值。"""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            if ast.get_docstring(node):
                yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def test_every_public_name_has_a_description() -> None:
    """没有说明的名字不出现在接口页上。"""
    documented = {name for path in FILES for name in documented_names(path)}
    modules = [f"gptcore.{m.name}" for m in pkgutil.iter_modules(gptcore.__path__)]
    public = {
        f"{module}.{name}"
        for module in modules
        if not module.endswith("__main__")
        for name in getattr(importlib.import_module(module), "__all__", ())
    }
    assert len(public) > 100
    assert sorted(name for name in public if name.rsplit(".", 1)[1] not in documented) == []


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
