"""时间与内存怎样增长：数法与拟合，页面的数字与图，以及不靠计时就能核对的两件事"""

import gc
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from math import log
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest

from gptcore import GPT, GPTLoss, Tensor
from gptcore.graph import Node

ROOT = Path(__file__).resolve().parents[1]
GUIDES = ROOT / "docs" / "guides"
RESULTS = ROOT / "docs" / "book" / "results" / "growth.json"
HELPERS = ("pairing", "sizes")


def load(path: Path) -> ModuleType:
    """读入一个脚本；它用到的同一个文件夹里的模块，读完就忘掉，免得与别的测试混淆。"""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(loaded)
    finally:
        sys.path.remove(str(path.parent))
        for name in HELPERS:
            sys.modules.pop(name, None)
    return loaded


fits = load(ROOT / "tests" / "benchmarks" / "growth_fits.py")
drawing = load(GUIDES / "code" / "growth_figures.py")
Size = type(fits.LENGTHS[64])
SMALL = Size(1, 1024, 48, 3, 2, 65)


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return json.loads(RESULTS.read_text(encoding="utf-8"))


# ---------------------------------------------------------------- 数法与拟合


@pytest.mark.parametrize("length", [1, 63, 64, 65, 128, 200, 1024])
def test_pairs_are_the_blocks_one_by_one(length: int) -> None:
    block = fits.QUERY_BLOCK
    seen = sum(min((i // block + 1) * block, length) for i in range(length))  # 每个查询看到块的末尾
    assert fits.pairs(length) == seen
    assert length * (length + 1) // 2 <= seen <= length * (length + block) // 2


def test_multiply_adds_of_one_step() -> None:
    """逐个矩阵数一遍；输出形状的每个数要多少次乘加。"""
    size = Size(2, 5, 12, 3, 4, 7)
    batch, length, e, heads, layers, vocab = size
    weights = [(3 * e, e), (e, e), (4 * e, e), (e, 4 * e)] * layers + [(vocab, e)]
    forward = sum(batch * length * out * into for out, into in weights)
    attention = layers * batch * heads * 2 * length * length * (e // heads)  # 一块，看得见全部 5 个
    assert fits.multiply_adds(size) == {"weights": 3 * forward, "attention": 3 * attention}
    assert sum(fits.multiply_adds(size).values()) >= size.multiply_adds  # 至少要做的


def test_exponent_of_a_power() -> None:
    xs = [64, 128, 512, 1024]
    assert fits.exponent(xs, [3e-5 * x**1.7 for x in xs]) == pytest.approx(1.7)
    assert fits.line(xs, [2 + 0.5 * x for x in xs]) == pytest.approx((2, 0.5))


def test_counted_exponents() -> None:
    """权重的乘加与 T 成正比、与 E 的平方成正比；注意力与 E 成正比，与 T 接近平方。"""

    def growth(sizes: dict[int, Any], start: int, part: str) -> float:
        first, last = (fits.multiply_adds(sizes[x])[part] for x in (start, max(sizes)))
        return log(last / first) / log(max(sizes) / start)

    assert growth(fits.LENGTHS, 64, "weights") == 1
    assert 1.85 < growth(fits.LENGTHS, 256, "attention") < 2
    assert 1.9 < growth(fits.WIDTHS, 64, "weights") <= 2  # 输出头只有一次方
    assert growth(fits.WIDTHS, 64, "attention") == 1
    assert growth(fits.LAYERS, 1, "attention") == 1


@pytest.mark.parametrize(
    ("value", "shown"), [(0.27431, "0.274"), (7.0312, "7.03"), (93.14, "93.1"), (1234.5, "1,234")]
)
def test_short_numbers(value: float, shown: str) -> None:
    assert fits.short(value) == shown


# ---------------------------------------------------------------- 页面的数字与图


def test_summary_follows_from_the_measurements(results: dict[str, Any]) -> None:
    again = json.loads(json.dumps(fits.summary(results)))
    assert again == {name: results[name] for name in again}


def test_results_say_where_they_come_from(results: dict[str, Any]) -> None:
    for name in ("command", "seed", "dtype", "versions", "machine", "blas_kernel", "threads"):
        assert name in results["facts"]
    for sweep, sizes in fits.SWEEPS.items():
        assert results[sweep]["sizes"] == {str(x): list(size) for x, size in sizes.items()}


def test_figures_are_drawn_from_the_results(results: dict[str, Any]) -> None:
    for name, content in drawing.figures(results).items():
        path = GUIDES / "figures" / f"{name}.svg"
        assert path.read_text(encoding="utf-8") == content, (
            f"请重新运行 docs/guides/code/growth_figures.py：{name}"
        )


# ---------------------------------------------------------------- 有缓存时，一个词元的计算量


class Counted(np.ndarray):
    """数矩阵乘法的数组：参与的乘法，乘加的次数记在 `done` 里；算出的数组也照样数。"""

    done = 0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [x.view(np.ndarray) if isinstance(x, Counted) else x for x in inputs]
        out = options.pop("out", ())
        if out:
            options["out"] = tuple(x.view(np.ndarray) if isinstance(x, Counted) else x for x in out)
        result = getattr(ufunc, method)(*plain, **options)
        if ufunc is np.matmul:
            Counted.done += np.asarray(result).size * plain[0].shape[-1]
        if out:
            return out[0]
        return result.view(Counted) if isinstance(result, np.ndarray) else result


@pytest.fixture
def counted_model() -> Iterator[tuple[GPT, Any]]:
    """参数与缓存都数着乘法的模型。"""
    model = GPT(SMALL.vocab, SMALL.context, SMALL.embedding, SMALL.heads, SMALL.blocks)
    for p in model.parameters:
        p.data = p.data.view(Counted)
    cache = model.new_cache()
    cache.keys, cache.values = cache.keys.view(Counted), cache.values.view(Counted)
    Counted.done = 0
    yield model, cache
    Counted.done = 0


def work_at(model: GPT, cache: Any, seen: int) -> int:
    cache.lengths[:] = seen
    Counted.done = 0
    model.next_scores([[1]], cache)
    return Counted.done


def test_multiply_adds_per_token_grow_only_in_attention(counted_model: tuple[GPT, Any]) -> None:
    """一个词元的乘加是 a + b·t：b 只有注意力的 2·E·层数；a 是每个权重一次，外加归一化里求平均的零头。"""
    work = {t: work_at(*counted_model, t) for t in (0, 1, 10, 100, 500, 1000, 1023)}
    slope = work[1] - work[0]
    assert {t: work[0] + t * slope for t in work} == work
    b = fits.one_token(SMALL, 1) - fits.one_token(SMALL, 0)
    assert b == 2 * SMALL.embedding * SMALL.blocks
    assert b <= slope <= 1.1 * b  # 求权重之和若写成与全 1 向量的乘积，每个头多一次
    assert fits.one_token(SMALL, 0) <= work[0] <= 1.05 * fits.one_token(SMALL, 0)


def test_without_the_cache_everything_is_done_again(counted_model: tuple[GPT, Any]) -> None:
    """同样的数法，不用缓存时 100 个词元要做约 100 倍的乘加：数得出这种错。"""
    model, cache = counted_model
    cached = work_at(model, cache, 99)
    Counted.done = 0
    model.next_scores([[1] * 100])
    assert Counted.done > 40 * cached


def test_as_many_calls_however_much_is_written() -> None:
    """一个词元调用 Python 与 NumPy 函数的次数，与已经写了多少无关。"""
    model = GPT(SMALL.vocab, SMALL.context, SMALL.embedding, SMALL.heads, SMALL.blocks)
    cache = model.new_cache()

    def calls(seen: int) -> int:
        cache.lengths[:] = seen
        count = 0

        def tracer(frame: Any, event: str, argument: Any) -> None:
            nonlocal count
            count += event in {"call", "c_call"}

        previous = sys.getprofile()
        gc.disable()  # 垃圾回收也会调用函数
        sys.setprofile(tracer)
        try:
            model.next_scores([[1]], cache)
        finally:
            sys.setprofile(previous)
            gc.enable()
        return count

    calls(5)  # 有的小数组第一次才建立
    assert len({calls(t) for t in (1, 10, 100, 700, 1023)}) == 1


# ---------------------------------------------------------------- 内存随层数


def held(loss: Tensor, model: GPT) -> int:
    """前向之后计算图留着多少字节：顺着父张量与反向函数，找出每一个数组，参数不算。"""
    seen, bytes_of, todo = set(), {}, [loss]
    while todo:
        item: Any = todo.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, np.ndarray):
            owner = base(item)
            bytes_of[id(owner)] = owner.nbytes
        elif isinstance(item, Node):
            todo += [item.data, *item.parents, item._vjp]
        elif isinstance(item, list | tuple):
            todo += item
        elif isinstance(item, FunctionType):
            todo += [cell.cell_contents for cell in item.__closure__ or ()]
    for p in model.parameters:
        bytes_of.pop(id(base(p.data)), None)
    return sum(bytes_of.values())


def base(array: np.ndarray) -> np.ndarray:
    """占有内存的数组。"""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def loss_of(model: GPT, size: Any) -> Tensor:
    rng = np.random.default_rng(0)
    x, y = (Tensor(rng.integers(0, size.vocab, (size.batch, size.context))) for _ in range(2))
    return GPTLoss()(model(x), y)


def test_what_the_graph_holds_is_linear_in_layers() -> None:
    """每一层留下的字节一样多；不少于公式里的必需量，也不到它的 1.7 倍。"""
    size = Size(2, 128, 64, 2, 1, 65)
    amounts = []
    for layers in (1, 2, 3, 4, 7):
        model = GPT(size.vocab, size.context, size.embedding, size.heads, layers)
        amounts.append((layers, held(loss_of(model, size), model)))
    each = amounts[1][1] - amounts[0][1]
    assert amounts == [(n, amounts[0][1] + (n - 1) * each) for n, _ in amounts]
    one, two = (fits.needed(size._replace(blocks=n)) for n in (1, 2))
    needed = 4 * sum(two[part] - one[part] for part in ("linear", "weights"))
    print(f"每层留着 {each:,} 字节，必需 {needed:,} 字节")
    assert needed <= each <= 1.7 * needed


def test_what_the_graph_holds_grows_with_the_length() -> None:
    """长度的一次项与二次项都对：长度加倍，必需的部分加倍，注意力的权重近四倍。"""
    model = GPT(65, 512, 64, 2, 2)
    amounts = {
        t: held(loss_of(model, Size(1, t, 64, 2, 2, 65)), model) / 4 for t in (128, 256, 512)
    }
    weights = {t: fits.needed(Size(1, t, 64, 2, 2, 65))["weights"] for t in amounts}
    linear = {t: (amounts[t] - weights[t]) / t for t in amounts}  # 除去权重，每个位置一样多
    assert linear[256] == pytest.approx(linear[128], rel=0.01)
    assert linear[512] == pytest.approx(linear[128], rel=0.01)


def test_peak_of_a_step_is_linear_in_layers() -> None:
    """tracemalloc 看到的一步的峰值，各在单独的进程里：每加四层，多出的差不多一样多。"""
    script = ROOT / "tests" / "benchmarks" / "growth.py"

    def peak(layers: int) -> int:
        size = Size(4, 64, 64, 2, layers, 65)
        command = [sys.executable, str(script), "--peak", *map(str, size)]
        return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)

    peaks = [peak(layers) for layers in (4, 8, 12)]
    first, second = peaks[1] - peaks[0], peaks[2] - peaks[1]
    print(f"峰值 {peaks}，每加四层多 {first:,} 与 {second:,} 字节")
    assert second == pytest.approx(first, rel=0.2)
