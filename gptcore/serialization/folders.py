"""几个文件作为一个整体：保存是原子的，读回时逐个核对"""

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from gptcore.errors import DataError
from gptcore.files import (
    atomic_write,
    locked_folder,
    make_folder,
    open_regular,
    replace,
    sync_folder,
    write_new,
)
from gptcore.serialization.single import RETRY, read_bytes, read_writable, unreadable, unwritable
from gptcore.serialization.texts import dump_json, parse_json

MANIFEST = "manifest.json"
"""清单的文件名"""
FORMAT = "gptcore"
"""清单里写着的格式名"""
FORMAT_VERSION = 1
"""现在的格式版本；更高的版本不读，请用户升级"""
LEFTOVER_SECONDS = 600
"""写到一半的临时文件，过了这么多秒才当作上次中断留下的"""
MANIFEST_LIMIT = 1 << 20
"""清单最多多少字节；正常的不到 2 KB"""


Content = bytes | bytearray | Iterable[bytes | memoryview]
"""一个文件的内容：全部字节，或者依次给出的各段，例如 `array_chunks` 的结果"""


def save_folder(folder: Path, files: Mapping[str, Content]) -> None:
    """把几个文件作为一个整体写进文件夹：要么全是旧的，要么全是新的。

    先把每个文件写成 `.名字.编号.new` 并落盘，再用一次改名换上清单 `manifest.json`：这一刻就是提交。清单记着每个文件的
    大小、SHA-256 与它的 `.new` 叫什么；之后才把各个 `.new` 改成正式的名字。在提交之前中断，旧文件与旧清单原样不动；
    在提交之后中断，`load_folder` 按清单找到还没有改名的 `.new`。每一步落盘之后才做下一步，断电也是如此。
    写的时候锁住文件夹，同时保存的几个进程依次来。文件夹里别的文件都不碰。

    Args:
        folder: 文件夹，不存在时建立。
        files: 名字与内容；名字里不能有路径。内容可以是一段一段的，不必同时都在内存里。

    Raises:
        DataError: 写不进去；原来的文件不受影响。
    """
    names = {name.casefold() for name in (*files, MANIFEST)}
    if not all(is_plain_name(name) for name in files) or len(names) <= len(files):
        raise DataError(
            f"save_folder：名字是 {'、'.join(map(repr, files))}；每个都应当是不含路径的文件名，"
            f"彼此不同，也不是 {MANIFEST}"
        )
    number = os.urandom(8).hex()
    pending = {name: f".{name}.{number}.new" for name in files}
    manifest: bytes | None = None
    created: list[Path] = []
    try:
        created = make_folder(folder)
        with locked_folder(folder) as locked:
            _refuse_folders(folder, (*files, MANIFEST))
            _sweep(folder, locked)
            entries = {
                name: {**_write_new(folder / pending[name], content), "new": pending[name]}
                for name, content in files.items()
            }
            sync_folder(folder)
            manifest = dump_json({"format": FORMAT, "version": FORMAT_VERSION, "files": entries})
            atomic_write(folder / MANIFEST, manifest)
            for name in files:
                replace(folder / pending[name], folder / name)
            _sweep(folder, locked)
    except BaseException as error:
        if manifest is None or not _committed(folder, manifest):
            for path in (*(folder / name for name in pending.values()), *created):
                with contextlib.suppress(OSError, ValueError):
                    path.rmdir() if path in created else path.unlink()
        if isinstance(error, OSError | ValueError) and not isinstance(error, DataError):
            raise unwritable(folder, error) from error
        raise


def _write_new(path: Path, content: Content) -> dict[str, Any]:
    """写一个新文件，返回它的大小与 SHA-256。"""
    digest, size = hashlib.sha256(), 0

    def pieces() -> Iterator[bytes | bytearray | memoryview]:
        nonlocal size
        for piece in (content,) if isinstance(content, bytes | bytearray) else content:
            digest.update(piece)
            size += len(piece)
            yield piece

    write_new(path, pieces())
    return {"size": size, "sha256": digest.hexdigest()}


def finish_folder(folder: Path) -> None:
    """上一次 `save_folder` 若在提交之后、改名之前中断，把剩下的改名做完；没有中断时什么也不做。

    `load_folder` 不需要它；别的程序（或者直接打开文件的代码）不认得清单，读之前用它。

    Args:
        folder: 文件夹。

    Raises:
        DataError: 有剩下的改名，却写不进去，或者清单被改动过。
    """
    if not _unfinished(folder):
        return
    try:
        with locked_folder(folder):
            for name, new in _unfinished(folder).items():
                replace(folder / new, folder / name)
            sync_folder(folder)
    except OSError as error:
        raise unwritable(folder, error) from error


def _unfinished(folder: Path) -> dict[str, str]:
    """清单提到、还没有改名的文件：正式的名字与现在的名字。"""
    path = folder / MANIFEST
    content = read_bytes(path, MANIFEST_LIMIT) if path.is_file() else b""
    if f'"format": "{FORMAT}"'.encode() not in content:  # 别的程序也有叫这个名字的文件
        return {}
    entries = _manifest_entries(folder, content)
    pending: dict[str, str] = {}
    for name, entry in entries.items():
        new: Any = cast("dict[str, Any]", entry).get("new") if isinstance(entry, dict) else None
        if new and (folder / new).is_file():
            pending[name] = new
    return pending


