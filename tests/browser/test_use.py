"""读者会做的事：搜索、复制、换配色、翻看分步图、下载、打印"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from browser.built import ROOT, chapters, examples
from browser.conftest import Visit

pytestmark = pytest.mark.browser
Start = Callable[..., Visit]


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("层归一化", r"api/layers/#gptcore\.layers\.LayerNorm$|book/chapter15/"),
        ("注意力", r"api/models/#gptcore\.models\.GPTAttention|book/chapter1[1-5]/|plot_heads/"),
        ("词向量", r"glossary/|book/chapter07/"),
        ("LayerNorm", r"api/layers/#gptcore\.layers\.LayerNorm$"),
        ("检查点", r"guides/training/#|api/training/#gptcore\.training\.Checkpoints$"),
        ("接着训练", r"guides/training/|api/training/"),
        ("分词器", r"guides/text/#tokenizers$|api/data/#gptcore\.data\.tokenizers$"),
        ("重复惩罚", r"guides/text/|api/models/"),
        ("字节对编码", r"guides/text/|plot_bpe/|glossary/"),
        ("BPETokenizer", r"api/data/#gptcore\.data\.BPETokenizer$"),
        ("save_pretrained", r"api/models/#gptcore\.models\.save_pretrained$|guides/text/"),
        ("clip_grad_norm", r"api/optim/#gptcore\.optim\.Optimizer\.clip_grad_norm$"),
    ],
)
def test_search(query: str, place: str, visit: Start) -> None:
    page = visit("").page
    box = page.locator(".md-search__input")
    box.click()
    box.fill(query)
    box.press("End")  # 程序输入的中文没有按键事件，补上一个
    results = page.locator(".md-search-result__link")
    results.first.wait_for()
    links = results.evaluate_all("links => links.map(link => link.href)")
    clean = [re.sub(r"\?h=[^#]*", "", link) for link in links]
    assert any(re.search(place, link) for link in clean[:10]), clean[:10]
    results.first.click()
    page.wait_for_url(re.compile(r"\?h="))
    assert page.locator("h1").first.is_visible()


def test_copy_button(visit: Start) -> None:
    page = visit("quickstart/").page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    block = page.locator("div.highlight", has_text="pip install").first
    code = block.locator("code").inner_text().strip()
    assert "pip install" in code
    block.hover()
    block.get_by_role("button").first.click()
    page.locator(".md-dialog--active").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").strip() == code


def test_dark_mode(visit: Start) -> None:
    page = visit("").page
    scheme = "document.body.dataset.mdColorScheme"
    color = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(color)
    assert page.evaluate(scheme) == "default"
    page.locator("label[title='切换到深色']").click()
    assert page.evaluate(scheme) == "slate"
    assert page.evaluate(color) != light
    page.reload()
    assert page.evaluate(scheme) == "slate", "换一页之后应当记得"
    assert visit("", scheme="dark").page.evaluate(scheme) == "slate", "跟随系统"


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("url", chapters())
def test_stepped_figures(url: str, width: int, visit: Start) -> None:
    page = visit(url, width).page
    figures = page.locator("figure.stepper")
    assert figures.count() > 0
    for figure in figures.all():
        shown = figure.locator(".stepper-step:visible")
        count = figure.locator(".stepper-step").count()
        texts = [numbers(shown.inner_text())]
        assert shown.count() == 1
        for _ in range(count - 1):
            figure.get_by_role("button", name="下一步").click()
            texts.append(numbers(shown.inner_text()))
            assert shown.count() == 1
        assert len(set(texts)) == count, "每一步都应当改变显示的内容"
        assert f"第 {count} 步" in figure.locator(".stepper-status").inner_text()
        figure.locator(".stepper-stage").focus()
        for text in reversed(texts[:-1]):
            page.keyboard.press("ArrowLeft")
            assert numbers(shown.inner_text()) == text
        page.keyboard.press("End")
        assert numbers(shown.inner_text()) == texts[-1]


def numbers(text: str) -> str:
    """一步里显示的文字，去掉空白。"""
    return "".join(text.split())


@pytest.mark.parametrize("url", examples())
def test_downloads(url: str, visit: Start, tmp_path: Path) -> None:
    page = visit(url).page
    links = page.locator("a.md-button")
    assert links.count() == 2
    for link in links.all():
        with page.expect_download() as download:
            link.click()
        name = download.value.suggested_filename
        download.value.save_as(tmp_path / name)
    stem = url.strip("/").split("/")[-1]
    script = ROOT / "examples" / f"{stem}.py"
    assert (tmp_path / f"{stem}.py").read_bytes() == script.read_bytes()
    assert (tmp_path / f"{stem}.ipynb").stat().st_size > 100


# 折叠的内容里看得见的高度为零、或者被跳过绘制的元素
HIDDEN = """() => [...document.querySelectorAll("details > :not(summary)")]
  .filter((e) => !e.checkVisibility() || e.getBoundingClientRect().height === 0)
  .map((e) => e.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("url", chapters())
def test_print(url: str, visit: Start, tmp_path: Path) -> None:
    page = visit(url, scheme="dark").page
    page.emulate_media(media="print")
    page.wait_for_timeout(200)
    assert page.evaluate(HIDDEN) == []
    assert page.locator("details").count() > 0
    assert not page.locator(".md-header").is_visible()
    for step in page.locator(".stepper-step").all():
        assert step.is_visible()
    assert page.locator(".katex").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.pdf(path=tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").stat().st_size > 10_000
