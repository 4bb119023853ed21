r"""一个模型仓库在网上的文件：查大小与哈希，下载，断了接着下，核对

网站（Hugging Face，或者同样布局的镜像）按 `网址/名字/resolve/版本/文件` 提供文件。回答里有用的几项：
`X-Repo-Commit` 是提交；大文件的 `X-Linked-Size` 与 `X-Linked-ETag` 是大小与 SHA-256，在重定向的那一次回答里；
小文件的 `ETag` 是 Git 的对象名，即 `blob 大小\0内容` 的 SHA-1。
来源：huggingface_hub 的 `file_download.py`，<https://github.com/huggingface/huggingface_hub>。
"""

import hashlib
import importlib
import os
import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from gptcore.files import replace

TIMEOUT = (10, 30)
"""连接和两次数据之间的时限，单位秒"""
REDIRECTS, ATTEMPTS = 8, 5
"""重定向最多几次；没有进展时试几次"""
WAIT = 1.0
"""断了之后，过几秒再试"""
CHUNK = 1 << 20
IDENTITY = {"Accept-Encoding": "identity"}
"""不要压缩：大小与哈希说的都是原来的内容"""

Progress = Callable[[str, int, int | None], None]
"""下载的进度：哪个文件，已有多少字节，一共多少字节（不知道时是 `None`）"""


class Unreachable(Exception):  # noqa: N818  不是程序的错误
    """连不上，或者网站出了错。"""


class Missing(Exception):  # noqa: N818
    """没有这个文件，或者不让下载。"""


class Stopped(Exception):  # noqa: N818
    """下载中断，或者内容不对。"""


class Info(NamedTuple):
    """网上的一个文件。

    Attributes:
        name: 文件名。
        url: 从哪里下载。
        size: 字节数；网站没有说时是 `None`。
        tag: 网站给的标记，内容变了它也变；没有时是空的。
        digest: SHA-256，或者 Git 的对象名；没有时是空的。
        commit: 提交；没有时是空的。
    """

    name: str
    url: str
    size: int | None
    tag: str
    digest: str
    commit: str


