"""回环地址上的一个小网站，布局与 Hugging Face 的相同；可以断线、不认 Range、给错内容"""

import hashlib
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """一个网站。

    Attributes:
        files: `仓库/文件` 与内容。
        large: 哪些文件是大文件：重定向到另一个地址，给出 SHA-256。
        plain: 只是静态的镜像：没有提交，没有哈希，没有重定向。
        ranges: 认不认 Range。
        cuts: 每个文件接下来几次各在第几个字节处断开。
        statuses: 一开始的几次请求回答的状态，用完为止。
        corrupt: 哪些文件给出的内容是错的。
        asked: 请求的方法、路径与 Range。
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.large: set[str] = set()
        self.plain, self.ranges, self.commit = False, True, COMMIT
        self.cuts: dict[str, list[int]] = {}
        self.statuses: list[int] = []
        self.corrupt: set[str] = set()
        self.asked: list[tuple[str, str, str]] = []
        self.hang = 0.0
        self.stop = threading.Event()
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                hub.answer(self, body=False)

            def do_GET(self) -> None:
                hub.answer(self, body=True)

            def log_message(self, *args: object) -> None: ...

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def add(self, name: str, folder: Path) -> None:
        """一个仓库，内容取自文件夹。"""
        for path in folder.iterdir():
            self.files[f"{name}/{path.name}"] = path.read_bytes()
            if path.suffix == ".safetensors":
                self.large.add(f"{name}/{path.name}")

    def answer(self, handler: http.server.BaseHTTPRequestHandler, body: bool) -> None:
        wanted = handler.headers.get("Range", "")
        self.asked.append((handler.command, handler.path, wanted))
        self.stop.wait(self.hang)
        if self.statuses:
            self._reply(handler, self.statuses.pop(0))
            return
        if handler.path.startswith("/old/"):  # 改了名字的仓库
            self._reply(handler, 307, {"Location": handler.path.replace("/old/", "/new/", 1)})
            return
        name, _, rest = handler.path[1:].partition("/resolve/")
        cdn = handler.path.startswith("/cdn/")
        key = handler.path[5:] if cdn else f"{name}/{rest.partition('/')[2]}"
        content = self.files.get(key)
        if content is None:
            self._reply(handler, 404)
            return
        headers = {} if self.plain or cdn else {"X-Repo-Commit": self.commit}
        if key in self.large and not cdn and not self.plain:
            digest = hashlib.sha256(content).hexdigest()
            headers |= {"X-Linked-ETag": f'"{digest}"', "X-Linked-Size": str(len(content))}
            self._reply(handler, 302, {**headers, "Location": f"{self.url}/cdn/{key}"})
            return
        if not self.plain and not cdn:
            blob = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
            headers["ETag"] = f'W/"{blob}"'
        self._send(handler, key, content, headers, wanted, body)

    def _send(
        self,
        handler: http.server.BaseHTTPRequestHandler,
        key: str,
        content: bytes,
        headers: dict[str, str],
        wanted: str,
        body: bool,
    ) -> None:
        if key in self.corrupt:
            content = bytes(255 - byte for byte in content)
        start = int(wanted[6:-1]) if wanted and self.ranges else 0
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        headers["Content-Length"] = str(len(content) - start)
        self._reply(handler, 206 if start else 200, headers)
        if not body:
            return
        end = self.cuts[key].pop(0) if self.cuts.get(key) else len(content)
        handler.wfile.write(content[start:end])
        if end < len(content):
            handler.wfile.flush()
            handler.connection.shutdown(2)

    @staticmethod
    def _reply(
        handler: http.server.BaseHTTPRequestHandler,
        status: int,
        headers: dict[str, str] | None = None,
    ) -> None:
        handler.send_response(status)
        for key, value in {"Content-Length": "0", **(headers or {})}.items():
            handler.send_header(key, value)
        handler.end_headers()


@contextmanager
def running() -> Iterator[Hub]:
    """开着的网站。"""
    hub = Hub()
    thread = threading.Thread(target=hub.http.serve_forever, args=(0.01,))
    thread.start()
    yield hub
    hub.stop.set()
    hub.http.shutdown()
    thread.join()
    hub.http.server_close()
