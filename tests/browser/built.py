"""浏览器测试的对象：构建好的站点、它的页面，以及从 npm 装的 axe-core"""

import functools
import hashlib
import http.server
import os
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(os.environ.get("GPTCORE_SITE") or ROOT / "site")
CACHE = ROOT / ".cache" / "axe"


def pages() -> list[str]:
    """站点的全部页面，写成网址：index.html 的写成文件夹。"""
    found = (path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
    return sorted(url.removesuffix("index.html") for url in found)


def chapters() -> list[str]:
    """写好的章。"""
    return [url for url in pages() if url.startswith("book/chapter")]


def examples() -> list[str]:
    """示例的页面。"""
    return [url for url in pages() if url.startswith("examples/plot_")]


def html_file(url: str) -> Path:
    """网址对应的文件。"""
    path = SITE / url
    return path / "index.html" if url == "" or url.endswith("/") else path


class Collector(HTMLParser):
    """读出一页的全部标签：（名字，属性）。"""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))


@functools.cache
def tags(path: Path) -> list[tuple[str, dict[str, str]]]:
    """一个 HTML 文件里的标签。"""
    collector = Collector()
    collector.feed(path.read_text(encoding="utf-8"))
    return collector.tags


class Handler(http.server.SimpleHTTPRequestHandler):
    """静态文件；找不到时给出站点自己的 404 页。"""

    def __init__(self, *args: object) -> None:
        super().__init__(*args, directory=str(SITE))

    def log_message(self, *_: object) -> None:
        pass

    def send_error(self, code: int, *_: object) -> None:
        body = (SITE / "404.html").read_bytes() if code == 404 else b""
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def axe() -> str:
    """axe-core 的程序；版本与校验和在这个文件夹的 package-lock.json 里。"""
    source = Path(__file__).parent
    lock = (source / "package-lock.json").read_bytes()
    folder = CACHE / hashlib.sha256(lock).hexdigest()[:16]
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, folder)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(command, cwd=folder, check=True)
    return script.read_text(encoding="utf-8")
