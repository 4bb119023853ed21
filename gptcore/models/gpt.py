"""GPT 及其各个部分"""

import math
from typing import Any

import numpy as np

from gptcore.errors import ArgumentError, ShapeError
from gptcore.kernels.array import Array
from gptcore.kernels.attention import attention_backward, attention_forward
from gptcore.layers import GELU, Embedding, Layer, LayerNorm, Linear, Softmax, Tril
from gptcore.layers.checks import require_axes, require_size, to_tensor
from gptcore.random import resolve_rng
from gptcore.tensor import Tensor


class GPTEmbedding(Layer):
    r"""词元嵌入与位置嵌入之和：$x_t = W_{\text{词元}}[i_t] + W_{\text{位置}}[t]$。

    Args:
        vocab_size: 词表大小。
        context_size: 上下文尺寸，即最多多少个位置。
        embedding_size: 嵌入尺寸。
        rng: 随机数生成器。

    教程：第 10 章 位置嵌入。
    """

    def __init__(
        self,
        vocab_size: int,
        context_size: int,
        embedding_size: int,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.embedding = Embedding(vocab_size, embedding_size, rng=rng)
        self.positional_embedding = Embedding(context_size, embedding_size, rng=rng)

    def forward(self, ids: Tensor) -> Tensor:
        """形状 `(批大小, 长度)` → `(批大小, 长度, 嵌入尺寸)`，长度不超过上下文尺寸。"""
        ids = to_tensor(ids)
        require_axes("GPTEmbedding", ids, "批大小, 长度")
        length, limit = ids.shape[-1], self.positional_embedding.weight.shape[0]
        if length > limit:
            raise ShapeError(
                f"GPT：输入有 {length} 个词元，超过上下文尺寸 context_size={limit}；"
                f"请只取最后 {limit} 个：ids[:, -{limit}:]"
            )
        return self.embedding(ids) + self.positional_embedding(Tensor(range(length)))


class GPTAttention(Layer):
    r"""因果多头自注意力，先归一化，残差连接在内：$x + W_o\,\mathrm{attention}(\mathrm{norm}(x))$。

    Note: 前向与反向
        每个头（尺寸 $d$）里，位置 $t$ 只看 $j\le t$：

        $$p_{tj} = \mathrm{softmax}_j\Big(\frac{q_t\cdot k_j}{\sqrt d}\Big),\qquad c_t=\sum_j p_{tj}v_j$$

        $$\mathrm{d}v_j=\sum_t p_{tj}\mathrm{d}c_t,\quad
        \mathrm{d}s_{tj} = p_{tj}\,\mathrm{d}c_t\cdot(v_j - c_t),\quad
        \mathrm{d}q_t=\frac1{\sqrt d}\sum_j\mathrm{d}s_{tj}k_j,\quad
        \mathrm{d}k_j=\frac1{\sqrt d}\sum_t\mathrm{d}s_{tj}q_t$$

    查询、键、值的权重合成一个矩阵 `c_attn`，一次乘法算出三者；`query`、`key`、`value` 是它各三分之一的视图。

    来源：Vaswani 等 2017，<https://arxiv.org/abs/1706.03762>，式 (1)。

    Args:
        embedding_size: 嵌入尺寸。
        heads: 头数，整除嵌入尺寸。
        rng: 随机数生成器。

    教程：第 11 章 自注意力，第 12 章 因果掩码，第 13 章 多头注意力。
    """

    def __init__(
        self, embedding_size: int, heads: int = 1, rng: np.random.Generator | None = None
    ) -> None:
        size = embedding_size = require_size("GPTAttention", "embedding_size", embedding_size)
        divisors = "可以用 " + "、".join(str(h) for h in range(1, 13) if size % h == 0)
        heads = require_size("GPTAttention", "heads", heads, divisors)
        if embedding_size % heads:
            raise ArgumentError(
                f"GPTAttention：heads={heads} 要能整除 embedding_size={embedding_size}；{divisors}"
            )
        self.heads = heads
        self.normalize = LayerNorm(embedding_size)
        self.c_attn = Linear(embedding_size, 3 * embedding_size, rng=rng)
        self.output = Linear(embedding_size, embedding_size, rng=rng)
        self.mask = Tril()
        self.softmax = Softmax()

    def forward(self, x: Tensor) -> Tensor:
        """形状 `(批大小, 长度, 嵌入尺寸)`，不变。"""
        x = to_tensor(x)
        require_axes("GPTAttention", x, "批大小, 长度, 嵌入尺寸")
        qkv, heads = self.c_attn(self.normalize(x)), self.heads  # (B, T, 3E)
        array = qkv.data
        context, blocks = attention_forward(array, heads)

        def vjp(dc: Array) -> tuple[Array]:
            return (attention_backward(dc, array, context, blocks, heads),)

        return x + self.output(Tensor(context).record((qkv,), vjp))

    def weights(self, x: Tensor) -> Tensor:
        """注意力权重，看模型在看什么时用。

        Args:
            x: 这一层的输入，形状 `(批大小, 长度, 嵌入尺寸)`

        Returns:
            形状 `(批大小, 头数, 查询位置, 键位置)`，每一行的和为 1，将来的位置为 0
        """
        x = to_tensor(x)
        require_axes("GPTAttention", x, "批大小, 长度, 嵌入尺寸")
        batch, length, size = x.shape
        qkv = self.c_attn(self.normalize(x)).reshape(batch, length, 3, self.heads, -1)
        qkv = qkv.transpose(2, 0, 3, 1, 4)  # (3, B, H, T, d)
        scores = qkv[0] @ qkv[1].transpose(0, 1, 3, 2)  # (B, H, T, T)
        return self.softmax(self.mask(scores * (1 / math.sqrt(size // self.heads))))

    @property
    def query(self) -> Linear:
        """查询的线性层：`c_attn` 的第一个三分之一，共用数值与梯度。"""
        return self._third(0)

    @property
    def key(self) -> Linear:
        """键的线性层：`c_attn` 的第二个三分之一，共用数值与梯度。"""
        return self._third(1)

    @property
    def value(self) -> Linear:
        """值的线性层：`c_attn` 的第三个三分之一，共用数值与梯度。"""
        return self._third(2)

    def _third(self, i: int) -> Linear:
        size = self.output.weight.shape[0]
        return self.c_attn.rows(i * size, (i + 1) * size)


class GPTFeedForward(Layer):
    r"""前馈网络，先归一化，残差连接在内：$x + W_2\,\mathrm{GELU}(W_1\,\mathrm{norm}(x))$，中间宽 4 倍。

    Args:
        embedding_size: 嵌入尺寸。
        rng: 随机数生成器。

    教程：第 14 章 前馈网络与残差连接。
    """

    def __init__(self, embedding_size: int, rng: np.random.Generator | None = None) -> None:
        embedding_size = require_size("GPTFeedForward", "embedding_size", embedding_size)
        self.normalize = LayerNorm(embedding_size)
        self.input = Linear(embedding_size, 4 * embedding_size, rng=rng)
        self.gelu = GELU()
        self.output = Linear(4 * embedding_size, embedding_size, rng=rng)

    def forward(self, x: Tensor) -> Tensor:
        """形状 `(…, 嵌入尺寸)`，不变。"""
        return x + self.output(self.gelu(self.input(self.normalize(x))))


class GPTTransformer(Layer):
    """一个 Transformer 块：注意力，然后前馈网络。

    Args:
        embedding_size: 嵌入尺寸。
        heads: 头数。
        rng: 随机数生成器。

    教程：第 15 章 层归一化与 GPT 模型。
    """

    def __init__(
        self, embedding_size: int, heads: int, rng: np.random.Generator | None = None
    ) -> None:
        self.attention = GPTAttention(embedding_size, heads, rng)
        self.feed_forward = GPTFeedForward(embedding_size, rng)

    def forward(self, x: Tensor) -> Tensor:
        """形状 `(批大小, 长度, 嵌入尺寸)`，不变。"""
        return self.feed_forward(self.attention(x))


class GPTOutput(Layer):
    """输出头：归一化，再线性变换成每个词元的分数。

    Args:
        embedding_size: 嵌入尺寸。
        vocab_size: 词表大小。
        bias: 线性变换是否有偏置。
        rng: 随机数生成器。

    教程：第 15 章 层归一化与 GPT 模型。
    """

    def __init__(
        self,
        embedding_size: int,
        vocab_size: int,
        bias: bool = True,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.normalize = LayerNorm(embedding_size)
        self.linear = Linear(embedding_size, vocab_size, bias, rng)

    def forward(self, x: Tensor) -> Tensor:
        """形状 `(…, 嵌入尺寸)` → `(…, 词表大小)`"""
        return self.linear(self.normalize(x))


class GPT(Layer):
    """GPT：嵌入、若干 Transformer 块、输出头。

    Args:
        vocab_size: 词表大小。
        context_size: 上下文尺寸：一次最多看多少个词元。
        embedding_size: 嵌入尺寸。
        heads: 每块的头数，整除嵌入尺寸。
        blocks: 块数。
        head_bias: 输出头是否有偏置；GPT-2 没有。
        tied: 输出头与词元嵌入是否共用一个矩阵；GPT-2 共用。
        rng: 随机数生成器。

    Attributes:
        embedding: 嵌入。
        transformers: 各块的列表。
        output: 输出头。

    Example:
        >>> model = GPT(vocab_size=65, context_size=32, embedding_size=64, heads=2, blocks=2)
        >>> model.num_parameters
        110529
        >>> model(Tensor([[1, 2, 3]])).shape
        (1, 3, 65)

    来源：Radford 等 2019，*Language Models are Unsupervised Multitask Learners*，第 2.3 节。

    教程：第 15 章 层归一化与 GPT 模型。
    """

    def __init__(
        self,
        vocab_size: int,
        context_size: int,
        embedding_size: int,
        heads: int,
        blocks: int,
        *,
        head_bias: bool = True,
        tied: bool = False,
        rng: np.random.Generator | None = None,
    ) -> None:
        given: Any = blocks
        if isinstance(given, bool) or not isinstance(given, int | np.integer) or given:
            require_size("GPT", "blocks", blocks, "可以是 0 或更大的整数，例如 blocks=2")
        rng = resolve_rng("GPT", rng)
        self._heads = require_size("GPT", "heads", heads, "请写例如 heads=1")
        self.embedding = GPTEmbedding(vocab_size, context_size, embedding_size, rng)
        self.transformers = [GPTTransformer(embedding_size, heads, rng) for _ in range(blocks)]
        self.output = GPTOutput(embedding_size, vocab_size, head_bias, rng)
        if tied:
            self.output.linear.weight = self.embedding.embedding.weight

    @property
    def config(self) -> dict[str, Any]:
        """模型的设置，都是 Python 的整数与布尔值：可以存成 JSON，再 `GPT(**config)` 重建。"""
        return {
            "vocab_size": self.vocab_size,
            "context_size": self.context_size,
            "embedding_size": self.embedding.embedding.weight.shape[1],
            "heads": self._heads,
            "blocks": len(self.transformers),
            "head_bias": self.output.linear.bias is not None,
            "tied": self.output.linear.weight is self.embedding.embedding.weight,
        }

    @property
    def vocab_size(self) -> int:
        """词表大小。"""
        return self.embedding.embedding.weight.shape[0]

    @property
    def context_size(self) -> int:
        """上下文尺寸。"""
        return self.embedding.positional_embedding.weight.shape[0]

    def forward(self, ids: Tensor) -> Tensor:
        """每个位置上，下一个词元的分数。

        Args:
            ids: 词元编号，形状 `(批大小, 长度)`，长度在 1 与上下文尺寸之间。

        Returns:
            分数（softmax 之前），形状 `(批大小, 长度, 词表大小)`

        Raises:
            ShapeError: 不是两轴，没有词元，或比上下文尺寸长。
            DtypeError: 编号是小数类型。
            RangeError: 编号超出词表。
        """
        ids = to_tensor(ids)
        if ids.ndim != 2 or not ids.size:
            raise ShapeError(
                f"GPT：输入的形状 {ids.shape}，应为 (批大小, 长度)，且不为空；只有一条时请写 Tensor([ids])"
            )
        x = self.embedding(ids)  # (B, T, E)
        for transformer in self.transformers:
            x = transformer(x)
        return self.output(x)  # (B, T, V)
