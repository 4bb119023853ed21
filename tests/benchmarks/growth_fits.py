"""时间与内存怎样增长：数出来的乘加与必需的内存，由测量拟合的指数，页面上的表

这里没有测量，同样的输入总得到同样的结果；测量在 growth.py。
"""

from collections.abc import Callable, Mapping, Sequence
from math import log
from typing import Any

from pairing import quartiles
from sizes import Size

from gptcore.kernels.attention import QUERY_BLOCK

LENGTHS = {n: Size(4, n, 64, 2, 2, 65) for n in (64, 96, 128, 192, 256, 384, 512, 768, 1024)}
WIDTHS = {n: Size(4, 128, n, n // 32, 2, 65) for n in (64, 96, 128, 192, 256, 384, 512, 768)}
LAYERS = {n: Size(12, 64, 128, 4, n, 65) for n in (1, 2, 3, 4, 6, 8, 10, 12)}
"""横轴上的数与整个尺寸：批大小、上下文、嵌入、头数、块数、词表"""
SWEEPS = {"length": LENGTHS, "width": WIDTHS, "layers": LAYERS}
FITTED = {"length": 256, "width": 256, "layers": 4}
"""从哪里起拟合指数：更小的一端，固定的开销占得太多"""
GENERATION = {
    "M": Size(1, 1024, 128, 4, 4, 65),
    "G": Size(1, 1024, 768, 12, 12, 50257),
}
MIB = 2**20
POSITIONS = (1, 128, 256, 384, 512, 640, 768, 896, 1023)
"""已经有多少个词元"""


# --8<-- [start:counts]
def pairs(length: int) -> int:
    """一个头里算了多少对查询与键：一块查询看到这一块的末尾为止"""
    starts = range(0, length, QUERY_BLOCK)
    ends = [min(i + QUERY_BLOCK, length) for i in starts]
    return sum((end - start) * end for start, end in zip(starts, ends, strict=True))


def multiply_adds(size: Size) -> dict[str, int]:
    """一步训练的乘加；反向是前向的两倍，所以总共乘以 3"""
    batch, length, e, _, layers, vocab = size
    return {
        "weights": 3 * batch * length * (12 * e * e * layers + e * vocab),
        "attention": 3 * batch * layers * 2 * e * pairs(length),
    }


def needed(size: Size) -> dict[str, int]:
    """前向必须替反向留下多少个数，与参数有关的又有多少个"""
    batch, length, e, heads, layers, vocab = size
    tokens = batch * length
    return {
        "linear": tokens * (layers * (16 * e + heads + 2) + 2 * e + 1 + vocab),
        "weights": batch * layers * heads * pairs(length),
        "parameters": 4 * size.parameters,  # 参数、梯度与 AdamW 的两个矩
    }


def one_token(size: Size, seen: int) -> int:
    """有缓存时，前面已有 `seen` 个词元，再算一个要多少次乘加"""
    return fixed_work(size) + 2 * size.embedding * size.blocks * (seen + 1)


def fixed_work(size: Size) -> int:
    """其中与 `seen` 无关的：每个权重乘一次"""
    return 12 * size.embedding**2 * size.blocks + size.embedding * size.vocab


# --8<-- [end:counts]


def whole_need(size: Size) -> int:
    """必需量的总和，字节。"""
    return sum(needed_bytes(size).values())


def needed_bytes(size: Size) -> dict[str, int]:
    """必需量的字节数：float32，每个数 4 字节。"""
    return {part: 4 * count for part, count in needed(size).items()}


# ---------------------------------------------------------------- 拟合


def line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    """最小二乘的直线：截距与斜率。"""
    x0, y0 = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((x - x0) * (y - y0) for x, y in zip(xs, ys, strict=True)) / sum(
        (x - x0) ** 2 for x in xs
    )
    return y0 - slope * x0, slope


def exponent(xs: Sequence[float], ys: Sequence[float]) -> float:
    """双对数坐标里的斜率：$y\\propto x^k$ 的 k"""
    return line([log(x) for x in xs], [log(y) for y in ys])[1]


def spread(values: Sequence[float]) -> dict[str, float]:
    """各轮的中位数与中间一半的范围。"""
    return {name: significant(value) for name, value in quartiles(values)._asdict().items()}


def significant(value: float) -> float:
    """留六位有效数字。"""
    return float(f"{value:.6g}")


def median_of(rounds: Sequence[float]) -> float:
    return quartiles(rounds).median


# ---------------------------------------------------------------- 汇总


def totals(parts: Mapping[str, Sequence[float]]) -> list[float]:
    """每一轮各部分之和。"""
    return [sum(times) for times in zip(*parts.values(), strict=True)]


def exponents(sweep: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """一组测量的指数：时间、时间的各部分、内存；测量的按轮拟合，数出来的只有一个数。"""
    sizes, start = SWEEPS[sweep], FITTED[sweep]
    xs = [x for x in sizes if x >= start]
    times = {x: {**row["time"][str(x)], "all": totals(row["time"][str(x)])} for x in xs}

    def measured(pick: Callable[[int], Sequence[float]]) -> dict[str, float]:
        rounds = zip(*(pick(x) for x in xs), strict=True)
        return spread([exponent(xs, ys) for ys in rounds])

    def counted(count: Callable[[Size], float]) -> float:
        return significant(exponent(xs, [count(sizes[x]) for x in xs]))

    last, half = xs[-1], xs[-1] // 2
    ratios = [b / a for a, b in zip(times[half]["all"], times[last]["all"], strict=True)]
    return {
        "from": start,
        "to": last,
        "time": {part: measured(lambda x, p=part: times[x][p]) for part in times[start]},
        "counted": {
            "all": counted(lambda s: sum(multiply_adds(s).values())),
            "weights": counted(lambda s: multiply_adds(s)["weights"]),
            "attention": counted(lambda s: multiply_adds(s)["attention"]),
            "memory": counted(lambda s: sum(needed(s).values())),
        },
        "memory": significant(exponent(xs, [row["memory"][str(x)] for x in xs])),
        "double": {
            "from": half,
            "time": significant(median_of(ratios)),
            "memory": significant(row["memory"][str(last)] / row["memory"][str(half)]),
        },
    }


def layer_line(row: Mapping[str, Any]) -> dict[str, Any]:
    """时间（毫秒）与内存（MiB）对层数的直线：固定的与每层的，离直线最远的点差几分之几。"""
    xs = list(LAYERS)
    times = [totals(row["time"][str(x)]) for x in xs]
    start, slope = rounds_line(xs, times)
    memory = [row["memory"][str(x)] / MIB for x in xs]
    base, step = line(xs, memory)
    middle = [median_of(rounds) for rounds in times]
    return {
        "fixed": in_unit(start, 1e-3),
        "each": in_unit(slope, 1e-3),
        "off": significant(off_line(xs, middle, start["value"], slope["value"])),
        "memory_fixed": significant(base),
        "memory_each": significant(step),
        "memory_off": significant(off_line(xs, memory, base, step)),
        "memory_counted": significant((whole_need(LAYERS[2]) - whole_need(LAYERS[1])) / MIB),
    }


def rounds_line(
    xs: Sequence[float], times: Sequence[Sequence[float]]
) -> tuple[dict[str, float], dict[str, float]]:
    """直线的截距与斜率，都有中间一半的范围。

    斜率按轮拟合，取中位数：同一轮里机器的快慢相近，各轮之间可能不同。截距再由各点的中位数定。
    """
    fits = [line(xs, ys) for ys in zip(*times, strict=True)]
    starts, slopes = (quartiles(values) for values in zip(*fits, strict=True))
    offsets = [median_of(rounds) - slopes.median * x for x, rounds in zip(xs, times, strict=True)]
    return (
        {"value": median_of(offsets), "low": starts.low, "high": starts.high},
        {"value": slopes.median, "low": slopes.low, "high": slopes.high},
    )


def in_unit(values: Mapping[str, float], unit: float) -> dict[str, float]:
    """换一个单位，留六位有效数字。"""
    return {name: significant(value / unit) for name, value in values.items()}


def off_line(xs: Sequence[float], ys: Sequence[float], start: float, slope: float) -> float:
    """离直线最远的点，相对地差多少。"""
    return max(abs(y / (start + slope * x) - 1) for x, y in zip(xs, ys, strict=True))


def token_line(size: Size, times: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """每个词元的时间 a + b·t：a 的毫秒，b 的微秒，从 0 到 1024 增加几分之几，每秒读多少 10⁹ 字节。"""
    fixed, each = rounds_line(POSITIONS, [times[str(t)] for t in POSITIONS])
    start, slope = fixed["value"], each["value"]
    weights, cache = 4 * fixed_work(size), 8 * size.embedding * size.blocks
    return {
        "fixed": in_unit(fixed, 1e-3),
        "each": in_unit(each, 1e-6),
        "grown": significant(1024 * slope / start),
        "grown_counted": significant(1024 * 2 * size.embedding * size.blocks / fixed_work(size)),
        "weights_mib": significant(weights / MIB),
        "cache_kib": significant(cache / 1024),
        "cache_mib": significant(1024 * cache / MIB),
        "weight_rate": significant(weights / start / 1e9),
        "cache_rate": significant(cache / slope / 1e9),
    }


def summary(data: Mapping[str, Any]) -> dict[str, Any]:
    """页面要的全部数字，都由测量的原始数据算出。"""
    generation = data["generation"]
    last, whole = median_of(generation["M"]["1023"]), generation["whole"]
    return {
        **{f"{sweep}_fit": exponents(sweep, data[sweep]) for sweep in SWEEPS},
        "layer_line": layer_line(data["layers"]),
        **{f"token_{kind}": token_line(GENERATION[kind], generation[kind]) for kind in GENERATION},
        "whole_exponent": spread(
            [
                exponent(POSITIONS[2:], ys)
                for ys in zip(*(whole[str(t)] for t in POSITIONS[2:]), strict=True)
            ]
        ),
        "whole_last": significant(1e3 * median_of(whole["1023"])),
        "whole_ratio": significant(median_of(whole["1023"]) / last),
        "shares": {sweep: shares(sweep, data[sweep]) for sweep in SWEEPS},
        "memory_ratio": {sweep: memory_ratio(sweep, data[sweep]) for sweep in SWEEPS},
        "memory_range": memory_range(data),
        "tables": {sweep: table(sweep, data[sweep]) for sweep in SWEEPS},
        "product_rate": {
            name: significant(512 * 4 * x * x / median_of(data["width"]["product"][str(x)]) / 1e9)
            for name, x in (("first", min(WIDTHS)), ("last", max(WIDTHS)))
        },
        "token_table": token_table(generation),
    }


def shares(sweep: str, row: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """最小的、开始拟合的与最大的尺寸里，各部分占一步的几分之几；速率是平均每秒的乘加。"""
    xs = list(SWEEPS[sweep])
    result: dict[str, dict[str, float]] = {}
    for name, x in (("first", xs[0]), ("start", FITTED[sweep]), ("last", xs[-1])):
        parts, counts = row["time"][str(x)], multiply_adds(SWEEPS[sweep][x])
        whole = median_of(totals(parts))
        result[name] = {
            **{part: significant(median_of(times) / whole) for part, times in parts.items()},
            "milliseconds": significant(1e3 * whole),
            "rate": significant(sum(counts.values()) / whole / 1e9),
            "counted_attention": significant(counts["attention"] / sum(counts.values())),
        }
    return result


def memory_ratio(sweep: str, row: Mapping[str, Any]) -> dict[str, float]:
    """峰值是必需量的几倍：最小与最大的尺寸，还有最大时权重与参数各占必需量的几分之几。"""
    xs, sizes = list(SWEEPS[sweep]), SWEEPS[sweep]
    first, last = (row["memory"][str(x)] / whole_need(sizes[x]) for x in (xs[0], xs[-1]))
    parts = needed(sizes[xs[-1]])
    return {
        "first": significant(first),
        "last": significant(last),
        **{name: significant(part / sum(parts.values())) for name, part in parts.items()},
    }


def memory_range(data: Mapping[str, Any]) -> dict[str, float]:
    """全部尺寸里，峰值最少与最多是必需量的几倍。"""
    ratios = [
        data[sweep]["memory"][str(x)] / whole_need(size)
        for sweep, sizes in SWEEPS.items()
        for x, size in sizes.items()
    ]
    return {"low": significant(min(ratios)), "high": significant(max(ratios))}


# ---------------------------------------------------------------- 表

NAMES = {"length": "$T$", "width": "$E$", "layers": "层数"}


def short(value: float) -> str:
    """三位有效数字，不用科学记数法。"""
    digits = max(0, 2 - int(f"{value:e}".split("e")[1]))
    return f"{value:,.{digits}f}"


def table(sweep: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """一组测量的表：时间、其中的注意力与更新、乘加、每秒的乘加、内存。"""
    rows: list[list[str]] = []
    for x, size in SWEEPS[sweep].items():
        parts = row["time"][str(x)]
        whole, count = median_of(totals(parts)), sum(multiply_adds(size).values())
        rows.append(
            [
                str(x),
                short(1e3 * whole),
                short(1e3 * median_of(parts["attention"])),
                short(1e3 * median_of(parts["update"])),
                short(count / 1e9),
                short(count / whole / 1e9),
                short(row["memory"][str(x)] / MIB),
            ]
        )
    head = [
        *(NAMES[sweep], "一步（ms）", "注意力（ms）", "更新（ms）"),
        *("乘加（10⁹）", "每秒乘加（10⁹）", "内存（MiB）"),
    ]
    return {"head": head, "align": "r" * len(head), "rows": rows}


def token_table(generation: Mapping[str, Any]) -> dict[str, Any]:
    """每个词元的时间。"""
    rows = [
        [
            str(t),
            *(short(1e3 * median_of(generation[kind][str(t)])) for kind in ("M", "whole", "G")),
        ]
        for t in POSITIONS
    ]
    head = ["已有的词元", "小模型（ms）", "小模型，不用缓存（ms）", "124M 的形状（ms）"]
    return {"head": head, "align": "rrrr", "rows": rows}
