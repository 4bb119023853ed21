"""GPT-2 的字节字母表：把 256 个字节写成 256 个看得见的字符

`vocab.bpe`、`encoder.json` 与 `tokenizer.json` 是文本文件，字节不能直接写进去。GPT-2 给每个字节指定一个字符：
看得见的 Latin-1 字符代表自己，其余的 68 个（控制字符、空格等）依次用 U+0100 起的字符，空格因此写成 `Ġ`。

出处：https://github.com/openai/gpt-2 的 encoder.py，`bytes_to_unicode`。
"""

import reprlib

from gptcore.errors import DataError

_VISIBLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [i for i in range(256) if i not in _VISIBLE]
BYTE_ORDER = bytes(_VISIBLE + _OTHERS)
"""GPT-2 词表里前 256 个词元的次序：先是看得见的，再是其余的。"""

_CHARACTERS = {i: chr(i) for i in _VISIBLE} | {b: chr(256 + i) for i, b in enumerate(_OTHERS)}
_BYTES = {ord(character): byte for byte, character in _CHARACTERS.items()}


def to_characters(token: bytes) -> str:
    """把一串字节写成字母表里的字符。

    Examples:
        >>> to_characters(b" the")
        'Ġthe'
    """
    return token.decode("latin-1").translate(_CHARACTERS)


def is_byte_level(text: str) -> bool:
    """是不是全由字母表里的字符组成，且不为空。"""
    return bool(text) and all(ord(character) in _BYTES for character in text)


def to_bytes(text: str, place: str) -> bytes:
    """把字母表里的字符变回字节。

    Args:
        text: 字符。
        place: 它在文件的什么地方，写进错误消息。

    Returns:
        字节。

    Raises:
        DataError: 为空，或有字母表以外的字符。
    """
    if not is_byte_level(text):
        raise DataError(
            f"{place} 里的 {reprlib.repr(text)} 不是用 GPT-2 的字节字母表写成的（空格写成 Ġ）；"
            "这里只支持字节级 BPE 的词表"
        )
    return bytes(_BYTES[ord(character)] for character in text)
