r"""计算图与反向传播

反向传播从结果出发，按拓扑逆序逐个节点应用链式法则：若 $y=f(x)$，则

$$\frac{\partial L}{\partial x}
= \sum_{y\,:\,x \in \mathrm{parents}(y)} \frac{\partial L}{\partial y}\frac{\partial y}{\partial x}$$

求和号是关键：一个节点可能被用到多次，必须等所有用到它的节点都把梯度送到，才轮到它往回传。
全库只有这个文件知道梯度怎样流动；[`Tensor`][gptcore.Tensor] 在它上面加上数值运算。
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import ContextDecorator
from contextvars import ContextVar
from functools import partial, wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from itertools import count
from typing import Any, Self, cast

import numpy as np

from gptcore.errors import DtypeError, GraphError, ShapeError
from gptcore.kernels.arithmetic import add
from gptcore.kernels.array import Array
from gptcore.kernels.buffers import is_owner

VJP = Callable[[Array], Sequence[Array | None]]

_no_grad_depth = ContextVar("gptcore_no_grad_depth", default=0)
_serial = count()
_ZERO = bytes(8)
"""一个零，放得下任何类型的元素；`forget` 之后的数值都从它读出。"""


class no_grad(ContextDecorator):  # noqa: N801  用起来像函数
    """在其中算出的张量不记录计算图。

    既是上下文管理器，也是装饰器（写 `@no_grad()`）；出错离开时同样恢复；每个线程各有一份状态。
    装饰生成器函数时，只在生成器自己运行期间有效，不影响两次 `yield` 之间使用者的代码；`async` 函数也可以装饰。

    Examples:
        >>> w = Tensor([1.0, 2.0])
        >>> with no_grad():
        ...     (w * w).requires_grad
        False
    """

    def __init__(self, *function: object) -> None:
        if function:
            raise DtypeError("no_grad：装饰函数时要写括号：@no_grad()")

    def __enter__(self) -> None:
        _no_grad_depth.set(_no_grad_depth.get() + 1)

    def __exit__(self, *_: object) -> None:
        # 数层数，而不是记住原来的值：两个生成器交错地进出，最后也能恢复
        _no_grad_depth.set(max(0, _no_grad_depth.get() - 1))

    def __call__(self, func: Any) -> Any:
        """装饰一个函数、生成器函数或 `async` 函数。

        Raises:
            DtypeError: 装饰的是异步生成器，或者不能调用。
        """
        if isasyncgenfunction(func) or not callable(func):
            raise DtypeError(
                f"no_grad：不能装饰 {func!r}，它要是函数；异步生成器请在里面写 with no_grad():"
            )
        if iscoroutinefunction(func):

            @wraps(func)
            async def call(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await func(*args, **kwargs)

            return call
        if not isgeneratorfunction(func):
            return super().__call__(func)

        @wraps(func)
        def steps(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            iterator = func(*args, **kwargs)
            resume = partial(next, iterator)
            while True:
                with self:
                    try:
                        value = resume()
                    except StopIteration as stop:
                        return stop.value
                try:
                    resume = partial(iterator.send, (yield value))
                except BaseException as error:  # noqa: BLE001  包括 close()，都交给生成器处理
                    resume = partial(iterator.throw, error)

        return steps


def is_grad_enabled() -> bool:
    """现在算出的张量会不会记录计算图。"""
    return not _no_grad_depth.get()


def _freed(_: Array) -> Sequence[Array | None]:
    """图用过之后占位的函数：再次反向传播时报错。"""
    raise GraphError(
        "backward：这张计算图已经反向传播过，中间结果都释放了。"
        "请重新做一次前向计算；若要对两个损失求导，请先相加：(loss1 + loss2).backward()"
    )


class Node:
    """计算图的一个节点：数值、梯度，以及梯度怎样传给父节点。

    Attributes:
        data: 数值。
        gradient_fn: 由 `attach` 给出的反向函数；没有则为 `None`。
        parents: 由哪些张量算来。
        requires_grad: 是否需要梯度。
    """

    def __init__(self, data: Array, requires_grad: bool) -> None:
        self.data = data
        self.requires_grad = requires_grad
        self.gradient_fn: Callable[[], Any] | None = None
        self.parents: Collection[Node] = ()
        self._vjp: VJP | None = None
        self._grad: Array | None = None
        self._owned = False  # 这份梯度数组是否只属于自己，可以就地累加
        self._serial = next(_serial)

    @property
    def shape(self) -> tuple[int, ...]:
        """形状。"""
        return self.data.shape

    @property
    def is_leaf(self) -> bool:
        """不由别的张量算来：参数、常量与数据。"""
        return self._vjp is None and self.gradient_fn is None

    # ---------------------------------------------------------------- 梯度

    @property
    def grad(self) -> Any:
        """梯度数组，形状与 `data` 相同；还没有梯度到达时是全零。整数张量没有梯度，为 `None`。"""
        if self._grad is None:
            if self.data.dtype.kind != "f":
                return None
            self._grad, self._owned = np.zeros_like(self.data), True
        elif not self._owned:  # 借来的数组可能别处还在用：读出来的人也许会就地修改
            self._grad, self._owned = self._grad.copy(), True
        return self._grad

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is None or value is self._grad:  # x.grad += … 读出、就地修改、再放回
            self._grad = value
            return
        array = self._as_gradient("grad", value)
        if array.shape != self.shape and not array.ndim:
            array = np.full(self.shape, array)
        self._require_shape("grad", array)
        self._grad, self._owned = array, True

    def zero_grad(self) -> None:
        """清除梯度；之后读到的 `grad` 是全零。"""
        self._grad = None

    def _as_gradient(self, name: str, value: Any) -> Array:
        """把用户给的梯度变成数组；总是复制，以后两边互不影响。"""
        try:
            return np.array(value, self.data.dtype)
        except (TypeError, ValueError) as error:
            raise DtypeError(
                f"{name}：梯度必须是数或数组，这里是 {str(value)[:60]!r}；请给出形状为 {self.shape} 的数组"
            ) from error

    def _require_shape(self, name: str, gradient: Array) -> None:
        if gradient.shape != self.data.shape:
            raise ShapeError(
                f"{name}：梯度的形状 {gradient.shape} 与张量的形状 {self.shape} 不同；"
                "请检查反向函数，梯度要与它所对应的张量同样形状"
            )

    def _accumulate(self, dx: Array, fresh: bool) -> None:
        """累加一份梯度。第一份直接留下，不先填零；`fresh` 说明这个数组没有别人在用。"""
        self._require_shape("backward", dx)
        if dx.dtype != self.data.dtype:
            dx, fresh = dx.astype(self.data.dtype), True
        if self._grad is None:
            self._grad, self._owned = dx, fresh
        elif self._owned:
            self._grad += dx
        elif fresh:  # 借来的不能改，新来的可以
            dx += self._grad
            self._grad, self._owned = dx, True
        else:
            self._grad, self._owned = add(self._grad, dx), True

    def forget(self) -> None:
        """放掉数值，只留形状与类型：中间结果的数值没有人再用时，省下内存，反向传播照常。

        只在确知前后两个操作的反向函数都不读它时才能用；之后读到的 `data` 是只读的零。
        """
        shape, dtype = self.data.shape, self.data.dtype
        self.data = np.ndarray(shape, dtype, _ZERO, strides=(0,) * len(shape))

    # ---------------------------------------------------------------- 计算图

    def attach(self, gradient_fn: Callable[[], Any], parents: Collection[Node]) -> Self:
        """给张量接上反向函数：教程各章定义操作的办法。

        `gradient_fn` 不带参数，读自己的 `p.grad`，往各个父张量的 `x.grad` 里加。它也可以往没有列入
        `parents` 的参数里加。这样的节点从不被剪掉（`no_grad` 里除外）。

        Args:
            gradient_fn: 反向函数。
            parents: 由哪些张量算来：列表、元组或集合。

        Returns:
            张量自己。

        Raises:
            DtypeError: `parents` 不是装着张量的列表、元组或集合，或 `gradient_fn` 不能调用、要带参数。

        Examples:
            >>> x = Tensor([1.0, 2.0])
            >>> p = Tensor(x.data * x.data)
            >>> def gradient_fn():
            ...     x.grad += p.grad * 2 * x.data
            >>> p.attach(gradient_fn, {x}).backward()
            >>> x.grad
            array([2., 4.], dtype=float32)
        """
        if not callable(gradient_fn):
            raise DtypeError(f"attach：gradient_fn 必须是不带参数的函数，这里是 {gradient_fn!r}")
        if _required_arguments(gradient_fn):
            raise DtypeError(
                f"attach：gradient_fn 不能带参数，这里的 {gradient_fn.__qualname__} 要 "
                f"{_required_arguments(gradient_fn)} 个；请在函数里读结果自己的 grad，例如 p.grad"
            )
        if not _is_collection_of_nodes(parents):
            raise DtypeError(
                f"attach：parents 必须是装着张量的列表、元组或集合，这里是 {str(parents)[:60]}；"
                "只有一个时请写 [x]"
            )
        if is_grad_enabled():
            self.gradient_fn, self.parents, self._vjp = gradient_fn, parents, None
            self.requires_grad = self.data.dtype.kind == "f"
        else:
            self.requires_grad = False
        return self

    def record(self, parents: tuple[Node, ...], vjp: VJP) -> Self:
        r"""记下一个操作：库里所有操作都由它定义。

        Args:
            parents: 参与计算的张量。
            vjp: 向量–雅可比积（vector–Jacobian product）：收到结果的梯度 $\mathrm{d}y$，按 `parents` 的次序各返回一份
                梯度或 `None`。返回的数组归引擎所有：除了 `dy` 本身和视图，不能是别处还要用的数组；也不能改动 `dy`。
                它不能引用结果张量，否则成为循环引用，不再使用的图就不能立即释放。

        Returns:
            张量自己；没有父张量需要梯度，或在 `no_grad` 里，就什么也不记。
        """
        if is_grad_enabled() and any(p.requires_grad for p in parents):
            self.parents, self._vjp, self.requires_grad = parents, vjp, True
        else:
            self.requires_grad = False
        return self

    def backward(self, gradient: Any = None) -> None:
        """从这个张量出发，算出图中每个张量的梯度，累加到它们的 `grad`。

        图随用随拆：一个节点的梯度传回之后，它保存的中间结果立即释放。

        Args:
            gradient: 这个张量自己的梯度；默认全 1（对它所有元素之和求导）。

        Raises:
            GraphError: 张量不需要梯度、图已经用过，或者图中有环。
            ShapeError: `gradient` 的形状与张量不同。
        """
        if not self.requires_grad:
            raise GraphError(
                "backward：这个张量不需要梯度（整数、常量，或在 no_grad 里算出）；"
                "请在 no_grad 之外，由 requires_grad=True 的浮点张量算出它"
            )
        if gradient is None:
            seed = np.ones_like(self.data)
        else:
            seed = self._as_gradient("backward", gradient)
            self._require_shape("backward", seed)
        order = _topological_order(self)
        self._accumulate(seed, fresh=True)
        while order:
            order.pop()._propagate()

    def _propagate(self) -> None:
        """把自己的梯度传给父张量，并放掉图的这一段。"""
        if self.gradient_fn is not None:
            gradient_fn, self.gradient_fn, self.parents, self._vjp = (
                self.gradient_fn,
                None,
                (),
                _freed,
            )
            gradient_fn()
            return
        vjp, parents, dy = self._vjp, self.parents, self._grad
        if vjp is None:
            return
        self.parents, self._vjp = (), _freed
        if dy is None:  # 没有梯度到达，后面都是零
            return
        # 0 维数组的运算给出的是 NumPy 标量
        given = vjp(dy)
        if isinstance(given, np.ndarray) or len(given) != len(parents):
            raise GraphError(
                f"record：有 {len(parents)} 个父张量，反向函数却没有返回这么多份梯度；"
                "请按 parents 的次序返回元组，不需要的写 None，只有一份时写 (dx,)"
            )
        gradients = [dx if dx is None else np.asarray(dx) for dx in given]
        owners = [dx if dx is None or is_owner(dx) else dx.base for dx in gradients]
        uses = [id(dy), *map(id, owners)]  # 不止一处在用的数组，在这里出现不止一次
        for parent, dx, owner in zip(parents, gradients, owners, strict=True):
            if dx is not None and parent.requires_grad:
                fresh = dx is owner and uses.count(id(dx)) == 1
                if not fresh and np.may_share_memory(dx, dy):
                    self._owned = False  # 自己的梯度也借出去了
                parent._accumulate(dx, fresh)


def _required_arguments(function: Any) -> int:
    """函数有几个必须给的位置参数；看不出来时算 0。"""
    code = getattr(function, "__code__", None)
    if code is None:
        return 0
    bound = getattr(function, "__self__", None) is not None
    return max(0, code.co_argcount - len(function.__defaults__ or ()) - bound)


def _is_collection_of_nodes(parents: Any) -> bool:
    if not isinstance(parents, list | tuple | set | frozenset):
        return False
    return all(isinstance(p, Node) for p in cast("Collection[object]", parents))


def _topological_order(root: Node) -> list[Node]:
    """深度优先、不用递归的拓扑排序：父节点在前，`root` 在最后。两万个操作的长链也不会溢出栈。"""
    order: list[Node] = []
    open_: set[int] = {id(root)}  # 已经进入、还没有离开的节点
    closed: set[int] = set()
    stack = [(root, _parents(root))]
    while stack:
        node, pending = stack[-1]
        for parent in pending:
            if parent.is_leaf:
                continue
            key = id(parent)
            if key in open_:
                raise GraphError("backward：计算图里有环：某个张量直接或间接地成了自己的父张量")
            if key not in closed:
                open_.add(key)
                stack.append((parent, _parents(parent)))
                break
        else:
            stack.pop()
            open_.discard(id(node))
            closed.add(id(node))
            order.append(node)
    return order


def _parents(node: Node) -> Iterator[Node]:
    """节点的父节点；集合没有固定的次序，按创建的先后排好，使累加的次序（因而每一位）可以重复。"""
    if node._vjp is _freed and node.gradient_fn is None:  # pyright: ignore[reportPrivateUsage]
        _freed(node.data)
    if isinstance(node.parents, set | frozenset):
        return iter(sorted(node.parents, key=lambda p: p._serial))  # pyright: ignore[reportPrivateUsage]
    return iter(node.parents)
