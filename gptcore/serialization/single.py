"""单个文件的读与写"""

import os
from io import BufferedReader
from pathlib import Path
from typing import Any

from gptcore.errors import DataError, DtypeError, system_reason
from gptcore.files import atomic_write, open_regular, require_replaceable

RETRY = "请换回原来的文件，或重新保存"


def as_path(operation: str, argument: str, value: Any) -> Path:
    """用户给的路径。

    Args:
        operation: 哪个函数或类，写进消息。
        argument: 参数名。
        value: 得到的值。

    Raises:
        DtypeError: 不是路径。
    """
    try:
        return Path(value)
    except TypeError as error:
        raise DtypeError(
            f"{operation}：{argument} 得到 {type(value).__name__}，它必须是路径（str 或 Path）"
        ) from error


def write_bytes(path: Path, content: bytes) -> None:
    """原子地写一个文件；文件夹不存在时先建立。

    Args:
        path: 写到哪里。
        content: 全部内容。

    Raises:
        DataError: 写不进去；消息说明位置与原因。原来的文件不受影响。
    """
    try:
        require_replaceable(path)
        atomic_write(path, content)
    except (OSError, ValueError) as error:  # ValueError：路径里有 NUL 或写不成字节的字符
        raise unwritable(path, error) from error


def read_bytes(path: Path, limit: int | None = None) -> bytes:
    """读一个普通文件的全部内容。

    Args:
        path: 文件。
        limit: 最多多少字节；不给时不限。

    Returns:
        内容。

    Raises:
        DataError: 文件不存在、是文件夹或管道，太大，或读不出来。
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if limit is None or size <= limit:
                return read_exactly(path, file, size)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    raise DataError(f"{path} 有 {size} 个字节，这里最多 {limit} 个；文件被改动过，{RETRY}")


def read_exactly(path: Path, file: BufferedReader, size: int) -> bytes:
    """读 `size` 个字节，文件也应当恰好到此为止。"""
    try:
        content = file.read(size)
    except MemoryError as error:
        raise _too_large(path, size) from error
    _require_end(path, file, len(content) == size)
    return content


def read_writable(path: Path, file: BufferedReader, size: int) -> bytearray:
    """同 `read_exactly`，结果可以修改：由它得到的数组不必再复制一份。"""
    try:
        content = bytearray(size)
    except (MemoryError, OverflowError) as error:
        raise _too_large(path, size) from error
    _require_end(path, file, file.readinto(content) == size)
    return content


def _too_large(path: Path, size: int) -> DataError:
    return DataError(f"{path} 有 {size} 个字节，内存放不下；请检查文件是否正确")


def _require_end(path: Path, file: BufferedReader, complete: bool) -> None:
    if not complete or file.read(1):
        raise DataError(f"{path} 在读的时候变了大小，也许别的程序正在写它；请等它写完再试")


def unwritable(path: Path, error: Exception) -> DataError:
    """写不进去的错误。"""
    return DataError(f"不能写入 {path}：{_reason(error)}；请换一个可写的位置，或检查磁盘空间")


def unreadable(path: Path, error: Exception) -> DataError:
    """读不出来的错误。"""
    return DataError(f"不能读取 {path}：{_reason(error)}；请检查路径")


def _reason(error: Exception) -> str:
    """操作系统的错误；其余的是路径本身写不成字节。"""
    return system_reason(error) if isinstance(error, OSError) else "路径里有不能用的字符"
