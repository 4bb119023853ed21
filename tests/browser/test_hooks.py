"""构建文档时的几个钩子"""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
from browser.built import ROOT

pytestmark = pytest.mark.browser


def hook(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "_hooks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def html(text: str, *extensions: object) -> str:
    from markdown import Markdown

    return Markdown(extensions=list(extensions)).convert(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("第一行\n第二行", "第一行第二行"),
        ("逗号，\n后面", "逗号，后面"),
        ("逗号，\nEnglish", "逗号，English"),
        ("汉字\n  续行", "汉字续行"),
        ("用 NumPy\n写成", "用 NumPy\n写成"),
        ("two\nwords", "two\nwords"),
        ("见**粗体**\n后面", "见<strong>粗体</strong>后面"),
        ("代码 `x`\n后面", "代码 <code>x</code>\n后面"),
        ("逗号，\n`x` 后面", "逗号，<code>x</code> 后面"),
        ("汉字\n`x` 后面", "汉字\n<code>x</code> 后面"),
    ],
)
def test_line_breaks(text: str, expected: str) -> None:
    assert html(text, hook("linebreaks").Extended()) == f"<p>{expected}</p>"


def test_tooltips_mark_the_first_occurrence_and_the_longest_term() -> None:
    glossary = hook("glossary")
    terms = {"归一化": "normalization", "层归一化": "LayerNorm", "轴": "axis"}
    extension = glossary.Glossary(terms, set())
    result = html("# 层归一化\n\n做层归一化，再做层归一化；归一化 `归一化`。", extension)
    assert result == (
        '<h1>层归一化</h1>\n<p>做<abbr title="LayerNorm">层归一化</abbr>，再做层归一化；'
        '<abbr title="normalization">归一化</abbr> <code>归一化</code>。</p>'
    )


def test_tooltips_come_from_the_glossary_page() -> None:
    terms = hook("glossary").read_terms()
    assert len(terms) > 50
    assert terms["嵌入"].startswith("embedding：")
    assert "轮" not in terms, "只有一个字的词不提示"
    assert "令牌、标记（指 token）" not in terms


def test_missing_node_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    katex = hook("katex")
    monkeypatch.setattr(katex, "CACHE", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(katex.PluginError, match=r"Node\.js.*apt-get install nodejs npm"):
        katex.install()


@pytest.mark.parametrize("folder", ["docs/_katex", "tests/browser"])
def test_lock_files_pin_without_addresses(folder: str) -> None:
    lock = json.loads((ROOT / folder / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert packages
    for entry in packages.values():
        assert entry["integrity"].startswith("sha512-")
        assert "resolved" not in entry


def test_unwritten_chapters_lose_their_link() -> None:
    book = hook("book")

    class Files:
        def get_file_from_path(self, uri: str) -> object:
            return uri if uri == "book/chapter07.md" else None

    def line(number: int) -> str:
        row = book.ROW.match(f"| {number} | [标题](chapter{number:02}.md) | 一句话 |")
        return book.status(row, Files())

    assert "写作中" not in line(7)
    assert "(chapter07.md)" in line(7)
    assert "写作中" in line(8)
    assert "](" not in line(8)


def test_every_module_with_public_names_has_a_page() -> None:
    names = hook("api_pages").modules()
    assert {"training", "progress", "plotting", "optim", "errors"} <= set(names)
    assert "version" not in names, "只有版本号，不必有一页"
    for name in names:
        page = ROOT / "docs" / "api" / f"{name}.md"
        assert page.is_file(), f"{name}：自动生成的标题太长，请写 {page.name}"
