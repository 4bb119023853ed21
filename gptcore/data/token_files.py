r"""词元文件：写一次，之后随时打开就能训练；比内存大的文本用它

一个文件里依次是两个标准的 `.npy` 数组（NumPy 允许一个文件里接连存几个）：

1. 全部词元，一维，小端的 uint16 或 uint32，由词表大小决定；
2. 说明，uint8，是一段 JSON：词元数、文档数、词元的 SHA-256、分词器，以及这些的 SHA-256。

所以不用本库也读得出：`np.load(path)` 得到词元，`np.load(path, mmap_mode="r")` 映射进内存；
说明在它之后，对同一个打开的文件再 `np.load` 一次。格式见 NumPy 的
[NEP 1](https://numpy.org/neps/nep-0001-npy-format.html)。

**写**：边编码边写，占用的内存与文本的大小无关。词元数写完才知道，所以先写一个占位的文件头（0 个词元），最后改成真的。
写的是同一文件夹里的临时文件，落盘之后才改名，写到一半中断不会留下看起来完整的文件。

**读**：打开时核对文件头、说明与文件的大小，截断、接长的文件都认得出；不逐个读词元，1 GB 的文件也立刻打开。
取一个窗口就从文件里读那一段（pread）。不用内存映射，因为映射过的页都算在进程的内存里：
Linux 每碰到一页，就把周围已在缓存里的一并映射，实测随机取 1 万个窗口，1 GB 的文件就几乎全算进去了；
映射期间文件若被截断，系统还会直接终止进程。直接读则只占一批的大小，截断只是一个 `DataError`。

词元改了一处而大小没变，打开时看不出来；`TokenFile.verify()` 读一遍全文，核对 SHA-256。
"""

import hashlib
import os
import re
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any, NoReturn, cast

import numpy as np
import numpy.typing as npt

from gptcore.data.tokenizers import Tokenizer, tokenizer_from_dict
from gptcore.data.tokenizers.base import checked_path
from gptcore.data.windows import Integers
from gptcore.errors import DataError, DtypeError, GptcoreError, RangeError
from gptcore.files import open_regular
from gptcore.kernels.convert import brief
from gptcore.serialization import JSON_MEMORY, dump_json, parse_json
from gptcore.serialization.single import unreadable

FORMAT = "gptcore-tokens"
VERSION = 1
HEADER = 128
"""每个 `.npy` 文件头多少字节"""
CHUNK = 1 << 20
"""读一长段时，每次多少个词元"""
DTYPES = ("<u2", "<u4")
FACTS_MEMORY = 4 * JSON_MEMORY
"""解析说明时最多另占多少内存；15 万词的 BPE 大约要 90 MB"""

_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00v\x00"
    rb"\{'descr': '([<|]u[124])', 'fortran_order': False, 'shape': \((\d{1,18}),\), \} *\n"
)


def npy_header(dtype: npt.DTypeLike, count: int) -> bytes:
    """一维数组的 `.npy` 文件头，总是 128 字节，所以事后可以就地改写。

    Args:
        dtype: 元素类型。
        count: 元素个数。

    Returns:
        文件头。
    """
    fields = f"{{'descr': {np.dtype(dtype).str!r}, 'fortran_order': False, 'shape': ({count},), }}"
    size = HEADER - 10
    return (
        b"\x93NUMPY\x01\x00" + size.to_bytes(2, "little") + fields.encode().ljust(size - 1) + b"\n"
    )


def facts_digest(facts: dict[str, Any]) -> str:
    """说明里除了 `check` 以外的各项的 SHA-256，就是 `check` 的值。"""
    return hashlib.sha256(dump_json(facts)).hexdigest()


