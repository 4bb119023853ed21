"""梯度累积：几批的梯度加在一起，好像是一大批"""

from gptcore.layers import Layer
from gptcore.losses import Loss
from gptcore.tensor import Tensor


def backward(model: Layer, loss_fn: Loss, group: list[tuple[Tensor, Tensor]]) -> float:
    """各批反向传播，梯度累加；得到整体的平均损失。

    Args:
        model: 模型，梯度加在它的参数上。
        loss_fn: 损失函数。
        group: 各批 `(x, y)`。

    Returns:
        各批按计入损失的标签数加权的平均损失。
    """
    if len(group) == 1:
        ((x, y),) = group
        loss = loss_fn(model(x), y)
        loss.backward()
        return float(loss)
    counts = [loss_fn.count(y) for _, y in group]
    total = 0.0
    for (x, y), n in zip(group, counts, strict=True):
        if n:  # 标签全被忽略的一批没有贡献
            part = loss_fn(model(x), y) * (n / sum(counts))
            part.backward()
            total += float(part)
    return total
