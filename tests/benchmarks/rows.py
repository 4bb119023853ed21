"""一项结果：各方的时间，与“它的 ÷ gptcore 的”之比；能写成 JSON"""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from pairing import Times, paired, quartiles, totals

OURS = "gptcore"


class Spread(TypedDict):
    """中位数，与中间一半的范围。"""

    median: float
    low: float
    high: float


class Row(TypedDict):
    """一项结果。"""

    part: str
    name: str
    size: str
    rounds: int
    sides: dict[str, Spread]
    """各方的秒数；内存是字节数"""
    ratios: dict[str, Spread]
    """另一方的 ÷ gptcore 的：大于 1 表示 gptcore 更快、更省"""
    pieces: NotRequired[dict[str, dict[str, Spread]]]
    """各个部分（例如前向与反向）的比值"""
    facts: NotRequired[dict[str, Any]]
    problems: NotRequired[dict[str, str]]
    """哪一方没有测成，为什么"""


def make_row(
    part: str,
    name: str,
    size: str,
    times: Mapping[str, Sequence[Times]],
    facts: Mapping[str, Any] | None = None,
    problems: Mapping[str, str] | None = None,
) -> Row:
    """由各方每一轮的时间得到一项结果。"""
    whole = {side: totals(runs) for side, runs in times.items()}
    ours = whole[OURS]
    row: Row = {
        "part": part,
        "name": name,
        "size": size,
        "rounds": len(ours),
        "sides": {side: _spread(quartiles(values)) for side, values in whole.items()},
        "ratios": {
            side: _spread(paired(values, ours)) for side, values in whole.items() if side != OURS
        },
    }
    pieces = list(times[OURS][0])
    if len(pieces) > 1:
        row["pieces"] = {
            piece: {
                side: _spread(paired([t[piece] for t in runs], [t[piece] for t in times[OURS]]))
                for side, runs in times.items()
                if side != OURS and piece in runs[0]
            }
            for piece in pieces
        }
    if facts:
        row["facts"] = dict(facts)
    if problems:
        row["problems"] = dict(problems)
    return row


def _spread(values: Any) -> Spread:
    return {"median": values.median, "low": values.low, "high": values.high}
