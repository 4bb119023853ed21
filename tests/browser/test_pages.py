"""每一页在真正的浏览器里打开，桌面与手机两种宽度"""

from collections.abc import Callable

import pytest
from browser.built import axe, chapters, examples, pages
from browser.conftest import Visit

pytestmark = pytest.mark.browser

# 正文里没有排版的公式：代码、脚本与排好的公式之外的文字
RAW_MATH = r"""() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (node.parentElement.closest("code, pre, script, style, template, .katex, svg")) continue;
    if (/\$|\\[()[\]]/.test(node.data)) found.push(node.data.trim().slice(0, 60));
  }
  document.querySelectorAll(".arithmatex").forEach((math) => {
    if (!math.querySelector(".katex")) found.push("没有排版：" + math.textContent.slice(0, 60));
  });
  document.querySelectorAll(".katex-error").forEach((math) => found.push(math.title));
  return found;
}"""

# 手机上比屏幕宽、又不在滚动框里的元素，用来说明横向滚动从哪里来
WIDE = r"""() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  return [...document.querySelectorAll("article *")]
    .filter((e) => e.getBoundingClientRect().right > width + 1)
    .slice(0, 5).map((e) => e.outerHTML.slice(0, 120)).concat("横向滚动");
}"""

BROKEN_IMAGES = """() => Promise.all([...document.images].map(async (image) => {
  image.loading = "eager";
  await image.decode().catch(() => null);
  return image.naturalWidth ? null : image.src;
})).then((all) => all.filter(Boolean))"""


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("url", pages(), ids=lambda url: url or "home")
def test_page(url: str, width: int, visit: Callable[..., Visit]) -> None:
    record = visit(url, width)
    assert record.page.evaluate(RAW_MATH) == []
    assert record.page.evaluate(WIDE) == []
    assert record.page.evaluate(BROKEN_IMAGES) == []
    assert record.problems == []


def test_unknown_address_shows_the_404_page(visit: Callable[..., Visit]) -> None:
    record = visit("no/such/page/")
    assert record.page.locator("h1").inner_text() == "找不到这一页"
    record.page.locator("article a", has_text="教程").click()
    assert record.page.locator("h1").inner_text().startswith("教程")


AXE = ["", "quickstart/", "guides/training/", "guides/text/", "book/", "api/layers/", "api/models/"]
AXE += ["guides/speed/", "guides/growth/", "guides/scaling/", "glossary/", "examples/"]
AXE += ["examples/plot_streaming/"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("url", [*AXE, *chapters(), *examples()[:1]], ids=lambda url: url or "home")
def test_accessibility(url: str, scheme: str, visit: Callable[..., Visit]) -> None:
    page = visit(url, 1280, scheme).page
    page.evaluate(axe())
    result = page.evaluate("axe.run()")
    serious = [
        f"{v['id']}（{v['help']}）：{[n['html'][:160] for n in v['nodes'][:3]]}"
        for v in result["violations"]
        if v["impact"] in {"serious", "critical"}
    ]
    assert serious == []
    assert result["passes"]
