"""GPT 的各个部分：嵌入、注意力、前馈网络、块与输出头"""

import math
from collections.abc import Callable
from typing import Unpack

import numpy as np

from gptcore.errors import ArgumentError, ShapeError
from gptcore.kernels.array import Array
from gptcore.kernels.attention import attention_backward, attention_forward
from gptcore.layers import GELU, Dropout, Embedding, Layer, Linear, Softmax, Tril
from gptcore.layers.checks import require_axes, require_size, to_tensor
from gptcore.models.branch import GPTBranch
from gptcore.models.options import (
    NORM_EPS,
    BlockOptions,
    Init,
    Norm,
    NormPosition,
    initial_std,
    make_norm,
    require_options,
    residual_std,
)
from gptcore.tensor import Tensor


class GPTEmbedding(Layer):
    r"""词元嵌入与位置嵌入之和：$x_t = W_{\text{词元}}[i_t] + W_{\text{位置}}[t]$，训练时再随机失活。

    两个表的初值都取自 $\mathcal N(0, 0.02^2)$。

    Args:
        vocab_size: 词表大小。
        context_size: 上下文尺寸，即最多多少个位置。
        embedding_size: 嵌入尺寸。
        rng: 随机数生成器。
        dropout: 随机失活的概率。

    教程：第 10 章 位置嵌入。
    """

    def __init__(
        self,
        vocab_size: int,
        context_size: int,
        embedding_size: int,
        rng: np.random.Generator | None = None,
        *,
        dropout: float = 0.0,
    ) -> None:
        require_options("GPTEmbedding", dropout=dropout)
        self.embedding = Embedding(vocab_size, embedding_size, rng=rng)
        self.positional_embedding = Embedding(context_size, embedding_size, rng=rng)
        self.dropout = Dropout(dropout, rng)

    def forward(self, ids: Tensor) -> Tensor:
        """形状 `(批大小, 长度)` → `(批大小, 长度, 嵌入尺寸)`，长度不超过上下文尺寸。"""
        ids = to_tensor(ids)
        require_axes("GPTEmbedding", ids, "批大小, 长度")
        self._require_length(ids.shape[-1])
        x = self.embedding(ids) + self.positional_embedding(Tensor(np.arange(ids.shape[-1])))
        return self.dropout(x)

    def infer(self, x: Array, positions: Array | None = None) -> Array:
        """推理：见 [`Layer.infer`][gptcore.layers.base.Layer.infer]。

        Args:
            x: 词元编号，形状 `(批大小, 长度)`
            positions: 每个词元的位置，形状同 `x`；不给时从 0 数起。
        """
        y = self.embedding.infer(x)
        if positions is None:
            self._require_length(x.shape[-1])
            y += self.positional_embedding.weight.data[: x.shape[-1]]
        else:
            y += self.positional_embedding.infer(positions)
        return y

    def _require_length(self, length: int) -> None:
        limit = self.positional_embedding.weight.shape[0]
        if length > limit:
            raise ShapeError(
                f"GPT：输入有 {length} 个词元，超过上下文尺寸 context_size={limit}；"
                f"请只取最后 {limit} 个：ids[:, -{limit}:]；训练时，数据集与模型的 context_size 要相同"
            )


