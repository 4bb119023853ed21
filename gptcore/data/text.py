"""读入文本文件：总是 UTF-8，不依赖平台的默认编码"""

import codecs
import io
import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from gptcore.errors import DataError, DtypeError

CHUNK = 1 << 20
"""每次读多少字节"""


def read_text(path: str | os.PathLike[str]) -> str:
    """读入一个 UTF-8 文本文件。

    开头的字节序标记（BOM）会去掉，Windows 的 CRLF 和旧式的 CR 换行一律变成 LF，
    所以同一份文本在各个平台上得到同样的字符。

    Args:
        path: 文件路径。

    Returns:
        文件的内容，至少有一个字符。

    Raises:
        DataError: 文件不存在、是目录、没有读取权限、不是 UTF-8 或者是空的。
        DtypeError: `path` 不是路径。
    """
    text = "".join(text_chunks(path))
    if not text:
        raise DataError(
            f"read_text：文件 {str(Path(path))!r} 是空的，没有可用的文本；请换一个有内容的文件"
        )
    return text


def text_chunks(path: str | os.PathLike[str]) -> Iterator[str]:
    """一段一段地读一个 UTF-8 文本文件，占用的内存与文件的大小无关；连起来与 `read_text` 的结果相同。

    文件只打开一次，从头读到尾，所以管道也可以。

    Args:
        path: 文件路径。

    Yields:
        首尾相接的各段，每一段约 1 MB；空的文件一段也没有。

    Raises:
        DataError: 文件不存在、是目录、没有读取权限或不是 UTF-8。
        DtypeError: `path` 不是路径。
    """
    try:
        file = Path(path)
    except TypeError:
        raise DtypeError(
            f"read_text：path 得到 {type(path).__name__}，它必须是路径（str 或 Path）；"
            "请传入文件名，而不是打开的文件或编号"
        ) from None
    decoder = codecs.getincrementaldecoder("utf-8")()
    newlines = io.IncrementalNewlineDecoder(decoder, translate=True)
    offset = 0  # 已经读了多少字节
    for block in chain(_blocks(file), (None,)):
        content = block or b""
        if not offset and content.startswith(codecs.BOM_UTF8):
            offset, content = len(codecs.BOM_UTF8), content[len(codecs.BOM_UTF8) :]
        held = len(decoder.getstate()[0])  # 上一段末尾不成字符的字节
        try:
            text = newlines.decode(content, final=block is None)
        except UnicodeDecodeError as error:
            raise _not_utf8(file, error, offset - held, block is None) from None
        if text:
            yield text
        offset += len(content)


def decode_utf8(content: bytes, path: Path) -> str:
    """把文件的字节按 UTF-8 解码，去掉开头的 BOM。

    Args:
        content: 文件的全部字节。
        path: 文件路径，写进错误消息。

    Returns:
        解码后的文本；换行符保持原样。

    Raises:
        DataError: 不是 UTF-8；消息写出第一个出错的字节的位置，并猜测实际的编码。
    """
    skipped = len(codecs.BOM_UTF8) if content.startswith(codecs.BOM_UTF8) else 0
    try:
        return content[skipped:].decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(path, error, skipped, final=True) from None


def _not_utf8(path: Path, error: UnicodeDecodeError, offset: int, final: bool) -> DataError:
    """不是 UTF-8 的错误；`error.object` 是文件从 `offset` 起的一段，`final` 表示它到文件末尾为止。"""
    content, start = error.object, error.start
    return DataError(
        f"read_text：文件 {str(path)!r} 不是 UTF-8 编码，"
        f"第一个出错的字节是位置 {start + offset}（从 0 数起）上的 0x{content[start]:02X}；"
        + _encoding_remedy(content, start, final)
    )


def _blocks(file: Path) -> Iterator[bytes]:
    """文件的字节，一段一段的。"""
    name = repr(str(file))
    try:
        if file.is_dir():
            raise DataError(f"read_text：{name} 是目录，不是文件；请给出目录里某个文本文件的路径")
        with file.open("rb") as opened:
            while block := opened.read(CHUNK):
                yield block
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(
            f"read_text：文件 {name} 不存在（当前目录是 {str(Path.cwd())!r}）；"
            "请检查路径；随库提供的语料用 corpus_path(名称) 取得路径"
        ) from None
    except PermissionError:
        raise DataError(
            f"read_text：没有权限读取文件 {name}；请修改文件权限，或把它复制到你能读取的位置"
        ) from None
    except (OSError, ValueError) as error:  # 设备出错、路径过长、路径里有空字符等
        raise DataError(
            f"read_text：读不了文件 {name}：{error}；请检查路径和磁盘，再试一次"
        ) from None


def _encoding_remedy(content: bytes, position: int, final: bool) -> str:
    """猜测不是 UTF-8 的文件是什么编码，返回说明和补救办法。"""
    convert = (
        "请转换成 UTF-8：用编辑器另存为 UTF-8，"
        "或在 Python 里执行 Path(新文件).write_text(Path(旧文件).read_text("
        'encoding="{encoding}"), encoding="utf-8")'
    )
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "看起来是 UTF-16 编码；" + convert.format(encoding="utf-16")
    if b"\x00" in content:
        return "文件里有空字节，它可能不是文本文件；请换一个纯文本文件"
    if final and position >= len(content) - 3 and content[position] >= 0xC2:
        return "出错处在文件末尾，文件可能没有传完；请重新取得完整的文件"
    try:
        codecs.getincrementaldecoder("gb18030")().decode(content, final)
    except UnicodeDecodeError:
        return "请先弄清它的编码，" + convert.format(encoding="原来的编码")
    return "看起来是 GBK（GB18030）编码；" + convert.format(encoding="gb18030")
