"""MkDocs 钩子：术语表里的词在每页第一次出现时带上英文与解释

词只来自 docs/glossary.md 的表格（中文、英文、说明、章），这里给它们套上 `<abbr title="…">`。
Python-Markdown 自带的 abbr 按单词边界找词，汉字之间没有边界，找不到句子中间的中文词，所以单独写。
"""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString

WITHOUT = {"index.md", "book/index.md", "glossary.md"}  # 这几页不提示
PAGE = Path(__file__).resolve().parents[1] / "glossary.md"
ROW = re.compile(
    r"^\| (?P<term>[^|]+?) +\| (?P<english>[^|]+?) +\| (?P<text>[^|]+?) +\|", re.MULTILINE
)
HAN = re.compile(r"[\u4e00-\u9fff]")
SKIP = {"a", "abbr", "button", "code", "pre", "script", "style", "summary", "svg", "th"}
SKIP |= {f"h{level}" for level in range(1, 7)}


def read_terms(page: Path = PAGE) -> dict[str, str]:
    """术语与提示；只有一个字的词不提示，它多半是别的词的一部分。"""
    terms = {}
    for row in ROW.finditer(page.read_text(encoding="utf-8")):
        if len(row["term"]) > 1 and HAN.search(row["text"]):
            text = re.sub(r"\[([^\]]+)\]\([^)]*\)|[`$*]", r"\1", row["text"])
            terms[row["term"]] = f"{row['english']}：{text}"
    return {term: text for term, text in terms.items() if term != "中文"}


class Tooltips(Treeprocessor):
    """给正文里第一次出现的术语套上 abbr；`seen` 由同一页的各段文字共用。"""

    def __init__(self, md: Markdown, terms: dict[str, str], seen: set[str]) -> None:
        super().__init__(md)
        self.terms, self.seen = terms, seen
        words = sorted(terms, key=len, reverse=True)  # 长的先找，归一化不会抢走层归一化
        self.pattern = re.compile(
            "|".join(
                re.escape(word) if HAN.search(word) else rf"(?<!\w){re.escape(word)}(?!\w)"
                for word in words
            )
        )

    def run(self, root: ElementTree.Element) -> None:
        """Python-Markdown 在一段文字转换完之后调用。"""
        if "all" not in self.seen:
            self.visit(root)

    def visit(self, element: ElementTree.Element) -> None:
        """按阅读的次序走遍文字。"""
        if element.tag in SKIP or "arithmatex" in element.get("class", ""):
            return
        children = list(element)
        element.text = self.mark(element, 0, element.text)
        for child in children:
            self.visit(child)
            child.tail = self.mark(element, list(element).index(child) + 1, child.tail)

    def mark(self, parent: ElementTree.Element, index: int, text: str | None) -> str | None:
        """在一段文字里标出术语，返回留在原处的开头部分。"""
        if not text or isinstance(text, AtomicString) or text.startswith("教程："):
            return text  # “教程：”一行由 book.py 变成链接
        before, start, last = text, 0, None
        for match in self.pattern.finditer(text):
            if match[0] in self.seen:
                continue
            self.seen.add(match[0])
            abbr = ElementTree.Element("abbr", {"title": self.terms[match[0]]})
            abbr.text = AtomicString(match[0])
            if last is None:
                before = text[: match.start()]
            else:
                last.tail = text[start : match.start()]
            parent.insert(index, abbr)
            index, start, last = index + 1, match.end(), abbr
        if last is not None:
            last.tail = text[start:]
        return before


class Glossary(Extension):
    """Markdown 扩展，docstring 里的文字也用到它。"""

    def __init__(self, terms: dict[str, str], seen: set[str]) -> None:
        super().__init__()
        self.terms, self.seen = terms, seen

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 名字由 Python-Markdown 规定
        """登记在行内语法之后。"""
        md.treeprocessors.register(Tooltips(md, self.terms, self.seen), "glossary", 7)


seen: set[str] = set()


def on_config(config: Any) -> None:
    """加上扩展。"""
    config.markdown_extensions.append(Glossary(read_terms(), seen))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """每页重新开始。"""
    seen.clear()
    if page.file.src_uri in WITHOUT:
        seen.add("all")
    return markdown
