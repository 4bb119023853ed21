"""语料：按名称取得文本

`tinyshakespeare` 在本机找不到时才下载；`stories` 由本库的文法生成，不需要网络。
"""

import contextlib
import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Generator
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from gptcore.data.cache import cache_dir, expand, file_sha256, folder_from_environment
from gptcore.data.text import read_text
from gptcore.errors import DataError
from gptcore.files import atomic_write

SHAKESPEARE_FILE = "tinyshakespeare.txt"
SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
SHAKESPEARE_ADDRESSES = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    "https://cdn.jsdelivr.net/gh/karpathy/char-rnn@master/data/tinyshakespeare/input.txt",
)
TIMEOUT = (10, 30)
"""连接和两次数据之间的时限，单位秒。"""

_NAMES = ("stories", "tinyshakespeare")


def corpus_names() -> list[str]:
    """列出可用的语料名称。

    Returns:
        按字母排序的名称。
    """
    return list(_NAMES)


def load_corpus(name: str) -> str:
    """取得一份语料的全文。

    Args:
        name: 语料名称：`stories`（中文短故事，由本库生成，50 万字）或
            `tinyshakespeare`（莎士比亚剧本节选，1,115,394 个字符）。

    Returns:
        文本。

    Raises:
        DataError: 名称未知，或文件取不到。
    """
    return read_text(corpus_path(name))


def corpus_path(name: str) -> Path:
    """取得一份语料在本机的文件路径，没有时下载或生成。

    `tinyshakespeare` 依次在三处寻找：环境变量 `GPTCORE_DATA` 指定的文件夹；缓存文件夹
    （`GPTCORE_CACHE`，默认是操作系统惯用的缓存位置）；网上的地址，`GPTCORE_MIRROR` 指定的排在最前。
    每个找到的文件都核对 SHA-256。

    `stories` 第一次使用时生成，写进缓存文件夹；文件缺失或损坏时重新生成。
    缓存文件夹不能写时改用一个临时文件夹，程序结束时删除。

    Args:
        name: 语料名称，见 `corpus_names()`。

    Returns:
        UTF-8 文本文件的路径。

    Raises:
        DataError: 名称未知，文件取不到，或 `GPTCORE_DATA` 里的文件内容不对。
    """
    _check_name("corpus_path", name)
    if name == "stories":
        return _stories_path()
    return _local_shakespeare() or _download_shakespeare()


def find_corpus(name: str) -> Path | None:
    """只在本机寻找一份语料，不下载也不生成。

    Args:
        name: 语料名称，见 `corpus_names()`。

    Returns:
        文件路径；本机没有完好的文件时是 None。

    Raises:
        DataError: 名称未知，或 `GPTCORE_DATA` 里的文件内容不对。
    """
    _check_name("find_corpus", name)
    if name == "stories":
        path = cache_dir() / _stories_file()
        return path if _stories_intact(path) else None
    return _local_shakespeare()


def _check_name(operation: str, name: str) -> None:
    if name in _NAMES:
        return
    import difflib

    close = difflib.get_close_matches(str(name).lower(), _NAMES, n=1)
    hint = f"，你要的是不是 {close[0]!r}" if close else ""
    raise DataError(
        f"{operation}：没有名为 {name!r} 的语料{hint}；可用的语料是 {'、'.join(_NAMES)}，"
        "自己的文件请用 read_text(路径) 或 CharDataset(路径)"
    )


# -------------------------------------------------------------------- tinyshakespeare


def _local_shakespeare() -> Path | None:
    folder = folder_from_environment("GPTCORE_DATA")
    if folder is not None and (folder / SHAKESPEARE_FILE).is_file():
        path = folder / SHAKESPEARE_FILE
        actual = _sha256_or_reason(path)
        if actual != SHAKESPEARE_SHA256:
            raise DataError(
                f"corpus_path：GPTCORE_DATA 里的 {str(path)!r} 不是所要的文件，"
                f"SHA-256 应当是 {SHAKESPEARE_SHA256}，实际是 {actual}；"
                "文件可能不完整，或换行符被改写过，请换成原来的文件，或取消 GPTCORE_DATA"
            )
        return path
    path = cache_dir() / SHAKESPEARE_FILE
    return path if _sha256_or_reason(path) == SHAKESPEARE_SHA256 else None


def _download_shakespeare() -> Path:
    target = cache_dir() / SHAKESPEARE_FILE
    failures: list[str] = []
    with _download_folder(target.parent) as folder:
        for address in _addresses():
            try:
                path = _fetch(address, folder)
            except (OSError, ValueError) as error:  # requests 的错误都是 OSError
                failures.append(f"{address}（{_reason(error)}）")
                continue
            try:
                atomic_write(target, path.read_bytes())
            except OSError as error:
                raise _unwritable(target.parent, error) from None
            return target
    raise DataError(_offline_message(target, failures))


@contextlib.contextmanager
def _download_folder(parent: Path) -> Generator[Path]:
    """缓存文件夹里的临时文件夹，下载完就删除。"""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix=".download-", dir=parent)
    except OSError as error:
        raise _unwritable(parent, error) from None
    with folder as name:
        yield Path(name)