class Remote:
    """网上的一个模型仓库。

    Args:
        endpoint: 网站的网址，末尾没有 `/`。
        name: 模型的名字。
        progress: 每下载一些就调用一次。
    """

    def __init__(self, endpoint: str, name: str, progress: Progress | None = None) -> None:
        self.endpoint, self.name, self.progress = endpoint, name, progress
        # 用到才导入
        self._requests: Any = importlib.import_module("requests")
        self._session: Any = self._requests.Session()

    def find(self, revision: str, name: str) -> Info:
        """查一个文件。

        Args:
            revision: 分支、标签或提交。
            name: 文件名。

        Raises:
            Missing: 没有这个文件，或者要登录。
            Unreachable: 连不上，或者网站出了错。
        """
        start = f"{self.endpoint}/{self.name}/resolve/{quote(revision, safe='')}/{quote(name)}"
        url, status = start, 0
        found: dict[str, str] = {}
        headers: dict[str, str] = {}
        for _ in range(REDIRECTS):
            with self._asking("HEAD", url) as response:
                headers = {key.lower(): value for key, value in response.headers.items()}
                status = response.status_code
            for key in ("x-repo-commit", "x-linked-etag", "x-linked-size"):
                if key in headers:
                    found.setdefault(key, headers[key])
            location = headers.get("location", "")
            if not 300 <= status < 400 or not location or "x-linked-etag" in found:
                break
            url = urljoin(url, location)
            if urlsplit(url).scheme not in {"http", "https"}:
                raise Unreachable(f"重定向到了 {url[:100]}")
        else:
            raise Unreachable("重定向的次数太多")
        _require_success(status, name, redirect="x-linked-etag" in found)
        tag = _plain(found.get("x-linked-etag", headers.get("etag", "")))
        size = found.get("x-linked-size", headers.get("content-length", ""))
        commit = found.get("x-repo-commit", "")
        commit = commit if re.fullmatch(r"[0-9a-f]{40}", commit) else ""
        trusted = re.fullmatch(r"[0-9a-f]{64}" + ("|[0-9a-f]{40}" if commit else ""), tag)
        return Info(
            name,
            start,
            int(size) if re.fullmatch(r"[0-9]{1,18}", size) else None,
            tag,
            tag if trusted else "",
            commit,
        )

    def fetch(self, info: Info, folder: Path, limit: int | None = None) -> Path:
        """下载一个文件；先写成 `.part`，核对之后才改成正式的名字。

        Args:
            info: 哪个文件。
            folder: 放在哪个文件夹。
            limit: 最多多少字节。

        Returns:
            文件。

        Raises:
            Missing: 没有这个文件，或者要登录。
            Stopped: 断了，试了几次都没有下完；或者内容与网站说的不符。
            OSError: 写不进去。
        """
        target = folder / info.name
        key = hashlib.sha256(info.tag.encode()).hexdigest()[:16]
        part = folder / f".{info.name}.{key}.part"
        largest = min((n for n in (limit, info.size) if n is not None), default=None)
        if limit is not None and info.size is not None and info.size > limit:
            raise Stopped(f"{info.name} 有 {info.size} 个字节，最多 {limit} 个")
        reason, failures, most = "", 0, 0
        while failures < ATTEMPTS:  # 每次都多下一些的，不算失败
            time.sleep(WAIT * failures)
            try:
                self._continue(info, part, largest)
                reason = _wrong(part, info)
            except self._requests.RequestException as error:
                reason = describe(error)
            except Unreachable as error:
                reason = str(error)
            else:
                if not reason:
                    with part.open("rb") as file:
                        os.fsync(file.fileno())
                    replace(part, target)
                    return target
                part.unlink()  # 接着下也不会对，从头再来
            have = part.stat().st_size if part.exists() else 0
            failures = 1 if have > most else failures + 1
            most = max(most, have)
        raise Stopped(f"{info.name} 没有下完：{reason}")

    def _continue(self, info: Info, part: Path, limit: int | None) -> None:
        """接着上次的位置下载到底；网站不支持时从头开始。"""
        have = part.stat().st_size if part.exists() and info.tag else 0
        if info.size is not None and have >= info.size > 0:
            have = have if have == info.size else 0
            if have:
                return
        headers = {"Range": f"bytes={have}-"} if have else {}
        with self._asking("GET", info.url, headers) as response:
            resumed = response.status_code == 206 and str(
                response.headers.get("Content-Range", "")
            ).startswith(f"bytes {have}-")
            if have and not resumed:  # 例如 200：整个重来；416：对方的文件变短了
                have = 0
                if response.status_code >= 300:
                    part.unlink()
                    raise Unreachable(f"HTTP 状态 {response.status_code}")
            _require_success(response.status_code, info.name)
            with part.open("ab" if have else "wb") as file:
                for chunk in response.iter_content(CHUNK):
                    file.write(chunk)
                    have += len(chunk)
                    if limit is not None and have > limit:
                        break  # 核对时会发现
                    if self.progress is not None:
                        self.progress(info.name, have, info.size)

    @contextmanager
    def _asking(
        self, method: str, url: str, headers: dict[str, str] | None = None
    ) -> Generator[Any]:
        """发出请求；GET 跟随重定向，HEAD 不跟随。连不上的错误，HEAD 时变成 `Unreachable`。"""
        try:
            response: Any = self._session.request(
                method,
                url,
                headers={**IDENTITY, **(headers or {})},
                timeout=TIMEOUT,
                stream=True,
                allow_redirects=method == "GET",
            )
        except (self._requests.RequestException, ValueError) as error:
            raise Unreachable(describe(error)) from error
        try:
            yield response
        finally:
            response.close()


def describe(error: Exception) -> str:
    """网络的错误说得简短。"""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "Timeout" in kinds or "ReadTimeout" in str(error) or "timed out" in str(error):
        return "超时"
    if "SSLError" in kinds:
        return "证书不对"
    if "ProxyError" in kinds:
        return "代理连不上"
    if "ChunkedEncodingError" in kinds:
        return "连接断了"
    if "ConnectionError" in kinds:
        return "连不上"
    return str(error)[:200]


def _plain(tag: str) -> str:
    """标记去掉引号与开头的 `W/`"""
    return tag.strip().removeprefix("W/").strip('"')


def _require_success(status: int, name: str, redirect: bool = False) -> None:
    if status in {401, 403, 404, 410}:
        raise Missing(f"{name}：HTTP 状态 {status}")
    if not 200 <= status < (400 if redirect else 300):
        raise Unreachable(f"HTTP 状态 {status}")


def _wrong(part: Path, info: Info) -> str:
    """内容与网站说的有什么不符；没有时是空的。"""
    size = part.stat().st_size
    if info.size is not None and size != info.size:
        return f"下到 {size} 个字节，应有 {info.size} 个"
    if not info.digest:
        return ""
    if len(info.digest) == 64:
        digest = hashlib.sha256()
    else:
        digest = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    with part.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return "" if digest.hexdigest() == info.digest else "内容与网站给出的哈希不符"
