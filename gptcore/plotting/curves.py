"""曲线的处理：平滑，以及很长的曲线取少数几点；只用 NumPy"""

import numpy as np

from gptcore.kernels.array import Array

POINTS = 800
"""一条曲线至多画这么多点；图上一共不过一千多个像素宽"""


def smoothing(count: int) -> int:
    """平滑的半宽：前后各取多少个点。"""
    return count // 40


def smooth(values: Array, half: int, weights: Array | None = None) -> Array:
    r"""滑动平均，NaN 不算：$\bar x_i = \sum_j w_jx_j \big/ \sum_j w_j$，$j$ 取 $i$ 前后各至多 `half` 个。

    开头的窗口缩短成两边对称的，陡降的损失不会抬高；结尾的窗口只缩短右边，最后几点仍是平均的。

    Args:
        values: 形状 (N,)
        half: 窗口的半宽。
        weights: 权重；默认都是 1。

    Returns:
        形状 (N,)；窗口里没有数的是 NaN。
    """
    weights = np.ones(len(values)) if weights is None else weights
    known = np.isfinite(values) & np.isfinite(weights)
    index = np.arange(len(values))
    width = np.minimum(index, half)
    start, stop = index - width, np.minimum(index + width + 1, len(values))

    def sums(x: Array) -> Array:
        total = np.concatenate([[0.0], np.cumsum(np.where(known, x, 0.0))])
        return total[stop] - total[start]

    with np.errstate(invalid="ignore", divide="ignore"):
        result = sums(values * weights) / sums(weights)
    counts = np.concatenate([[0], np.cumsum(known)])
    return np.where(counts[stop] > counts[start], result, np.nan)


def thin(x: Array, y: Array, points: int = POINTS) -> tuple[Array, Array]:
    """取少数几点，尖峰都留着：每一小段只取最低与最高的两点，另加首尾。

    Args:
        x: 横坐标，形状 (N,)
        y: 纵坐标，形状 (N,)，可以有 NaN。
        points: 至多多少点，加上首尾。

    Returns:
        取出的横坐标与纵坐标。
    """
    if len(y) <= points:
        return x, y
    edges = np.linspace(0, len(y), points // 2 + 1).astype(np.int64)[:-1]
    lowest, highest = (
        np.array([a + int(np.argmin(part)) for a, part in zip(edges, parts, strict=True)])
        for parts in (
            np.split(np.where(np.isnan(y), np.inf, y), edges[1:]),
            np.split(np.where(np.isnan(y), np.inf, -y), edges[1:]),
        )
    )
    index = np.unique(np.concatenate([[0], lowest, highest, [len(y) - 1]]))
    return x[index], y[index]
