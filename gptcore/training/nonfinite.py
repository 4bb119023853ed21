"""损失或梯度里出现 NaN 或无穷时，找出它最早出现在哪里"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gptcore.errors import NonFiniteError
from gptcore.layers import Layer
from gptcore.losses import Loss
from gptcore.tensor import Tensor, no_grad
from gptcore.training.state import StepReport


def first_nonfinite(model: Layer, loss_fn: Loss, group: list[tuple[Tensor, Tensor]]) -> str:
    """第一个有 NaN 或无穷的地方：先看参数，再把这几批重新算一遍看各层的输出，最后看梯度。

    Args:
        model: 模型，梯度还是出问题那一步的。
        loss_fn: 损失函数。
        group: 出问题的几批 `(x, y)`。

    Returns:
        一句话，例如“参数 output.linear.weight 里有 NaN”。
    """
    named = list(model.named_parameters())
    for name, p in named:
        if kind := _kind(p.data):
            return f"参数 {name}（形状 {p.shape}）里有{kind}"
    with no_grad(), np.errstate(all="ignore"):
        for x, y in group:
            if found := _first_activation(model, lambda x=x, y=y: loss_fn(model(x), y)):
                return found
    for name, p in named:
        if kind := _kind(p.grad):
            return f"参数 {name}（形状 {p.shape}）的梯度里有{kind}"
    return "再算一遍没有重现；随机失活每次不同，或者模型的输出依赖别的状态"


def nonfinite_parameter(model: Layer) -> str:
    """第一个有 NaN 或无穷的参数，没有时是空的。"""
    for name, p in model.named_parameters():
        if kind := _kind(p.data):
            return f"参数 {name}（形状 {p.shape}）里有{kind}"
    return ""


def nonfinite_error(
    what: str, report: StepReport, skipped: int, checkpoint: Path | None
) -> NonFiniteError:
    """出现 NaN 或无穷时的错误：第几步、哪里、学习率、办法、还能从哪里接着训练。

    Args:
        what: 出了什么事，在哪里。
        report: 那一步。
        skipped: 之前允许跳过几步。
        checkpoint: 最近的检查点。
    """
    before = f"（已跳过 {skipped} 步）" if skipped else ""
    kept = f"最近的检查点 {checkpoint} 完好" if checkpoint else "没有检查点"
    return NonFiniteError(
        f"第 {report.step} 步（从 0 数起）{what}{before}。这一步的学习率是 {report.lr:.3g}；"
        f"请减小学习率或增加升温的步数，检查数据，确认裁剪了梯度。{kept}"
    )


def _first_activation(model: Layer, compute: Callable[[], Tensor]) -> str:
    """第一个输出里有 NaN 或无穷的层；都没有时看损失。

    临时在每个层对象上盖住 `forward`，算完还原；层的类不受影响。
    """
    found: list[str] = []

    def watch(name: str, layer: Layer) -> None:
        forward = layer.forward

        def watched(*args: Any, **kwargs: Any) -> Any:
            output = forward(*args, **kwargs)
            if not found and isinstance(output, Tensor) and (kind := _kind(output.data)):
                kind_of = type(layer).__name__
                where = f"{name}（{kind_of}）" if name else f"{kind_of} "
                found.append(f"{where}的输出（形状 {output.shape}）里有{kind}，参数都是有限的")
            return output

        object.__setattr__(layer, "forward", watched)

    layers = [(n, layer) for n, layer in model.named_sublayers() if "forward" not in vars(layer)]
    try:
        for name, layer in layers:
            watch(name, layer)
        loss = compute()
    finally:
        for _, layer in layers:
            object.__delattr__(layer, "forward")
    if not found and (kind := _kind(loss.data)):
        found.append(f"损失是{kind}，各层的输出都是有限的")
    return found[0] if found else ""


def _kind(array: Any) -> str:
    """数组里有没有 NaN 或无穷；没有时是空的。"""
    if array is None or np.isfinite(array).all():
        return ""
    return " NaN" if np.isnan(array).any() else "无穷"
