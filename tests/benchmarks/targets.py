"""要达到的比值，与没有达到的"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rows import Row


class Target(NamedTuple):
    """一项要求：另一方的 ÷ gptcore 的，不小于多少。"""

    part: str
    size: str
    side: str
    at_least: float
    name: str | None = None
    """`None` 是这一部分的每一项"""

    def applies(self, row: Row) -> bool:
        return (
            row["part"] == self.part
            and row["size"] == self.size
            and self.name in (None, row["name"])
        )


TARGETS = (
    Target("step", "S", "PyTorch", 1.6),
    Target("step", "M", "PyTorch", 1.0),
    Target("step", "L", "PyTorch", 0.95),
    Target("step", "G", "PyTorch", 0.85),
    Target("memory", "M", "PyTorch", 1.0),
    Target("memory", "L", "PyTorch", 1.0),
    Target("optimizer", "G", "PyTorch", 0.7, "AdamW"),
    Target("kernels", "M", "PyTorch", 0.8),
    Target("kernels", "L", "PyTorch", 0.8),
)


class Check(NamedTuple):
    """一项要求的结果。"""

    row: Row
    ratio: float
    target: Target

    @property
    def passed(self) -> bool:
        return self.ratio >= self.target.at_least


def checks(rows: Sequence[Row]) -> Iterator[Check]:
    """逐项要求；没有测的不算。"""
    for target in TARGETS:
        for row in rows:
            ratio = row["ratios"].get(target.side)
            if ratio is not None and target.applies(row):
                yield Check(row, ratio["median"], target)
