"""站点的文件，不需要浏览器：链接与锚点、替代文字、搜索引擎要的信息、接口是否齐全"""

import ast
import importlib
import json
import pkgutil
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zlib
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from browser.built import ROOT, SITE, chapters, examples, html_file, pages, tags

import gptcore

pytestmark = pytest.mark.browser
BASE = "http://site/"


@pytest.mark.parametrize("url", pages(), ids=lambda url: url or "home")
def test_links_and_anchors(url: str) -> None:
    missing = []
    for _, attributes in tags(html_file(url)):
        for name in ("href", "src"):
            link = attributes.get(name, "")
            target, anchor = urldefrag(urljoin(BASE + url, link))
            if link and target.startswith(BASE) and not resolves(target, unquote(anchor)):
                missing.append(link)
    assert missing == []


def resolves(target: str, anchor: str) -> bool:
    """站内的链接有没有文件、有没有锚点。"""
    path = html_file(unquote(target.removeprefix(BASE)))
    if not path.is_file():
        return False
    if not anchor or path.suffix != ".html" or anchor.startswith("__"):
        return True
    return any(anchor in (a.get("id"), a.get("name")) for _, a in tags(path))


@pytest.mark.parametrize("url", pages(), ids=lambda url: url or "home")
def test_images_have_alternative_text(url: str) -> None:
    images = [a for tag, a in tags(html_file(url)) if tag == "img"]
    assert [a["src"] for a in images if not a.get("alt", "").strip()] == []
    figures = [a for tag, a in tags(html_file(url)) if tag == "svg" and "fig" in a.get("class", "")]
    labels = ("aria-labelledby", "aria-label")
    assert [a for a in figures if a.get("role") != "img" or not any(map(a.get, labels))] == []


def meta(url: str) -> dict[str, str]:
    """一页的 meta 标签。"""
    found = (a for tag, a in tags(html_file(url)) if tag == "meta")
    return {a.get("name") or a.get("property", ""): a.get("content", "") for a in found}


def test_every_page_describes_itself() -> None:
    urls = [url for url in pages() if url != "404.html"]
    descriptions = {url: meta(url)["description"] for url in urls}
    assert len(set(descriptions.values())) == len(urls), "两页的描述相同，或者忘了写"
    for url in urls:
        properties = meta(url)
        assert properties["og:description"] == descriptions[url]
        assert properties["og:title"]
        image = properties["og:image"].split("/", 3)[3]
        assert (SITE / image).is_file()
        canonical = [a["href"] for tag, a in tags(html_file(url)) if a.get("rel") == "canonical"]
        assert canonical == [properties["og:url"]]
        assert canonical[0].endswith("/" + url)


def test_sitemap_lists_every_page() -> None:
    root = ElementTree.parse(SITE / "sitemap.xml").getroot()
    listed = {element.text.split("/", 3)[3] for element in root.iter() if element.tag[-3:] == "loc"}
    assert listed == {url for url in pages() if url != "404.html"}


def test_no_page_needs_another_host() -> None:
    for path in SITE.rglob("*.html"):
        for tag, attributes in tags(path):
            loads = tag in {"script", "img", "iframe", "source"} or (
                tag == "link" and attributes.get("rel") in {"stylesheet", "icon", "preconnect"}
            )
            link = attributes.get("src") or attributes.get("href") or ""
            assert not (loads and link.startswith(("http:", "https:", "//"))), (path, link)


def documented() -> set[str]:
    """站点的 objects.inv 里的全部名字。"""
    content = (SITE / "objects.inv").read_bytes()
    body = content.split(b"\n", 4)[4]
    return {line.split(" ")[0] for line in zlib.decompress(body).decode().splitlines()}


def test_every_public_name_is_documented() -> None:
    names = documented()
    modules = [gptcore]
    modules += [
        importlib.import_module(f"gptcore.{module.name}")
        for module in pkgutil.iter_modules(gptcore.__path__)
        if not module.name.startswith("__")
    ]
    modules.append(importlib.import_module("gptcore.data.stories"))
    missing = []
    for module in modules:
        for name in public_names(module):
            place = getattr(getattr(module, name), "__module__", module.__name__)
            if not {f"{module.__name__}.{name}", f"{place}.{name}"} & names:
                missing.append(f"{module.__name__}.{name}")
    assert missing == []


def public_names(module: object) -> list[str]:
    """`__all__`，没有时是模块里自己定义的、不以下划线开头的类与函数。"""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not name.startswith("__")]
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def test_chapters_have_one_title() -> None:
    book = (ROOT / "docs" / "book" / "index.md").read_text(encoding="utf-8")
    titles = dict(re.findall(r"^\| (\d+) \| \[([^\]]+)\]", book, re.MULTILINE))
    assert list(map(int, titles)) == list(range(1, 25))
    wrong = []
    for path in (ROOT / "gptcore").rglob("*.py"):
        for line in re.findall(r"教程：.*", path.read_text(encoding="utf-8")):
            for number, rest in re.findall(r"第 (\d+) 章(?: (?=(.*)))?", line):
                if rest and not rest.startswith(titles[number]):
                    wrong.append(f"{path.name}：{line}")
    for url in chapters():
        number = str(int(url.rstrip("/")[-2:]))
        heading = (ROOT / "docs" / f"{url.rstrip('/')}.md").read_text(encoding="utf-8")
        if f"\n# 第 {number} 章 {titles[number]}\n" not in heading:
            wrong.append(url)
    assert wrong == []


@pytest.mark.parametrize("url", examples())
def test_notebook_runs(url: str, tmp_path: Path) -> None:
    stem = url.strip("/").split("/")[-1]
    cells = json.loads((SITE / "examples" / f"{stem}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    script = (ROOT / "examples" / f"{stem}.py").read_text(encoding="utf-8")
    assert [ast.dump(node) for node in ast.parse(code).body] == [
        ast.dump(node) for node in ast.parse(script).body[1:]
    ]
    prose = "".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    assert "][" not in prose, "笔记本里不应当有站点的交叉引用"
    result = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", f"import matplotlib\nmatplotlib.use('agg')\n{code}"],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
