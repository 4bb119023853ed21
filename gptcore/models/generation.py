"""逐个词元地生成"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gptcore.errors import ArgumentError, DataError
from gptcore.kernels.array import Array
from gptcore.kernels.softmax import softmax_forward
from gptcore.layers import Layer
from gptcore.random import default_rng
from gptcore.tensor import Tensor, no_grad


def sample(probabilities: Array, rng: np.random.Generator | None = None) -> int:
    r"""按概率抽取一个编号。

    取 $u\sim U[0,1)$，返回使累积概率首次超过 $u\sum_i p_i$ 的编号；概率之和不必恰为 1。

    Args:
        probabilities: 非负，形状 `(词表大小,)`
        rng: 随机数生成器。

    Returns:
        编号。
    """
    cumulative = np.cumsum(probabilities, dtype=np.float64)
    total = float(cumulative[-1])
    if not 0 < total < np.inf or float(probabilities.min()) < 0:
        raise ArgumentError(
            f"sample：概率要非负，和为有限的正数，这里的和是 {total}，最小值是 {probabilities.min()}；"
            "模型的输出里可能有 NaN 或无穷"
        )
    u = (rng or default_rng()).random() * total
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
    生成期间模型处于评估模式、不记录计算图；结束或提前停下时恢复原状。

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
        ArgumentError: 步数或温度为负。
        DataError: 提示为空。
    """
    require_prompt(prompt, steps)
    if not 0 <= temperature < np.inf:
        raise ArgumentError(
            f"generate：temperature 必须是非负的有限数，这里是 {temperature}；通常取 0.8 到 1"
        )
    return _generate(model, list(prompt), steps, context_size, temperature, rng)


def require_count(name: str, argument: str, value: Any) -> None:
    """次数必须是非负整数。"""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise ArgumentError(
            f"{name}：{argument} 必须是非负整数，这里是 {value!r}；请写例如 {argument}=10"
        )


def require_prompt(prompt: Sequence[int], steps: int) -> None:
    """提示至少一个词元，步数不能为负。"""
    require_count("generate", "steps", steps)
    if not len(prompt):
        raise DataError("generate：提示不能为空；至少给一个字符，例如换行符 '\\n'")


def _generate(
    model: Layer,
    ids: list[int],
    steps: int,
    context_size: int,
    temperature: float,
    rng: np.random.Generator | None,
) -> Iterator[int]:
    with model.evaluating():
        for _ in range(steps):
            window = np.array([ids[-context_size:]])
            with no_grad():  # 不跨越 yield：消费者的代码不受影响
                scores = model(Tensor(window)).data[0, -1].astype(np.float64)
            if temperature:
                with np.errstate(over="ignore"):  # 温度极低时除出负无穷，概率正好是 0
                    scaled = (scores - scores.max()) / temperature
                ids.append(sample(softmax_forward(scaled), rng))
            else:
                ids.append(int(scores.argmax()))
            yield ids[-1]
