"""MkDocs 钩子：源文件里的换行不在中文中间变成空格

浏览器把换行显示成空格。英文需要它，两个汉字之间、全角标点旁边不需要，这里把那样的换行去掉。
"""

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString

HAN = "\u3400-\u9fff"
MARKS = "\u2014\u2018\u2019\u201c\u201d\u2026\u3000-\u303f\uff00-\uffef"  # 全角标点
LINE = r" *\n *"  # 列表里续行的缩进也去掉
BREAK = re.compile(
    rf"(?<=[{HAN}{MARKS}]){LINE}(?=[{HAN}{MARKS}])|(?<=[{MARKS}]){LINE}|{LINE}(?=[{MARKS}])"
)


class LineBreaks(Treeprocessor):
    """去掉汉字之间与全角标点旁边的换行。"""

    def run(self, root: ElementTree.Element) -> None:
        """Python-Markdown 在一段文字转换完之后调用。"""
        for parent in root.iter():
            if parent.tag in {"pre", "code", "script", "style"}:
                continue
            children = list(parent)
            heads = [*(edge(child, 0) for child in children), ""]  # 每段文字后面的那个字
            parent.text = join("", parent.text, heads[0])
            for child, after in zip(children, heads[1:], strict=True):
                child.tail = join(edge(child, -1), child.tail, after)


def join(before: str, text: str | None, after: str) -> str | None:
    """处理一段文字，两头连着前后元素的一个字来看。"""
    if not text or "\n" not in text or isinstance(text, AtomicString):
        return text
    joined = BREAK.sub("", before + text + after)
    return joined[len(before) : len(joined) - len(after)]


def edge(element: ElementTree.Element, index: int) -> str:
    """元素里的第一个字（0）或最后一个字（-1）；代码、公式与图算作西文。"""
    text = "".join(element.itertext())
    western = element.tag in {"code", "br", "img"} or element.get("class") == "arithmatex"
    return text[index] if text and not western else "x"


class Extended(Extension):
    """Markdown 扩展，docstring 里的文字也用到它。"""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 名字由 Python-Markdown 规定
        """排在行内语法之后，术语提示之前。"""
        md.treeprocessors.register(LineBreaks(md), "linebreaks", 8)


def on_config(config: Any) -> None:
    """加上扩展。"""
    config.markdown_extensions.append(Extended())
