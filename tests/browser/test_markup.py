"""页面里没有漏网的标记：Markdown、交互式会话与 docstring 的小节名都变成了该有的样子

mkdocstrings 认不得的小节（例如写成单数的 Example）会被当作普通的文字，`>>>` 于是变成层层嵌套的引用，
构建时没有任何警告，所以在构建好的站点里检查。
"""

import re
from html.parser import HTMLParser

import pytest
from browser.built import html_file, pages

pytestmark = pytest.mark.browser

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"}
VERBATIM = {"code", "pre", "script", "style", "svg", "template", "title", "公式"}
SECTIONS = "Args|Attributes|Examples?|Note|Notes|Parameters|Raises|Returns|See Also|Warning|Yields"
RAW = {
    "交互式会话": r">>>|^\.\.\. ",
    "行内代码": r"`",
    "粗体": r"\*\*",
    "交叉引用": r"\]\[|\[gptcore\.",
    "链接": r"\]\(",
    "小节的英文名": rf"^(?:{SECTIONS}):",
    "双花括号": r"\{\{|\}\}",
    "属性": r"\{ ?[.#:]\w",
}


class Reader(HTMLParser):
    """收集一页里代码与公式之外的文字，以及嵌套的引用。"""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.nested: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            return
        self.open.append("公式" if "arithmatex" in (dict(attrs).get("class") or "") else tag)
        if self.open.count("blockquote") > 1:
            self.nested.append(f"第 {self.getpos()[0]} 行")

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == "公式":  # 公式里没有别的元素
            self.open.pop()
        elif tag in self.open:  # 没有写结束标记的 li、p 一起关上
            while self.open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if data.strip() and not VERBATIM & set(self.open):
            self.texts.append(data.strip())


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    return reader


def leftovers(texts: list[str]) -> list[str]:
    """还是标记的文字：种类与前 80 个字符。"""
    return [
        f"{kind}：{text[:80]}"
        for text in texts
        for kind, pattern in RAW.items()
        if re.search(pattern, text)
    ]


@pytest.mark.parametrize("url", pages(), ids=lambda url: url or "home")
def test_no_markup_is_left(url: str) -> None:
    reader = read(html_file(url).read_text(encoding="utf-8"))
    assert reader.nested == [], "嵌套的引用"
    assert leftovers(reader.texts) == []


@pytest.mark.parametrize(
    ("markdown", "found"),
    [
        ("文字 `代码`，**粗体**，[链接](https://example.org)。", False),
        ("    >>> x = 1\n    >>> x\n    1", False),
        ("> 一段引用，\n> 只有一层。", False),
        ("Example:\n\n>>> x = 1\n>>> x\n1", True),
        ("见 [`Trainer`][gptcore.training.Trianer]。", True),
        ("Yields:\n    结果。", True),
        ("**没有关上的粗体", True),
    ],
)
def test_the_reader_sees_what_is_wrong(markdown: str, found: bool) -> None:
    from markdown import Markdown

    reader = read(Markdown().convert(markdown))
    assert bool(reader.nested or leftovers(reader.texts)) is found
