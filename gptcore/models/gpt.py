"""GPT 模型"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from gptcore.data import Tokenizer
from gptcore.layers.checks import require_flag, require_size
from gptcore.models.blocks import GPTEmbedding, GPTOutput, GPTTransformer
from gptcore.models.inference import GPTInference, require_ids
from gptcore.models.options import (
    NORM_EPS,
    BlockOptions,
    Init,
    Norm,
    NormPosition,
    require_options,
)
from gptcore.random import resolve_rng
from gptcore.tensor import Tensor


class GPT(GPTInference):
    r"""GPT：嵌入、若干 Transformer 块、输出头。

    不给选项时就是教程里的模型。GPT-2 的设置是 `head_bias=False, tied=True, dropout=0.1, init="gpt2"`。

    Note: 选项
        - 随机失活在 GPT-2 的三处：嵌入之和、注意力权重、每个分支的最后；只在训练模式下起作用。
        - `norm_position="post"` 时每次相加之后归一化，$x\leftarrow\mathrm{norm}(x+f(x))$，输出头之前不再另作一次。
        - `bias=False` 去掉各块的线性层与所有归一化的偏置；输出头的由 `head_bias` 决定。
        - `init="he"`：线性层取自 $\mathcal N(0, 2/\text{输入尺寸})$，各层独立地保持信号的大小；
          第一次的损失比 $\ln V$ 大，$V$ 是词表大小。
        - `init="gpt2"`：线性层与嵌入都取自 $\mathcal N(0, 0.02^2)$，偏置为零，每个分支最后的 `output`
          取自 $\mathcal N\big(0, 0.02^2/(2\cdot\text{块数})\big)$；第一次的损失接近 $\ln V$，即每个词元一样可能。

    Args:
        vocab_size: 词表大小。
        context_size: 上下文尺寸：一次最多看多少个词元。
        embedding_size: 嵌入尺寸。
        heads: 每块的头数，整除嵌入尺寸。
        blocks: 块数。
        head_bias: 输出头是否有偏置；GPT-2 没有。
        tied: 输出头与词元嵌入是否共用一个矩阵；GPT-2 共用。
        bias: 各块的线性层与所有归一化是否有偏置。
        dropout: 随机失活的概率，$0\le p<1$。
        norm: 归一化的种类，`"LayerNorm"`、`"RMSNorm"` 或 `None`，即不归一化。
        norm_position: 归一化的位置，`"pre"` 或 `"post"`。
        norm_eps: 归一化里加在方差（`RMSNorm` 是均方）上的小数。
        init: 初始化，`"he"` 或 `"gpt2"`。
        rng: 随机数生成器，初值与随机失活都用它；不给时，随机失活每次用那一刻的默认生成器。

    Attributes:
        embedding: 嵌入。
        transformers: 各块的列表。
        output: 输出头。

    Raises:
        ArgumentError: 尺寸不是正整数，头数不能整除嵌入尺寸，或选项不是几种写法之一。
        DtypeError: 开关不是布尔值，或 `rng` 不是生成器。

    Examples:
        >>> model = GPT(vocab_size=65, context_size=32, embedding_size=64, heads=2, blocks=2)
        >>> model.num_parameters
        110529
        >>> model(Tensor([[1, 2, 3]])).shape
        (1, 3, 65)

    来源：Radford 等 2019，*Language Models are Unsupervised Multitask Learners*，第 2.3 节。

    教程：第 15 章 层归一化与 GPT 模型，第 16 章 过拟合与 Dropout。
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
        bias: bool = True,
        dropout: float = 0.0,
        norm: Norm = "LayerNorm",
        norm_position: NormPosition = "pre",
        norm_eps: float = NORM_EPS,
        init: Init = "he",
        rng: np.random.Generator | None = None,
    ) -> None:
        given: Any = blocks
        if isinstance(given, bool) or not isinstance(given, int | np.integer) or given:
            require_size("GPT", "blocks", blocks, "可以是 0 或更大的整数，例如 blocks=2")
        resolve_rng("GPT", rng)
        self._heads = require_size("GPT", "heads", heads, "请写例如 heads=1")
        require_options(
            "GPT",
            dropout=dropout,
            norm=norm,
            norm_position=norm_position,
            norm_eps=norm_eps,
            init=init,
        )
        tied, bias = require_flag("GPT", "tied", tied), require_flag("GPT", "bias", bias)
        self._bias, self._norm, self._init = bias, norm, init
        self._norm_position: NormPosition = norm_position
        self._norm_eps = float(norm_eps)
        options = BlockOptions(
            bias=bias,
            dropout=dropout,
            norm=norm,
            norm_position=norm_position,
            norm_eps=self._norm_eps,
            init=init,
            blocks=max(1, blocks),
        )
        self.embedding = GPTEmbedding(
            vocab_size, context_size, embedding_size, rng, dropout=dropout
        )
        self.transformers = [
            GPTTransformer(embedding_size, heads, rng, **options) for _ in range(blocks)
        ]
        self.output = GPTOutput(
            embedding_size,
            vocab_size,
            require_flag("GPT", "head_bias", head_bias),
            rng,
            norm=norm if norm_position == "pre" else None,
            norm_bias=bias,
            norm_eps=self._norm_eps,
            init=init,
            weight=self.embedding.embedding.weight if tied else None,
        )

    @staticmethod
    def from_pretrained(
        folder: str | os.PathLike[str],
        *,
        dropout: float | None = None,
        memory_map: bool = True,
        rng: np.random.Generator | None = None,
    ) -> GPT:
        """读入本机的一个 Hugging Face 格式的 GPT-2 文件夹，处于评估模式；不抽随机数，也不用网络。

        同 [`from_pretrained`][gptcore.models.huggingface.loading.from_pretrained]，那里说得更详细；
        连同分词器一起读，用 [`load_pretrained`][gptcore.models.huggingface.loading.load_pretrained]。

        Args:
            folder: 文件夹：`config.json`，以及 `model.safetensors`（或者索引与各个分片）。
            dropout: 随机失活的概率；不给时用文件里的。
            memory_map: float32 的参数是否直接映射文件，没有第二份；改动写时复制。
            rng: 以后训练时随机失活用的生成器。

        Raises:
            DataError: 缺文件，文件损坏，不是 GPT-2，或者有这里没有实现的选项。
        """
        from gptcore.models.huggingface import from_pretrained  # 它要用到本类

        return from_pretrained(folder, dropout=dropout, memory_map=memory_map, rng=rng)

    def save_pretrained(
        self, folder: str | os.PathLike[str], tokenizer: Tokenizer | None = None
    ) -> Path:
        """存成 transformers 能读的文件夹，同 [`save_pretrained`][gptcore.models.huggingface.saving.save_pretrained]。

        Args:
            folder: 文件夹，不存在时建立。
            tokenizer: 分词器；不给时只存模型。

        Returns:
            文件夹的路径。

        Raises:
            DataError: 模型的结构不是 GPT-2 的，例如输出头有偏置；或者写不进去。
        """
        from gptcore.models.huggingface import save_pretrained

        return save_pretrained(self, folder, tokenizer)

    @property
    def config(self) -> dict[str, Any]:
        """模型的设置，都是 Python 的整数、小数、布尔值、字符串或 `None`：可以存成 JSON，再 `GPT(**config)` 重建。"""
        return {
            "vocab_size": self.vocab_size,
            "context_size": self.context_size,
            "embedding_size": self.embedding.embedding.weight.shape[1],
            "heads": self._heads,
            "blocks": len(self.transformers),
            "head_bias": self.output.linear.bias is not None,
            "tied": self.output.linear.weight is self.embedding.embedding.weight,
            "bias": self._bias,
            "dropout": self.embedding.dropout.p,
            "norm": self._norm,
            "norm_position": self._norm_position,
            "norm_eps": self._norm_eps,
            "init": self._init,
        }

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
        x = self.embedding(require_ids(ids))  # (B, T, E)
        for transformer in self.transformers:
            x = transformer(x)
        return self.output(x)  # (B, T, V)
