"""GPT 的推理：下一个词元的分数、注意力权重、生成"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal, Unpack, overload

import numpy as np

from gptcore.errors import ArgumentError, ShapeError
from gptcore.kernels.array import Array
from gptcore.layers import Layer
from gptcore.layers.checks import require_size, to_ids, to_tensor
from gptcore.models.blocks import (
    GPTAttention,
    GPTEmbedding,
    GPTFeedForward,
    GPTOutput,
    GPTTransformer,
)
from gptcore.models.cache import KVCache
from gptcore.models.generation import GeneratedToken, SamplingOptions
from gptcore.models.generation import ids as writing
from gptcore.models.generation.checks import Generators
from gptcore.tensor import Tensor, no_grad
from gptcore.threads import model_threads


def require_ids(ids: Any) -> Tensor:
    """编号要有两轴，不为空。"""
    ids = to_tensor(ids)
    if ids.ndim != 2 or not ids.size:
        raise ShapeError(
            f"GPT：输入的形状 {ids.shape}，应为 (批大小, 长度)，且不为空；只有一条时请写 Tensor([ids])"
        )
    return ids


class GPTInference(Layer):
    """[`GPT`][gptcore.GPT] 的一部分：训练好之后怎样用；各部分由 `GPT` 建立。"""

    embedding: GPTEmbedding
    transformers: list[GPTTransformer]
    output: GPTOutput
    _heads: int

    @property
    def vocab_size(self) -> int:
        """词表大小。"""
        return self.embedding.embedding.weight.shape[0]

    @property
    def context_size(self) -> int:
        """上下文尺寸。"""
        return self.embedding.positional_embedding.weight.shape[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """参数的类型，也是分数与缓存的类型；有几种时是最宽的。"""
        return np.result_type(*{p.dtype for p in self.parameters})

    @property
    def cacheable(self) -> bool:
        """能不能用缓存：嵌入与各块都是库里原样的。

        改写了 `forward` 的（子类，或者换在实例上），缓存不知道它做什么，生成时每次重算，结果一样。线性层与归一化换成
        别的 [`Layer`][gptcore.layers.base.Layer] 不要紧。
        """
        from gptcore.models.gpt import GPT

        parts: list[tuple[object, type]] = [(self, GPT), (self.embedding, GPTEmbedding)]
        for block in self.transformers:
            parts.append((block, GPTTransformer))
            parts += [(block.attention, GPTAttention), (block.feed_forward, GPTFeedForward)]
        return all(
            getattr(getattr(part, name), "__func__", None) is getattr(kind, name)
            for part, kind in parts
            for name in ("forward", "infer")
        )

    # ---------------------------------------------------------------- 推理

    def new_cache(self, batch: int = 1, capacity: int | None = None) -> KVCache:
        """空的键值缓存，类型与参数相同。

        Args:
            batch: 几条文字。
            capacity: 每条最多存多少个词元；不给时是上下文尺寸，也不能超过它。

        Raises:
            ArgumentError: 不是正整数，或容量超过上下文尺寸。
        """
        batch = require_size("new_cache", "batch", batch)
        limit = self.context_size
        capacity = require_size("new_cache", "capacity", limit if capacity is None else capacity)
        if capacity > limit:
            raise ArgumentError(
                f"new_cache：capacity={capacity} 超过了上下文尺寸 {limit}，更后面的位置没有嵌入；请减小它"
            )
        size, dtype = self.embedding.embedding.weight.shape[1] // self._heads, self.dtype
        shape = (len(self.transformers), batch, self._heads, capacity, size)
        return KVCache(np.zeros(shape, dtype), np.zeros(shape, dtype), np.zeros(batch, np.int64))

    def next_scores(self, ids: Any, cache: KVCache | None = None) -> Array:
        """只要最后一个位置的分数：输出头与最后一块的前馈网络只算这一个位置。

        有缓存时，`ids` 是接在缓存后面的新词元，前面的不必再算；它们的键与值存进缓存。
        总是推理：不作随机失活，不记计算图，与模型处于什么模式无关。

        Args:
            ids: 词元编号，形状 `(批大小, 长度)`
            cache: 缓存，见 [`new_cache`][gptcore.models.inference.GPTInference.new_cache]；不给时 `ids` 就是全文。

        Returns:
            下一个词元的分数，形状 `(批大小, 词表大小)`

        Raises:
            RangeError: 编号超出词表。
            ArgumentError: 有缓存，模型却改写过，不能用缓存。
            ShapeError: 形状不对，或者缓存放不下。

        Examples:
            >>> cache = model.new_cache()
            >>> scores = model.next_scores([[3, 1, 4]], cache)
            >>> scores = model.next_scores([[int(scores[0].argmax())]], cache)

        教程：第 18 章 KV 缓存。
        """
        tensor = require_ids(ids)
        if not self.cacheable:
            if cache is not None:
                raise ArgumentError(
                    "next_scores：模型的某一块改写了 forward，不能用缓存；请去掉 cache，每次给出全文"
                )
            with self.evaluating(), no_grad():
                return self(tensor).data[:, -1]
        array = to_ids("GPT", tensor, self.vocab_size)
        positions = None if cache is None else cache.begin(*array.shape)
        x = self.embedding.infer(array, positions)  # (B, n, E)
        for i, block in enumerate(self.transformers):
            x = block.attention.infer(x, None if cache is None else partial(cache.attend, i))
            if i + 1 == len(self.transformers):
                x = x[:, -1:]  # (B, 1, E)
            x = block.feed_forward.infer(x)
        if cache is not None:
            cache.finish(array.shape[1])
        return self.output.infer(x[:, -1])  # (B, V)

    def attention_maps(self, ids: Any) -> Array:
        """每一块、每个头的注意力权重，看模型在看什么时用；评估模式，没有随机失活。

        Args:
            ids: 词元编号，一条文字的列表，或形状 `(批大小, 长度)`；不超过上下文尺寸。

        Returns:
            形状 `(块数, 头数, 查询位置, 键位置)`；给出一批时是 `(块数, 批大小, 头数, 查询位置, 键位置)`。
            每一行的和为 1，将来的位置为 0。

        Raises:
            ShapeError: 没有词元，或比上下文尺寸长。
            RangeError: 编号超出词表。

        Examples:
            >>> maps = model.attention_maps(tokenizer.encode("小猫在"))
            >>> maps[0, 1]  # 第 0 块的第 1 个头，形状 (3, 3)
        """
        given = to_tensor(ids)
        batch = require_ids(given.reshape(1, -1) if given.ndim == 1 else given)
        with self.evaluating(), no_grad(), model_threads(self.num_parameters):
            x = self.embedding(batch)
            maps: list[Array] = []
            for block in self.transformers:
                maps.append(block.attention.weights(x).data)
                x = block(x)
        n = batch.shape[1]
        shape = (len(maps), len(batch), self._heads, n, n)
        every = np.stack(maps) if maps else np.zeros(shape, x.dtype)
        return every[:, 0] if given.ndim == 1 else every

    # ---------------------------------------------------------------- 生成

    @overload
    def generate(
        self,
        prompt: Sequence[int],
        max_tokens: int = 256,
        *,
        end_of_text: int | Sequence[int] | None = None,
        rng: np.random.Generator | None = None,
        use_cache: bool = True,
        return_logprobs: Literal[False] = False,
        **options: Unpack[SamplingOptions],
    ) -> Iterator[int]: ...

    @overload
    def generate(
        self,
        prompt: Sequence[int],
        max_tokens: int = 256,
        *,
        end_of_text: int | Sequence[int] | None = None,
        rng: np.random.Generator | None = None,
        use_cache: bool = True,
        return_logprobs: Literal[True],
        **options: Unpack[SamplingOptions],
    ) -> Iterator[GeneratedToken]: ...

    def generate(
        self,
        prompt: Sequence[int],
        max_tokens: int = 256,
        *,
        end_of_text: int | Sequence[int] | None = None,
        rng: np.random.Generator | None = None,
        use_cache: bool = True,
        return_logprobs: bool = False,
        **options: Unpack[SamplingOptions],
    ) -> Iterator[Any]:
        """接着提示往下写，一个接一个地给出词元。

        文本进、文本出，请用 [`generate_text`][gptcore.models.generation.text.generate_text]。

        每个词元由最后 `context_size` 个词元算出。提示与已生成的放得进上下文时用缓存，一个词元只算一个位置；
        放不下之后窗口移动，每个词元的位置都变了，一个词元要算整个窗口。

        缓存的分数与重算的相差舍入误差；误差可能改变选出的词元时，重算一次，以它为准。所以 `temperature=0`
        时，缓存开与关总是一样；抽样时，词表不超过 512 也一样，词表再大，个别时候会是累积概率上相邻的另一个。

        两步之间模型是原来的样子（训练模式、计算图、线程数）：几个生成器可以交错，也可以提前停下。

        Args:
            prompt: 提示的编号，至少一个；可以比上下文尺寸长。
            max_tokens: 最多生成多少个。
            end_of_text: 遇到这个（或这些）编号就停下，它自己不给出。
            rng: 随机数生成器。
            use_cache: 是否使用缓存；只影响快慢。缓存由当时的参数算出：写到一半改了参数（例如又训练了一步），
                请重新调用，或写 `use_cache=False`。
            return_logprobs: 是否连同对数概率一起给出，见
                [`GeneratedToken`][gptcore.models.generation.ids.GeneratedToken]。
            **options: 怎样选下一个词元：`temperature`、`top_k`、`top_p`、`min_p`、`repetition_penalty`，
                见 [`SamplingOptions`][gptcore.models.generation.ids.SamplingOptions]

        Returns:
            迭代器，依次给出编号；`return_logprobs` 时给出 `(编号, 对数概率)`。

        Raises:
            ArgumentError: 选项不合要求；模型的分数里有 NaN 或无穷。
            DataError: 提示为空，或编号超出词表。
            DtypeError: 提示不是整数，或 `rng` 不是生成器。

        Examples:
            >>> list(model.generate([3, 1, 4], 5, temperature=0))  # 总取分数最高的
            >>> for i in model.generate([3, 1, 4], top_p=0.9, rng=np.random.default_rng(42)):
            ...     print(i)

        教程：第 17 章 采样，第 18 章 KV 缓存。
        """
        return writing.generate(
            self, prompt, max_tokens, end_of_text, rng, use_cache, return_logprobs, options
        )

    @overload
    def generate_batch(
        self,
        prompts: Sequence[Sequence[int]],
        max_tokens: int = 256,
        *,
        end_of_text: int | Sequence[int] | None = None,
        rng: Generators = None,
        use_cache: bool = True,
        return_logprobs: Literal[False] = False,
        **options: Unpack[SamplingOptions],
    ) -> list[list[int]]: ...

    @overload
    def generate_batch(
        self,
        prompts: Sequence[Sequence[int]],
        max_tokens: int = 256,
        *,
        end_of_text: int | Sequence[int] | None = None,
        rng: Generators = None,
        use_cache: bool = True,
        return_logprobs: Literal[True],
        **options: Unpack[SamplingOptions],
    ) -> list[list[GeneratedToken]]: ...

    def generate_batch(
        self,
        prompts: Sequence[Sequence[int]],
        max_tokens: int = 256,
        *,
        end_of_text: int | Sequence[int] | None = None,
        rng: Generators = None,
        use_cache: bool = True,
        return_logprobs: bool = False,
        **options: Unpack[SamplingOptions],
    ) -> list[list[Any]]:
        """几条提示一起往下写，长短可以不一；每一条与单独生成时相同，条件同缓存的开与关，见 `generate`。

        四条以上时，权重读一遍就供各条共用，比逐条生成快。

        Args:
            prompts: 各条提示的编号，每条至少一个；要同一条提示的几个续写，就把它重复几遍。
            max_tokens: 每条最多生成多少个。
            end_of_text: 遇到这个（或这些）编号，那一条就停下，它自己不给出。
            rng: 每条一个生成器的列表；只给一个时，由它依次抽出各条的种子，第 i 条因此与别的几条无关。
            use_cache: 是否使用缓存。
            return_logprobs: 是否连同对数概率一起给出。
            **options: 同 `generate`

        Returns:
            每一条新写的编号（或编号与对数概率）的列表，不含提示。

        Raises:
            ArgumentError: 选项不合要求，生成器的个数与提示不同；模型的分数里有 NaN 或无穷。
            DataError: 有提示为空，或编号超出词表。
            DtypeError: 提示不是整数，或 `rng` 不是生成器。

        Examples:
            >>> model.generate_batch([[3, 1, 4], [1, 5]], 5, temperature=0)

        教程：第 17 章 采样，第 18 章 KV 缓存。
        """
        return writing.generate_batch(
            self, prompts, max_tokens, end_of_text, rng, use_cache, return_logprobs, options
        )