def _refuse_folders(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        if (folder / name).is_dir() and not (folder / name).is_symlink():
            raise DataError(f"不能写入 {folder / name}：它是文件夹；请移走它，或换一个位置")


def _committed(folder: Path, manifest: bytes) -> bool:
    """清单是不是已经换上；读不出来时当作是，宁可留下临时文件，也不删掉清单可能要用的。"""
    try:
        return (folder / MANIFEST).read_bytes() == manifest
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True


def _sweep(folder: Path, locked: bool) -> None:
    """清除以前中断时留下的临时文件，它们可能占满磁盘；清单还要用的留着。

    没有锁住，或者不是 `save_folder` 写的，刚写的也留着：也许另一个进程正在用。扫不掉不算错。
    """
    with contextlib.suppress(OSError, DataError):
        manifest = read_bytes(folder / MANIFEST) if (folder / MANIFEST).exists() else b""
        for path in folder.iterdir():
            if not is_leftover(path) or path.name[-20:-4].encode() in manifest:  # 按编号找
                continue
            with contextlib.suppress(OSError):
                age = time.time() - path.lstat().st_mtime
                if age > LEFTOVER_SECONDS or (locked and path.suffix == ".new"):
                    path.unlink()


def load_folder(folder: Path, names: Iterable[str]) -> dict[str, bytearray]:
    """读回 `save_folder` 写成的文件，逐个核对大小与 SHA-256。

    正有别的进程写同一个文件夹也没有关系：读到的全是旧的，或者全是新的。

    Args:
        folder: 文件夹。
        names: 要哪几个文件。

    Returns:
        名字与内容；内容可以修改，`parse_arrays` 由它得到的数组因此不必再复制。

    Raises:
        DataError: 清单不存在、认不出或由更新的版本写成；文件缺少，或与清单不符。
    """
    names = tuple(names)
    for _ in range(20):
        content = read_bytes(folder / MANIFEST, MANIFEST_LIMIT)
        entries = _manifest_entries(folder, content)
        try:
            return {name: _verified(folder, name, entries) for name in names}
        except DataError:
            if read_bytes(folder / MANIFEST, MANIFEST_LIMIT) == content:
                raise
    raise DataError(f"{folder} 一直在被别的进程改写，读不到完整的一份；请等它写完")


def _manifest_entries(folder: Path, content: bytes) -> dict[str, Any]:
    path = folder / MANIFEST
    manifest = parse_json(content, path)
    if not isinstance(manifest, dict) or cast("Any", manifest).get("format") != FORMAT:
        raise DataError(f"{path} 不是 gptcore 的清单；请检查文件夹是否正确")
    settings = cast("dict[str, Any]", manifest)
    version = settings.get("version")
    if type(version) is not int or version != FORMAT_VERSION:
        shown = version if isinstance(version, int | str | None) else type(version).__name__
        raise DataError(
            f"{folder} 的格式版本是 {str(shown)[:60]}，这里只认识版本 {FORMAT_VERSION}；"
            "如果由更新的 gptcore 写成，请升级"
        )
    files = settings.get("files")
    entries = cast("dict[str, Any]", files if isinstance(files, dict) else {})
    for name, entry in entries.items():
        new = cast("Any", entry).get("new") if isinstance(entry, dict) else None
        for text in (name, new):
            if text is not None and not is_plain_name(text):
                raise DataError(
                    f"{path} 里的名字 {str(text)[:60]!r} 不是普通的文件名；"
                    f"清单被改动过，里面的 SHA-256 也就不可信，{RETRY}"
                )
    return entries


def _verified(folder: Path, name: str, entries: dict[str, Any]) -> bytearray:
    """一个文件的内容；正式的名字与清单不符时，看提交之后还没有改名的那一份。"""
    entry = entries.get(name)
    if not isinstance(entry, dict):
        raise DataError(f"{folder / MANIFEST} 里没有 {name}；清单可能被改动过，{RETRY}")
    fields = cast("dict[str, Any]", entry)
    size, digest, new = (fields.get(key) for key in ("size", "sha256", "new"))
    problem = ""
    # 在两次查看之间，别的进程可能刚好把 .new 改成了正式的名字，所以再看一次
    for candidate in (name, new or name, name):
        path = folder / candidate
        if candidate == name or path.is_file():
            content, problem = _checked(path, size, digest)
            if content is not None:
                return content
    raise DataError(problem)


def _checked(path: Path, size: Any, digest: Any) -> tuple[bytearray | None, str]:
    """内容与清单相符就返回它，否则返回 `None` 与哪里不符；大小不符的不读。"""
    try:
        with open_regular(path) as file:
            found = os.fstat(file.fileno()).st_size
            if size is not None and (type(size) is not int or size != found):
                problem = f"（它有 {found} 个字节，应有 {str(size)[:60]} 个）"
            elif size is None and hashlib.file_digest(file, "sha256").hexdigest() != digest:
                problem = ""  # 早先的清单没有大小：先不读进内存
            else:
                file.seek(0)
                content = read_writable(path, file, found)
                if hashlib.sha256(content).hexdigest() == digest:
                    return content, ""
                problem = ""
    except FileNotFoundError:
        return None, f"{path.parent} 里缺少 {path.name}；{RETRY}"
    except OSError as error:
        return None, str(unreadable(path, error))
    return None, (
        f"{path} 与清单 {MANIFEST} 记录的 SHA-256 不符{problem}：文件被截断、改动过，"
        f"或者来自另一次保存；{RETRY}"
    )


def is_plain_name(name: object) -> bool:
    """是不是普通的文件名：不含路径与控制字符，不是 `.` 与 `..`，加上编号也不会太长。"""
    if (
        not isinstance(name, str)
        or name in {"", ".", ".."}
        or re.search(r"[/\\:\x00-\x1f\ud800-\udfff]", name)
    ):
        return False
    return len(name.encode()) <= 220


def is_leftover(path: Path) -> bool:
    """是不是我们写到一半中断留下的临时文件：`.名字.16 位十六进制.new` 或 `.tmp`。"""
    return re.fullmatch(r"\..+\.[0-9a-f]{16}\.(new|tmp)", path.name) is not None
