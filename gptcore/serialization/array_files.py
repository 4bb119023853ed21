r"""safetensors 文件：一个数组一个数组地读，或者映射进内存

几百兆的文件不必先整个读进来再复制：

- **映射**（memory mapping）：数组直接就是文件的内容，用到哪一页，系统才读哪一页，没有第二份。
  映射是写时复制（copy-on-write）的：可以照常修改，改动只在自己的内存里，文件不变。
- **读入**：文件的字节直接读进新数组；类型不同时一小块一小块地转换，除了结果，只另占 1 MiB。

NumPy 没有 bfloat16。它就是 float32 的前 16 位，所以后面补 16 个 0 就是同一个数，一位不差：
$\text{float32} = \text{bfloat16} \ll 16$。
"""

import mmap
import os
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, Self

import numpy as np

from gptcore.errors import DataError
from gptcore.files import open_regular
from gptcore.kernels.array import Array
from gptcore.serialization.arrays import DTYPES, Entry, damaged, header_size, parse_header
from gptcore.serialization.single import unreadable

STORED = {**DTYPES, "BF16": np.dtype("<u2"), "BOOL": np.dtype("<u1")}
"""safetensors 的类型名，与它在文件里怎样存；bfloat16 与布尔值先当作整数读出来，再转换"""
CHUNK = 1 << 20
"""转换时一次读多少字节"""


class ArrayFile:
    """打开的 safetensors 文件：文件头已经核对，数组还没有读。

    用 `with` 打开；关上之后，映射出来的数组仍然可用。映射期间请不要就地改写或截断这个文件
    （换上新文件没有关系）：别的程序截断它，读到那里时系统会终止进程。

    Args:
        path: 文件。

    Attributes:
        path: 文件。
        entries: 各个数组的类型、形状与位置；还没有占用内存。

    Raises:
        DataError: 打不开，不是完整的 safetensors 文件，或者有不能读的类型。

    Examples:
        >>> import tempfile
        >>> from gptcore.serialization import dump_arrays, write_bytes
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "a.safetensors"
        ...     write_bytes(path, dump_arrays({"w": np.eye(2, dtype=np.float32)}))
        ...     with ArrayFile(path) as file:
        ...         print(file.entries["w"].kind, file.read("w", np.float64).sum())
        F32 2.0
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mapping: mmap.mmap | None = None
        self._opened = open_regular(path)
        try:
            self._file: BufferedReader = self._opened.__enter__()
        except (OSError, ValueError) as error:
            raise unreadable(path, error) from error
        try:
            self.entries = self._read_header()
        except OSError as error:
            self.close()
            raise unreadable(path, error) from error
        except BaseException:
            self.close()
            raise

    def _read_header(self) -> dict[str, Entry]:
        total = os.fstat(self._file.fileno()).st_size
        size = header_size(self._file.read(8), total, self.path)
        header = self._file.read(size)
        if len(header) != size:
            damaged(self.path, "文件头没有读全")
        return parse_header(header, 8 + size, total, self.path, STORED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """关上文件。"""
        self._mapping = None  # 数组还拿着它，不关
        self._opened.__exit__(None, None, None)

    def map(self, name: str) -> Array | None:
        """数组在文件里的那一段，映射进内存：可以修改，文件不变。

        Args:
            name: 数组的名字。

        Returns:
            数组；不能映射时是 `None`，请改用 `read`：bfloat16，位置没有对齐，文件系统不支持，
            或者机器的字节序与文件的不同。
        """
        entry = self.entries[name]
        dtype = STORED[entry.kind]
        if dtype != DTYPES.get(entry.kind) or not dtype.isnative or entry.begin % dtype.alignment:
            return None
        if entry.begin == entry.end:
            return self.read(name, dtype)
        try:
            if self._mapping is None:
                self._mapping = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_COPY)
            count = (entry.end - entry.begin) // dtype.itemsize
            flat = np.frombuffer(self._mapping, dtype, count, entry.begin)
        except (OSError, ValueError):
            return None
        return self._shaped(name, flat)

    def read(self, name: str, dtype: Any, *, transposed: bool = False) -> Array:
        """读成一个新的数组，并转换类型。

        Args:
            name: 数组的名字。
            dtype: 结果的类型。
            transposed: 是否转置，结果仍是连续的；只用于矩阵。

        Returns:
            数组，连续，只属于调用者。

        Raises:
            DataError: 读不出来，内存放不下，或者有的数超出 `dtype` 的范围。
        """
        entry, target = self.entries[name], np.dtype(dtype)
        shape = entry.shape[::-1] if transposed else entry.shape
        try:
            result = np.empty(shape, target)
            if result.size:  # 写进转置的视图，文件里的一行就是结果的一列
                view = result.T if transposed else result.reshape((*shape, 1)[0], -1)
                self._fill(name, entry, view)
        except MemoryError as error:
            raise DataError(
                f"{self.path} 里的 {name} 形状是 {entry.shape}，内存放不下；请关掉别的程序再试"
            ) from error
        except (OSError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise unreadable(self.path, error) from error
        return result

    def chunks(self, name: str) -> Iterator[bytes]:
        """数组在文件里的字节，一段一段的，每段至多 1 MiB。"""
        entry = self.entries[name]
        for start in range(entry.begin, entry.end, CHUNK):
            self._file.seek(start)
            buffer = np.empty(min(CHUNK, entry.end - start), np.uint8)
            self._read_into(buffer)
            yield buffer.tobytes()

    def _fill(self, name: str, entry: Entry, view: Array) -> None:
        """把数组的内容填进 `view`，它的各行首尾相接。"""
        self._file.seek(entry.begin)
        stored = STORED[entry.kind]
        if stored == view.dtype and stored.isnative and view.flags.c_contiguous:
            self._read_into(view)
            return
        height, width = view.shape
        step = max(1, CHUNK // (width * stored.itemsize))
        for start in range(0, height, step):
            rows = view[start : start + step]
            raw = np.empty(rows.shape, stored)
            self._read_into(raw)
            try:
                with np.errstate(over="raise"):
                    rows[...] = _widened(raw) if entry.kind == "BF16" else raw
            except FloatingPointError as error:
                raise DataError(
                    f"{self.path} 里的 {name} 是 {raw.dtype}，有的数超出 {view.dtype} 的范围；"
                    "请检查它是不是发散的模型"
                ) from error

    def _read_into(self, array: Array) -> None:
        """把文件接下来的字节读进连续的数组。"""
        buffer = array.reshape(-1).view(np.uint8).data
        while buffer:
            count = self._file.readinto(buffer)
            if not count:
                raise DataError(
                    f"{self.path} 在读的时候变短了，也许别的程序正在写它；请等它写完再试"
                )
            buffer = buffer[count:]

    def _shaped(self, name: str, flat: Array) -> Array:
        try:
            return flat.reshape(self.entries[name].shape)
        except ValueError as error:  # 轴太多
            damaged(self.path, f"数组 {name[:200]!r}：{error}")


def _widened(raw: Array) -> Array:
    """bfloat16 的 16 位，变成同样数值的 float32。"""
    wide = raw.astype(np.uint32)
    wide <<= np.uint32(16)
    return wide.view(np.float32)
