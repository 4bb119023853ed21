r"""数据集：把数据切成一批一批的 `(x, y)`"""

import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Self, SupportsIndex, cast

import numpy as np
import numpy.typing as npt

from gptcore.data.checks import positive_integer
from gptcore.data.text import read_text
from gptcore.data.tokenizers import CharTokenizer
from gptcore.data.windows import Integers, OneHotRows, next_tokens, window_rows
from gptcore.errors import ArgumentError, DataError, DtypeError, RangeError, ShapeError
from gptcore.kernels.convert import brief
from gptcore.tensor import DTYPE, Tensor

SPLITS = {True: ("train_data", "训练集"), False: ("test_data", "测试集")}
"""`training` 的取值对应的属性名和中文名。"""


class Dataset(ABC):
    """数据集的基类：分训练集和测试集两份，按批取用。

    子类只需定义 `load()`，在里面给 `train_data` 和 `test_data` 赋值，各是一对 `(x, y)`，
    第 0 轴是样本。列表会变成数组：整数保持整数（可以当词元编号），小数变成 `DTYPE`；
    数组保持原来的类型。子类的构造函数可以先设自己的属性，再调用 `super().__init__(batch_size)`，
    因为其中会调用 `load()`。

    `len(dataset)` 是当前那一份里完整的批数，凑不满一批的尾巴丢弃；`dataset[i]` 取第 `i` 批，
    `for x, y in dataset` 取遍每一批。批比整份数据还大时，`len` 和取批都会报错，
    不会悄悄地一步也不训练；构造时不检查，因为 `all()` 不受批大小限制，仍然可用。

    Args:
        batch_size: 每批的样本数。

    Attributes:
        batch_size: 每批的样本数。
        training: 现在取的是训练集（真）还是测试集（假）；用 `train()` 和 `eval()` 切换。
        train_data: 训练集 `(x, y)`。
        test_data: 测试集 `(x, y)`。

    Raises:
        ArgumentError: `batch_size` 不是正整数。
        DataError: `load()` 没有给出数据，或 x 与 y 的样本数不同。

    Example:
        >>> class Doubles(Dataset):
        ...     def load(self):
        ...         self.train_data = [[1.0], [2.0], [3.0]], [[2.0], [4.0], [6.0]]
        ...         self.test_data = [[4.0]], [[8.0]]
        >>> dataset = Doubles(batch_size=2)
        >>> len(dataset)
        1
        >>> x, y = dataset[0]
        >>> y
        Tensor([[2.], [4.]])

    教程：第 5 章 数据集与训练器。
    """

    batch_size: int = 1
    training: bool = True
    train_data: tuple[Any, Any]
    test_data: tuple[Any, Any]

    def __init__(self, batch_size: int = 1) -> None:
        self.batch_size = positive_integer(type(self).__name__, "batch_size", batch_size)
        self.training = True
        self.load()
        self._split(True)
        self._split(False)

    @abstractmethod
    def load(self) -> None:
        """准备数据：给 `self.train_data` 和 `self.test_data` 各赋一对 `(x, y)`。"""

    def train(self) -> Self:
        """切换到训练集。

        Returns:
            数据集自己，便于连写。
        """
        self.training = True
        return self

    def eval(self) -> Self:
        """切换到测试集。

        Returns:
            数据集自己，便于连写，例如 `dataset.eval().all()`。
        """
        self.training = False
        return self

    def all(self) -> tuple[Tensor, Tensor]:
        """取出当前那一份的全部样本，不分批。

        Returns:
            一对张量 `(x, y)`，都不需要梯度。

        Raises:
            DataError: 当前那一份没有样本。
        """
        x, y = self._nonempty()
        return _tensor(x, slice(None)), _tensor(y, slice(None))

    def __len__(self) -> int:
        x, _ = self._nonempty()
        title = SPLITS[self.training][1]
        batch_size = positive_integer(type(self).__name__, "batch_size", self.batch_size)
        if batch_size > len(x):
            raise DataError(
                f"{type(self).__name__}：batch_size={brief(batch_size)} 大于{title}的"
                f"样本数 {len(x)}，一批也凑不满；请减小 batch_size 或增加数据，"
                "要一次取出全部样本请用 all()"
            )
        return len(x) // batch_size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        # 没有它，Python 会把取批时的 IndexError 当作结束，子类里的错误就悄悄丢了
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: SupportsIndex) -> tuple[Tensor, Tensor]:
        batches = len(self)
        title = SPLITS[self.training][1]
        try:
            i = operator.index(index)
        except TypeError:
            raise DtypeError(
                f"{type(self).__name__}：下标得到 {index!r}，它必须是整数，表示第几批；"
                "请写 dataset[0] 这样的形式，全部样本用 all()"
            ) from None
        if not -batches <= i < batches:
            raise RangeError(
                f"{type(self).__name__}：下标 {i} 越界，{title}共有 {batches} 批；"
                f"请用 {-batches} 到 {batches - 1} 之间的下标"
            )
        start = (i % batches) * self.batch_size
        rows = slice(start, start + self.batch_size)
        x, y = self._split(self.training)
        return _tensor(x, rows), _tensor(y, rows)

    def _nonempty(self) -> tuple[Any, Any]:
        x, y = self._split(self.training)
        if not len(x):
            raise DataError(
                f"{type(self).__name__}：{SPLITS[self.training][1]}的样本数是 0；"
                "请增加数据或调整划分（split=1.0 不留测试集），或用 train() / eval() 换到另一份"
            )
        return x, y

    def _split(self, training: bool) -> tuple[Any, Any]:
        """取出一份数据；还不是数组的先变成数组，并检查样本数。"""
        attribute, title = SPLITS[training]
        where = f"{type(self).__name__}：{title} {attribute} "
        pair: Any = getattr(self, attribute, None)
        if pair is None:
            raise DataError(
                f"{where}没有赋值；请在 load() 里写 self.{attribute} = (x, y)，"
                "并在自己的 __init__ 里调用 super().__init__(batch_size)"
            )
        if not isinstance(pair, tuple | list) or len(cast("list[Any]", pair)) != 2:
            raise DataError(
                f"{where}得到 {str(cast(object, pair))[:40]}，它必须是一对 (x, y)；"
                f"请写 self.{attribute} = (x, y)"
            )
        pair = cast("tuple[Any, Any]", pair)
        x, y = _rows(pair[0], where + "的 x "), _rows(pair[1], where + "的 y ")
        if len(x) != len(y):
            raise DataError(
                f"{where}的 x 有 {len(x)} 个样本，y 有 {len(y)} 个；"
                "每个样本要有一个标签，请检查 load()"
            )
        if x is not pair[0] or y is not pair[1]:
            setattr(self, attribute, (x, y))
        return x, y


