"""测速用的四种尺寸：S 是教程第 15 章的，M 与 L 取自 nanoGPT 的字符模型，G 是 GPT-2 124M 的形状

G 与 GPT-2 一样，输出头与词元嵌入共用一个矩阵，没有偏置；其余的输出头是单独的线性层。两边都照此。
"""

from typing import NamedTuple

import numpy as np

GPT2_VOCAB = 50257


class Size(NamedTuple):
    batch: int
    context: int
    embedding: int
    heads: int
    blocks: int
    vocab: int

    @property
    def tied(self) -> bool:
        """输出头与词元嵌入是否共用一个矩阵。"""
        return self.vocab == GPT2_VOCAB

    @property
    def tokens(self) -> int:
        """一步里有多少个词元。"""
        return self.batch * self.context

    @property
    def head_parameters(self) -> int:
        """输出头另外的参数。"""
        return 0 if self.tied else (self.embedding + 1) * self.vocab

    @property
    def parameters(self) -> int:
        """参数的个数。"""
        e = self.embedding
        block = 12 * e * e + 13 * e  # 权重，偏置与两个归一化
        return (self.vocab + self.context) * e + self.blocks * block + 2 * e + self.head_parameters

    @property
    def multiply_adds(self) -> int:
        """一步训练至少要做的乘加。

        前向：每个词元与每块的 12E² 个权重、输出头的 EV 个权重各乘一次；注意力的分数与加权和，位置 t 只看 t 个键，
        各 tE 次。反向给两个因子各求一次梯度，是前向的两倍。
        """
        e, t = self.embedding, self.context
        products = self.tokens * (12 * e * e * self.blocks + e * self.vocab)
        attention = self.batch * self.blocks * 2 * e * t * (t + 1) // 2
        return 3 * (products + attention)

    def random_batch(self) -> tuple[np.ndarray, np.ndarray]:
        """一批随机的词元与标签，总是同一批。"""
        ids, labels = np.random.default_rng(0).integers(
            0, self.vocab, (2, self.batch, self.context)
        )
        return ids, labels


SIZES = {
    "S": Size(4, 32, 64, 2, 2, 65),
    "M": Size(12, 64, 128, 4, 4, 65),
    "L": Size(16, 256, 384, 6, 6, 65),
    "G": Size(2, 128, 768, 12, 12, GPT2_VOCAB),
}
