"""原子地写文件：中途断电或出错，留下的要么是旧文件，要么是完整的新文件"""

import os
from pathlib import Path


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
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
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
