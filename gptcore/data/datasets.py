"""把一串词元切成窗口的数据集：共同的基类，与教程里的字符数据集"""

import hashlib
import os
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from gptcore.data.base import Dataset
from gptcore.data.checks import positive_integer
from gptcore.data.text import read_text
from gptcore.data.tokenizers import CharTokenizer, Tokenizer
from gptcore.data.tokenizers.ids import integer_ids
from gptcore.data.windows import (
    Integers,
    OneHotRows,
    next_tokens,
    spread,
    take_windows,
    window_rows,
)
from gptcore.errors import ArgumentError, DataError
from gptcore.kernels.convert import brief
from gptcore.tensor import Tensor

EVALUATION_SCORES = 2**20
"""评估时一批的分数至多大约有多少个：词表再大也不占多少内存"""
EVALUATION_WINDOWS = 32
"""评估时一批至多几个窗口；再多，中间结果放不进缓存，反而慢（第 15 章的尺寸：64 个 22.9 毫秒，32 个 15.4 毫秒）"""
BLOCK = 1 << 20
"""计算 SHA-256 时每次转换多少个词元"""


class WindowDataset(Dataset):
    r"""把一串词元切成窗口的数据集，每个位置的标签都是它的下一个词元；几种数据集的共同基类。

    词元序列在 $\lfloor n \cdot \text{split} \rfloor$ 处切成前后两段，分别作训练集和测试集。
    每一段的窗口从 $0, s, 2s, \dots$ 开始（$s$ 为步长），起点小于段长减上下文尺寸。
    窗口都不复制，取出一批时才复制那一批，总是 int64。

    子类只需定义 `read()`，返回分词器与词元；可以先设自己的属性，再调用 `super().__init__(…)`。

    Args:
        batch_size: 每批的窗口数。
        context_size: 上下文尺寸，即窗口里的词元数。
        stride: 相邻窗口起点的距离；默认 `max(1, context_size // 2)`。
        split: 训练集所占的比例，大于 0；1.0 表示不留测试集。

    Attributes:
        tokenizer: 分词器。
        vocab_size: 词表大小。
        tokens: 全部词元编号，一维整数数组，或磁盘上的词元。
        context_size: 上下文尺寸。
        stride: 步长。
        split: 训练集所占的比例。

    Raises:
        ArgumentError: 某个参数不合要求。
        DataError: 某一段比一个窗口加一个标签还短。

    Examples:
        >>> class Digits(WindowDataset):
        ...     def read(self):
        ...         return CharTokenizer("0123456789"), np.arange(100) % 10
        >>> dataset = Digits(batch_size=2, context_size=4, stride=3)
        >>> x, y = dataset[0]
        >>> x
        Tensor([[0, 1, 2, 3],
                [3, 4, 5, 6]])
        >>> dataset.decode(y.data[1])
        '4567'

    教程：第 5 章 数据集与训练器。
    """

    tokenizer: Tokenizer
    vocab_size: int
    tokens: Any

    def __init__(
        self,
        batch_size: int = 1,
        context_size: int = 64,
        stride: int | None = None,
        split: float = 0.9,
    ) -> None:
        name = type(self).__name__
        self.context_size = positive_integer(name, "context_size", context_size)
        default_stride = max(1, self.context_size // 2)
        self.stride = default_stride if stride is None else positive_integer(name, "stride", stride)
        self.split = _fraction(name, split)
        super().__init__(batch_size)

    @abstractmethod
    def read(self) -> tuple[Tokenizer, Any]:
        """给出分词器与全部词元；`load` 用它。

        Returns:
            分词器，与一维整数数组（或 `FileTokens` 这样不在内存里的词元）。
        """

    def load(self) -> None:
        """取得词元，切出训练集和测试集的窗口。"""
        self.tokenizer, tokens = self.read()
        # 不在内存里的词元照原样，列表与数组变成一维整数数组
        lazy = hasattr(tokens, "windows")
        self.tokens = tokens if lazy else integer_ids(type(self).__name__, tokens)
        self.vocab_size = self.tokenizer.vocab_size
        cut = int(len(self.tokens) * self.split)
        self.train_data = self._windows(self.tokens[:cut], "训练集")
        self.test_data = self._windows(self.tokens[cut:], "测试集")

    def encode(self, text: str) -> list[int]:
        """把文本变成词元编号的列表，见 [`CharTokenizer`][gptcore.data.tokenizers.CharTokenizer]。

        Args:
            text: 要编码的文本。

        Returns:
            编号的列表。

        Raises:
            DataError: 有字符不在词表里。
        """
        return self.tokenizer.encode(text)

    def decode(self, ids: Any) -> str:
        """把一串词元编号变回文本，见 [`CharTokenizer`][gptcore.data.tokenizers.CharTokenizer]。

        Args:
            ids: 编号的列表、一维整数数组或张量。

        Returns:
            文本。

        Raises:
            DataError: 编号超出词表。
            DtypeError: 编号不是整数。
        """
        return self.tokenizer.decode(ids)

    @property
    def test_tokens(self) -> Any:
        """测试集那一段的词元。"""
        return self.tokens[int(len(self.tokens) * self.split) :]

    def evaluation_batches(self, limit: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """逐批取出测试集，窗口首尾相接、互不重叠：除了第一个词元，每个词元恰好预测一次。

        训练用的窗口隔 `stride` 取一个，彼此重叠，重叠处的词元会数两遍；评估不这样。

        Args:
            limit: 最多取多少个窗口；它们均匀地散布在整份测试集里，每次都是同样的几个。不给时取全部，
                末尾不满一个窗口的词元也在内。

        Yields:
            一对张量 `(x, y)`，形状 `(批大小, 上下文尺寸)`；末尾的那一批较短。
        """
        tokens, length = self.test_tokens, self.context_size
        if len(tokens) < 2:
            raise DataError(
                f"{type(self).__name__}：测试集只有 {len(tokens)} 个词元，不能评估；"
                "请增加数据或调整 split（1.0 表示不留测试集）"
            )
        windows = (len(tokens) - 1) // length
        batch = max(1, min(EVALUATION_WINDOWS, EVALUATION_SCORES // (length * self.vocab_size)))
        for rows in spread(windows, limit, batch):
            yield _pair(take_windows(tokens, rows * length, length + 1))  # (b, T + 1)
        start = windows * length
        if len(tokens) - start > 1 and (limit is None or limit > windows):
            yield _pair(take_windows(tokens, np.array([start]), len(tokens) - start))

    def fingerprint(self) -> dict[str, Any]:
        """认出这份数据的几个数：样本数、批大小、窗口的取法与全部词元的 SHA-256。

        SHA-256 由词元的小端字节算出，类型不变：uint16 的词元每个 2 字节，与词元文件里的相同。
        """
        return {
            **self._sizes(),
            "context_size": self.context_size,
            "stride": self.stride,
            "split": self.split,
            "tokens": self._digest(),
        }

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for start in range(0, len(self.tokens), BLOCK):
            block: npt.NDArray[Any] = self.tokens[start : start + BLOCK]
            digest.update(np.ascontiguousarray(block, block.dtype.newbyteorder("<")).data)
        return digest.hexdigest()

    def labels(self, tokens: Any) -> Any:
        """给出一段词元里每个窗口的标签；这里是整个窗口右移一位。

        Args:
            tokens: 一段词元。

        Returns:
            形状 `(窗口数, 上下文尺寸)`，见 `window_rows`。
        """
        return window_rows(tokens[1:], self.context_size, self.stride)

    def _windows(self, tokens: Any, title: str) -> tuple[Any, Any]:
        needed = self.context_size + 1
        if len(tokens) < needed and not (self.split == 1.0 and title == "测试集"):
            raise DataError(
                f"{type(self).__name__}：{title}只有 {len(tokens)} 个词元（split={self.split}），"
                f"context_size={self.context_size} 的一个窗口连同标签需要 {needed} 个；"
                "请换更长的文本、减小 context_size，或调整 split（1.0 表示不留测试集）"
            )
        return window_rows(tokens[:-1], self.context_size, self.stride), self.labels(tokens)


class CharDataset(WindowDataset):
    r"""字符数据集：每个位置的标签都是它的下一个字符。

    整个文件决定词表；词元序列在 $\lfloor n \cdot \text{split} \rfloor$ 处切成前后两段，
    分别作训练集和测试集。每一段的窗口从 $0, s, 2s, \dots$ 开始（$s$ 为步长），
    起点小于段长减上下文尺寸。窗口都是同一个词元数组的视图，取出一批时才复制。

    Args:
        filename: UTF-8 文本文件的路径；随库提供的语料用 `corpus_path(名称)`。
        batch_size: 每批的窗口数。
        context_size: 上下文尺寸，即窗口里的词元数。
        stride: 相邻窗口起点的距离；默认 `max(1, context_size // 2)`。
        split: 训练集所占的比例，大于 0；1.0 表示不留测试集。

    Attributes:
        tokenizer: 字符分词器。
        vocab: 词表，文件里出现过的字符，按码位排序。
        vocab_size: 词表大小。
        stoi: 从字符到编号的字典。
        itos: 从编号到字符的字典。
        tokens: 全文的词元编号，一维整数数组。
        context_size: 上下文尺寸。
        stride: 步长。
        split: 训练集所占的比例。

    Raises:
        ArgumentError: 某个参数不合要求。
        DataError: 文件读不了，或某一段比一个窗口加一个标签还短。

    Examples:
        >>> dataset = CharDataset(corpus_path("tinyshakespeare"), batch_size=4, context_size=32)
        >>> x, y = dataset[0]
        >>> x.shape, y.shape
        ((4, 32), (4, 32))

    教程：第 5 章 数据集与训练器，第 15 章 层归一化与 GPT 模型。
    """

    def __init__(
        self,
        filename: str | os.PathLike[str],
        batch_size: int = 1,
        context_size: int = 64,
        stride: int | None = None,
        split: float = 0.9,
    ) -> None:
        self.filename = filename
        super().__init__(batch_size, context_size, stride, split)

    def read(self) -> tuple[CharTokenizer, Integers]:
        """读入文件，由全文收集词表；文件只读一遍，所以管道也可以。"""
        text = read_text(self.filename)
        tokenizer = CharTokenizer.from_text(text)
        self.vocab = tokenizer.vocab
        self.stoi, self.itos = tokenizer.stoi, tokenizer.itos
        return tokenizer, tokenizer.encode_array(text)


class NextCharDataset(CharDataset):
    """下一个字符数据集：标签是窗口之后那一个字符的独热向量。

    参数和属性与 `CharDataset` 相同。标签的形状是 `(窗口数, 词表大小)`，取出一批时才展开成 `DTYPE`。

    Args:
        filename: UTF-8 文本文件的路径。
        batch_size: 每批的窗口数。
        context_size: 上下文尺寸。
        stride: 相邻窗口起点的距离；默认 `max(1, context_size // 2)`。
        split: 训练集所占的比例。

    Raises:
        ArgumentError: 某个参数不合要求。
        DataError: 文件读不了，或某一段比一个窗口加一个标签还短。

    Examples:
        >>> dataset = NextCharDataset(corpus_path("tinyshakespeare"), batch_size=4, context_size=32)
        >>> x, y = dataset[0]
        >>> x.shape, y.shape
        ((4, 32), (4, 65))

    教程：第 7 章 嵌入。
    """

    def evaluation_batches(self, limit: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """逐批取出测试集，每个窗口恰好一次；见 [`Dataset`][gptcore.data.base.Dataset]。"""
        return Dataset.evaluation_batches(self, limit)

    def labels(self, tokens: Integers) -> OneHotRows:
        """给出每个窗口之后那一个字符的独热向量。

        Args:
            tokens: 一段词元，一维整数数组。

        Returns:
            形状 `(窗口数, 词表大小)` 的独热行，取用时才展开。
        """
        return OneHotRows(next_tokens(tokens, self.context_size, self.stride), self.vocab_size)


def _pair(tokens: Integers) -> tuple[Tensor, Tensor]:
    """(b, n + 1) 的词元 → 前 n 个作输入，后 n 个作标签。"""
    x, y = (np.array(part, order="C") for part in (tokens[:, :-1], tokens[:, 1:]))
    return Tensor(x, requires_grad=False), Tensor(y, requires_grad=False)


def _fraction(operation: str, split: float) -> float:
    try:
        value = float(split)
    except (TypeError, ValueError, OverflowError):
        value = float("nan")
    if not 0.0 < value <= 1.0:
        raise ArgumentError(
            f"{operation}：split 得到 {brief(split)}，它必须大于 0 且不超过 1；"
            "请给出训练集的比例，例如 0.9，1.0 表示不留测试集"
        )
    return value
