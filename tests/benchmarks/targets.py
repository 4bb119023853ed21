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


def checks(rows: Sequence[Row]) -> Iterator[tuple[str, bool]]:
    """逐项要求：一句说明，与是否达到；没有测的不算。"""
    for target in TARGETS:
        for row in rows:
            ratio = row["ratios"].get(target.side)
            if ratio is None or not target.applies(row):
                continue
            title = " ".join(dict.fromkeys((target.part, row["name"], row["size"])))
            passed = ratio["median"] >= target.at_least
            yield f"{title}：{ratio['median']:.2f}，要求 ≥ {target.at_least:g}", passed
