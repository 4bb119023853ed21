"""张量与 NumPy、与 Python 内置函数的相处

`np.asarray(x)` 得到数值；`np.float32(2) * x` 与 `x * np.float32(2)` 一样连着计算图。其余的 NumPy 函数不认识计算图，
悄悄算出的数组没有梯度，所以一律报错，并说明该怎么写。
"""

from typing import Any, NoReturn

import numpy as np

from gptcore.errors import DtypeError, ShapeError
from gptcore.graph import Node
from gptcore.kernels.array import Array

_REFLECTED = {
    np.add: "__radd__",
    np.subtract: "__rsub__",
    np.multiply: "__rmul__",
    np.true_divide: "__rtruediv__",
    np.matmul: "__rmatmul__",
}
"""左边是 NumPy 数组或标量时，交给张量自己的运算"""


class NumPyProtocols(Node):
    """`Tensor` 的一部分：各种 `__双下划线__` 约定。"""

    def item(self) -> Any:
        """只有一个元素的张量的值，作为 Python 数。"""
        if self.data.size != 1:
            raise ShapeError(f"item：只能用于恰有一个元素的张量，这里的形状是 {self.shape}")
        return self.data.item()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self.data if dtype is None else self.data.astype(dtype, copy=False)
        return array.copy() if copy else array

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        name = _REFLECTED.get(ufunc)
        if name and method == "__call__" and not kwargs and inputs[1] is self:
            return getattr(self, name)(inputs[0])
        return self._refuse(ufunc.__name__)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        del types, args, kwargs
        return self._refuse(func.__name__)

    def _refuse(self, name: str) -> NoReturn:
        own = f"请写 x.{name}(…)；" if hasattr(self, name) else ""
        raise DtypeError(
            f"np.{name}：不能用于张量，NumPy 不认识计算图，结果会没有梯度；{own}"
            f"只要数值请写 np.{name}(x.data)"
        )

    def __float__(self) -> float:
        if self.data.size != 1:
            raise ShapeError(
                f"float：只有一个元素的张量才能当作一个数，这里的形状是 {self.shape}；"
                "math 里的函数请换成张量自己的，例如 x.exp()"
            )
        return float(self.data.item())

    def __len__(self) -> int:
        if not self.data.ndim:
            raise DtypeError("len：0 维张量没有长度；要它的值请用 item()")
        return len(self.data)

    def __bool__(self) -> bool:
        if self.data.size != 1:
            raise ShapeError(
                f"if：形状 {self.shape} 的张量不能当作真或假；"
                "请写 x.data.any()、x.data.all()，要判断有没有张量请写 x is not None"
            )
        return bool(self.data.item())

    def __repr__(self) -> str:
        if not self.data.ndim:
            return f"Tensor({self.data!s})"
        text = np.array2string(self.data, separator=", ", prefix="Tensor(", threshold=200)
        return f"Tensor({text}, shape={self.shape})" if self.data.size > 200 else f"Tensor({text})"

    def __format__(self, spec: str) -> str:
        return format(self.data.item(), spec) if spec and self.data.size == 1 else str(self)

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise DtypeError(
            "张量不能按下标赋值：已经算出的结果会与计算图对不上；改参数的数值请写 x.data[…] = …"
        )
