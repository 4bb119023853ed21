r"""张量：带自动求导的多维数组

每个运算都由 `record` 记下“怎样把结果的梯度变成各个输入的梯度”。公式本身在
[`gptcore.kernels`][gptcore.kernels] 里；梯度怎样在图中流动，见 [`gptcore.graph`][gptcore.graph]。
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from gptcore.errors import DtypeError, GraphError, RangeError, ShapeError
from gptcore.graph import Node, is_grad_enabled, no_grad
from gptcore.kernels import arithmetic as ar
from gptcore.kernels import convert
from gptcore.kernels.array import Array
from gptcore.kernels.matmul import matmul_backward
from gptcore.protocols import NumPyProtocols

__all__ = ["DTYPE", "Tensor", "is_grad_enabled", "no_grad"]

Axis = int | Sequence[int] | None

DTYPE = np.float32
"""Python 数与列表变成张量时用的类型。"""


class Tensor(NumPyProtocols):
    """带梯度的多维数组。

    列表与 Python 数变成 `DTYPE`（float32）；NumPy 数组保持自己的类型，也不复制；`range` 变成 int64。
    浮点数只有 float32 与 float64：float16 的和与平方很快就溢出，请先 `astype(np.float32)`。
    整数张量保持整数，不参与求导。整数列表虽然变成浮点数，仍可以当词元编号或标签用（`integral` 为真）。
    `==` 比的是“是不是同一个张量”，比数值请用 `x.data`。

    Args:
        data: 数、（嵌套的）列表、`range` 或 NumPy 数组。
        requires_grad: 是否需要梯度；默认浮点张量需要，常量请写 `requires_grad=False`。

    Attributes:
        data: 数值，NumPy 数组。
        grad: 梯度；没有梯度到达时是全零。
        gradient_fn: 由 `attach` 给出的反向函数；没有则为 `None`。
        parents: 由哪些张量算来。
        requires_grad: 是否需要梯度。
        integral: 数值是否来自整数。

    Raises:
        DtypeError: `data` 不是数，是别的浮点类型，或者要求整数张量有梯度。

    Examples:
        >>> x = Tensor(1.0)
        >>> h = x * 2
        >>> y = h * 3 + h * 5
        >>> y.backward()
        >>> x.grad
        array(16., dtype=float32)

    教程：第 1 章 张量与计算图，第 2 章 反向传播。
    """

    view_of: Tensor | None = None  # 由 rows 得到的视图，指向原来的张量

    def __init__(self, data: Any, requires_grad: bool | None = None) -> None:
        if type(data) is np.ndarray and data.dtype.char in convert.FLOATS:  # 每个操作的结果
            super().__init__(data, requires_grad is not False)
            self.integral = False
            return
        if isinstance(data, Node):
            raise DtypeError("Tensor：已经是张量了；要一份不连计算图的，请用 detach()")
        if isinstance(data, list | tuple) and _holds_tensor(data):
            raise DtypeError(
                "Tensor：列表里有张量，变成新的张量会切断计算图；要加起来请写 a + b，只要数值请取各自的 .data"
            )
        array, integral = convert.to_array(data, DTYPE)
        floating = array.dtype.kind == "f"
        if requires_grad and not floating:
            raise DtypeError(
                f"Tensor：类型为 {array.dtype} 的数据不能求导；请先转换，例如 array.astype(np.float32)"
            )
        super().__init__(array, floating and requires_grad is not False)
        self.integral = integral

    @staticmethod
    def no_grad() -> Any:
        """同 [`no_grad`][gptcore.no_grad]：`with Tensor.no_grad(): …`"""
        return no_grad()

    # ---------------------------------------------------------------- 数值

    @property
    def ndim(self) -> int:
        """轴的个数。"""
        return self.data.ndim

    @property
    def size(self) -> int:
        """元素个数。"""
        return self.data.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """元素类型。"""
        return self.data.dtype

    def numpy(self) -> Array:
        """数值数组本身，不复制。"""
        return self.data

    def detach(self) -> Tensor:
        """同一份数值，不连计算图，不需要梯度。"""
        return self._same(Tensor(self.data, requires_grad=False))

    def _same(self, other: Tensor) -> Tensor:
        """同样的数值换了形状或位置：由整数来的，仍可以当编号用。"""
        other.integral = self.integral
        return other

    def rows(self, start: int, stop: int) -> Tensor:
        """第 `start` 到 `stop` 行的视图：数值与梯度都和原张量共用，改一个，另一个也变。

        用来给一个大参数的各段起名字，例如合并的查询、键、值矩阵。
        """
        given: tuple[Any, Any] = start, stop
        whole = all(isinstance(i, int | np.integer) for i in given)
        if not self.is_leaf or not self.ndim or not whole or not 0 <= start <= stop <= len(self):
            raise ShapeError(
                f"rows：要的是参数的第 {start} 到 {stop} 行，这里的形状是 {self.shape}；"
                "行号要是范围之内的整数；由别的张量算出来的，请用下标 x[start:stop]"
            )
        return _Rows(self, start, stop)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return self._same(Tensor(self.data.copy(), self.requires_grad))

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.is_leaf:
            raise GraphError("pickle：张量还连着计算图，不能序列化；请先 detach()")
        return _restore, (self.data, self.requires_grad, self.integral)

    # ---------------------------------------------------------------- 二元运算

    def __add__(self, other: Any) -> Tensor:
        a, b, x, y = _pair(self, other, "加法 +")
        left, right = x.shape, y.shape  # 反向不用数值，不必留着
        return Tensor(ar.add(x, y)).record(
            (a, b), lambda dy: (ar.unbroadcast(dy, left), ar.unbroadcast(dy, right))
        )

    def __sub__(self, other: Any) -> Tensor:
        a, b, x, y = _pair(self, other, "减法 -")
        return Tensor(x - y).record(
            (a, b),
            lambda dy: (
                ar.unbroadcast(dy, x.shape),
                -ar.unbroadcast(dy, y.shape) if b.requires_grad else None,
            ),
        )

    def __mul__(self, other: Any) -> Tensor:
        a, b, x, y = _pair(self, other, "乘法 *")
        return Tensor(x * y).record(
            (a, b),
            lambda dy: (
                ar.unbroadcast(dy * y, x.shape) if a.requires_grad else None,
                ar.unbroadcast(dy * x, y.shape) if b.requires_grad else None,
            ),
        )

    def __truediv__(self, other: Any) -> Tensor:
        a, b, x, y = _pair(self, other, "除法 /")
        if x.dtype.kind != "f":  # 整数相除得到小数
            x, y = x.astype(DTYPE), y.astype(DTYPE)
        return Tensor(x / y).record(
            (a, b),
            lambda dy: (
                ar.unbroadcast(dy / y, x.shape) if a.requires_grad else None,
                # 先除后乘：y 很大或很小时，y * y 会溢出或变成零
                ar.unbroadcast(-dy * (x / y) / y, y.shape) if b.requires_grad else None,
            ),
        )

    def __matmul__(self, other: Any) -> Tensor:
        b = _constant(other, self.data)
        x, y = convert.unify(self.data, b.data)
        rows, columns = x.shape[-1:], y.shape[-2:][:1] if y.ndim else ()
        if rows != columns or not rows or not convert.broadcastable(x.shape[:-2], y.shape[:-2]):
            raise ShapeError(
                f"矩阵乘法 @：形状 {x.shape} 与 {y.shape} 不能相乘；"
                "左边的最后一轴要与右边的倒数第二轴等长，前面各轴要能广播，例如 (4, 3) @ (3, 2)"
            )
        return Tensor(x @ y).record((self, b), lambda dy: matmul_backward(dy, x, y))

    def __pow__(self, exponent: Any) -> Tensor:
        n = convert.to_exponent(exponent)
        x = self._whole() if n >= 0 and isinstance(n, int) else self._floats()
        return Tensor(ar.power_forward(x, n)).record(
            (self,), lambda dy: (ar.power_backward(dy, x, n),)
        )

    def __neg__(self) -> Tensor:
        return Tensor(-self._whole()).record((self,), lambda dy: (-dy,))

    def __radd__(self, other: Any) -> Tensor:
        return self + other

    def __rmul__(self, other: Any) -> Tensor:
        return self * other

    def __rsub__(self, other: Any) -> Tensor:
        return _constant(other, self.data) - self

    def __rtruediv__(self, other: Any) -> Tensor:
        return _constant(other, self.data) / self

    def __rmatmul__(self, other: Any) -> Tensor:
        return _constant(other, self.data) @ self

    # ---------------------------------------------------------------- 逐元素函数

    def _floats(self) -> Array:
        """数值；整数的函数值是小数，先变成 `DTYPE`。"""
        return self.data if self.dtype.kind == "f" else self.data.astype(DTYPE)

    def _whole(self) -> Array:
        """数值；整数变成 int64，窄的类型一乘方、一变号就装不下了。"""
        return self.data if self.dtype.kind == "f" else convert.to_int64(self.data)

    def exp(self) -> Tensor:
        r"""$y = e^x$，$\mathrm{d}x = y\,\mathrm{d}y$"""
        y = np.exp(self._floats())
        return Tensor(y).record((self,), lambda dy: (dy * y,))

    def log(self) -> Tensor:
        r"""$y = \ln x$，$\mathrm{d}x = \mathrm{d}y / x$"""
        x = self._floats()
        return Tensor(np.log(x)).record((self,), lambda dy: (dy / x,))

    def sqrt(self) -> Tensor:
        r"""$y = \sqrt x$，$\mathrm{d}x = \mathrm{d}y / 2y$"""
        y = np.sqrt(self._floats())
        return Tensor(y).record((self,), lambda dy: (dy / (y + y),))

    def tanh(self) -> Tensor:
        r"""$y = \tanh x$，$\mathrm{d}x = (1 - y^2)\,\mathrm{d}y$"""
        y = np.tanh(self._floats())
        return Tensor(y).record((self,), lambda dy: (dy * (1 - y * y),))

    # ---------------------------------------------------------------- 归约

    def sum(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """沿 `axis` 求和；反向传播把梯度原样摊给每个元素。"""
        shape, axis = self.shape, convert.reduced_axes("sum", axis, self.shape)
        y = self.data.sum(axis, keepdims=keepdims)
        return Tensor(y).record((self,), lambda dy: (ar.spread(dy, shape, axis, keepdims),))

    def mean(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """沿 `axis` 求平均；反向传播把梯度除以元素个数，摊给每个元素。"""
        axis = convert.reduced_axes("mean", axis, self.shape)
        n = ar.reduced_count(self.shape, axis)
        if not n:
            raise ShapeError(f"mean：没有元素可以平均，形状 {self.shape}，轴 {axis}")
        return self.sum(axis, keepdims) / n

    def max(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """沿 `axis` 取最大值；梯度流向取得最大值的元素，并列时平分。"""
        x, axis = self.data, convert.reduced_axes("max", axis, self.shape)
        if not ar.reduced_count(x.shape, axis):
            raise ShapeError(f"max：没有元素可以比较，形状 {self.shape}，轴 {axis}")
        y = np.asarray(x.max(axis, keepdims=keepdims))
        return Tensor(y).record((self,), lambda dy: (ar.max_backward(dy, x, y, axis, keepdims),))

    # ---------------------------------------------------------------- 形状

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """换一个形状看同样的元素；一处 -1 表示由其余各轴推出。写 `reshape(2, 3)` 或 `reshape((2, 3))`。"""
        old = self.shape
        new: Any = shape[0] if len(shape) == 1 else shape
        try:
            y = self.data.reshape(new)
        except (ValueError, TypeError) as error:
            raise ShapeError(
                f"reshape：形状 {old} 有 {self.size} 个元素，不能变成 {convert.brief(new)}；"
                "两边的元素个数要相同，-1 至多一处"
            ) from error
        return self._same(Tensor(y).record((self,), lambda dy: (dy.reshape(old),)))

    def transpose(self, *axes: int | Sequence[int]) -> Tensor:
        """按 `axes` 重排各轴；不给时倒过来。写 `transpose(0, 2, 1)` 或 `transpose((0, 2, 1))`。"""
        order = convert.permutation(axes[0] if len(axes) == 1 else axes, self.shape)
        inverse = np.argsort(order)
        y = Tensor(self.data.transpose(order))
        return self._same(y.record((self,), lambda dy: (dy.transpose(inverse),)))

    @property
    def T(self) -> Tensor:  # noqa: N802
        """各轴倒序；矩阵的转置。"""
        return self.transpose()

    def __getitem__(self, index: Any) -> Tensor:
        shape = self.shape
        try:
            index = convert.plain_index(index)
            y = np.asarray(self.data[index])
        except (IndexError, TypeError, ValueError) as error:
            raise RangeError(
                f"取下标：形状 {shape} 的张量没有下标 {convert.brief(index)}；"
                "每一轴的下标必须是范围内的整数、切片或整数数组"
            ) from error
        y = Tensor(y).record((self,), lambda dy: (ar.getitem_backward(dy, shape, index),))
        return self._same(y)

    def astype(self, dtype: Any) -> Tensor:
        """换一种元素类型；浮点类型之间，梯度照常传回。"""
        source = self.dtype
        y = Tensor(self.data.astype(convert.to_dtype("astype", dtype)))
        if y.dtype.kind != "f":
            return y
        return self._same(y.record((self,), lambda dy: (dy.astype(source),)))


class _Rows(Tensor):
    """[`Tensor.rows`][gptcore.Tensor.rows] 的结果：数值与梯度都是原张量的视图。"""

    def __init__(self, base: Tensor, start: int, stop: int) -> None:
        self._base = self.view_of = base
        self._slice = slice(start, stop)
        super().__init__(base.data[self._slice], base.requires_grad)

    @property
    def data(self) -> Array:
        """原张量数值的相应几行。"""
        return self._base.data[self._slice]

    @data.setter
    def data(self, value: Array) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._base.data[self._slice] = value

    @property
    def grad(self) -> Any:
        """原张量梯度的相应几行。"""
        grad = self._base.grad
        return None if grad is None else grad[self._slice]

    @grad.setter
    def grad(self, value: Any) -> None:
        self._base.grad[self._slice] = 0 if value is None else value

    def zero_grad(self) -> None:
        """把原张量梯度的相应几行清零。"""
        self.grad = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return _Rows(deepcopy(self._base, memo), self._slice.start, self._slice.stop)

    def _accumulate(self, dx: Array, fresh: bool) -> None:  # noqa: ARG002
        self._base.grad[self._slice] += dx


def _holds_tensor(data: Any) -> bool:
    """列表里有没有张量；嵌套的看每一层的第一个。"""
    return any(isinstance(v, Node) for v in data) or (
        bool(data) and isinstance(data[0], list | tuple) and _holds_tensor(data[0])
    )


def _restore(data: Array, requires_grad: bool, integral: bool) -> Tensor:
    tensor = Tensor(data, requires_grad)
    tensor.integral = integral
    return tensor


def _constant(value: Any, like: Array) -> Tensor:
    """把运算的另一方变成张量；Python 数、列表与 0 维数组跟随对方的浮点类型，NumPy 数组保持自己的类型。"""
    if isinstance(value, Tensor):
        return value
    return Tensor(convert.to_operand(value, like.dtype, DTYPE), requires_grad=False)


def _pair(a: Tensor, other: Any, name: str) -> tuple[Tensor, Tensor, Array, Array]:
    """二元运算的两个张量，与统一类型之后的两个数组。"""
    b = _constant(other, a.data)
    x, y = convert.unify(a.data, b.data)
    if x.shape != y.shape and not convert.broadcastable(x.shape, y.shape):
        raise ShapeError(
            f"{name}：形状 {x.shape} 与 {y.shape} 不能广播；从最后一轴往前对齐，每一轴要么等长，要么有一个是 1"
        )
    return a, b, x, y
