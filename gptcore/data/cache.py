"""缓存文件夹、文件校验与原子写入"""

import hashlib
import os
import secrets
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


def atomic_write(path: Path, content: bytes) -> None:
    """原子地写一个文件：其他进程要么看到旧内容，要么看到完整的新内容。

    先写同一个文件夹里的临时文件并落盘，再改名；文件夹不存在时会先建立。

    Args:
        path: 目标路径。
        content: 文件的全部字节。

    Raises:
        OSError: 文件夹建不了或写不进去。
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _replace(temporary, path, content)
    finally:
        temporary.unlink(missing_ok=True)


def _replace(temporary: Path, path: Path, content: bytes) -> None:
    try:
        temporary.replace(path)
    except PermissionError:
        # Windows 不允许替换别的进程正打开着的文件；若对方已写好同样的内容，就不必再写
        if not path.is_file() or path.read_bytes() != content:
            raise
