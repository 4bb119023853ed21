"""各块共同的选项：偏置、随机失活、归一化与初始化"""

import math
from typing import Any, Literal, TypedDict

from gptcore.layers import LayerNorm, RMSNorm
from gptcore.layers.checks import require_choice, require_number

Norm = Literal["LayerNorm", "RMSNorm"] | None
NormPosition = Literal["pre", "post"]
Init = Literal["he", "gpt2"]

GPT2_STD = 0.02
"""GPT-2 的权重与嵌入初值的标准差"""

NORM_EPS = 1e-5
"""归一化里加在方差上的小数，GPT-2 与 PyTorch 的默认值"""


class BlockOptions(TypedDict, total=False):
    r"""注意力、前馈网络与整个块的选项，都可以不给。

    归一化的位置：`"pre"` 在分支的入口，$x + f(\mathrm{norm}(x))$（GPT-2）；`"post"` 在相加之后，
    $\mathrm{norm}(x + f(x))$（Vaswani 等 2017）。两者的比较见 Xiong 等 2020，<https://arxiv.org/abs/2002.04745>。
    """

    bias: bool
    """线性层与归一化是否有偏置；默认有。"""

    dropout: float
    """随机失活的概率，用在注意力权重上，以及每个分支的最后；默认 0。"""

    norm: Norm
    """`"LayerNorm"`（默认）、`"RMSNorm"` 或 `None`，即不归一化。"""

    norm_position: NormPosition
    """`"pre"`（默认）或 `"post"`。"""

    norm_eps: float
    """归一化里加在方差（均方）上的小数；默认 1e-5。"""

    init: Init
    r"""`"he"`（默认）：各线性层取自 $\mathcal N(0, 2/\text{输入尺寸})$；`"gpt2"`：取自 $\mathcal N(0, 0.02^2)$，
    分支最后的投影再除以 $\sqrt{2\cdot\text{块数}}$，使残差流的方差不随深度增长。"""

    blocks: int
    """模型一共有几块，只有 `init="gpt2"` 用到；默认 1。"""


def require_options(
    layer: str,
    *,
    dropout: Any = 0.0,
    norm: Any = None,
    norm_position: Any = "pre",
    norm_eps: Any = NORM_EPS,
    init: Any = "he",
) -> None:
    """检查各个选项；不合要求时抛出 `ArgumentError`。"""
    require_number(layer, "dropout", dropout, 0, 1)
    require_choice(layer, "norm", norm, ("LayerNorm", "RMSNorm", None))
    require_choice(layer, "norm_position", norm_position, ("pre", "post"))
    require_number(layer, "norm_eps", norm_eps, 0, 1)
    require_choice(layer, "init", init, ("he", "gpt2"))


def make_norm(norm: Norm, size: int, bias: bool, eps: float) -> LayerNorm | RMSNorm | None:
    """按名字建立归一化层。"""
    if norm is None:
        return None
    return LayerNorm(size, eps, bias) if norm == "LayerNorm" else RMSNorm(size, eps)


def initial_std(init: Init) -> float | None:
    """线性层的标准差；`None` 由线性层自己按输入尺寸决定。"""
    return GPT2_STD if init == "gpt2" else None


def residual_std(init: Init, blocks: int) -> float | None:
    """分支最后的投影的标准差：每块往残差流里加两次，除以次数的平方根。"""
    return GPT2_STD / math.sqrt(2 * blocks) if init == "gpt2" else None
