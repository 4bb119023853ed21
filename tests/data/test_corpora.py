"""语料的查找、下载、校验与生成；只连本机的回环地址"""

import hashlib
import http.server
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import gptcore.data.stories as stories
from gptcore.data import corpora, corpus_names, corpus_path, find_corpus, load_corpus
from gptcore.data.cache import cache_dir
from gptcore.errors import DataError
from gptcore.files import atomic_write

CONTENT = b"First Citizen:\nBefore we proceed any further, hear me speak.\n" * 50
NAME = "tinyshakespeare.txt"


@pytest.fixture(autouse=True)
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """每个测试自己的缓存；哈希换成小样本的，公开地址换成没人监听的端口。"""
    for name in ("GPTCORE_DATA", "GPTCORE_MIRROR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("GPTCORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(corpora, "SHAKESPEARE_SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(corpora, "SHAKESPEARE_ADDRESSES", (unreachable(),))


def unreachable() -> str:
    with socket.socket() as probe:  # 取一个空闲端口再关掉，连接它会立刻被拒绝
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/input.txt"


class Server:
    """回环地址上的小网站，记下被请求的路径。"""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[str] = []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests.append(self.path)
                body = server.files.get(self.path)
                self.send_response(200 if body is not None else 404)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *args: object) -> None: ...

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server() -> Iterator[Server]:
    site = Server()
    thread = threading.Thread(target=site.http.serve_forever, args=(0.01,))
    thread.start()
    yield site
    site.http.shutdown()
    thread.join()
    site.http.server_close()


def put(folder: Path, content: bytes = CONTENT) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_bytes(content)
    return folder / NAME


# --------------------------------------------------------------- tinyshakespeare


def test_the_real_file(tinyshakespeare_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert len(load_corpus("tinyshakespeare")) == 1_115_394
    assert corpus_path("tinyshakespeare") == tinyshakespeare_path


def test_data_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached, given = put(cache_dir()), put(tmp_path / "data")
    assert corpus_path("tinyshakespeare") == find_corpus("tinyshakespeare") == cached
    monkeypatch.setenv("GPTCORE_DATA", str(tmp_path / "data"))
    assert corpus_path("tinyshakespeare") == find_corpus("tinyshakespeare") == given
    monkeypatch.setenv("GPTCORE_DATA", str(tmp_path / "elsewhere"))
    assert corpus_path("tinyshakespeare") == cached
    assert load_corpus("tinyshakespeare") == CONTENT.decode()


def test_wrong_file_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "data", CONTENT.replace(b"\n", b"\r\n"))
    put(cache_dir())
    monkeypatch.setenv("GPTCORE_DATA", str(tmp_path / "data"))
    with pytest.raises(DataError) as caught:
        corpus_path("tinyshakespeare")
    actual = hashlib.sha256(path.read_bytes()).hexdigest()
    for part in (str(path), corpora.SHAKESPEARE_SHA256, actual, "换行符", "取消 GPTCORE_DATA"):
        assert part in str(caught.value)


@pytest.mark.parametrize("suffix", ["", "/", f"/{NAME}"])
def test_download_from_the_mirror(
    server: Server,
    suffix: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    server.files[f"/{NAME}"] = CONTENT
    monkeypatch.setenv("GPTCORE_MIRROR", server.url + suffix)
    assert find_corpus("tinyshakespeare") is None
    path = corpus_path("tinyshakespeare")
    assert path == cache_dir() / NAME
    assert path.read_bytes() == CONTENT
    assert list(cache_dir().iterdir()) == [path]  # 不留临时文件
    assert corpus_path("tinyshakespeare") == path
    assert server.requests == [f"/{NAME}"]  # 第二次用缓存
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_mirror_may_be_a_local_folder(
    tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = put(tmp_path / "镜 像").parent
    monkeypatch.setenv("GPTCORE_MIRROR", folder.as_uri() if scheme else str(folder))
    assert corpus_path("tinyshakespeare") == cache_dir() / NAME


def test_bad_mirrors_fall_through_to_the_next_address(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files.update({f"/login/{NAME}": b"<html>", "/good.txt": CONTENT})
    monkeypatch.setenv("GPTCORE_MIRROR", server.url + "/login")
    addresses = (server.url + "/404.txt", "ftp://127.0.0.1/a.txt", server.url + "/good.txt")
    monkeypatch.setattr(corpora, "SHAKESPEARE_ADDRESSES", addresses)
    assert corpus_path("tinyshakespeare").read_bytes() == CONTENT
    assert server.requests == [f"/login/{NAME}", "/404.txt", "/good.txt"]


def test_damaged_cache_is_downloaded_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(cache_dir(), CONTENT[:-5])
    server.files[f"/{NAME}"] = CONTENT
    monkeypatch.setenv("GPTCORE_MIRROR", server.url)
    assert corpus_path("tinyshakespeare") == path
    assert path.read_bytes() == CONTENT


def test_offline_names_the_three_ways_out(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cache_dir(), b"damaged")
    with pytest.raises(DataError) as caught:
        corpus_path("tinyshakespeare")
    message = str(caught.value)
    for part in ("GPTCORE_DATA 没有设置", "缓存里的文件已损坏", "连不上", "stories", "不必下载"):
        assert part in message, message
    assert "\n" not in message  # 命令行只用一行报错
    for way in ("（1）把", "GPTCORE_DATA 指向", "（2）让", "GPTCORE_MIRROR", "（3）自行下载"):
        assert way in message
    assert str(cache_dir() / NAME) in message
    assert corpora.SHAKESPEARE_ADDRESSES[0] in message

    monkeypatch.setenv("GPTCORE_DATA", str(tmp_path))
    server.files[f"/{NAME}"] = b"<html>"
    for mirror, reason in [
        (server.url, "内容不对，SHA-256 是"),
        (server.url + "/none", "HTTP 状态 404"),
        (str(tmp_path / "none"), "文件不存在"),
        ("ftp://127.0.0.1", "只支持 http"),
    ]:
        monkeypatch.setenv("GPTCORE_MIRROR", mirror)
        with pytest.raises(DataError) as caught:
            load_corpus("tinyshakespeare")
        assert f"{mirror}/{NAME}（{reason}" in str(caught.value)
        assert f"GPTCORE_DATA={str(tmp_path)!r} 里没有" in str(caught.value)
    assert [p.name for p in cache_dir().iterdir()] == [NAME]


def test_unwritable_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("GPTCORE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match=r"缓存文件夹 .*写不进去.*GPTCORE_CACHE 指向一个可写"):
        corpus_path("tinyshakespeare")


def test_cache_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPTCORE_CACHE", "~/x")
    assert cache_dir() == Path.home() / "x"
    monkeypatch.delenv("GPTCORE_CACHE")
    assert cache_dir().is_absolute()
    assert "gptcore" in str(cache_dir())


@pytest.mark.parametrize("use", [load_corpus, corpus_path, find_corpus])
def test_unknown_name(use: object) -> None:
    with pytest.raises(DataError) as caught:
        use("TinyShakespear")  # type: ignore[operator]
    for part in ("'TinyShakespear'", "你要的是不是 'tinyshakespeare'", "stories、tinyshakespeare"):
        assert part in str(caught.value)
    with pytest.raises(DataError, match=r"没有名为 3 的语料；可用的语料是"):
        use(3)  # type: ignore[operator]
    assert corpus_names() == ["stories", "tinyshakespeare"]


def test_import_stays_light() -> None:
    code = "import gptcore.data, sys; print(sorted({'pooch', 'requests'} & set(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True
    )
    assert run.stdout.strip() == "[]"


# ------------------------------------------------------------------------ stories


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """换成很快的生成函数，记下每次生成。"""
    calls: list[str] = []

    def generate_stories(characters: int = 500_000, seed: int = 0) -> str:
        calls.append("从前有一座山。\n" * 10)
        return calls[-1]

    monkeypatch.setattr(stories, "generate_stories", generate_stories)
    return calls


def test_stories_are_generated_once(generated: list[str]) -> None:
    assert find_corpus("stories") is None
    path = corpus_path("stories")
    assert path.parent == cache_dir()
    assert path.name.startswith("stories-")
    assert path.read_bytes().decode("utf-8") == load_corpus("stories") == generated[0]
    assert find_corpus("stories") == path
    assert len(generated) == 1
    assert len(list(cache_dir().iterdir())) == 2  # 文本和校验文件


def test_the_real_stories() -> None:
    assert load_corpus("stories") == stories.generate_stories()


@pytest.mark.parametrize("damage", ["shorten", "delete", "no digest", "bad digest"])
def test_damaged_stories_are_made_again(generated: list[str], damage: str) -> None:
    path = corpus_path("stories")
    digest = path.with_name(path.name + ".sha256")
    match damage:
        case "shorten":
            path.write_bytes(path.read_bytes()[:-1])
        case "delete":
            path.unlink()
        case "no digest":
            digest.unlink()
        case _:
            digest.write_bytes(b"0")
    assert load_corpus("stories") == generated[0]
    assert len(generated) == 2
    assert find_corpus("stories") == path


def test_stories_without_a_writable_cache(
    generated: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("GPTCORE_CACHE", str(tmp_path / "file" / "cache"))
    path = corpus_path("stories")
    assert path == corpus_path("stories")
    assert path.read_text(encoding="utf-8") == generated[0]
    assert tmp_path not in path.parents


def test_racing_writers_leave_one_whole_file(generated: list[str]) -> None:
    with ThreadPoolExecutor(8) as pool:
        paths = set(pool.map(lambda _: corpus_path("stories"), range(16)))
    assert len(paths) == 1
    assert len(list(cache_dir().iterdir())) == 2
    assert find_corpus("stories") in paths


def test_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.txt"
    target.write_bytes(b"old")

    def refuse(self: Path, other: Path) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(PermissionError):
        atomic_write(target, b"new")
    atomic_write(target, b"old")  # 别的进程已经写好同样的内容
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]
