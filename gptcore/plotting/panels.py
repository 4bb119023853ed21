"""训练过程的图：损失、学习率、梯度范数、吞吐量"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gptcore.errors import DataError, DtypeError
from gptcore.kernels.array import Array
from gptcore.plotting.curves import smooth, smoothing, thin
from gptcore.plotting.metrics import Metrics, read_metrics
from gptcore.plotting.style import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    PURPLE,
    TEAL,
    Language,
    drawing,
    pyplot,
    short_number,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE = (9, 5.4)
"""图的宽与高，英寸"""

FEW = 30
"""不超过这么多步时，每一步画一个点"""

TEXTS: dict[str, dict[str, str]] = {
    "zh": {
        "loss": "损失",
        "lr": "学习率",
        "grad_norm": "梯度范数",
        "throughput": "吞吐量（词元/秒）",
        "step": "步",
        "raw": "每一步",
        "smooth": "平滑后，最后 {:.4g}",
        "evaluation": "评估，最好 {:.4g}（第 {:,} 步）",
        "empty": "没有记录",
        "steps": "{:,} 步",
        "one step": "1 步",
        "tokens": "{:,} 词元",
        "s": "{} 秒",
        "m": "{} 分 {} 秒",
        "h": "{} 小时 {} 分",
    },
    "en": {
        "loss": "Loss",
        "lr": "Learning rate",
        "grad_norm": "Gradient norm",
        "throughput": "Throughput (tokens/s)",
        "step": "Step",
        "raw": "each step",
        "smooth": "smoothed, last {:.4g}",
        "evaluation": "evaluation, best {:.4g} (step {:,})",
        "empty": "not recorded",
        "steps": "{:,} steps",
        "one step": "1 step",
        "tokens": "{:,} tokens",
        "s": "{} s",
        "m": "{} min {} s",
        "h": "{} h {} min",
    },
}


def plot_metrics(
    metrics: Metrics | str | os.PathLike[str],
    *,
    title: str | None = None,
    language: Language | None = None,
    figure: Figure | None = None,
) -> Figure:
    """把训练的过程画成四幅图：损失、学习率、梯度范数、吞吐量。

    浅色的细线是每一步，深色的是滑动平均，圆点是评估；竖的虚线是接着训练的地方。很长的训练只取少数几点，
    尖峰都留着。损失的纵轴容得下平滑后的曲线、评估与大多数步，个别很高的尖峰会伸出去。

    Args:
        metrics: `read_metrics` 的结果，或者 `metrics.jsonl` 的路径，或它所在的文件夹。
        title: 标题，例如模型的名字。
        language: 文字的语言，`"zh"` 或 `"en"`；不给时，有中文字体就写中文。
        figure: 画在哪里；不给时由 `matplotlib.pyplot` 新建，在 Jupyter 里会直接显示；
            放在单元的最后一行时，请像例子那样赋给一个名字，不然显示两遍。

    Returns:
        matplotlib 的图，可以 `figure.savefig("metrics.svg")`。

    Raises:
        DataError: 文件读不了，或者里面一步也没有。
        MissingMatplotlibError: 没有安装 matplotlib。

    Examples:
        >>> figure = plot_metrics("gptcore-model", title="第一次训练")
        >>> figure.savefig("metrics.png")
    """
    data: Any = read_metrics(metrics) if isinstance(metrics, str | os.PathLike) else metrics
    if not isinstance(data, Metrics):
        raise DtypeError(
            f"plot_metrics：metrics 必须是 read_metrics 的结果或文件的路径，这里是 {type(data).__name__}"
        )
    if not len(data.steps) and not len(data.evaluations):
        where = "plot_metrics：" if data is metrics else f"{metrics} 里"
        raise DataError(f"{where}还没有任何一步的记录；请至少训练一步再画")
    with drawing("plot_metrics", language) as (matplotlib, spoken):
        if figure is None:
            figure = pyplot().figure(figsize=SIZE, dpi=120)
        _Panels(matplotlib, figure, data, TEXTS[spoken]).draw(title)
    return cast("Figure", figure)


class _Panels:
    """一张图的四格：左边是损失，右边自上而下是其余三样。"""

    def __init__(self, matplotlib: Any, figure: Any, data: Metrics, texts: dict[str, str]) -> None:
        self.matplotlib, self.figure, self.data, self.texts = matplotlib, figure, data, texts
        self.half = smoothing(len(data.steps))

    def draw(self, title: str | None) -> None:
        """画出四格与标题。"""
        self.figure.set_facecolor("white")
        if self.figure.get_layout_engine() is None:
            self.figure.set_layout_engine("constrained", h_pad=0.07, w_pad=0.09)
        grid = self.figure.add_gridspec(3, 2, width_ratios=[1.5, 1])
        left = self.figure.add_subplot(grid[:, 0])
        right = [self.figure.add_subplot(grid[row, 1], sharex=left) for row in range(3)]
        for ax, draw, name in (
            (left, self._loss, "loss"),
            (right[0], self._lr, "lr"),
            (right[1], self._grad_norm, "grad_norm"),
            (right[2], self._throughput, "throughput"),
        ):
            ax.set_title(self.texts[name], loc="left", fontsize=12, color=INK)
            ax.tick_params(length=0, labelsize=10, labelcolor=MUTED)
            draw(ax)
            for step in self.data.restarts:
                ax.axvline(step, color=MUTED, linewidth=0.8, linestyle=(0, (2, 3)), zorder=0.5)
        for ax in right[:2]:
            ax.tick_params(labelbottom=False)
        for ax in (left, right[2]):
            ax.set_xlabel(self.texts["step"], loc="right", fontsize=10)
        self._horizontal(left)
        self._heading(title)

    def _horizontal(self, ax: Any) -> None:
        ticker = self.matplotlib.ticker
        steps = np.concatenate([self.data.steps, self.data.evaluation_steps])
        low, high = int(steps.min()), int(steps.max())
        margin = (high - low) * 0.02 or 0.5
        ax.set_xlim(low - margin, high + margin)
        ax.xaxis.set_major_locator(
            ticker.MaxNLocator(5, integer=True, min_n_ticks=1, steps=[1, 2, 2.5, 5, 10])
        )
        ax.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))

    def _heading(self, title: str | None) -> None:
        """标题与一行小结；标题写不出来（没有中文字体）时只写小结。"""
        summary = self._summary()
        if title is not None and not title.isascii() and self.texts is TEXTS["en"]:
            title = None
        if title is None:
            self.figure.suptitle(summary, x=0.01, ha="left", fontsize=11, color=MUTED)
            return
        self.figure.suptitle(
            title, x=0.01, ha="left", fontsize=14, fontweight="bold", parse_math=False
        )
        self.figure.text(0.99, 0.988, summary, ha="right", va="top", fontsize=11, color=MUTED)

    def _summary(self) -> str:
        data, texts = self.data, self.texts
        last = int(max([*data.steps[-1:] + 1, *data.evaluation_steps[-1:]]))
        parts = [texts["steps" if last != 1 else "one step"].format(last)]
        if tokens := int(np.nansum(data.tokens)):
            parts.append(texts["tokens"].format(tokens))
        if seconds := round(float(np.nansum(data.seconds))):
            parts.append(self._duration(seconds))
        return "  ·  ".join(parts)

    def _duration(self, seconds: int) -> str:
        if seconds < 60:
            return self.texts["s"].format(seconds)
        if seconds < 3600:
            return self.texts["m"].format(*divmod(seconds, 60))
        return self.texts["h"].format(*divmod(seconds // 60, 60))

    def _loss(self, ax: Any) -> None:
        data = self.data
        mean = smooth(data.losses, self.half)
        self._curve(ax, data.losses, mean, BLUE, legend=True)
        known = np.isfinite(data.evaluations)
        steps, losses = data.evaluation_steps[known], data.evaluations[known]
        if len(losses):
            best = int(np.argmin(losses))
            label = self.texts["evaluation"].format(losses[best], steps[best])
            x, y = thin(steps, losses)
            size = 6 if len(x) <= 40 else 3
            ax.plot(x, y, "o-", color=ORANGE, markersize=size, linewidth=1.2, label=label)
            ax.plot(
                *(steps[best], losses[best], "o"),
                markersize=size + 5,
                markerfacecolor="none",
                markeredgecolor=ORANGE,
                markeredgewidth=1.4,
            )
        _fit(ax, mean, data.losses, losses)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(loc="upper right", fontsize=10)
        else:
            self._nothing(ax)

    def _lr(self, ax: Any) -> None:
        known = np.isfinite(self.data.lrs)
        if not known.any():
            return self._nothing(ax)
        self._line(ax, *thin(self.data.steps[known], self.data.lrs[known]), GREEN)
        _from_zero(ax, float(self.data.lrs[known].max()))
        self._few_ticks(ax, short_number)
        return None

    def _grad_norm(self, ax: Any) -> None:
        norms = np.where(self.data.grad_norms > 0, self.data.grad_norms, np.nan)
        if np.isnan(norms).all():
            return self._nothing(ax)
        mean = np.exp(smooth(np.log(norms), self.half))
        self._curve(ax, norms, mean, PURPLE)
        low, high = nice_bounds(float(np.nanmin(norms)), float(np.nanmax(norms)))
        ticker = self.matplotlib.ticker
        ax.set_yscale("log")
        ax.set_ylim(low, high)
        few = high / low < 50
        ax.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if few else (1,), numticks=6))
        ax.yaxis.set_minor_locator(ticker.NullLocator())
        ax.yaxis.set_major_formatter(ticker.FuncFormatter(short_number))
        return None

    def _throughput(self, ax: Any) -> None:
        tokens, seconds = self.data.tokens, self.data.seconds
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.where(seconds > 0, tokens / seconds, np.nan)
        if np.isnan(rates).all():
            return self._nothing(ax)
        mean = smooth(rates, self.half, seconds)
        self._curve(ax, rates, mean, TEAL)
        _from_zero(ax, float(max(np.nanmax(mean), np.nanpercentile(rates, 90))))
        self._few_ticks(ax, _thousands)
        return None

    def _few_ticks(self, ax: Any, write: Callable[[float, Any], str]) -> None:
        ticker = self.matplotlib.ticker
        ax.yaxis.set_major_locator(ticker.MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
        ax.yaxis.set_major_formatter(ticker.FuncFormatter(write))

    def _curve(self, ax: Any, raw: Array, mean: Array, color: str, legend: bool = False) -> None:
        """每一步的细线，上面是平滑后的；步数少的时候就是一条带点的线。"""
        if not np.isfinite(raw).any():
            return
        steps = self.data.steps
        last = float(mean[np.isfinite(mean)][-1])
        labels = [self.texts["raw"], self.texts["smooth"].format(last)] if legend else [None] * 2
        if self.half:
            x, y = thin(steps, raw)
            ax.plot(x, y, color=color, alpha=0.25, linewidth=0.8, label=labels[0])
            ax.plot(*thin(steps, mean), color=color, label=labels[1])
        else:
            self._line(ax, steps, raw, color, labels[0])

    def _line(self, ax: Any, x: Array, y: Array, color: str, label: str | None = None) -> None:
        few = len(x) <= FEW
        ax.plot(x, y, "o-" if few else "-", color=color, markersize=4, label=label)

    def _nothing(self, ax: Any) -> None:
        ax.set_yticks([])
        ax.text(0.5, 0.5, self.texts["empty"], transform=ax.transAxes, ha="center", color=MUTED)


def _fit(ax: Any, mean: Array, raw: Array, evaluations: Array) -> None:
    """纵轴的范围：个别很高的尖峰不算。"""
    known = raw[np.isfinite(raw)]
    usual = np.percentile(known, [0, 99.5]) if len(known) else known
    shown = np.concatenate([mean[np.isfinite(mean)], usual, evaluations])
    if len(shown):
        low, high = float(shown.min()), float(shown.max())
        margin = 0.05 * (high - low) or 0.05 * abs(high) or 0.05
        ax.set_ylim(low - margin, high + margin)


def _from_zero(ax: Any, high: float) -> None:
    ax.set_ylim(0, high * 1.15 or 1)


def nice_bounds(low: float, high: float) -> tuple[float, float]:
    """对数轴的两端：往外扩到 1、2、5 乘以十的幂，里面至少有两个刻度。"""
    ladder = [m * 10.0**e for e in range(-307, 308) for m in (1, 2, 5)]
    below = [v for v in ladder if v <= low * (1 + 1e-9)] or ladder[:1]
    above = [v for v in ladder if v >= high * (1 - 1e-9) and v > below[-1]] or ladder[-1:]
    return below[-1], above[0]


def _thousands(value: float, _: Any = None) -> str:
    """1500 写成 1.5k，两百万写成 2M。"""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"
