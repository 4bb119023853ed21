"""数据类型的审计：一步训练里的每个数组都是 float32，没有悄悄变成 float64 的

一个 float64 的标量就能让后面的结果都变成 float64，慢一半还多，而结果看上去一样。
反向传播时引擎会把梯度转回张量的类型，所以这里看的是各个运算刚算出来的梯度。
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CellType
from typing import Any, cast

import numpy as np

from gptcore.graph import Node
from gptcore.kernels.array import Array
from gptcore.layers import Layer
from gptcore.losses import Loss
from gptcore.optim import Optimizer
from gptcore.tensor import Tensor


@dataclass
class DtypeAudit:
    """一步训练的审计结果。

    Attributes:
        counts: 各类数组各看了几个。
        leaks: 类型不对的数组，每个一句话。
    """

    counts: dict[str, int] = field(default_factory=dict[str, int])
    leaks: list[str] = field(default_factory=list[str])

    @property
    def total(self) -> int:
        """一共看了几个数组。"""
        return sum(self.counts.values())

    def look(self, kind: str, name: str, array: Any, expected: np.dtype[Any]) -> None:
        """看一个数组；整数与布尔数组不算。

        Args:
            kind: 哪一类。
            name: 名字。
            array: 数组。
            expected: 应有的类型。
        """
        dtype = np.asarray(array).dtype
        if dtype.kind not in "fc":
            return
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if dtype != expected:
            self.leaks.append(f"{kind} {name} 是 {dtype}")


def audit_step(
    model: Layer, loss_fn: Loss, optimizer: Optimizer, x: Tensor, y: Tensor
) -> DtypeAudit:
    """做一步训练，看其中的每个数组：参数、激活值、为反向保存的、梯度、优化器的矩。

    Args:
        model: 模型；它的第一个参数的类型，就是所有数组应有的类型。
        loss_fn: 损失函数。
        optimizer: 优化器。
        x: 输入。
        y: 标签。

    Returns:
        看了多少个数组，哪些不对。
    """
    audit, expected = DtypeAudit(), model.parameters[0].dtype
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    for node, name in _nodes(loss):
        audit.look("激活值", name, node.data, expected)
        for array in _saved(node):
            audit.look("保存的中间结果", name, array, expected)
        _watch(node, lambda array, name=name: audit.look("梯度", name, array, expected))
    loss.backward()
    for name, p in model.named_parameters():
        audit.look("参数的梯度", name, p.grad, expected)
    optimizer.clip_grad_norm()
    optimizer.step()
    for name, p in model.named_parameters():
        audit.look("参数", name, p.data, expected)
    for name, array in optimizer.state_dict().items():
        if array.ndim:
            audit.look("优化器的矩", name, array, expected)
    return audit


def _nodes(root: Node) -> Iterator[tuple[Node, str]]:
    """图中由运算得到的每个节点，与运算的名字，例如 `Linear.forward`。"""
    seen: set[int] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        if id(node) in seen or node.is_leaf:
            continue
        seen.add(id(node))
        pending += node.parents
        function: Any = node.gradient_fn or _vjp(node)
        name = str(getattr(function, "__qualname__", function))
        yield node, name.rpartition(".<locals>")[0].split("<locals>.")[-1] or name


def _saved(node: Node) -> Iterator[Array]:
    """反向函数的闭包里留着的数组。"""
    function: Any = node.gradient_fn or _vjp(node)
    cells: tuple[CellType, ...] = getattr(function, "__closure__", None) or ()
    pending = [cell.cell_contents for cell in cells if cell != CellType()]
    while pending:
        value = pending.pop()
        if isinstance(value, np.ndarray):
            array = cast("Array", value)
            if array.ndim:
                yield array
        elif isinstance(value, list | tuple):
            pending += cast("list[Any]", value)


def _watch(node: Node, look: Callable[[Array], None]) -> None:
    """让节点的反向函数交出梯度时，先看一眼。"""
    vjp: Any = _vjp(node)
    if vjp is None:
        return

    def watched(dy: Array) -> Any:
        gradients = vjp(dy)
        for dx in gradients:
            if dx is not None:
                look(dx)
        return gradients

    node._vjp = watched  # pyright: ignore[reportPrivateUsage] 只有这里要看引擎转换类型之前的梯度


def _vjp(node: Node) -> Any:
    return node._vjp  # pyright: ignore[reportPrivateUsage]
