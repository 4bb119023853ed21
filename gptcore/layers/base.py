"""层的基类与组合"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from reprlib import recursive_repr
from textwrap import indent
from typing import Any, Self, cast

from gptcore.errors import DtypeError
from gptcore.kernels.array import Array
from gptcore.kernels.convert import to_dtype
from gptcore.layers.state import load_state
from gptcore.layers.summary import summarize
from gptcore.tensor import Tensor, no_grad


class Layer(ABC):
    """层：有参数的函数。子类只需定义 `forward`。

    参数由属性里找：凡是需要梯度的浮点张量、子层，以及装着它们的列表、元组与字典，按定义的次序，每个张量只算一次。
    不想被训练的写 `requires_grad=False`：它不是参数，仍是状态的一部分，照样保存与读回。
    子类不必调用 `super().__init__()`。

    Examples:
        >>> class Scale(Layer):
        ...     def __init__(self):
        ...         self.weight = Tensor([2.0])
        ...
        ...     def forward(self, x):
        ...         return x * self.weight
        >>> Scale()(Tensor([1.0, 3.0]))
        Tensor([2., 6.])

    教程：第 3 章 线性层与激活。
    """

    training: bool = True
    """是否处于训练模式；只有随机失活这样的层会区别对待。"""

    decays: bool = True
    """这一层的矩阵要不要权重衰减；嵌入与归一化不要。"""

    @abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """由输入算出输出；调用层就是调用它。"""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """同 `forward`。"""
        return self.forward(*args, **kwargs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "forward" in vars(cls) and "infer" not in vars(cls):  # 继承来的 infer 不知道新的 forward
            cls.infer = Layer.infer  # pyright: ignore[reportAttributeAccessIssue]

    def infer(self, x: Array) -> Array:
        """推理：数组进，数组出，不建张量，也不作随机失活；结果与评估模式下的 `forward` 相同。

        逐个词元地生成时，小模型一步的计算只有几十微秒，建张量的时间与它相当。库里的层都改写了它，
        直接调用核函数；只定义了 `forward` 的层就由 `forward` 来算。

        Args:
            x: 浮点数组，形状同 `forward`；调用者已经检查过。

        Returns:
            结果的数组。
        """
        with no_grad():
            return self.forward(Tensor(x, requires_grad=False)).data

    @recursive_repr("…")
    def __repr__(self) -> str:
        members = list(_members(self))
        own = [f"{name} {value.shape}" for name, value in members if isinstance(value, Tensor)]
        inner = [f"{name}: {value!r}" for name, value in members if isinstance(value, Layer)]
        if not inner:
            return f"{type(self).__name__}({', '.join(own)})"
        body = indent("\n".join(own + inner), "  ")
        return f"{type(self).__name__}(\n{body}\n)"

    # ---------------------------------------------------------------- 参数

    @property
    def parameters(self) -> list[Tensor]:
        """所有参数，每个张量一次。子类可以改写它，自己说出哪些是参数。"""
        return [tensor for _, tensor in _unique(self._walk("", set()))]

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """参数的名字与张量；名字由属性名用点连成，例如 `transformers.0.attention.output.weight`。"""
        return _unique(self._named(prefix, set()))

    def _named(self, prefix: str, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
        """自己的参数与名字；子类改写了 `parameters` 时以它为准，属性里找不到的用序号作名字。"""
        if _finds_parameters(self):
            yield from self._walk(prefix, seen)
            return
        names = {id(t): name for name, t in self._walk(prefix, seen)}
        for i, tensor in enumerate(self.parameters):
            yield names.get(id(tensor), f"{prefix}{i}"), tensor

    def _walk(self, prefix: str, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
        """由属性找参数；`seen` 里的层已经走过，共用的层、指回上层的引用都只走一次。"""
        seen.add(id(self))
        for name, value in _members(self):
            if isinstance(value, Tensor):
                if value.requires_grad:
                    yield prefix + name, value
            elif id(value) not in seen:
                yield from value._named(f"{prefix}{name}.", seen)

    def _named_state(self) -> list[tuple[str, Tensor]]:
        """状态：属性里的浮点张量，不论训练与否，与另外说出的参数；共用的张量，每个名字都列出。"""
        floats = [(name, tensor) for name, _, tensor in self._owned_floats("", set())]
        return [*floats, *self.named_parameters()]

    def _owned_floats(self, prefix: str, seen: set[int]) -> Iterator[tuple[str, Layer, Tensor]]:
        """属性里的浮点张量：名字、拿着它的层与张量。"""
        seen.add(id(self))
        for name, value in _members(self):
            if isinstance(value, Tensor):
                if value.dtype.kind == "f":
                    yield prefix + name, self, value
            elif id(value) not in seen:
                yield from value._owned_floats(f"{prefix}{name}.", seen)

    @property
    def num_parameters(self) -> int:
        """参数的总个数。"""
        return sum(p.size for p in self.parameters)

    def summary(self) -> str:
        """参数一览：名字、所在的层、形状、个数与占用的内存，最后是合计。

        冻结的张量与共用的张量都在备注里写明；共用的只计一次，与 `num_parameters` 相同。

        Returns:
            对齐的文字表，汉字占两格，用 `print` 写出。

        Examples:
            >>> from gptcore import Linear, ReLU
            >>> print(Sequential([Linear(3, 20), ReLU(), Linear(20, 2)]).summary())
            Sequential
            名字             层      形状     个数   内存
            ─────────────────────────────────────────────
            layers.0.weight  Linear  (20, 3)    60  240 B
            layers.0.bias    Linear  (20,)      20   80 B
            layers.2.weight  Linear  (2, 20)    40  160 B
            layers.2.bias    Linear  (2,)        2    8 B
            ─────────────────────────────────────────────
            合计 122 个参数，都可训练；488 B
        """
        rows = [(n, type(owner).__name__, t) for n, owner, t in self._owned_floats("", set())]
        known = {id(tensor) for _, _, tensor in rows}
        named = list(self.named_parameters())
        rows += [(n, type(self).__name__, t) for n, t in named if id(t) not in known]
        return summarize(type(self).__name__, rows, {id(tensor) for _, tensor in named})

    def parameter_groups(self, weight_decay: float = 0.01) -> list[dict[str, Any]]:
        """把参数分成衰减与不衰减两组，交给优化器。

        矩阵衰减；偏置、归一化与嵌入不衰减：它们不是“输入的加权”，缩小它们并不使函数更简单。

        Args:
            weight_decay: 衰减的那一组用的权重衰减。

        Returns:
            参数组的列表，例如 `AdamWOptimizer(model.parameter_groups(0.1))`。
        """
        plain = {
            id(value)
            for layer in self.sublayers()
            if not layer.decays
            for _, value in _members(layer)
        }
        groups: tuple[list[Tensor], list[Tensor]] = [], []
        for p in self.parameters:
            groups[p.ndim < 2 or id(p) in plain].append(p)
        return [
            {"parameters": groups[0], "weight_decay": weight_decay},
            {"parameters": groups[1], "weight_decay": 0.0},
        ]

    def sublayers(self) -> Iterator[Layer]:
        """自己与所有子层，先自己、后子层，各一次。"""
        return (layer for _, layer in self.named_sublayers())

    def named_sublayers(self) -> Iterator[tuple[str, Layer]]:
        """自己与所有子层，连同名字，先自己、后子层，各一次；自己的名字是空的，子层的由属性名用点连成。"""
        seen: set[int] = set()
        pending: list[tuple[str, Layer]] = [("", self)]
        while pending:
            name, layer = pending.pop()
            if id(layer) not in seen:
                seen.add(id(layer))
                yield name, layer
                prefix = f"{name}." if name else ""
                inner = [(prefix + n, v) for n, v in _members(layer) if isinstance(v, Layer)]
                pending += inner[::-1]

    def state_dict(self) -> dict[str, Array]:
        """所有浮点张量的名字与数组（不复制），冻结的也在内；共用的张量只列一次，用它的第一个名字。"""
        return {name: tensor.data for name, tensor in _unique(self._named_state())}

    def load_state_dict(
        self,
        state: Mapping[str, Array],
        strict: bool = True,
        *,
        assign: bool = False,
        copy: bool = True,
    ) -> None:
        """把数组的值写进同名的张量。

        Args:
            state: 名字与数组，形状要与张量相同；写入时转换成张量的类型。共用的张量给出任意一个名字即可。
            strict: 是否要求名字恰好一致；否则缺少的不动，多出的不理。
            assign: 用数组的副本代替张量原来的数组，类型随数组；用于
                [`without_values`][gptcore.layers.initial.without_values] 里建立的层。
            copy: `assign` 时是否复制；否则直接用给出的数组，以后改动一个，另一个也变，只读的仍要复制。

        Raises:
            ShapeError: 有张量缺少、多出、形状不符，或者同一个张量的两个名字数值不同；
                消息逐个列出，此时什么也没有写入。
            DtypeError: 给出的不是数；`assign` 时不是 float32 或 float64。
        """
        named = self._named_state()
        load_state(list(_unique(named)), dict(named), state, strict, assign, copy)

    def astype(self, dtype: Any) -> Self:
        """就地转换所有浮点张量的类型，例如梯度检查用的 `np.float64`；返回自己。"""
        dtype = to_dtype("astype", dtype)
        if dtype.kind != "f":
            raise DtypeError(
                f"astype：参数只能是浮点类型，这里是 {dtype}；请写 np.float32 或 np.float64"
            )
        for _, p in _unique(self._named_state()):
            p.data = p.data.astype(dtype)
            p.zero_grad()
        return self

    # ---------------------------------------------------------------- 模式

    def train(self) -> Self:
        """进入训练模式，子层也一样。"""
        return self._set_training(True)

    def eval(self) -> Self:
        """进入评估模式，子层也一样。"""
        return self._set_training(False)

    @contextmanager
    def evaluating(self) -> Generator[None]:
        """在一段代码里处于评估模式，离开时（包括出错时）各层恢复各自原来的模式。"""
        modes = [(layer, layer.training) for layer in self.sublayers()]
        self.eval()
        try:
            yield
        finally:
            for layer, training in modes:
                layer.training = training

    def _set_training(self, training: bool) -> Self:
        name, done = "train" if training else "eval", set[int]()
        for layer in self.sublayers():
            if id(layer) in done:
                continue
            if layer is self or getattr(type(layer), name) is getattr(Layer, name):
                layer.training = training
            else:  # 子类改写了 train 或 eval：它和它的子层由它说了算
                getattr(layer, name)()
                done.update(id(inner) for inner in layer.sublayers())
        return self


class Composite(Layer):
    """由若干层组成的层：参数与模式都来自它们。子类定义 `forward`。

    Args:
        layers: 组成它的各层，写成列表。

    Raises:
        DtypeError: 不是列表，或者其中有的不是层。
    """

    def __init__(self, layers: Iterable[Layer] = (), *more: Layer) -> None:
        name, given = type(self).__name__, cast("Any", layers)
        if more or not isinstance(given, Iterable):
            raise DtypeError(
                f"{name}：各层要写成一个列表，例如 {name}([Linear(3, 2), ReLU()])，"
                f"这里是 {type(given).__name__}"
            )
        self.layers = list(layers)
        for i, layer in enumerate(cast("list[Any]", self.layers)):
            if isinstance(layer, type) or not callable(layer):
                remedy = f"请写 {layer.__name__}(…)" if isinstance(layer, type) else "请给出层"
                raise DtypeError(f"{name}：第 {i} 项不是层，而是 {str(layer)[:60]}；{remedy}")


class Sequential(Composite):
    """依次通过各层，前一层的输出是后一层的输入。

    Args:
        layers: 各层，按先后次序。
    """

    def forward(self, x: Tensor) -> Tensor:
        """依次通过各层。"""
        for layer in self.layers:
            x = layer(x)
        return x


def _members(layer: Layer) -> Iterator[tuple[str, Any]]:
    """一个层的属性里的张量与子层，连同列表、元组、字典里的。"""
    pending: list[tuple[str, Any]] = list(vars(layer).items())[::-1]
    while pending:
        name, value = pending.pop()
        if isinstance(value, Tensor | Layer):
            yield name, value
        elif isinstance(value, list | tuple):
            pending += [(f"{name}.{i}", v) for i, v in enumerate(value)][::-1]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        elif isinstance(value, dict):
            pending += [(f"{name}.{k}", v) for k, v in value.items()][::-1]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _unique(named: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """每个张量只留第一次出现；视图的原张量也在其中时，视图不算。"""
    found = list(named)
    seen: set[int] = set()
    whole = {id(tensor) for _, tensor in found}
    for name, tensor in found:
        if id(tensor) not in seen and id(tensor.view_of) not in whole:
            seen.add(id(tensor))
            yield name, tensor


def _finds_parameters(layer: Layer) -> bool:
    """参数是由属性里找，还是子类自己说了哪些是参数。"""
    return all("parameters" not in vars(c) for c in type(layer).__mro__ if c is not Layer)