class CharDataset(Dataset):
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

    Example:
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
        name = type(self).__name__
        self.filename = filename
        self.context_size = positive_integer(name, "context_size", context_size)
        default_stride = max(1, self.context_size // 2)
        self.stride = default_stride if stride is None else positive_integer(name, "stride", stride)
        self.split = _fraction(name, split)
        super().__init__(batch_size)

    def load(self) -> None:
        """读入文件，建立词表，切出训练集和测试集的窗口。"""
        text = read_text(self.filename)
        self.tokenizer = CharTokenizer.from_text(text)
        self.vocab, self.vocab_size = self.tokenizer.vocab, self.tokenizer.vocab_size
        self.stoi, self.itos = self.tokenizer.stoi, self.tokenizer.itos
        self.tokens = self.tokenizer.encode_array(text)
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

    def labels(self, tokens: Integers) -> Any:
        """给出一段词元里每个窗口的标签；这里是整个窗口右移一位。

        Args:
            tokens: 一段词元，一维整数数组。

        Returns:
            形状 `(窗口数, 上下文尺寸)` 的视图。
        """
        return window_rows(tokens[1:], self.context_size, self.stride)

    def _windows(self, tokens: Integers, title: str) -> tuple[Any, Any]:
        needed = self.context_size + 1
        if len(tokens) < needed and not (self.split == 1.0 and title == "测试集"):
            raise DataError(
                f"{type(self).__name__}：{title}只有 {len(tokens)} 个词元（split={self.split}），"
                f"context_size={self.context_size} 的一个窗口连同标签需要 {needed} 个；"
                "请换更长的文本、减小 context_size，或调整 split（1.0 表示不留测试集）"
            )
        return window_rows(tokens[:-1], self.context_size, self.stride), self.labels(tokens)


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

    Example:
        >>> dataset = NextCharDataset(corpus_path("tinyshakespeare"), batch_size=4, context_size=32)
        >>> x, y = dataset[0]
        >>> x.shape, y.shape
        ((4, 32), (4, 65))

    教程：第 7 章 嵌入。
    """

    def labels(self, tokens: Integers) -> OneHotRows:
        """给出每个窗口之后那一个字符的独热向量。

        Args:
            tokens: 一段词元，一维整数数组。

        Returns:
            形状 `(窗口数, 词表大小)` 的独热行，取用时才展开。
        """
        return OneHotRows(next_tokens(tokens, self.context_size, self.stride), self.vocab_size)


def _tensor(rows: Any, index: slice) -> Tensor:
    """复制一段样本，成为不需要梯度的连续张量。"""
    return Tensor(np.array(rows[index], order="C"), requires_grad=False)


def _rows(data: Any, where: str) -> Any:
    """数组和独热行原样返回，张量取其数值，列表变成数组。"""
    if isinstance(data, Tensor):
        data = data.data.astype(np.int64) if data.integral else data.data
    elif not isinstance(data, OneHotRows):
        data = _numbers(data, where)
    if not data.ndim:
        raise ShapeError(f"{where}只有一个数，没有样本这一轴；请写成列表，例如 [样本]")
    return cast(Any, data)


def _numbers(data: Any, where: str) -> npt.NDArray[Any]:
    try:
        array = np.asarray(data)
    except ValueError:
        raise ShapeError(f"{where}各个样本的形状不同，不能成为数组；请补齐或截断成一样长") from None
    if array.dtype.kind not in "biuf":
        raise DtypeError(
            f"{where}的类型是 {array.dtype}（{str(data)[:40]}），它必须是数；文本请先用分词器编码"
        )
    if isinstance(data, np.ndarray):
        return Tensor(array, requires_grad=False).data  # 不支持的浮点类型在这里报错
    if array.dtype.kind == "i":
        return array.astype(np.int64, copy=False)
    return array.astype(DTYPE, copy=False) if array.dtype.kind == "f" else array


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
