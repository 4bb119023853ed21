"""任何分词器的数据集：文字在内存里编码，或者词元在磁盘上"""

import os
from typing import Any

import numpy as np

from gptcore.data.datasets import WindowDataset
from gptcore.data.sources import Documents, Source, TokenStream, Unsigned, token_dtype
from gptcore.data.token_files import FileTokens, TokenFile
from gptcore.data.tokenizers import CharTokenizer, Tokenizer
from gptcore.data.tokenizers.special import AllowedSpecial
from gptcore.errors import DataError


class TextDataset(WindowDataset):
    """任何分词器的文本数据集：每个位置的标签都是它的下一个词元。

    文字可以是一个文件、几个文件，或者一份一份的文字；有几份时，之间放一个文本结束词元，
    见 [`sources`][gptcore.data.sources]。词元存成 uint16（词表大于 65,536 时 uint32），取出一批时变成 int64。
    比内存大的文本请先用 [`write_tokens`][gptcore.data.write_tokens] 写成词元文件。

    划分训练集与测试集按词元的位置，窗口的取法见 [`WindowDataset`][gptcore.data.WindowDataset]；
    窗口可以跨过两份文字。

    Args:
        source: 一个文件名（`str` 或 `Path`，UTF-8）；或可迭代的对象，其中的 `Path` 是文件，`str` 是一份文字。
            例如 `sorted(Path("书").glob("*.txt"))`；迭代器只取一遍。
        tokenizer: 分词器；不给时收集文字里的字符，成为字符分词器。
        batch_size: 每批的窗口数。
        context_size: 上下文尺寸。
        stride: 相邻窗口起点的距离；默认 `max(1, context_size // 2)`。
        split: 训练集所占的比例；1.0 表示不留测试集。
        allowed_special: 文字里的哪些特殊词元算数，见 `Tokenizer.encode`。

    Attributes:
        documents: 有几份不空的文字。

    Raises:
        ArgumentError: 某个参数不合要求。
        DataError: 文件读不了，文字编码不了，或某一段比一个窗口加一个标签还短。
        DtypeError: 参数的类型不对。

    Examples:
        >>> tokenizer = BPETokenizer.train(load_corpus("stories")[:20_000], 400)
        >>> dataset = TextDataset(["天地玄黄，宇宙洪荒。" * 50, "日月盈昃。"], tokenizer, 4, 32)
        >>> dataset[0][0].shape, dataset.vocab_size, dataset.documents
        ((4, 32), 400, 2)

    教程：第 19 章 BPE 分词。
    """

    tokens: Unsigned

    def __init__(
        self,
        source: Source,
        tokenizer: Tokenizer | None = None,
        batch_size: int = 1,
        context_size: int = 64,
        stride: int | None = None,
        split: float = 0.9,
        *,
        allowed_special: AllowedSpecial = (),
    ) -> None:
        self._given: Any = source, tokenizer, allowed_special
        super().__init__(batch_size, context_size, stride, split)

    def read(self) -> tuple[Tokenizer, Unsigned]:
        """读出文字并编码。"""
        name = type(self).__name__
        if self._given is None:
            raise DataError(f"{name}：source 已经取过一遍，不能再读；请重新建立数据集")
        source, tokenizer, allowed_special = self._given
        self._given = None  # 迭代器只能取一遍，文字也不必一直占着内存
        documents = Documents(name, source)
        if tokenizer is None:
            text = "".join(piece for pieces in documents for piece in pieces)
            documents.require_some()
            tokenizer = CharTokenizer.from_text(text)
            blocks = [tokenizer.encode_array(text).astype(token_dtype(tokenizer.vocab_size))]
        else:
            blocks = list(TokenStream(documents, tokenizer, allowed_special).blocks())
            documents.require_some()
        self.documents = documents.count
        return tokenizer, np.concatenate(blocks)


class TokenDataset(WindowDataset):
    """词元文件的数据集：词元留在磁盘上，取一批才读一批，文本可以比内存大得多。

    同样的词元，取出的批与 [`TextDataset`][gptcore.data.TextDataset] 逐位相同，训练的结果也是。

    取一批只读那几个窗口；`all()` 仍会读出全部窗口，大文件请逐批取。打乱次序也只占很少的内存，
    见 [`orders`][gptcore.training.orders]。

    Args:
        path: 词元文件，由 [`write_tokens`][gptcore.data.write_tokens] 写成。
        batch_size: 每批的窗口数。
        context_size: 上下文尺寸。
        stride: 相邻窗口起点的距离；默认 `max(1, context_size // 2)`。
        split: 训练集所占的比例；1.0 表示不留测试集。

    Attributes:
        file: 打开的词元文件；`file.verify()` 读一遍全文，核对 SHA-256。
        tokens: 全部词元，像一维数组，切片不读文件；`np.asarray(dataset.tokens[:1000])` 读出一段。

    Raises:
        ArgumentError: 某个参数不合要求。
        DataError: 文件读不了或不完整，或某一段比一个窗口加一个标签还短。

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = write_tokens(Path(folder) / "a.npy", ["天地玄黄" * 50], ByteTokenizer())
        ...     dataset = TokenDataset(file, batch_size=2, context_size=12)
        >>> x, _ = dataset[0]
        >>> x.shape, dataset.decode(x.data[0])
        ((2, 12), '天地玄黄')

    教程：第 19 章 BPE 分词。
    """

    tokens: FileTokens

    def __init__(
        self,
        path: str | os.PathLike[str],
        batch_size: int = 1,
        context_size: int = 64,
        stride: int | None = None,
        split: float = 0.9,
    ) -> None:
        self.path = path
        super().__init__(batch_size, context_size, stride, split)

    def read(self) -> tuple[Tokenizer, FileTokens]:
        """打开文件，不读词元。"""
        self.file = TokenFile(self.path)
        return self.file.tokenizer, self.file.tokens

    def _digest(self) -> str:
        return self.file.sha256  # 写的时候记下的，不必每次都读一遍全文
