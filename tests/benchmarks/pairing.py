"""轮流与成对：A B、B A、A B …… 每一轮两边各测一次，比较同一轮的两个时间

机器忽快忽慢，一个核的速度几秒之内可以差一倍，分别取平均再相除没有意义。相邻的两次测量受到的影响相近，
它们的比值稳定得多；次序每轮交换，先后的影响也抵消了。报告各轮比值的中位数，与中间一半的范围。
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

Times = dict[str, float]
"""一次运行各部分的秒数"""
ALL = "all"
"""只有一个部分时的名字"""
REST = 0.05
"""换一边之前停多久：OpenBLAS 与 OpenMP 的线程做完之后还空转几十毫秒，会占用另一边的核"""
TURN = 0.1
"""每一次大约测多久，秒；比这慢的只运行一遍"""


class Side(Protocol):
    """比较的一方。"""

    def run(self, repeats: int) -> list[Times]:
        """运行几遍，给出每一遍的时间。"""
        ...


class Ratio(NamedTuple):
    """各轮比值的中位数，与中间一半的范围。"""

    median: float
    low: float
    high: float


def quartiles(values: Sequence[float]) -> Ratio:
    """中位数与两个四分位数；只有一个数时三者相同。"""
    if len(values) < 2:
        return Ratio(values[0], values[0], values[0])
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Ratio(middle, low, high)


def paired(numerator: Sequence[float], denominator: Sequence[float]) -> Ratio:
    """同一轮的两个时间相除。"""
    return quartiles([a / b for a, b in zip(numerator, denominator, strict=True)])


def order(names: Sequence[str], turn: int) -> list[str]:
    """第几轮的次序：一轮正，一轮反。"""
    return list(names) if turn % 2 == 0 else list(reversed(names))


def repeats_for(slowest: float, turn: float = TURN) -> int:
    """一次测几遍。"""
    return min(200, max(1, round(turn / slowest)))


def middle(runs: Sequence[Times]) -> Times:
    """几遍里各部分的中位数。"""
    return {part: statistics.median(run[part] for run in runs) for part in runs[0]}


def alternate(sides: Mapping[str, Side], rounds: int, rest: float = REST) -> dict[str, list[Times]]:
    """各方轮流运行。先各空跑两遍，顺便看要测几遍；每次换到一方，先不计时地运行一遍，慢的除外。

    Args:
        sides: 各方。
        rounds: 轮数。
        rest: 换一方之前停几秒。

    Returns:
        每一方每一轮的时间。
    """
    slowest = 0.0
    for side in sides.values():
        slowest = max(slowest, min(sum(run.values()) for run in side.run(2)))
    repeats, warm = repeats_for(slowest), int(slowest < TURN)
    times: dict[str, list[Times]] = {name: [] for name in sides}
    for turn in range(rounds):
        for name in order(list(sides), turn):
            time.sleep(rest)
            times[name].append(middle(sides[name].run(warm + repeats)[warm:]))
    return times


def totals(times: Sequence[Times]) -> list[float]:
    """每一轮各部分之和。"""
    return [sum(run.values()) for run in times]