def _addresses() -> list[str]:
    """下载地址，`GPTCORE_MIRROR` 排在最前；它可以是文件夹，也可以是 .txt 文件的完整地址。"""
    mirror = os.environ.get("GPTCORE_MIRROR", "").strip()
    if not mirror:
        return list(SHAKESPEARE_ADDRESSES)
    if not mirror.endswith(".txt"):
        mirror = f"{mirror.rstrip('/')}/{SHAKESPEARE_FILE}"
    return [mirror, *SHAKESPEARE_ADDRESSES]


def _fetch(address: str, folder: Path) -> Path:
    """从一个地址取得文件，放进 `folder`，核对 SHA-256；不对时抛出 ValueError。"""
    target = folder / SHAKESPEARE_FILE
    local = _local_path(address)
    if local is None:
        _download(address, target)
    else:
        target.write_bytes(local.read_bytes())
    actual = file_sha256(target)
    if actual != SHAKESPEARE_SHA256:
        raise ValueError(f"内容不对，SHA-256 是 {actual}")
    return target


def _local_path(address: str) -> Path | None:
    """镜像是本机路径或 file: 地址时，返回它的路径。"""
    if "://" not in address:
        return expand(address, "GPTCORE_MIRROR")
    parts = urlsplit(address)
    if parts.scheme != "file":
        return None
    from urllib.request import url2pathname

    return Path(url2pathname(parts.path))


def _download(address: str, target: Path) -> None:
    if urlsplit(address).scheme not in {"http", "https"}:
        raise ValueError("只支持 http、https、file 地址和本机路径")
    import pooch  # pyright: ignore[reportMissingTypeStubs] 下载时才导入

    # 直接用它的下载器：不打印日志，校验和改名由这里负责
    downloader = pooch.HTTPDownloader(timeout=TIMEOUT, chunk_size=1 << 16)
    downloader(address, str(target), None)


def _reason(error: Exception) -> str:
    """把下载的错误说得简短。"""
    response = getattr(error, "response", None)
    if response is not None:
        return f"HTTP 状态 {response.status_code}"
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "Timeout" in kinds:
        return "超时"
    if isinstance(error, FileNotFoundError):
        return "文件不存在"
    if "ConnectionError" in kinds:
        return "连不上"
    return str(error)[:200]


def _offline_message(target: Path, failures: list[str]) -> str:
    folder = folder_from_environment("GPTCORE_DATA")
    looked = f"GPTCORE_DATA={str(folder)!r} 里没有" if folder else "GPTCORE_DATA 没有设置"
    damaged = "，缓存里的文件已损坏" if target.exists() else ""
    return (
        f"corpus_path：取不到 tinyshakespeare：{looked}{damaged}，"
        f"下载也没有成功：{'，'.join(failures)}。有三种办法："
        f"（1）把 {SHAKESPEARE_FILE} 放进一个文件夹，让环境变量 GPTCORE_DATA 指向这个文件夹；"
        "（2）让环境变量 GPTCORE_MIRROR 指向一个连得上的镜像"
        f"（放着 {SHAKESPEARE_FILE} 的网址或文件夹）；"
        f"（3）自行下载 {SHAKESPEARE_ADDRESSES[0]}，保存为 {str(target)!r}。"
        "不想用网络时，语料 stories 由本库生成，不必下载"
    )


def _unwritable(folder: Path, error: OSError) -> DataError:
    return DataError(
        f"corpus_path：缓存文件夹 {str(folder)!r} 写不进去：{error}；"
        "请让环境变量 GPTCORE_CACHE 指向一个可写的文件夹，"
        f"或把 {SHAKESPEARE_FILE} 放进 GPTCORE_DATA 指定的文件夹"
    )


def _sha256_or_reason(path: Path) -> str:
    try:
        return file_sha256(path)
    except OSError as error:
        return f"未知（读不了：{error}）"


# ---------------------------------------------------------------------------- stories


def _stories_path() -> Path:
    path = cache_dir() / _stories_file()
    if _stories_intact(path):
        return path
    from gptcore.data.stories import generate_stories

    content = generate_stories().encode("utf-8")
    try:
        _write_stories(path, content)
    except OSError:  # 主目录只读的机器上也要能用
        path = Path(_temporary_folder().name) / path.name
        if not _stories_intact(path):
            _write_stories(path, content)
    return path


def _write_stories(path: Path, content: bytes) -> None:
    """写下文本和它的 SHA-256；校验文件最后写，中断时下次会重新生成。"""
    atomic_write(path, content)
    digest = hashlib.sha256(content).hexdigest()
    atomic_write(_digest_path(path), f"{digest}  {path.name}\n".encode())


def _stories_intact(path: Path) -> bool:
    try:
        recorded = _digest_path(path).read_bytes()
        return recorded == f"{file_sha256(path)}  {path.name}\n".encode()
    except OSError:
        return False


def _digest_path(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


@cache
def _stories_file() -> str:
    """文件名带着生成程序的指纹：文法改了，旧的缓存就不再使用。"""
    fingerprint = hashlib.sha256()
    spec = importlib.util.find_spec("gptcore.data.stories")
    for folder in spec.submodule_search_locations or () if spec else ():
        for source in sorted(Path(folder).glob("*.py")):
            fingerprint.update(source.read_bytes().replace(b"\r\n", b"\n"))
    return f"stories-{fingerprint.hexdigest()[:12]}.txt"


@cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="gptcore-")
