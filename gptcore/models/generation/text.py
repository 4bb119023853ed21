"""文本进，文本出：逐字给出，遇到停止字符串就停下"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np

from gptcore.data.tokenizers import END_OF_TEXT, ByteLevelTokenizer, Tokenizer
from gptcore.errors import ArgumentError, DataError, DtypeError
from gptcore.kernels.convert import brief
from gptcore.models.generation.ids import SamplingOptions
from gptcore.models.generation.sampling import make_sampler

if TYPE_CHECKING:
    from gptcore.models.inference import GPTInference


def generate_text(
    model: GPTInference,
    tokenizer: Tokenizer,
    prompt: str,
    max_tokens: int = 256,
    *,
    stop: str | Sequence[str] = (),
    rng: np.random.Generator | None = None,
    use_cache: bool = True,
    **options: Unpack[SamplingOptions],
) -> Iterator[str]:
    """接着提示往下写，写出几个字就给出几个字。

    一个字的几个字节可能分在几个词元里，到齐了才给出，所以中途不会有乱码（U+FFFD）；末尾残缺的部分最后给出。
    遇到停止字符串或文本结束词元就停下，它们自己不给出；可能是停止字符串开头的文字先留着，确定不是了再给出。

    Args:
        model: 模型。
        tokenizer: 训练它用的分词器；字节级的词表可以比模型的小（有人把模型的补齐到 64 的倍数），
            没有文字的编号不显示。
        prompt: 提示；分词器有文本结束词元 `<|endoftext|>` 时可以为空，从它开始写。
        max_tokens: 最多生成多少个词元。
        stop: 停止字符串，一个或几个；只在新写的文字里找，最先写完整的那个算数。
        rng: 随机数生成器。
        use_cache: 是否使用缓存；只影响快慢。
        **options: 怎样选下一个词元：`temperature`、`top_k`、`top_p`、`min_p`、`repetition_penalty`，
            见 [`SamplingOptions`][gptcore.models.generation.ids.SamplingOptions]

    Yields:
        新写的文字，一次一段，不为空；不含提示。

    Raises:
        ArgumentError: 选项不合要求，停止字符串为空，或分词器与模型的词表大小对不上。
        DataError: 提示为空，或有词表以外的字符。
        DtypeError: 提示不是字符串，分词器不是分词器，或者没有这个选项。

    Examples:
        >>> print("".join(generate_text(model, tokenizer, "小猫在", 50, stop="。", top_k=20)))
        >>> for piece in generate_text(model, tokenizer, "小猫在", temperature=0.8):
        ...     print(piece, end="", flush=True)

    教程：第 17 章 采样。
    """
    _require(model, tokenizer, prompt)
    stops = _stop_strings(stop)
    make_sampler("generate_text", options)
    end = tokenizer.special_tokens.get(END_OF_TEXT)
    ids = tokenizer.encode(prompt) or ([] if end is None else [end])
    if not ids:
        raise DataError(
            "generate_text：提示不能为空，这个分词器没有文本结束词元，不知道从哪里开始；"
            "至少给一个字符，例如换行符 '\\n'"
        )
    tokens = model.generate(
        ids, max_tokens, end_of_text=end, rng=rng, use_cache=use_cache, **options
    )
    return _pieces(tokens, tokenizer, StopStrings(stops))


class StopStrings:
    """在一段段到来的文字里找停止字符串：一个也不漏，连它的开头也不放出去。

    结果与文字怎样分段无关：逐字地看，最先写完整的停止字符串算数；同时写完整的，取开头最早的。

    Args:
        stops: 停止字符串。

    Attributes:
        stopped: 是否已经遇到。

    Examples:
        >>> stops = StopStrings(["结束"])
        >>> [stops.push(piece) for piece in ("好的", "，结", "果是结", "束了")]
        ['好的', '，', '结果是', '']
        >>> stops.stopped
        True
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops: Sequence[str] = stops
        self._held: str = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """收下一段文字，给出已经确定要写的部分，可能为空。"""
        if self.stopped:
            return ""
        text = self._held + text
        starts = {stop: text.find(stop) for stop in self._stops}
        found = [(start + len(stop), start) for stop, start in starts.items() if start >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """没有下文了：给出还留着的部分。"""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """文字的末尾与停止字符串的开头最多重合几个字；整个停止字符串不算。"""
    for n in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:n]):
            return n
    return 0


def _pieces(tokens: Iterator[int], tokenizer: Tokenizer, stops: StopStrings) -> Iterator[str]:
    decoder = tokenizer.incremental_decoder()
    for token in tokens:
        try:
            text = decoder.push(token)
        except DataError:  # 词表里空着的编号，或者模型补齐出来的：没有文字
            continue
        if piece := stops.push(text):
            yield piece
        if stops.stopped:
            return
    if piece := stops.push(decoder.flush()) + stops.flush():
        yield piece


def _require(model: Any, tokenizer: Any, prompt: Any) -> None:
    if not isinstance(tokenizer, Tokenizer) or not callable(getattr(model, "generate", None)):
        raise DtypeError(
            f"generate_text：要依次给出 GPT 与分词器，这里是 {type(model).__name__} 与 "
            f"{type(tokenizer).__name__}；数据集的分词器是 dataset.tokenizer"
        )
    if not isinstance(prompt, str):
        raise DtypeError(
            f"generate_text：提示必须是字符串，这里是 {brief(prompt)}；已经是编号时请用 model.generate"
        )
    padded = isinstance(tokenizer, ByteLevelTokenizer) and tokenizer.vocab_size < model.vocab_size
    if tokenizer.vocab_size != model.vocab_size and not padded:
        raise ArgumentError(
            f"generate_text：分词器有 {tokenizer.vocab_size} 个词元，模型有 {model.vocab_size} 个；"
            "请给出训练时用的分词器"
        )


def _stop_strings(stop: Any) -> list[str]:
    given: Any = [stop] if isinstance(stop, str) else stop
    if not isinstance(given, list | tuple | set | frozenset):
        raise DtypeError(f"generate_text：stop 必须是字符串或它们的列表，这里是 {brief(stop)}")
    found = list(cast("Sequence[Any]", given))
    for text in found:
        if not isinstance(text, str) or not text:
            raise ArgumentError(
                f"generate_text：stop 里有 {brief(text)}，停止字符串要是不为空的字符串；不需要时请写 stop=()"
            )
    return found
