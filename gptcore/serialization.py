"""把数组与设置写成文件，再读回来

文件只有两种：`.safetensors`（数组）与 JSON（其余一切），没有 pickle，读取别人的文件不会执行代码。
写入是原子的：先写同一文件夹里的临时文件，落盘之后再改名；中途断电，留下的要么是旧文件，要么是新文件。
几个文件要作为一个整体时，用 `save_folder` 与 `load_folder`。
"""

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from gptcore.errors import DataError, system_reason
from gptcore.files import atomic_write
from gptcore.kernels.array import Array

MANIFEST = "manifest.json"
FORMAT = "gptcore"
FORMAT_VERSION = 1
LEFTOVER_SECONDS = 600


def write_bytes(path: Path, content: bytes) -> None:
    """原子地写一个文件；文件夹不存在时先建立。

    Args:
        path: 写到哪里。
        content: 全部内容。

    Raises:
        DataError: 写不进去；消息说明位置与原因。原来的文件不受影响。
    """
    try:
        atomic_write(path, content)
    except OSError as error:
        raise DataError(
            f"不能写入 {path}：{system_reason(error)}；请换一个可写的位置，或检查磁盘空间"
        ) from error


def read_bytes(path: Path) -> bytes:
    """读一个文件的全部内容。

    Raises:
        DataError: 文件不存在、是文件夹，或读不出来。
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"不能读取 {path}：{system_reason(error)}；请检查路径") from error


def dump_json(value: Any) -> bytes:
    """把一个值变成 JSON 的字节：UTF-8，缩进两格，末尾换行。"""
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    return (text + "\n").encode("utf-8", "surrogatepass")


def parse_json(content: bytes, name: object) -> Any:
    """把 JSON 的字节变回值。

    Args:
        content: 字节。
        name: 文件的名字，写进错误消息。

    Raises:
        DataError: 不是 JSON。
    """
    try:
        return json.loads(content.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name} 不是有效的 JSON：{error}；文件可能被截断或改动过") from error


def dump_arrays(arrays: Mapping[str, Array]) -> bytes:
    """把若干数组变成 safetensors 的字节。"""
    from safetensors.numpy import save

    return save({name: np.asarray(a, order="C") for name, a in arrays.items()})


def parse_arrays(content: bytes, name: object) -> dict[str, Array]:
    """把 safetensors 的字节变回数组。

    Args:
        content: 字节。
        name: 文件的名字，写进错误消息。

    Raises:
        DataError: 不是完整的 safetensors 文件。
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(content)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{name} 不是完整的 safetensors 文件：{error}；文件可能被截断或改动过"
        ) from error


def save_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """把几个文件作为一个整体写进文件夹：要么全是旧的，要么全是新的。

    先把每个文件写成 `.名字.编号.new` 并落盘，再用一次改名换上清单 `manifest.json`：这一刻就是提交。清单记着每个文件的
    SHA-256 与它的 `.new` 叫什么；之后才把各个 `.new` 改成正式的名字。在提交之前中断，旧文件与旧清单原样不动；
    在提交之后中断，`load_folder` 按清单找到还没有改名的 `.new`。文件夹里别的文件都不碰。

    Args:
        folder: 文件夹，不存在时建立。
        files: 名字与内容。

    Raises:
        DataError: 写不进去；原来的文件不受影响。
    """
    number = os.urandom(8).hex()
    pending = {name: f".{name}.{number}.new" for name in files}
    entries = {
        name: {"sha256": hashlib.sha256(content).hexdigest(), "new": pending[name]}
        for name, content in files.items()
    }
    manifest = dump_json({"format": FORMAT, "version": FORMAT_VERSION, "files": entries})
    path = folder / MANIFEST
    try:
        for name, content in files.items():
            write_bytes(folder / pending[name], content)
        write_bytes(path, manifest)
    except BaseException:
        if not path.is_file() or path.read_bytes() != manifest:  # 还没有提交
            for name in pending.values():
                with contextlib.suppress(OSError):
                    (folder / name).unlink()
        raise
    try:
        for name in files:
            (folder / pending[name]).replace(folder / name)
        _sweep(folder)
    except OSError as error:
        raise DataError(
            f"不能写入 {folder}：{system_reason(error)}；也许另一个进程正在写同一个文件夹，请换一个位置"
        ) from error


def _sweep(folder: Path) -> None:
    """清除以前中断时留下的临时文件；刚写的留着，也许另一个进程正在用。"""
    for path in folder.iterdir():
        if is_leftover(path) and time.time() - path.stat().st_mtime > LEFTOVER_SECONDS:
            path.unlink(missing_ok=True)


def load_folder(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    """读回 `save_folder` 写成的文件，逐个核对 SHA-256。

    Args:
        folder: 文件夹。
        names: 要哪几个文件。

    Returns:
        名字与内容。

    Raises:
        DataError: 清单不存在、认不出或由更新的版本写成；文件缺少，或与清单不符。
    """
    path = folder / MANIFEST
    manifest = parse_json(read_bytes(path), path)
    if not isinstance(manifest, dict) or cast("Any", manifest).get("format") != FORMAT:
        raise DataError(f"{path} 不是 gptcore 的清单；请检查文件夹是否正确")
    settings = cast("dict[str, Any]", manifest)
    if settings.get("version") != FORMAT_VERSION:
        raise DataError(
            f"{folder} 的格式版本是 {settings.get('version')}，这里只认识版本 {FORMAT_VERSION}；"
            "如果由更新的 gptcore 写成，请升级"
        )
    return {name: _verified(folder, name, settings.get("files")) for name in names}


def _verified(folder: Path, name: str, entries: Any) -> bytes:
    """一个文件的内容；正式的名字与清单不符时，看提交之后还没有改名的那一份。"""
    entry = entries.get(name) if isinstance(entries, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    if not isinstance(entry, dict):
        raise DataError(f"{folder / MANIFEST} 里没有 {name}；清单可能被改动过")
    digest, new = (str(cast("Any", entry).get(key)) for key in ("sha256", "new"))
    for candidate in (name, new):
        file = folder / candidate
        if file.parent == folder and file.is_file():
            content = read_bytes(file)
            if hashlib.sha256(content).hexdigest() == digest:
                return content
    if not (folder / name).is_file():
        raise DataError(f"{folder} 里缺少 {name}；请换回原来的文件，或重新保存")
    raise DataError(
        f"{folder / name} 与清单 {MANIFEST} 记录的 SHA-256 不符：文件被截断、改动过，或者来自另一次保存；"
        "请换回原来的文件，或重新保存"
    )


def is_leftover(path: Path) -> bool:
    """是不是我们写到一半中断留下的临时文件：`.名字.16 位十六进制.new` 或 `.tmp`。"""
    return re.fullmatch(r"\..+\.[0-9a-f]{16}\.(new|tmp)", path.name) is not None
