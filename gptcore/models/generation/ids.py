"""逐个词元地生成：一条，或者几条一起"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np

from gptcore.kernels.array import Array
from gptcore.layers import Layer
from gptcore.layers.checks import require_flag
from gptcore.models.generation.checks import (
    Generators,
    prompt_ids,
    prompt_rows,
    require_count,
    require_prompt,
    row_generators,
    stop_ids,
)
from gptcore.models.generation.sampling import Sampler, log_probability, make_sampler
from gptcore.models.generation.scoring import Quiet, make_scorer
from gptcore.random import resolve_rng

if TYPE_CHECKING:
    from gptcore.models.inference import GPTInference


NONE = np.zeros(0, np.int64)
SMALL_VOCABULARY = 512
"""词表不超过它时，抽样也保证缓存开与关一样。

词表越大，累积概率的界线越密：五万个词元时，大部分词元的概率比舍入误差还小，几乎每一步都要重算。
取分数最高的没有这个问题，总是保证。
"""


class GeneratedToken(NamedTuple):
    r"""一个生成的词元，与它的对数概率。

    对数概率由模型原来的分数算出，$\ln\mathrm{softmax}(x)_i$，不含温度、top-k 等的影响；
    一串词元的对数概率之和，等于它们的交叉熵之和变号。
    """

    id: int
    logprob: float


class SamplingOptions(TypedDict, total=False):
    """怎样选下一个词元，都可以不给；各步的公式见 [`Sampler`][gptcore.models.generation.sampling.Sampler]。"""

    temperature: float
    """温度；0 表示总取分数最高的，与种子无关。默认 1。"""

    top_k: int
    """只留分数最高的几个；0（默认）或超过词表大小，就是不限制。"""

    top_p: float
    """只留概率之和达到它的最短一段；1（默认）就是不限制。"""

    min_p: float
    """概率不到最大概率的这么多倍的去掉；0（默认）就是不限制。"""

    repetition_penalty: float
    """重复惩罚，用在提示与已生成的词元上；1（默认）就是没有。"""


class Run:
    """几条文字一起往下写：每一步给每一条选一个词元。

    Args:
        model: 模型。
        prompts: 各条提示的编号；就地加长。
        max_tokens: 每条最多生成多少个。
        limit: 窗口的长度。
        sampler: 怎样选。
        rngs: 每一条的生成器。
        use_cache: 是否使用缓存。
        logprobs: 是否要对数概率；不要时是 NaN。
    """

    def __init__(
        self,
        model: Layer,
        prompts: list[list[int]],
        max_tokens: int,
        limit: int,
        sampler: Sampler,
        rngs: list[np.random.Generator],
        *,
        use_cache: bool = True,
        logprobs: bool = False,
    ) -> None:
        self.texts, self.sampler, self.rngs, self.logprobs = prompts, sampler, rngs, logprobs
        self.quiet = Quiet(model)
        tokens = max(map(len, prompts), default=0) + max_tokens
        self.scorer = make_scorer(model, limit, tokens, use_cache)

    def step(self, rows: Sequence[int]) -> list[GeneratedToken]:
        """给第 `rows` 条各选一个词元，接在后面。"""
        with self.quiet():
            found = self.scorer.scores({i: self.texts[i] for i in rows})
            tokens = [self._choose(i, *found[i]) for i in rows]
        for i, token in zip(rows, tokens, strict=True):
            self.texts[i].append(token.id)
        return tokens

    def _choose(self, i: int, scores: Array, rounded: bool) -> GeneratedToken:
        """选第 `i` 条的下一个。

        用缓存算的分数有舍入误差；误差可能改变结果时，重算一次窗口，以它为准：
        缓存开与关、一条与几条，选出的因此总是一样。词表大时的抽样除外，见 `SMALL_VOCABULARY`。
        """
        sampler, ids = self.sampler, self.texts[i]
        x = scores.astype(np.float64)
        seen = NONE if sampler.repetition_penalty == 1 else np.array(ids)
        u = self.rngs[i].random() if sampler.temperature else 0.0
        settle = rounded and (not sampler.temperature or len(x) <= SMALL_VOCABULARY)
        tolerance = self.scorer.rounding * _largest(x) if settle else 0.0
        chosen, clear = sampler.choose(x, seen, u, tolerance)
        if not clear:
            x = self.scorer.exact(ids).astype(np.float64)
            chosen, _ = sampler.choose(x, seen, u)
        return GeneratedToken(chosen, log_probability(x, chosen) if self.logprobs else np.nan)


def _largest(x: Array) -> float:
    """绝对值最大的有限分数。"""
    low, high = float(x.min()), float(x.max())
    if not np.isfinite(low):
        low = float(np.where(np.isfinite(x), x, 0).min())
    return max(-low, high, 0.0)


def stream(run: Run, max_tokens: int, stops: frozenset[int]) -> Iterator[GeneratedToken]:
    """一条文字，一个接一个；遇到 `stops` 里的就停下，它自己不给出。"""
    for _ in range(max_tokens):
        (token,) = run.step([0])
        if token.id in stops:
            return
        yield token


def generate(
    model: GPTInference,
    prompt: Sequence[int],
    max_tokens: int,
    end_of_text: int | Sequence[int] | None,
    rng: np.random.Generator | None,
    use_cache: bool,
    return_logprobs: bool,
    options: SamplingOptions,
) -> Iterator[Any]:
    """`GPT.generate` 的实现；参数在这里就检查，不等到取第一个词元。"""
    require_count("generate", "max_tokens", max_tokens)
    run = Run(
        model,
        [prompt_ids(prompt, model.vocab_size)],
        max_tokens,
        model.context_size,
        make_sampler("generate", options),
        [resolve_rng("generate", rng)],
        use_cache=require_flag("generate", "use_cache", use_cache),
        logprobs=require_flag("generate", "return_logprobs", return_logprobs),
    )
    tokens = stream(run, max_tokens, stop_ids(end_of_text, model.vocab_size))
    return tokens if return_logprobs else (token.id for token in tokens)


def generate_batch(
    model: GPTInference,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    end_of_text: int | Sequence[int] | None,
    rng: Generators,
    use_cache: bool,
    return_logprobs: bool,
    options: SamplingOptions,
) -> list[list[Any]]:
    """`GPT.generate_batch` 的实现。"""
    require_count("generate_batch", "max_tokens", max_tokens)
    texts = prompt_rows(prompts, model.vocab_size)
    stops = stop_ids(end_of_text, model.vocab_size)
    run = Run(
        model,
        texts,
        max_tokens,
        model.context_size,
        make_sampler("generate_batch", options),
        row_generators(rng, len(texts)),
        use_cache=require_flag("generate_batch", "use_cache", use_cache),
        logprobs=require_flag("generate_batch", "return_logprobs", return_logprobs),
    )
    written: list[list[Any]] = [[] for _ in texts]
    active = list(range(len(texts)))
    for _ in range(max_tokens):
        found = dict(zip(active, run.step(active) if active else (), strict=True))
        active = [i for i in active if found[i].id not in stops]
        for i in active:
            written[i].append(found[i] if return_logprobs else found[i].id)
    return written


def generate_ids(
    model: Layer,
    prompt: Sequence[int],
    steps: int,
    context_size: int,
    *,
    temperature: float = 1.0,
    rng: np.random.Generator | None = None,
) -> Iterator[int]:
    r"""一个接一个地生成词元编号，用任何一种模型。

    GPT 另有选项更多的 [`generate`][gptcore.models.inference.GPTInference.generate]。

    每一步由最后 `context_size` 个词元得到下一个的分数 $x$，按 $\mathrm{softmax}(x/\tau)$ 抽取。
    每一步里模型处于评估模式、不记录计算图，两步之间都是原来的样子：几个生成器可以交错，也可以提前停下。

    Args:
        model: 由编号 `(1, 长度)` 得到分数 `(1, 长度, 词表大小)` 的模型。
        prompt: 提示的编号，至少一个。
        steps: 生成多少个。
        context_size: 上下文尺寸。
        temperature: 温度 $\tau$；0 表示总取分数最高的。
        rng: 随机数生成器。

    Yields:
        新词元的编号。

    Raises:
        ArgumentError: 步数、上下文尺寸或温度不合要求；模型的分数里有 NaN 或无穷。
        DataError: 提示为空。
        DtypeError: 提示不是整数，或 `rng` 不是生成器。
    """
    ids = require_prompt(prompt, steps)
    require_count("generate", "context_size", context_size, 1)
    sampler, rngs = Sampler(temperature=temperature), [resolve_rng("generate", rng)]
    run = Run(model, [ids], steps, context_size, sampler, rngs)
    return (token.id for token in stream(run, steps, frozenset()))
