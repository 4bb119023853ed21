"""写词元文件：边编码边写，占用的内存与文本的大小无关；格式见 `token_files`"""

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from gptcore.data.sources import Documents, Source, TokenStream, token_dtype
from gptcore.data.token_files import (
    FACTS_MEMORY,
    FORMAT,
    VERSION,
    TokenFile,
    facts_digest,
    npy_header,
)
from gptcore.data.tokenizers import Tokenizer, tokenizer_from_dict
from gptcore.data.tokenizers.base import checked_path
from gptcore.data.tokenizers.special import AllowedSpecial
from gptcore.errors import DataError
from gptcore.files import make_folder, replace, require_replaceable, sync_folder, write_new
from gptcore.serialization import LEFTOVER_SECONDS, dump_json, is_leftover, parse_json
from gptcore.serialization.single import unwritable

Progress = Callable[[int, int], Any]
"""进度的回调：已经读了多少个字符，写了多少个词元。"""


def write_tokens(
    path: str | os.PathLike[str],
    source: Source,
    tokenizer: Tokenizer,
    *,
    allowed_special: AllowedSpecial = (),
    progress: Progress | None = None,
) -> TokenFile:
    """把文字编码成词元文件，之后用 [`TokenDataset`][gptcore.data.TokenDataset] 训练。

    文字一段一段地读、编码、写，所以文本可以比内存大；迭代器只取一遍。写完才换上，中断时原来的文件不变，
    也不会留下看起来完整的文件。

    Args:
        path: 写到哪里，通常以 `.npy` 结尾；已有的文件会被替换。
        source: 一个文件名（`str` 或 `Path`）；或可迭代的对象，其中的 `Path` 是文件，`str` 是一份文字。
            例如 `sorted(Path("书").glob("*.txt"))`。有几份时，之间放一个文本结束词元，
            见 [`sources`][gptcore.data.sources]。
        tokenizer: 分词器，一同存进文件。
        allowed_special: 文字里的哪些特殊词元算数，见 `Tokenizer.encode`；例如语料自己用 `<|endoftext|>` 分隔时，
            写 `{"<|endoftext|>"}`。
        progress: 大约每 100 万个词元调用一次 `progress(字符数, 词元数)`，写完时再调用一次。

    Returns:
        写成的文件，已经打开：`count` 是词元数，`documents` 是文档数。

    Raises:
        ArgumentError: `allowed_special` 里有这个分词器没有的名字。
        DataError: 来源读不了，文字编码不了，一个词元也没有，或者写不进去。
        DtypeError: 参数的类型不对。

    Examples:
        >>> import tempfile
        >>> tokenizer = ByteTokenizer(["<|endoftext|>"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = write_tokens(Path(folder) / "a.npy", ["ab", "", "c"], tokenizer)
        ...     print(file.count, file.documents, list(file.tokens))
        4 2 [97, 98, 256, 99]

    教程：第 19 章 BPE 分词。
    """
    target = checked_path("write_tokens", path)
    if not target.name:
        raise DataError(f"write_tokens：path 是 {str(path)!r}，不是文件名；请写例如 tokens.npy")
    stream = TokenStream(Documents("write_tokens", source), tokenizer, allowed_special)
    temporary = target.with_name(f".{target.name}.{os.urandom(8).hex()}.tmp")
    writing = _Writing(stream, progress, _saved(tokenizer))
    try:
        if target.is_dir():
            raise DataError(f"不能写入 {target}：它是文件夹；请写成其中的一个文件，例如 tokens.npy")
        require_replaceable(target)
        stream.documents.forbid(target)
        make_folder(target.parent)
        _sweep(target)
        try:
            write_new(temporary, writing.pieces())
            _finish(temporary, npy_header(writing.dtype, writing.count))
            replace(temporary, target)
        finally:
            with contextlib.suppress(OSError, ValueError):
                temporary.unlink(missing_ok=True)
        sync_folder(target.parent)
    except (OSError, ValueError) as error:
        # 来源或回调自己的错误原样抛出，其余的是写不进去
        if error is writing.failure or isinstance(error, DataError):
            raise
        raise unwritable(target, error) from error
    return TokenFile(target)


class _Writing:
    """依次给出文件的各段，同时记下写了多少。"""

    def __init__(
        self, stream: TokenStream, progress: Progress | None, tokenizer: dict[str, Any]
    ) -> None:
        self.stream, self.progress, self.tokenizer = stream, progress, tokenizer
        self.dtype = token_dtype(stream.tokenizer.vocab_size)
        self.count = 0
        self.failure: BaseException | None = None

    def pieces(self) -> Iterator[bytes | memoryview]:
        try:
            yield from self._pieces()
        except BaseException as error:
            self.failure = error
            raise

    def _pieces(self) -> Iterable[bytes | memoryview]:
        digest = hashlib.sha256()
        yield npy_header(self.dtype, 0)  # 占位，读的时候不会当作写完的
        for block in self.stream.blocks():
            content = block.tobytes()
            digest.update(content)
            self.count += len(block)
            yield content
            if self.progress:
                self.progress(self.stream.documents.characters, self.count)
        self.stream.documents.require_some()
        facts: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "count": self.count,
            "documents": self.stream.documents.count,
            "sha256": digest.hexdigest(),
            "tokenizer": self.tokenizer,
        }
        content = dump_json(facts | {"check": facts_digest(facts)})
        yield npy_header("|u1", len(content))
        yield content


def _saved(tokenizer: Tokenizer) -> dict[str, Any]:
    """分词器的字典；先确认读得回来，不等到几小时的编码之后才发现。"""
    data = tokenizer.to_dict()
    content = dump_json(data)
    restored = tokenizer_from_dict(parse_json(content, "write_tokens：tokenizer", FACTS_MEMORY))
    if type(restored) is not type(tokenizer) or restored.vocab_size != tokenizer.vocab_size:
        raise DataError(
            f"write_tokens：{type(tokenizer).__name__}（词表 {tokenizer.vocab_size}）存成字典再读回，得到 "
            f"{type(restored).__name__}（词表 {restored.vocab_size}）；请检查它的 to_dict 与 from_dict"
        )
    return data


def _finish(path: Path, header: bytes) -> None:
    """其余的已经落盘，这才写上真的文件头。"""
    with path.open("r+b") as file:
        file.write(header)
        file.flush()
        os.fsync(file.fileno())


def _sweep(target: Path) -> None:
    """清除以前写这个文件时中断留下的临时文件，它们可能占满磁盘；刚写的也许正有别的进程在用，留着。"""
    prefix = f".{target.name}."
    with contextlib.suppress(OSError):
        for path in target.parent.iterdir():
            if path.name.startswith(prefix) and is_leftover(path) and path.suffix == ".tmp":
                with contextlib.suppress(OSError):
                    if time.time() - path.lstat().st_mtime > LEFTOVER_SECONDS:
                        path.unlink()
