"""MkDocs 钩子：教程的目录、导航，以及章节与接口之间的链接

章的编号与标题只来自 docs/book/index.md 的表格：`| 7 | [嵌入](chapter07.md) | 一句话 |`。
- 还没有写的章（没有 chapterNN.md）在目录里去掉链接，标上“写作中”；写好的自动进导航。
- docstring 里的“教程：第 7 章 嵌入”和术语表里的“第 7 章”变成链接，没有写的指向目录。
- 章末列出 docstring 指回本章的类与函数。
"""

import ast
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import Files
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "docs" / "book"
ROW = re.compile(r"\| *(?P<number>\d+) *\| *\[(?P<title>[^\]]+)\]\(chapter(?P<file>\d\d)\.md\) *\|")
LINE = re.compile(r"教程：[^<\n]*")
MENTION = re.compile(r"第 (?P<number>\d+) 章")
CELL = re.compile(r"(?<=<td>)第 \d+ 章(?=</td>)")


def on_files(files: Files, config: Any) -> Files:
    """写好的章进导航，代替 `教程: book/`。"""
    pages = [
        "book/index.md",
        *(uri(n) for n in sorted(chapters()) if files.get_file_from_path(uri(n))),
    ]
    config.nav = [
        {title: pages if value == "book/" else value for title, value in item.items()}
        for item in config.nav
    ]
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """目录页标出没有写的章；每章列出对应的接口。"""
    if page.file.src_uri == "book/index.md":
        return ROW.sub(lambda row: status(row, files), markdown)
    for number in chapters():
        if page.file.src_uri == uri(number):
            return add_interfaces(markdown, interfaces(ROOT / "gptcore").get(number, []))
    return markdown


def on_page_content(html: str, page: Any, files: Files, **_: Any) -> str:
    """接口页与术语表里的“第 N 章”变成链接。"""

    titles = chapters()
    longest = "|".join(rf"第 {n} 章 {re.escape(title)}" for n, title in titles.items())
    pattern = re.compile(rf"{longest}|{MENTION.pattern}")

    def link(match: re.Match[str]) -> str:
        number = int(MENTION.match(match[0])["number"])
        return f'<a href="{get_relative_url(address(number, files), page.url)}">{match[0]}</a>'

    if page.file.src_uri.startswith("api/"):
        return LINE.sub(lambda line: pattern.sub(link, line[0]), html)
    if page.file.src_uri == "glossary.md":
        return CELL.sub(lambda cell: pattern.sub(link, cell[0]), html)
    return html


def chapters() -> dict[int, str]:
    """每章的标题。"""
    text = (BOOK / "index.md").read_text(encoding="utf-8")
    return {int(row["number"]): row["title"] for row in ROW.finditer(text)}


def uri(number: int) -> str:
    """一章的源文件。"""
    return f"book/chapter{number:02}.md"


def address(number: int, files: Files) -> str:
    """一章的网址；没有写的指向目录里的那一行。"""
    file = files.get_file_from_path(uri(number))
    if file is not None:
        return file.url
    return f"{files.get_file_from_path('book/index.md').url}#chapter-{number:02}"


def status(row: re.Match[str], files: Files) -> str:
    """目录里的一行：写好的原样，没有写的去掉链接。"""
    number, title = int(row["number"]), row["title"]
    if files.get_file_from_path(uri(number)):
        return f"| {number} | [{title}]({uri(number).removeprefix('book/')}){{ #chapter-{number:02} }} |"
    name = f'<span id="chapter-{number:02}">{title}</span>'
    return f'| {number} | {name} <span class="unwritten">写作中</span> |'


def interfaces(package: Path) -> dict[int, list[tuple[str, str]]]:
    """各章对应的类与函数：（名字，完整的名字），取自 docstring 里以“教程：”开头的行。"""
    found: dict[int, list[tuple[str, str]]] = {}
    for path in sorted(package.rglob("*.py")):
        module = ".".join(path.relative_to(package.parent).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef):
                continue
            for line in LINE.findall(ast.get_docstring(node) or ""):
                for mention in MENTION.finditer(line):
                    entry = (node.name, f"{module}.{node.name}")
                    found.setdefault(int(mention["number"]), []).append(entry)
    return found


def add_interfaces(markdown: str, entries: list[tuple[str, str]]) -> str:
    """在“收进 gptcore”一节的末尾列出接口；没有这一节就放在最后。"""
    if not entries:
        return markdown
    links = "、".join(f"[`{name}`][{full}]" for name, full in entries)
    note = f"本章对应的接口：{links}。\n"
    section = re.search(r"^## 收进.*?(?=^## |\Z)", markdown, re.MULTILINE | re.DOTALL)
    end = section.end() if section else len(markdown)
    return f"{markdown[:end].rstrip()}\n\n{note}\n{markdown[end:]}"
