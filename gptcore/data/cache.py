"""缓存文件夹与文件校验"""

import hashlib
import os
from pathlib import Path


def folder_from_environment(name: str) -> Path | None:
    """读出环境变量里的文件夹。

    Args:
        name: 环境变量名。

    Returns:
        文件夹路径，开头的 `~` 换成主目录；变量没有设置或为空时是 None。
    """
    value = os.environ.get(name, "").strip()
    return Path(value).expanduser() if value else None


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
