"""随机权重的模型：生成的测速用，权重是多少不影响时间"""

import numpy as np
from sizes import Size

from gptcore import GPT
from gptcore.layers.initial import without_values


def random_model(size: Size, *, tied: bool) -> GPT:
    """各个矩阵取自 N(0, 0.02²)，种子是 0；直接抽 float32，不另占内存。

    Args:
        size: 尺寸。
        tied: 输出头与词元嵌入是否共用一个矩阵；输出头没有偏置。
    """
    _, context, embedding, heads, blocks, vocab = size
    with without_values():
        model = GPT(vocab, context, embedding, heads, blocks, head_bias=False, tied=tied)
    rng = np.random.default_rng(0)
    for name, p in model.named_parameters():
        if p.ndim == 2:
            p.data = rng.standard_normal(p.shape, np.float32)
            p.data *= 0.02
        else:
            p.data = np.full(p.shape, "normalize.weight" in name, np.float32)
    return model
