"""命令行的数据集：语料与分词器成为训练用的窗口；太短时说明至少要多长"""

from typing import Any

import numpy as np

from gptcore.cli.corpus import Corpus
from gptcore.cli.settings import TrainSettings
from gptcore.cli.tokenizers import build_tokenizer, encode
from gptcore.cli.usage import UsageError
from gptcore.data import CharTokenizer, TokenDataset, Tokenizer, WindowDataset
from gptcore.data.sources import token_dtype
from gptcore.data.windows import Integers


class SplitDataset(WindowDataset):
    """切好了训练与测试两部分的词元；切在哪里由文字决定，不由词元的个数决定。

    Args:
        tokenizer: 分词器。
        train: 训练部分。
        test: 测试部分。
        batch_size: 每批几个窗口。
        context_size: 上下文尺寸。
        split: 训练部分在文字里所占的比例。
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        train: Integers,
        test: Integers,
        batch_size: int,
        context_size: int,
        split: float,
    ) -> None:
        self.tokenizer, self._parts = tokenizer, (train, test)
        super().__init__(batch_size, context_size, split=split)

    def read(self) -> tuple[Tokenizer, Integers]:
        """分词器与全部词元。"""
        return self.tokenizer, np.concatenate(self._parts)

    def load(self) -> None:
        """两部分各自切成窗口。"""
        self.tokenizer, self.tokens = self.read()
        self.vocab_size = self.tokenizer.vocab_size
        self._cut = len(self._parts[0])
        del self._parts
        self.train_data = self._windows(self.tokens[: self._cut], "训练集")
        self.test_data = self._windows(self.test_tokens, "测试集")

    @property
    def test_tokens(self) -> Integers:
        """测试部分的词元。"""
        return self.tokens[self._cut :]


class HeldOutTokens(WindowDataset):
    """一段词元，整段都用来评估；窗口的取法与训练时的评估相同。

    Args:
        tokenizer: 分词器。
        tokens: 一维整数数组，或词元文件的一段。
        context_size: 上下文尺寸。
    """

    def __init__(self, tokenizer: Tokenizer, tokens: Any, context_size: int) -> None:
        self.tokenizer, self.tokens = tokenizer, tokens
        super().__init__(context_size=context_size)

    def read(self) -> tuple[Tokenizer, Any]:
        """分词器与词元。"""
        return self.tokenizer, self.tokens

    def load(self) -> None:
        """评估只用到 `test_tokens`。"""
        self.vocab_size = self.tokenizer.vocab_size
        nothing = np.zeros((1, 1), dtype=np.int64)
        self.train_data = self.test_data = nothing, nothing

    @property
    def test_tokens(self) -> Any:
        """全部。"""
        return self.tokens


def open_dataset(
    corpus: Corpus, tokenizer: Tokenizer | None, settings: TrainSettings
) -> WindowDataset:
    """把语料切成窗口。

    Args:
        corpus: 语料。
        tokenizer: 分词器；词元文件自带一个，不用给。
        settings: 训练的设置；用到每批几个窗口、上下文尺寸与进程数。

    Raises:
        UsageError: 文字太短，一步也凑不满，或者有分词器不认识的字符。
    """
    record = corpus.record
    batch_size, context_size = settings.batch_size, settings.context_size
    if corpus.file is not None or tokenizer is None:
        tokens: Any = _file(corpus).tokens
        cut = int(record.count * record.split)
        train, test = tokens[:cut], tokens[cut:]
        _require_windows(corpus, len(train), len(test), context_size)
        dataset = TokenDataset(_file(corpus), batch_size, context_size, split=record.split)
    else:
        train, test = (encode(tokenizer, part, corpus) for part in corpus.split())
        if not isinstance(tokenizer, CharTokenizer):
            dtype = token_dtype(tokenizer.vocab_size)
            train, test = train.astype(dtype), test.astype(dtype)
        _require_windows(corpus, len(train), len(test), context_size)
        dataset = SplitDataset(tokenizer, train, test, batch_size, context_size, record.split)
    _require_batch(dataset, settings.processes)
    return dataset


def make_tokenizer(corpus: Corpus, kind: str | None, vocab_size: int | None) -> Tokenizer | None:
    """给语料用的分词器；词元文件自带一个，不能另给。

    Args:
        corpus: 语料。
        kind: `--tokenizer`；不给时是 `char`。
        vocab_size: `--vocab-size`

    Raises:
        UsageError: 词元文件又给了分词器，没有这个分词器，或文字太少。
    """
    if corpus.file is None:
        known = "char" if kind is None else kind
        return build_tokenizer(known, vocab_size, corpus.texts, corpus.split()[0])
    if kind is not None:
        raise UsageError(
            f"--corpus {corpus.record.name!r} 是词元文件，分词器已经在里面；请去掉 --tokenizer"
        )
    return None


def describe(corpus: Corpus, dataset: WindowDataset) -> str:
    """一句话说出语料有多长，编成多少个词元。"""
    record, tokens, size = corpus.record, len(dataset.tokens), dataset.vocab_size
    if isinstance(dataset.tokenizer, CharTokenizer) and record.kind == "text":
        return f"语料 {record.name}：{record.amount}，{size:,} 种"
    if record.kind == "tokens":
        return f"语料 {record.name}：{record.amount}，词表 {size:,}"
    return (
        f"语料 {record.name}：{record.amount}，编成 {tokens:,} 个词元，"
        f"平均每个 {record.count / tokens:.2f} 个字符；词表 {size:,}"
    )


def _file(corpus: Corpus) -> Any:
    return corpus.file


def _require_windows(corpus: Corpus, train: int, test: int, context_size: int) -> None:
    record, needed = corpus.record, context_size + 1
    if min(train, test) >= needed:
        return
    characters = record.kind == "text" and train + test == record.count
    long = record.amount if characters else f"{train + test:,} 个词元"
    raise UsageError(
        f"--corpus {record.name!r} 只有 {long}，其中测试部分 {test} 个；"
        f"--context-size {context_size} 的一个窗口连同标签要 {needed} 个。"
        f"请换一份至少 {needed * 10} 个{'字符' if characters else '词元'}的文本，或减小 --context-size"
    )


def _require_batch(dataset: WindowDataset, processes: int) -> None:
    windows = len(dataset.train_data[0])
    if dataset.batch_size * processes > windows:
        many = f"乘以 {processes} 个进程，" if processes > 1 else ""
        raise UsageError(
            f"--batch-size {dataset.batch_size} {many}大于训练部分的窗口数 {windows}，一步也凑不满；"
            f"请把 --batch-size 减到 {windows // processes} 以下，或换更长的文本"
        )
