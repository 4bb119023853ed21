r"""检查梯度：反向传播的结果与有限差分对照

沿方向 $v$ 挪动一个张量，输出 $L$ 的变化率应等于梯度与 $v$ 的内积。变化率用五点公式算，误差是步长 $h$ 的四次方：

$$\sum_i v_i\,\mathrm{d}x_i \approx \frac{L(x-2hv) - 8L(x-hv) + 8L(x+hv) - L(x+2hv)}{12h}$$

公式的来源：Abramowitz 与 Stegun 1964，*Handbook of Mathematical Functions*，表 25.2。
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from gptcore.errors import ArgumentError, DtypeError
from gptcore.kernels.array import Array
from gptcore.kernels.convert import brief
from gptcore.layers import Layer
from gptcore.tensor import Tensor

STEPS = (1e-3, 1e-4, 1e-5)
"""步长；弯曲厉害的函数要更小的，所以依次试，取最接近的：梯度若是错的，哪个都不会接近"""
SMALL = 1e-3
"""比最大的梯度小这么多倍的，按这个尺度算误差：本来是零的梯度没有相对误差可言"""
ROUNDING = 16 * 2.0**-52 / STEPS[0]
"""输出的舍入误差除以步长：差分本身只准到这里"""
REPEATED = 1e-12
"""同样的输入算两遍，结果最多相差多少"""

Where = tuple[int, ...] | None
"""一个元素的下标；`None` 表示一个随机的方向，所有元素一起动"""


@dataclass(frozen=True)
class TensorGradient:
    """一个张量的梯度检查。

    Attributes:
        name: 名字。
        shape: 形状。
        checked: 查了几处：抽查的元素，加上一个随机的方向。
        error: 最大的相对误差。
        where: 误差最大的元素的下标；是随机的方向时为 `None`。
        backward: 那一处反向传播的结果。
        numeric: 那一处有限差分的结果。
    """

    name: str
    shape: tuple[int, ...]
    checked: int
    error: float
    where: Where
    backward: float
    numeric: float

    def __str__(self) -> str:
        where = "沿随机的方向" if self.where is None else f"在 {list(self.where)} 处"
        return (
            f"{self.name} {self.shape} {where}：反向传播给出 {self.backward:.6g}，"
            f"有限差分是 {self.numeric:.6g}，相对误差 {self.error:.1e}"
        )


@dataclass(frozen=True)
class GradientReport:
    """全部张量的梯度检查；`print(report)` 写出每一个。

    Attributes:
        tensors: 各个张量的结果。
        tolerance: 相对误差的上限。
    """

    tensors: tuple[TensorGradient, ...]
    tolerance: float

    @property
    def worst(self) -> TensorGradient:
        """误差最大的张量。"""
        return max(self.tensors, key=lambda t: t.error)

    @property
    def error(self) -> float:
        """最大的相对误差。"""
        return self.worst.error

    @property
    def passed(self) -> bool:
        """误差是否都不超过上限。"""
        return self.error <= self.tolerance

    @property
    def wrong(self) -> tuple[TensorGradient, ...]:
        """误差超过上限的张量。"""
        return tuple(t for t in self.tensors if t.error > self.tolerance)

    @property
    def checked(self) -> int:
        """一共查了几处。"""
        return sum(t.checked for t in self.tensors)

    def __str__(self) -> str:
        verdict = "通过" if self.passed else f"{len(self.wrong)} 个张量的梯度不对"
        lines = [f"梯度检查：{verdict}；最大相对误差 {self.error:.1e}，上限 {self.tolerance:.1e}"]
        for t in self.tensors:
            fine = f"{t.name} {t.shape}：查了 {t.checked} 处，相对误差 {t.error:.1e}"
            lines.append(f"  {fine}" if t.error <= self.tolerance else f"✗ {t}")
        return "\n".join(lines)


def check_gradients(
    function: Callable[[], Tensor],
    tensors: Layer | Mapping[str, Tensor] | Iterable[Tensor],
    *,
    samples: int = 8,
    tolerance: float = 1e-6,
    rng: np.random.Generator | None = None,
) -> GradientReport:
    """对照反向传播与有限差分：自己写的层、损失和运算，梯度对不对。

    每个张量抽查几个元素（先查反向传播给出的梯度最大与最小的），再查一个所有元素一起动的随机方向。
    输出不是一个数时，先用固定的随机系数加成一个数。

    float32 的差分只有两三位准，所以要用 float64：层先写 `layer.astype(np.float64)`，输入用 float64 数组。
    函数在折点上没有导数，输入不要恰好落在 ReLU 的 0 上。

    Args:
        function: 不带参数，每次重新算一遍输出；同样的数值要得到同样的结果。
        tensors: 要查的张量：一个层（查它的所有参数）、张量的列表，或名字到张量的字典。
        samples: 每个张量抽查几个元素；不超过这么多的，全查。
        tolerance: 相对误差的上限；相对于同一个张量最大的梯度。
        rng: 抽查用的随机数生成器；不给时每次抽查的都一样，也不动用默认的生成器。

    Returns:
        每个张量的误差，误差最大的元素与两边的值。检查之后，张量的数值复原，梯度清零。

    Raises:
        ArgumentError: 没有张量；张量是算出来的、只读的；或者 `function` 两次的结果不同。
        DtypeError: 张量或输出不是 float64，或不需要梯度。
        GraphError: 输出与这些张量都没有关系。

    Examples:
        >>> layer = Linear(3, 2).astype(np.float64)
        >>> x = Tensor(np.random.default_rng(0).normal(size=(4, 3)))
        >>> report = check_gradients(lambda: layer(x), layer)
        >>> report.passed
        True

    教程：第 1 章 张量与计算图。
    """
    if not 0 < tolerance < 1:
        raise ArgumentError(
            f"check_gradients：tolerance 必须在 0 与 1 之间，这里是 {brief(tolerance)}；通常用 1e-6"
        )
    if samples < 1:
        raise ArgumentError(
            f"check_gradients：samples 必须是正整数，这里是 {brief(samples)}；请写例如 samples=8"
        )
    named = _named(tensors)
    rng = rng or np.random.default_rng(0)
    with np.errstate(all="ignore"):
        output = _Output(function, rng)
        gradients = output.backward([t for _, t in named])
        largest = max(float(np.abs(g).max(initial=0)) for g in gradients)
        floor = max(SMALL * largest, ROUNDING * output.size / tolerance)
        return GradientReport(
            tuple(
                _check_tensor(output, name, t, g, _Limits(floor, tolerance), samples, rng)
                for (name, t), g in zip(named, gradients, strict=True)
            ),
            tolerance,
        )


class _Output:
    r"""函数的输出，用固定的随机系数 $u$ 加成一个数 $L = \sum u_i y_i$。"""

    def __init__(self, function: Callable[[], Tensor], rng: np.random.Generator) -> None:
        self._function = function
        y, again = self._compute(), self._compute()
        if y.shape != again.shape or not np.allclose(y, again, REPEATED, REPEATED, True):
            raise ArgumentError(
                "check_gradients：同样的输入，function 两次的结果不同，差分没有意义；"
                "有随机失活的层请先 layer.eval()，别的随机数请在 function 里重新给定种子"
            )
        self._u = rng.normal(size=y.shape) if y.ndim else np.ones(())
        self.size = float(np.abs(self._u * y).sum())

    def _compute(self) -> Array:
        y: Any = self._function()
        if not isinstance(y, Tensor) or y.dtype != np.float64:
            kind = y.dtype if isinstance(y, Tensor) else type(y).__name__
            raise DtypeError(
                f"check_gradients：function 要返回 float64 的张量，这里是 {kind}；"
                "层请先写 layer.astype(np.float64)，输入请用 float64 的数组"
            )
        return y.data

    def backward(self, tensors: list[Tensor]) -> list[Array]:
        """反向传播一次，返回各个张量的梯度，再清零。"""
        for t in tensors:
            t.zero_grad()
        self._function().backward(self._u)
        gradients = [cast("Array", t.grad).copy() for t in tensors]
        for t in tensors:
            t.zero_grad()
        return gradients

    def value(self) -> float:
        """现在的 $L$。"""
        return float((self._u * self._compute()).sum())


@dataclass(frozen=True)
class _Limits:
    floor: float
    tolerance: float


def _named(tensors: Any) -> list[tuple[str, Tensor]]:
    """名字与张量；不合用的在这里报错。"""
    if isinstance(tensors, Layer):
        named: list[tuple[str, Any]] = list(tensors.named_parameters())
    elif isinstance(tensors, Mapping):
        named = [(str(name), t) for name, t in cast("Mapping[Any, Any]", tensors).items()]
    elif isinstance(tensors, Iterable) and not isinstance(tensors, Tensor | np.ndarray):
        named = [(f"第 {i} 个", t) for i, t in enumerate(cast("Iterable[Any]", tensors))]
    else:
        kind = type(cast("object", tensors)).__name__
        raise DtypeError(
            f"check_gradients：tensors 要是一个层、张量的列表或字典，这里是 {kind}；"
            "只有一个张量时请写 [x]"
        )
    if not named:
        raise ArgumentError("check_gradients：没有张量可查；请给出 [x, *layer.parameters]")
    for name, t in named:
        _require_leaf(name, t)
    return named


def _require_leaf(name: str, t: Any) -> None:
    start = f"check_gradients：{name} 的"
    if not isinstance(t, Tensor):
        raise DtypeError(f"{start}类型是 {type(t).__name__}，不是张量；请写 Tensor(x)")
    if t.dtype != np.float64 or not t.requires_grad:
        wrong = "不需要梯度" if t.dtype == np.float64 else f"类型是 {t.dtype}"
        raise DtypeError(
            f"{start}{wrong}；要查的张量必须是需要梯度的 float64，层请先写 layer.astype(np.float64)"
        )
    if not t.is_leaf:
        raise ArgumentError(f"{start}值是算出来的，改动它没有意义；请给出算出它的张量")
    if not t.data.flags.writeable:
        raise ArgumentError(f"{start}数组是只读的，不能挪动；请复制一份：Tensor(array.copy())")


def _check_tensor(
    output: _Output,
    name: str,
    t: Tensor,
    gradient: Array,
    limits: _Limits,
    samples: int,
    rng: np.random.Generator,
) -> TensorGradient:
    """一个张量：逐处比较，留下误差最大的一处。"""
    scale = max(float(np.abs(gradient).max(initial=0)), limits.floor)
    worst = TensorGradient(name, t.shape, 0, 0.0, None, 0.0, 0.0)
    places = _places(gradient, samples, rng)
    for where, direction in places:
        expected = float((gradient * direction).sum())
        error, numeric = _compare(output, t, direction, expected, scale, limits.tolerance)
        if error > worst.error or not worst.checked:
            worst = TensorGradient(name, t.shape, 1, error, where, expected, numeric)
    return replace(worst, checked=len(places))


def _places(gradient: Array, samples: int, rng: np.random.Generator) -> list[tuple[Where, Array]]:
    """抽查的元素与一个随机的方向。"""
    size = gradient.size
    if not size:
        return []
    chosen = np.arange(size)
    if size > samples:
        extremes = np.abs(gradient).reshape(-1).argsort()[[-1, 0]]
        others = rng.permutation(np.setdiff1d(chosen, extremes))
        chosen = np.concatenate([extremes, others])[:samples]
    places: list[tuple[Where, Array]] = []
    for flat in chosen:
        where = tuple(int(i) for i in np.unravel_index(flat, gradient.shape))
        direction = np.zeros(gradient.shape)
        direction[where] = 1
        places.append((where, direction))
    direction = np.asarray(rng.normal(size=gradient.shape))
    return [*places, (None, direction / np.linalg.norm(direction))]


def _compare(
    output: _Output, t: Tensor, direction: Array, expected: float, scale: float, tolerance: float
) -> tuple[float, float]:
    """一个方向上的相对误差与差分的值，取最接近的步长；不是有限数时误差是无穷。"""
    best = math.inf, math.nan
    for h in STEPS:
        numeric = _slope(output, t, direction, h)
        error = abs(expected - numeric) / max(scale, abs(numeric))
        if not best[0] <= error < math.inf:
            best = (math.inf if math.isnan(error) else error), numeric
        if best[0] < tolerance / 10:
            break
    return best


def _slope(output: _Output, t: Tensor, direction: Array, h: float) -> float:
    """五点公式；张量就地挪动，离开时（包括出错时）复原。"""
    start = t.data.copy()
    values: list[float] = []
    try:
        for k in (-2, -1, 1, 2):
            t.data[...] = start + k * h * direction
            values.append(output.value())
    finally:
        t.data[...] = start
    return (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)