class GPTAttention(GPTBranch):
    r"""因果多头自注意力，先归一化，残差连接在内：$x + W_o\,\mathrm{attention}(\mathrm{norm}(x))$。

    Note: 前向与反向
        每个头（尺寸 $d$）里，位置 $t$ 只看 $j\le t$：

        $$p_{tj} = \mathrm{softmax}_j\Big(\frac{q_t\cdot k_j}{\sqrt d}\Big),\qquad c_t=\sum_j p_{tj}v_j$$

        $$\mathrm{d}v_j=\sum_t p_{tj}\mathrm{d}c_t,\quad
        \mathrm{d}s_{tj} = p_{tj}\,\mathrm{d}c_t\cdot(v_j - c_t),\quad
        \mathrm{d}q_t=\frac1{\sqrt d}\sum_j\mathrm{d}s_{tj}k_j,\quad
        \mathrm{d}k_j=\frac1{\sqrt d}\sum_t\mathrm{d}s_{tj}q_t$$

        有随机失活时，权重 $p_{tj}$ 先乘以 $k_{tj}/(1-\rho)$，再去乘 $v_j$；公式见
        [`gptcore.kernels.attention`][gptcore.kernels.attention]。

    查询、键、值的权重合成一个矩阵 `c_attn`，一次乘法算出三者；`query`、`key`、`value` 是它各三分之一的视图。

    来源：Vaswani 等 2017，<https://arxiv.org/abs/1706.03762>，式 (1)。

    Args:
        embedding_size: 嵌入尺寸。
        heads: 头数，整除嵌入尺寸。
        rng: 随机数生成器。
        bias: 线性层与归一化是否有偏置。
        dropout: 随机失活的概率，用在注意力权重与 `output` 的结果上。
        norm: 归一化的种类，`"LayerNorm"`、`"RMSNorm"` 或 `None`。
        norm_position: 归一化的位置，`"pre"` 或 `"post"`。
        norm_eps: 归一化里加在方差上的小数。
        init: 初始化，`"he"` 或 `"gpt2"`。
        blocks: 模型一共有几块，只有 `init="gpt2"` 用到。

    教程：第 11 章 自注意力，第 12 章 因果掩码，第 13 章 多头注意力。
    """

    def __init__(
        self,
        embedding_size: int,
        heads: int = 1,
        rng: np.random.Generator | None = None,
        *,
        bias: bool = True,
        dropout: float = 0.0,
        norm: Norm = "LayerNorm",
        norm_position: NormPosition = "pre",
        norm_eps: float = NORM_EPS,
        init: Init = "he",
        blocks: int = 1,
    ) -> None:
        size = embedding_size = require_size("GPTAttention", "embedding_size", embedding_size)
        divisors = "可以用 " + "、".join(str(h) for h in range(1, 13) if size % h == 0)
        heads = require_size("GPTAttention", "heads", heads, divisors)
        if embedding_size % heads:
            raise ArgumentError(
                f"GPTAttention：heads={heads} 要能整除 embedding_size={embedding_size}；{divisors}"
            )
        super().__init__(size, rng, bias, dropout, norm, norm_position, norm_eps, init, blocks)
        std, last = initial_std(init), residual_std(init, blocks)
        self.heads = heads
        self.c_attn = Linear(size, 3 * size, bias, rng, std=std)
        self.mask = Tril()
        self.softmax = Softmax()
        self.attention_dropout = Dropout(dropout, rng)
        self.output = Linear(size, size, bias, rng, std=last)

    def forward(self, x: Tensor) -> Tensor:
        """形状 `(批大小, 长度, 嵌入尺寸)`，不变。"""
        x = to_tensor(x)
        require_axes("GPTAttention", x, "批大小, 长度, 嵌入尺寸")
        return super().forward(x)

    def infer(self, x: Array, attend: Callable[[Array], Array] | None = None) -> Array:
        """推理：见 [`Layer.infer`][gptcore.layers.base.Layer.infer]。

        Args:
            x: 这一层的输入。
            attend: 由 `c_attn` 的结果算出各头的结果，缓存在这里接进来；不给时就是普通的因果注意力。
        """
        qkv = self.c_attn.infer(self.enter_infer(x))
        context = attention_forward(qkv, self.heads)[0] if attend is None else attend(qkv)
        return self.leave_infer(x, self.output.infer(context))

    def branch(self, x: Tensor) -> Tensor:
        """各头的结果并排，再经过 `output`。"""
        qkv, heads = self.c_attn(x), self.heads  # (B, T, 3E)
        array, p = qkv.data, self.attention_dropout.p
        context, blocks = attention_forward(array, heads, p, self.attention_dropout.drawing())

        def vjp(dc: Array) -> tuple[Array]:
            return (attention_backward(dc, array, context, blocks, heads, p),)

        return self.output(Tensor(context).record((qkv,), vjp))

    forgets = GPTBranch.ends_linear

    def weights(self, x: Tensor) -> Tensor:
        """注意力权重，看模型在看什么时用；没有随机失活，训练时也一样。

        Args:
            x: 这一层的输入，形状 `(批大小, 长度, 嵌入尺寸)`

        Returns:
            形状 `(批大小, 头数, 查询位置, 键位置)`，每一行的和为 1，将来的位置为 0
        """
        x = to_tensor(x)
        require_axes("GPTAttention", x, "批大小, 长度, 嵌入尺寸")
        batch, length, size = x.shape
        qkv = self.c_attn(self.enter(x)).reshape(batch, length, 3, self.heads, -1)
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


