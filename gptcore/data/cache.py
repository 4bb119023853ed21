"""缓存文件夹与文件校验"""

import hashlib
import os
from pathlib import Path

from gptcore.errors import DataError


def folder_from_environment(name: str) -> Path | None:
    """读出环境变量里的文件夹。

    Args:
        name: 环境变量名。

    Returns:
        文件夹路径，开头的 `~` 换成主目录；变量没有设置或为空时是 None。

    Raises:
        DataError: 开头的 `~` 或 `~用户` 找不到主目录。
    """
    value = os.environ.get(name, "").strip()
    return expand(value, name) if value else None


def expand(value: str, name: str) -> Path:
    """把开头的 `~` 换成主目录。

    Args:
        value: 路径。
        name: 它来自哪个环境变量，写进消息。

    Returns:
        展开之后的路径。

    Raises:
        DataError: 找不到主目录。
    """
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise DataError(
            f"环境变量 {name} 是 {value!r}，找不到其中 {Path(value).parts[0]} 的主目录；请写成完整的路径"
        ) from None


def cache_dir() -> Path:
    """返回缓存文件夹，不保证它已经存在。

    环境变量 `GPTCORE_CACHE` 优先；没有设置时用操作系统惯用的位置，例如 Linux 上的
    `~/.cache/gptcore`。

    Returns:
        缓存文件夹的路径。
    """
    folder = folder_from_environment("GPTCORE_CACHE")
    if folder is not None:
        return folder
    import pooch  # pyright: ignore[reportMissingTypeStubs] 用到才导入

    return Path(pooch.os_cache("gptcore"))


def file_sha256(path: Path) -> str:
    """计算文件内容的 SHA-256。

    Args:
        path: 文件路径。

    Returns:
        64 个小写十六进制字符。

    Raises:
        OSError: 文件读不了。
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
