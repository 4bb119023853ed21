"""嵌入层与平均池化"""

import numpy as np

from gptcore.errors import ShapeError
from gptcore.kernels.array import Array
from gptcore.kernels.embedding import embedding_backward, embedding_forward
from gptcore.layers.base import Layer
from gptcore.layers.checks import require_floats, require_number, require_size, to_ids
from gptcore.layers.initial import normal
from gptcore.random import resolve_rng
from gptcore.tensor import Tensor


class Embedding(Layer):
    r"""嵌入（embedding）：每个编号对应表中的一行。

    等于独热向量乘以表，只是省去了乘法；没有偏置，因为查表不做加法。

    Note: 前向与反向
        $$y_n = W_{t_n},\qquad \mathrm{d}W_v = \sum_{n\,:\,t_n=v}\mathrm{d}y_n$$

        重复出现的编号，梯度逐次累加。

    Args:
        vocab_size: 表的行数，即词表大小。
        embedding_size: 嵌入尺寸。
        std: 初始值的标准差，$W\sim\mathcal N(0, \text{std}^2)$。
        rng: 随机数生成器。

    Attributes:
        weight: 嵌入表，形状 `(词表大小, 嵌入尺寸)`

    教程：第 7 章 嵌入。
    """

    decays = False

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        std: float = 0.02,
        rng: np.random.Generator | None = None,
    ) -> None:
        vocab_size = require_size("Embedding", "vocab_size", vocab_size)
        embedding_size = require_size("Embedding", "embedding_size", embedding_size)
        require_number("Embedding", "std", std, 0, np.inf)
        resolve_rng("Embedding", rng)
        self.weight = normal((vocab_size, embedding_size), std, rng)

    def forward(self, ids: Tensor) -> Tensor:
        """查表。

        Args:
            ids: 编号，任意形状的整数张量。

        Returns:
            形状 `(*ids.shape, 嵌入尺寸)`

        Raises:
            DtypeError: 编号是小数类型。
            RangeError: 编号超出范围。
        """
        count = self.weight.shape[0]
        array = to_ids("Embedding", ids, count)
        return Tensor(embedding_forward(array, self.weight.data)).record(
            (self.weight,), lambda dy: (embedding_backward(dy, array, count),)
        )

    def infer(self, x: Array) -> Array:
        """推理：编号的数组进，向量的数组出，见 [`Layer.infer`][gptcore.layers.base.Layer.infer]。"""
        weight = self.weight.data
        return embedding_forward(to_ids("Embedding", x, len(weight)), weight)


class MeanPool(Layer):
    r"""平均池化（mean pooling）：对第 1 轴（位置）求平均。

    多长的文本都能通过，但词序丢了。

    Note: 前向与反向
        $$y_{be} = \frac1T\sum_t x_{bte},\qquad \mathrm{d}x_{bte} = \frac1T\mathrm{d}y_{be}$$

    教程：第 7 章 嵌入。
    """

    def forward(self, x: Tensor) -> Tensor:
        """形状 `(批大小, 上下文尺寸, 嵌入尺寸)` → `(批大小, 嵌入尺寸)`"""
        require_floats("MeanPool", x)
        if x.ndim < 2 or not x.shape[1]:
            raise ShapeError(
                f"MeanPool：输入的形状 {x.shape}，要有至少两轴，且第 1 轴（位置）不能为空"
            )
        return x.mean(1)
