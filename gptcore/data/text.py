"""读入文本文件：总是 UTF-8，不依赖平台的默认编码"""

import codecs
import os
from pathlib import Path

from gptcore.errors import DataError, DtypeError


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
    try:
        file = Path(path)
    except TypeError:
        raise DtypeError(
            f"read_text：path 得到 {type(path).__name__}，它必须是路径（str 或 Path）；"
            "请传入文件名，而不是打开的文件或编号"
        ) from None
    text = decode_utf8(_read_bytes(file), file)
    if not text:
        raise DataError(
            f"read_text：文件 {str(file)!r} 是空的，没有可用的文本；请换一个有内容的文件"
        )
    return text.replace("\r\n", "\n").replace("\r", "\n")


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
        position = error.start + skipped
        raise DataError(
            f"read_text：文件 {str(path)!r} 不是 UTF-8 编码，"
            f"第一个出错的字节是位置 {position}（从 0 数起）上的 0x{content[position]:02X}；"
            + _encoding_remedy(content, position)
        ) from None


def _read_bytes(file: Path) -> bytes:
    name = repr(str(file))
    try:
        directory = file.is_dir()
        content = b"" if directory else file.read_bytes()
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
    if directory:
        raise DataError(f"read_text：{name} 是目录，不是文件；请给出目录里某个文本文件的路径")
    return content


def _encoding_remedy(content: bytes, position: int) -> str:
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
    if position >= len(content) - 3 and content[position] >= 0xC2:
        return "出错处在文件末尾，文件可能没有传完；请重新取得完整的文件"
    try:
        content.decode("gb18030")
    except UnicodeDecodeError:
        return "请先弄清它的编码，" + convert.format(encoding="原来的编码")
    return "看起来是 GBK（GB18030）编码；" + convert.format(encoding="gb18030")