class GPTFeedForward(GPTBranch):
    r"""前馈网络，先归一化，残差连接在内：$x + W_2\,\mathrm{GELU}(W_1\,\mathrm{norm}(x))$，中间宽 4 倍。

    Args:
        embedding_size: 嵌入尺寸。
        rng: 随机数生成器。
        bias: 线性层与归一化是否有偏置。
        dropout: 随机失活的概率，用在 `output` 的结果上。
        norm: 归一化的种类，`"LayerNorm"`、`"RMSNorm"` 或 `None`。
        norm_position: 归一化的位置，`"pre"` 或 `"post"`。
        norm_eps: 归一化里加在方差上的小数。
        init: 初始化，`"he"` 或 `"gpt2"`。
        blocks: 模型一共有几块，只有 `init="gpt2"` 用到。

    教程：第 14 章 前馈网络与残差连接。
    """

    def __init__(
        self,
        embedding_size: int,
        rng: np.random.Generator | None = None,
        *,
        bias: bool = True,
        dropout: float = 0.0,
        norm: Norm = "LayerNorm",
        norm_position: NormPosition = "pre",
        norm_eps: float = NORM_EPS,
        init: Init = "he",
        blocks: int = 1,
    ) -> None:
        size = require_size("GPTFeedForward", "embedding_size", embedding_size)
        super().__init__(size, rng, bias, dropout, norm, norm_position, norm_eps, init, blocks)
        std, last = initial_std(init), residual_std(init, blocks)
        self.input = Linear(size, 4 * size, bias, rng, std=std)
        self.gelu = GELU()
        self.output = Linear(4 * size, size, bias, rng, std=last)

    def branch(self, x: Tensor) -> Tensor:
        """形状 `(…, 嵌入尺寸)`，不变。"""
        hidden = self.input(x)
        y = self.gelu(hidden)
        if type(self.input) is Linear and type(self.gelu) is GELU:  # 两者的反向都不读它
            hidden.forget()
        return self.output(y)

    forgets = GPTBranch.ends_linear

    def infer(self, x: Array) -> Array:
        """推理：见 [`Layer.infer`][gptcore.layers.base.Layer.infer]。"""
        hidden = self.gelu.infer(self.input.infer(self.enter_infer(x)))
        return self.leave_infer(x, self.output.infer(hidden))


class GPTTransformer(Layer):
    """一个 Transformer 块：注意力，然后前馈网络。

    Args:
        embedding_size: 嵌入尺寸。
        heads: 头数。
        rng: 随机数生成器。
        **options: 两者共同的选项，见 [`BlockOptions`][gptcore.models.options.BlockOptions]：
            `bias`、`dropout`、`norm`、`norm_position`、`norm_eps`、`init`、`blocks`

    教程：第 15 章 层归一化与 GPT 模型。
    """

    def __init__(
        self,
        embedding_size: int,
        heads: int,
        rng: np.random.Generator | None = None,
        **options: Unpack[BlockOptions],
    ) -> None:
        self.attention = GPTAttention(embedding_size, heads, rng, **options)
        self.feed_forward = GPTFeedForward(embedding_size, rng, **options)

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
        norm: 归一化的种类，`"LayerNorm"`、`"RMSNorm"` 或 `None`。
        norm_bias: 归一化是否有偏置。
        norm_eps: 归一化里加在方差上的小数。
        init: 初始化，`"he"` 或 `"gpt2"`。
        weight: 与词元嵌入共用的权重；给出时不再抽取。

    教程：第 15 章 层归一化与 GPT 模型。
    """

    def __init__(
        self,
        embedding_size: int,
        vocab_size: int,
        bias: bool = True,
        rng: np.random.Generator | None = None,
        *,
        norm: Norm = "LayerNorm",
        norm_bias: bool = True,
        norm_eps: float = NORM_EPS,
        init: Init = "he",
        weight: Tensor | None = None,
    ) -> None:
        require_options("GPTOutput", norm=norm, norm_eps=norm_eps, init=init)
        self.normalize = make_norm(norm, embedding_size, norm_bias, norm_eps)
        std = initial_std(init)
        self.linear = Linear(embedding_size, vocab_size, bias, rng, std=std, weight=weight)

    def forward(self, x: Tensor) -> Tensor:
        """形状 `(…, 嵌入尺寸)` → `(…, 词表大小)`"""
        return self.linear(x if self.normalize is None else self.normalize(x))

    def infer(self, x: Array) -> Array:
        """推理：见 [`Layer.infer`][gptcore.layers.base.Layer.infer]。"""
        return self.linear.infer(x if self.normalize is None else self.normalize.infer(x))
