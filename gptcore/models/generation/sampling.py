"""采样：由分数（logits）到下一个词元"""

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gptcore.data.tokenizers import check_range, integer_ids
from gptcore.errors import ArgumentError, DtypeError
from gptcore.kernels.array import Array
from gptcore.kernels.convert import brief
from gptcore.kernels.softmax import softmax_forward
from gptcore.random import resolve_rng

MAX = sys.float_info.max

# 参数：取值的检查，要求，办法
_RULES: dict[str, tuple[Callable[[Any], bool], str, str]] = {
    "temperature": (lambda v: 0 <= v <= MAX, "是非负的有限数", "通常取 0.8 到 1"),
    "top_k": (lambda v: v >= 0, "是非负整数", "通常取 20 到 100，不限制请写 0"),
    "top_p": (lambda v: 0 < v <= 1, "满足 0 < top_p ≤ 1", "通常取 0.9 到 0.95，不限制请写 1"),
    "min_p": (lambda v: 0 <= v <= 1, "满足 0 ≤ min_p ≤ 1", "通常取 0.05 到 0.1，不限制请写 0"),
    "repetition_penalty": (lambda v: 0 < v <= MAX, "是有限的正数", "通常取 1 到 1.3，1 就是没有"),
}


@dataclass(frozen=True)
class Sampler:
    r"""怎样由分数（logits）选下一个词元。

    Note: 各步
        记分数 $x\in\mathbb R^V$，依次做五件事，次序与 Hugging Face 的 `generate` 相同：

        1. **重复惩罚** $\theta$（Keskar 等 2019，<https://arxiv.org/abs/1909.05858>，式 (2)）：已经出现过的词元，
           $x_i>0$ 时变成 $x_i/\theta$，否则变成 $x_i\theta$：$\theta>1$ 时两种情况都降低。
           不分正负地除，负的分数反而升高。
        2. **温度** $\tau$：$z_i = (x_i-\max_j x_j)/\tau$。$\tau=0$ 时直接取分数最高的，后面几步都不必做。
        3. **top-k**（Fan 等 2018，<https://arxiv.org/abs/1805.04833>，第 5.1 节）：只留分数最高的 $k$ 个。
        4. **top-p**（Holtzman 等 2020，<https://arxiv.org/abs/1904.09751>，式 (2)）：把留下的按概率从大到小排，
           只留概率之和达到 $p$ 的最短的一段；至少留一个。
        5. **min-p**（Nguyen 等 2024，<https://arxiv.org/abs/2407.01082>）：概率不到最大概率的 $m$ 倍的去掉，即只留
           $z_i\ge\ln m$。

        留下的重新归一化成 $p_i = e^{z_i}/\sum_j e^{z_j}$，取 $u\sim U[0,1)$，返回使累积概率首次超过 $u$ 的编号。
        分数相同的，编号小的排在前面：top-k 恰好留 $k$ 个，`top_k=1` 就是取分数最高的，结果与机器无关。
        （Hugging Face 的 top-k 会把与第 $k$ 名同分的都留下。）

    Args:
        temperature: 温度 $\tau\ge0$；0 表示总取分数最高的，与种子无关。
        top_k: 只留分数最高的几个；0 或超过词表大小，就是不限制。
        top_p: 只留概率之和达到它的最短一段，$0<p\le1$；1 就是不限制。
        min_p: 概率不到最大概率的这么多倍的去掉，$0\le m\le1$；0 就是不限制。
        repetition_penalty: 重复惩罚 $\theta>0$；1 就是没有，小于 1 鼓励重复。

    Raises:
        ArgumentError: 值不合要求；消息写出参数与值。

    Examples:
        >>> Sampler(top_k=2).probabilities([0.0, 1.0, 1.0, -1.0])
        array([0. , 0.5, 0.5, 0. ])
        >>> Sampler(repetition_penalty=1.5).penalize([3.0, -3.0, 1.0], seen=[0, 1])
        array([ 2. , -4.5,  1. ])

    教程：第 17 章 采样。
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        for name, (allows, rule, hint) in _RULES.items():
            value: Any = getattr(self, name)
            if isinstance(value, np.integer | np.floating):
                value = value.item()
            number = isinstance(value, int if name == "top_k" else int | float)
            if not number or isinstance(value, bool) or not allows(value):
                raise ArgumentError(
                    f"generate：{name} 必须{rule}，这里是 {brief(getattr(self, name))}；{hint}"
                )
            object.__setattr__(self, name, value if name == "top_k" else float(value))

    def penalize(self, logits: Any, seen: Iterable[int] = ()) -> Array:
        """重复惩罚之后的分数。

        Args:
            logits: 分数，形状 `(词表大小,)`
            seen: 已经出现过的编号，可以重复。

        Returns:
            float64 的新数组。

        Raises:
            ArgumentError: 编号超出词表。
            DtypeError: 分数不是一维的数，或编号不是整数。
        """
        x = _scores(logits)
        ids = integer_ids("penalize", seen)
        check_range("penalize", ids, len(x))
        return self._penalized(x, ids)

    def probabilities(self, logits: Any, seen: Iterable[int] = ()) -> Array:
        """下一个词元是每一个的概率；被去掉的是 0。

        Args:
            logits: 模型给出的分数，形状 `(词表大小,)`
            seen: 已经出现过的编号，重复惩罚用。

        Returns:
            形状 `(词表大小,)`，float64，和为 1。

        Raises:
            ArgumentError: 分数里有 NaN 或正无穷，或全是负无穷；编号超出词表。
            DtypeError: 分数不是一维的数，或编号不是整数。
        """
        x = self.penalize(logits, seen)
        require_finite(x)
        p = np.zeros(len(x))
        if self.temperature:
            ids, kept, _ = self._candidates(x, 0)
            p[slice(None) if ids is None else ids] = kept
        else:
            p[x.argmax()] = 1
        return p

    def choose(self, x: Array, seen: Array, u: float, tolerance: float = 0) -> tuple[int, bool]:
        """选下一个词元，并说明分数的舍入误差会不会改变结果。

        Args:
            x: 分数，形状 `(词表大小,)`，float64。
            seen: 已经出现过的编号，整数数组。
            u: 0 到 1 的随机数。
            tolerance: 每个分数的误差的上限；0 就是没有误差。

        Returns:
            编号；以及有这样的误差时，选出的是否仍是它。
        """
        theta = self.repetition_penalty
        x = self._penalized(x, seen)
        require_finite(x)
        tolerance *= max(theta, 1 / theta)
        if not self.temperature:
            best = int(x.argmax())
            return best, not tolerance or np.count_nonzero(x >= x[best] - 2 * tolerance) == 1
        ids, p, doubt = self._candidates(x, tolerance)
        i, low, high = draw(p, u)
        clear = True
        if tolerance:
            shift = _spread(2 * tolerance / self.temperature, p)
            clear = _move(low, shift) + doubt < u < _move(high, -shift) - doubt
        return (i if ids is None else int(ids[i])), clear

    def _penalized(self, x: Array, seen: Array) -> Array:
        theta = self.repetition_penalty
        if theta == 1 or not len(seen):
            return x
        x, old = x.copy(), x[seen]
        with np.errstate(over="ignore"):  # 极大的惩罚：变成负无穷，就是不许出现
            x[seen] = np.where(old > 0, old / theta, old * theta)
        return x

    def _candidates(self, x: Array, tolerance: float) -> tuple[Array | None, Array, float]:
        """温度、top-k、top-p 与 min-p。

        Returns:
            留下的编号，从小到大，`None` 表示全部；它们的概率，和为 1；以及分数有误差时，去留不分明的词元使
            累积概率至多差多少。
        """
        ids, best = None, x.max()
        doubt = 0.0  # 去留不分明的概率之和，以最大的概率为单位
        if 0 < self.top_k < len(x):  # 温度不改变次序：先挑，再除
            edge = np.partition(x, len(x) - self.top_k)[len(x) - self.top_k]
            ids = _largest(x, self.top_k, edge)
            if tolerance:
                with np.errstate(invalid="ignore"):  # 两个负无穷相减
                    close = int(np.count_nonzero(np.abs(x - edge) <= 2 * tolerance))
                doubt += math.exp(float(edge - best) / self.temperature) * (close > 1) * close
            x = x[ids]
        z = x - best
        with np.errstate(over="ignore"):  # 温度极低时除出负无穷，概率正好是 0
            z /= self.temperature
        slack = 2 * tolerance / self.temperature
        if self.top_p < 1:
            kept, unsure = _top_p(z, self.top_p, slack, doubt)
            ids, z, doubt = kept if ids is None else ids[kept], z[kept], doubt + unsure
        if self.min_p > 0:
            edge = math.log(self.min_p)
            if slack:
                doubt += self.min_p * int(np.count_nonzero(np.abs(z - edge) <= slack))
            kept = np.flatnonzero(z >= edge)
            ids, z = kept if ids is None else ids[kept], z[kept]
        p = softmax_forward(z)
        return ids, p, 2 * doubt * float(p.max())


def make_sampler(operation: str, options: Mapping[str, Any]) -> Sampler:
    """由 `generate` 等的选项建立；写错的名字在这里说清楚。

    Raises:
        ArgumentError: 选项的值不合要求。
        DtypeError: 没有这个选项。
    """
    for name in options:
        if name not in _RULES:
            raise DtypeError(
                f"{operation}：没有 {name} 这个选项；怎样选下一个词元，可以写 {'、'.join(_RULES)}"
            )
    return Sampler(**options)


def _spread(slack: float, p: Array) -> float:
    r"""概率的相对误差是 $s$ 时，累积概率的（在 $\ln\frac C{1-C}$ 上的）误差。

    最坏的情况是 $s$：前面的全都偏大，后面的全都偏小。各个词元的误差实际上彼此无关，和的误差只有
    $s\sqrt{\sum_i p_i^2}$：五万个词元差不多一样可能时，小两百倍。
    """
    return slack * math.sqrt(float(p @ p))


def _move(edge: float, shift: float) -> float:
    r"""使累积概率 $C$ 的 $\ln\frac C{1-C}$ 挪动 `shift`；0 与 1 不动。"""
    grown = edge * math.exp(max(-700.0, min(shift, 700.0)))
    return grown / (grown + 1 - edge) if 0 < edge < 1 else edge


def _top_p(z: Array, p: float, slack: float, doubt: float) -> tuple[Array, float]:
    """概率之和达到 `p` 的最短一段。

    概率小于 $(1-p)/(n-1)$ 的不可能在这一段里：否则从它往后的至多 n − 1 个加起来不到 1 − p，
    它前面的已经超过 p。先去掉它们再排序，五万个词元常常只剩几百个。

    Returns:
        留下的下标，从小到大；以及误差使去留不分明的概率之和，以最大的概率为单位。
    """
    e = np.exp(z)  # 最大的是 1
    whole = float(e.sum())
    cut = min(0.99 * whole * (1 - p) / max(1, len(e) - 1), 1.0)
    ordered = np.sort(z[e >= cut])[::-1]  # 按 z 排：相差极小的，指数已经相同
    q = np.exp(ordered) / whole
    total = np.cumsum(q)
    last = min(int(np.searchsorted(total, p)), len(q) - 1)
    edge, unsure = ordered[last], 0.0
    if slack:
        wide = _spread(slack, e / whole) + 2 * doubt / whole
        first, final = np.searchsorted(total, (p - wide, p + wide))
        unsure = float(q[first + 1 : final + 1].sum())
        if last + 1 < len(q) and edge - ordered[last + 1] <= slack:
            unsure += float(q[np.abs(ordered - edge) <= slack].sum())
    return _largest(z, last + 1, edge), unsure * whole


def _largest(x: Array, k: int, edge: float) -> Array:
    """最大的 `k` 个的下标，从小到大；`edge` 是第 k 大的值，与它相同的取下标小的。"""
    above = np.flatnonzero(x > edge)
    level = np.flatnonzero(x == edge)[: k - len(above)]
    return np.sort(np.concatenate([above, level]))


def draw(p: Array, u: float) -> tuple[int, float, float]:
    r"""累积概率首次超过 $u\sum_i p_i$ 的下标，以及它的区间两端（除以总和）。"""
    cumulative = np.cumsum(p)
    total = float(cumulative[-1])
    i = int(np.searchsorted(cumulative, u * total, side="right"))
    i = min(i, int(np.searchsorted(cumulative, total)))  # 舍入到了总和：取最后一个概率不为 0 的
    return i, float(cumulative[i - 1]) / total if i else 0.0, float(cumulative[i]) / total


def sample(probabilities: Array, rng: np.random.Generator | None = None) -> int:
    r"""按概率抽取一个编号。

    取 $u\sim U[0,1)$，返回使累积概率首次超过 $u\sum_i p_i$ 的编号；概率之和不必恰为 1。

    Args:
        probabilities: 非负，形状 `(词表大小,)`
        rng: 随机数生成器。

    Returns:
        编号。

    Raises:
        DtypeError: 概率不是一维的、不为空的数。
        ArgumentError: 概率里有负数、NaN 或无穷，或者全是零。
    """
    try:
        p = np.asarray(probabilities, np.float64)
    except (TypeError, ValueError):
        p = np.empty(0)
    if p.ndim != 1 or not p.size:
        raise DtypeError(
            f"sample：概率必须是形状 (词表大小,) 的数组，这里是 {brief(probabilities)}；"
            "有几行时请逐行抽取"
        )
    total = float(p.sum())
    if not 0 < total < np.inf or p.min() < 0:
        raise ArgumentError(
            f"sample：概率要非负，和为有限的正数，这里的和是 {total}，最小值是 {p.min()}；"
            "模型的输出里可能有 NaN 或无穷"
        )
    return draw(p, resolve_rng("sample", rng).random())[0]


def log_probability(x: Array, i: int) -> float:
    r"""第 $i$ 个词元的对数概率，由原来的分数算出：$x_i - \ln\sum_j e^{x_j}$。"""
    best = float(x.max())
    return float(x[i]) - best - math.log(float(np.exp(x - best).sum()))


def require_finite(x: Array) -> None:
    """最高分要是有限的数；个别的负无穷可以有，它们的概率是 0。"""
    best = x.max()
    if not np.isfinite(best):
        raise ArgumentError(
            f"generate：模型给出的最高分是 {best}，分数里有 NaN 或无穷，不能接着写；"
            "请检查参数，训练发散时请减小学习率"
        )


def _scores(logits: Any) -> Array:
    """分数的副本，float64。"""
    try:
        x = np.array(logits, np.float64)
    except (TypeError, ValueError):
        x = np.empty(0)
    if x.ndim != 1 or not x.size:
        raise DtypeError(
            f"Sampler：分数必须是形状 (词表大小,) 的数组，这里是 {brief(logits)}；"
            "一串位置的分数请取最后一个，例如 logits.data[0, -1]"
        )
    return x
