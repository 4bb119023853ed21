"""逐个词元地生成"""

import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gptcore.data.tokenizers import integer_ids
from gptcore.errors import ArgumentError, DataError, DtypeError
from gptcore.kernels.array import Array
from gptcore.kernels.convert import brief
from gptcore.kernels.softmax import softmax_forward
from gptcore.layers import Layer
from gptcore.random import resolve_rng
from gptcore.tensor import Tensor, no_grad


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
    cumulative = np.cumsum(p)
    total = float(cumulative[-1])
    if not 0 < total < np.inf or p.min() < 0:
        raise ArgumentError(
            f"sample：概率要非负，和为有限的正数，这里的和是 {total}，最小值是 {p.min()}；"
            "模型的输出里可能有 NaN 或无穷"
        )
    u = resolve_rng("sample", rng).random() * total
    return min(int(np.searchsorted(cumulative, u, side="right")), len(cumulative) - 1)


def generate_ids(
    model: Layer,
    prompt: Sequence[int],
    steps: int,
    context_size: int,
    *,
    temperature: float = 1.0,
    rng: np.random.Generator | None = None,
) -> Iterator[int]:
    r"""一个接一个地生成词元编号。

    每一步把最后 `context_size` 个词元送进模型，取最后一个位置的分数 $x$，按 $\mathrm{softmax}(x/\tau)$ 抽取。
    每一步里模型处于评估模式、不记录计算图，两步之间都是原来的样子：几个生成器可以交错，也可以提前停下。

    Args:
        model: 由编号 `(1, 长度)` 得到分数 `(1, 长度, 词表大小)` 的模型。
        prompt: 提示的编号，至少一个。
        steps: 生成多少个。
        context_size: 上下文尺寸。
        temperature: 温度 $\tau$；0 表示总取分数最高的。
        rng: 随机数生成器。

    Yields:
        新词元的编号。

    Raises:
        ArgumentError: 步数、上下文尺寸或温度不合要求；模型的分数里有 NaN 或无穷。
        DataError: 提示为空。
        DtypeError: 提示不是整数，或 `rng` 不是生成器。
    """
    ids = require_prompt(prompt, steps)
    require_count("generate", "context_size", context_size, 1)
    given: Any = temperature
    number = isinstance(given, int | float | np.integer | np.floating)
    if not number or not 0 <= temperature <= sys.float_info.max:
        raise ArgumentError(
            f"generate：temperature 必须是非负的有限数，这里是 {brief(temperature)}；通常取 0.8 到 1"
        )
    return _generate(model, ids, steps, context_size, temperature, resolve_rng("generate", rng))


def require_count(name: str, argument: str, value: Any, low: int = 0) -> None:
    """次数必须是不小于 `low` 的整数。"""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
        kind = "正整数" if low else "非负整数"
        raise ArgumentError(
            f"{name}：{argument} 必须是{kind}，这里是 {brief(value)}；请写例如 {argument}=10"
        )


def require_prompt(prompt: Sequence[int], steps: int) -> list[int]:
    """提示至少一个词元，步数不能为负；返回提示的编号。"""
    require_count("generate", "steps", steps)
    ids = integer_ids("generate", prompt)
    if not len(ids):
        raise DataError("generate：提示不能为空；至少给一个字符，例如换行符 '\\n'")
    return ids.tolist()


def _generate(
    model: Layer,
    ids: list[int],
    steps: int,
    context_size: int,
    temperature: float,
    rng: np.random.Generator,
) -> Iterator[int]:
    layers = list(model.sublayers())
    with model.evaluating():
        quiet = [layer.training for layer in layers]  # 只找一次：逐层走一遍，快赶上小模型的一步了
    for _ in range(steps):
        window = np.array([ids[-context_size:]])
        with _modes(layers, quiet), no_grad():  # 不跨越 yield：消费者的代码不受影响
            scores = model(Tensor(window)).data[0, -1].astype(np.float64)
        best = scores.max()
        if not np.isfinite(best):  # 个别的负无穷可以有：概率为 0
            raise ArgumentError(
                f"generate：模型给出的最高分是 {best}，分数里有 NaN 或无穷，不能接着写；"
                "请检查参数，训练发散时请减小学习率"
            )
        if temperature:
            with np.errstate(over="ignore"):  # 温度极低时除出负无穷，概率正好是 0
                scaled = (scores - best) / temperature
            ids.append(sample(softmax_forward(scaled), rng))
        else:
            ids.append(int(scores.argmax()))
        yield ids[-1]


@contextmanager
def _modes(layers: list[Layer], modes: list[bool]) -> Generator[None]:
    """在一段代码里各层处于给定的模式，离开时恢复各自原来的模式。"""
    before = [layer.training for layer in layers]
    try:
        for layer, training in zip(layers, modes, strict=True):
            layer.training = training
        yield
    finally:
        for layer, training in zip(layers, before, strict=True):
            layer.training = training