class TokenFile:
    """打开的词元文件，由 `write_tokens` 写成。

    Args:
        path: 文件。

    Attributes:
        path: 文件。
        tokenizer: 分词器。
        count: 词元数。
        documents: 文档数。
        dtype: 词元在文件里的类型。
        sha256: 全部词元的字节的 SHA-256，写的时候记下的。

    Raises:
        DataError: 打不开，不是词元文件，没有写完，或者被截断、改动过。
        DtypeError: `path` 不是路径。

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = write_tokens(Path(folder) / "a.npy", ["天地玄黄"], ByteTokenizer())
        ...     print(file.count, file.dtype, file.tokenizer.decode(np.load(file.path)))
        12 uint16 天地玄黄
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = checked_path("TokenFile", path).absolute()
        try:
            with open_regular(self.path) as file:
                self._descriptor = os.dup(file.fileno())
        except (OSError, ValueError) as error:
            raise unreadable(self.path, error) from error
        self._close = weakref.finalize(self, os.close, self._descriptor)
        self._lock = threading.Lock()
        try:
            self._size = os.fstat(self._descriptor).st_size
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        dtype, self.count = self._header(0)
        if not self.count:
            self._damaged("没有写完，还没有词元")
        if dtype not in DTYPES:
            self._damaged(f"词元的类型是 {dtype}")
        self.dtype = np.dtype(dtype)
        end = HEADER + self.count * self.dtype.itemsize
        if self._size == end:
            self._damaged("只有词元，后面没有说明，也许是别的程序写的 .npy 文件")
        if self._size < end + HEADER:
            self._damaged(
                f"它有 {self._size} 个字节，{self.count} 个词元连同说明至少要 {end + HEADER} 个，被截断了"
            )
        kind, length = self._header(end)
        if kind != "|u1" or self._size != end + HEADER + length:
            self._damaged(f"它有 {self._size} 个字节，与文件头不符")
        if length > FACTS_MEMORY:
            self._damaged(f"说明有 {length} 个字节")
        self._parse(parse_json(self._read_bytes(end + HEADER, length), self.path, FACTS_MEMORY))

    def _parse(self, given: Any) -> None:
        facts = cast("dict[str, Any]", given if isinstance(given, dict) else {})
        if facts.get("format") != FORMAT:
            self._damaged("说明里没有写明它是词元文件")
        if facts.get("version") != VERSION:
            raise DataError(
                f"{self.path} 的格式版本是 {brief(facts.get('version'))}，这里只认识版本 {VERSION}；"
                "如果由更新的 gptcore 写成，请升级"
            )
        if facts.pop("check", None) != facts_digest(facts) or facts.get("count") != self.count:
            self._damaged("说明被改动过")
        self.documents: int = facts["documents"]
        self.sha256: str = facts["sha256"]
        try:
            self.tokenizer: Tokenizer = tokenizer_from_dict(facts["tokenizer"])
        except GptcoreError as error:
            raise DataError(f"{self.path} 里的分词器：{error}") from error

    def __len__(self) -> int:
        return self.count

    @property
    def tokens(self) -> "FileTokens":
        """全部词元，用到才读。"""
        return FileTokens(self, 0, self.count)

    def read(self, start: int, stop: int) -> Integers:
        """读出一段词元。

        Args:
            start: 从第几个起。
            stop: 到第几个之前为止。

        Returns:
            新数组，类型是 `dtype`。

        Raises:
            DataError: 文件在打开之后被截断，读不出来，或者有词表以外的编号。
        """
        found = np.empty(stop - start, self.dtype)
        for i in range(start, stop, CHUNK):
            part = found[i - start : i - start + CHUNK]
            part[:] = np.frombuffer(self._token_bytes(i, len(part)), self.dtype)
        return self._checked(found)

    def windows(self, starts: npt.NDArray[np.int64], length: int) -> Integers:
        """读出从各个位置开始、长 `length` 的几段。

        Args:
            starts: 各段的开头，一维。
            length: 每一段的长度。

        Returns:
            形状 `(段数, length)` 的新数组，类型是 `dtype`。

        Raises:
            DataError: 同 `read`。
        """
        content = b"".join(self._token_bytes(start, length) for start in starts.tolist())
        return self._checked(np.frombuffer(content, self.dtype).reshape(-1, length))

    def verify(self) -> None:
        """读一遍全部词元，核对 SHA-256；1 GB 大约一两秒。

        Raises:
            DataError: 内容与写的时候不同。
        """
        digest = hashlib.sha256()
        for start in range(0, self.count, CHUNK):
            digest.update(self._token_bytes(start, min(CHUNK, self.count - start)))
        if digest.hexdigest() != self.sha256:
            self._damaged("词元与记录的 SHA-256 不符")

    def close(self) -> None:
        """关上文件，之后不能再读；不调用也会在没有人用它时自动关上。"""
        self._close()

    def __fspath__(self) -> str:
        return str(self.path)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)

    def __repr__(self) -> str:
        return f"TokenFile({str(self.path)!r}, count={self.count}, dtype={self.dtype})"

    def _header(self, offset: int) -> tuple[str, int]:
        """文件头里的类型与个数；它必须与我们写的一字不差。"""
        content = self._read_bytes(offset, min(HEADER, self._size - offset))
        match = _HEADER.fullmatch(content)
        if not match or npy_header(dtype := match[1].decode(), count := int(match[2])) != content:
            raise DataError(
                f"{self.path} 不是完整的词元文件；它应当由 write_tokens 写成，"
                "也许复制时没有传完，也许是别的 .npy 文件，请重新复制或重新写"
            )
        return dtype, count

    def _token_bytes(self, start: int, count: int) -> bytes:
        size = self.dtype.itemsize
        return self._read_bytes(HEADER + start * size, count * size)

    def _read_bytes(self, offset: int, size: int) -> bytes:
        if not self._close.alive:
            raise DataError(f"{self.path} 已经关上了；请重新打开")
        pieces: list[bytes] = []
        while size:
            try:
                piece = self._pread(size, offset)
            except OSError as error:
                raise unreadable(self.path, error) from error
            if not piece:
                self._damaged("它在打开之后变短了")
            pieces.append(piece)
            offset, size = offset + len(piece), size - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    if sys.platform == "win32":

        def _pread(self, size: int, offset: int) -> bytes:
            """Windows 没有 pread；位置是共用的，所以要锁。"""
            with self._lock:
                os.lseek(self._descriptor, offset, os.SEEK_SET)
                return os.read(self._descriptor, size)

    else:

        def _pread(self, size: int, offset: int) -> bytes:
            return os.pread(self._descriptor, size, offset)

    def _checked(self, tokens: Integers) -> Integers:
        size = self.tokenizer.vocab_size
        if tokens.size and int(tokens.max()) >= size:
            self._damaged(f"其中有编号 {tokens.max()}，词表只到 {size - 1}")
        return tokens

    def _damaged(self, problem: str) -> NoReturn:
        raise DataError(
            f"{self.path} 不是完好的词元文件：{problem}；请重新复制，或用 write_tokens 重新写"
        )


class FileTokens:
    """词元文件里的一段，像一维数组：切片只记下位置，取用时才读。

    整数下标得到一个编号；`np.asarray(tokens)` 读出全部；它可以用于 `tokenizer.decode`。

    Args:
        file: 词元文件。
        start: 从第几个词元起。
        stop: 到第几个之前为止。
    """

    ndim = 1

    def __init__(self, file: TokenFile, start: int, stop: int) -> None:
        self.file, self.start, self.stop = file, start, stop

    @property
    def dtype(self) -> np.dtype[Any]:
        """词元在文件里的类型。"""
        return self.file.dtype

    @property
    def shape(self) -> tuple[int]:
        """形状 `(词元数,)`。"""
        return (len(self),)

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            chosen = range(self.start, self.stop)[index]
            if chosen.step == 1:
                return FileTokens(self.file, chosen.start, max(chosen.start, chosen.stop))
            return np.asarray(self)[index]
        if not isinstance(index, int | np.integer):
            raise DtypeError(
                f"FileTokens：下标得到 {brief(index)}，它必须是整数或切片；"
                "别的取法请先 np.asarray(tokens)"
            )
        try:
            position = range(self.start, self.stop)[index]
        except IndexError:
            raise RangeError(
                f"FileTokens：下标 {index} 越界，共有 {len(self)} 个词元；"
                f"请用 {-len(self)} 到 {len(self) - 1} 之间的下标"
            ) from None
        return int(self.file.read(position, position + 1)[0])

    def __iter__(self) -> Iterator[int]:
        for start in range(self.start, self.stop, CHUNK):
            yield from self.file.read(start, min(start + CHUNK, self.stop)).tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        del copy
        found = self.file.read(self.start, self.stop)
        return found if dtype is None else found.astype(dtype, copy=False)

    def windows(self, starts: npt.NDArray[np.int64], length: int) -> Integers:
        """读出从各个位置开始、长 `length` 的几段，见 `TokenFile.windows`。"""
        return self.file.windows(starts + self.start, length)

    def __repr__(self) -> str:
        return f"FileTokens(shape={self.shape}, dtype={self.dtype})"
