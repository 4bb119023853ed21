"""浏览器测试的夹具：静态服务器、Chromium、记录错误的页面

先构建站点：`mkdocs build`，或者用环境变量 GPTCORE_SITE 指出构建好的文件夹。
浏览器是系统里的 chromium（Debian：apt-get install chromium），也可以用环境变量 CHROMIUM 指定。
"""

import http.server
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from browser.built import SITE, Handler

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """站点的网址。"""
    if not (SITE / "index.html").exists():
        pytest.fail(f"{SITE} 里没有构建好的站点，请先运行 mkdocs build")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """系统里的 Chromium。"""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.fail("找不到 chromium；Debian 上请运行 apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Visit:
    """打开的一页，以及打开期间出的问题。"""

    page: Any
    address: str
    problems: list[str] = field(default_factory=list)

    def open(self, url: str) -> "Visit":
        """打开站内的一页，等到字体与公式就绪。"""
        self.page.goto(self.address + url)
        self.page.evaluate("document.fonts.ready.then(() => true)")
        return self


@pytest.fixture
def visit(address: str, chromium: Any) -> Iterator[Callable[..., Visit]]:
    """`visit(网址, 宽度, 配色)` 在新的窗口里打开一页；外部的请求被拦下并记录。"""
    contexts = []

    def start(url: str, width: int = 1280, scheme: str = "light") -> Visit:
        height = 844 if width < 500 else 900
        context = chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme
        )
        contexts.append(context)
        context.set_default_timeout(20_000)
        page = context.new_page()
        record = Visit(page, address)

        def route(request: Any) -> None:
            if request.request.url.startswith(address):
                request.continue_()
            else:
                record.problems.append(f"外部请求 {request.request.url}")
                request.abort()

        page.route("**/*", route)
        page.on("console", lambda m: m.type == "error" and record.problems.append(m.text))
        page.on("pageerror", lambda error: record.problems.append(str(error)))
        page.on("requestfailed", lambda r: record.problems.append(f"请求失败 {r.url}"))
        page.on(
            "response", lambda r: r.status >= 400 and record.problems.append(f"{r.status} {r.url}")
        )
        return record.open(url)

    yield start
    for context in contexts:
        context.close()
