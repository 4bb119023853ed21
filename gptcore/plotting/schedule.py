"""学习率的安排"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gptcore.errors import ArgumentError, DtypeError
from gptcore.kernels.convert import brief
from gptcore.plotting.curves import thin
from gptcore.plotting.style import COLORS, Language, drawing, pyplot, short_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SAMPLES = 20_000
"""至多算这么多步的学习率"""


class Scheduler(Protocol):
    """学习率调度：由步数得到学习率。"""

    def step(self, i: int) -> float:
        """第 `i` 步（从 0 数起）的学习率。"""
        ...


def plot_schedule(
    scheduler: Scheduler | Mapping[str, Scheduler],
    steps: int,
    ax: Axes | None = None,
    *,
    language: Language | None = None,
) -> Axes:
    """画出前若干步的学习率。

    Args:
        scheduler: 一个调度，或者几个：`{"余弦": …, "直线": …}`，图例里写它们的名字。
        steps: 画多少步。
        ax: 画在哪里；不给时由 `matplotlib.pyplot` 新建，在 Jupyter 里会直接显示。
        language: 坐标轴的语言，`"zh"` 或 `"en"`；不给时，有中文字体就写中文。

    Returns:
        matplotlib 的坐标系；它的图是 `ax.figure`。

    Raises:
        ArgumentError: 步数不是正整数，或者一个调度也没有。
        DtypeError: 给出的不是调度。
        MissingMatplotlibError: 没有安装 matplotlib。

    Examples:
        >>> cosine = WarmupCosineScheduler(1e-3, total_steps=1000, warmup_steps=100)
        >>> plot_schedule({"余弦": cosine, "直线": LinearScheduler(1e-3, 1000, 100)}, 1000)
    """
    given: Any = steps
    if not isinstance(given, int | np.integer) or isinstance(given, bool) or steps < 1:
        raise ArgumentError(
            f"plot_schedule：steps 必须是正整数，这里是 {brief(steps)}；请写例如 steps=1000"
        )
    several = dict(scheduler) if isinstance(scheduler, Mapping) else {"": scheduler}
    if not several:
        raise ArgumentError("plot_schedule：一个调度也没有；请写 {'名字': 调度}")
    for item in several.values():
        if isinstance(item, type) or not callable(getattr(item, "step", None)):
            raise DtypeError(
                f"plot_schedule：调度要有方法 step(i)，这里是 {brief(item)}；请给出例如 LinearScheduler(1e-3, 1000)"
            )
    x = np.unique(np.linspace(0, steps - 1, min(int(steps), SAMPLES)).round().astype(np.int64))
    rates = {name: np.array([s.step(int(i)) for i in x], float) for name, s in several.items()}
    with drawing("plot_schedule", language) as (matplotlib, spoken):
        axes: Any = ax
        if axes is None:
            _, axes = pyplot().subplots(figsize=(7, 3.2), dpi=120, layout="constrained")
        for (name, y), color in zip(rates.items(), cycle(COLORS), strict=False):
            style = "o-" if len(x) == 1 else "-"
            axes.plot(*thin(x, y), style, color=color, label=name or None)
        family = matplotlib.rcParams["font.family"]  # 坐标系是别人建的时候，标签还是旧的字体
        axes.set_xlabel("步" if spoken == "zh" else "Step", fontfamily=family)
        axes.set_ylabel("学习率" if spoken == "zh" else "Learning rate", fontfamily=family)
        axes.set_ylim(bottom=0)
        ticker = matplotlib.ticker
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(short_number))
        axes.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
        if any(rates):
            axes.legend()
    return axes
