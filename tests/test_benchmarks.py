"""测速的办法：轮流与成对、比值与中位数、下限、表、要求；另一个进程里的一方。不量真的速度"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gptcore import GPT

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "tests" / "benchmarks"
NAMES = ("breakdown", "floor", "kernels", "optimizer", "pairing", "plan", "rows", "sizes", "step")
NAMES += ("table", "targets", "worker", "machine")


@pytest.fixture(scope="module")
def suite() -> Iterator[Any]:
    """测速的各个模块；用完就忘掉，它们的名字太普通。"""
    before = set(sys.modules)
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield SimpleNamespace(**{name: __import__(name) for name in NAMES})
    finally:
        sys.path.remove(str(BENCHMARKS))
        for name in set(sys.modules) - before:
            path = getattr(sys.modules[name], "__file__", None)
            if path and Path(path).parent == BENCHMARKS:
                del sys.modules[name]


class Fake:
    """假的一方：依次给出准备好的时间，记下什么时候轮到它。"""

    def __init__(self, name: str, calls: list[str], seconds: list[float]) -> None:
        self.name, self.calls, self.seconds = name, calls, iter(seconds)

    def run(self, repeats: int) -> list[dict[str, float]]:
        self.calls.append(self.name)
        return [{"all": next(self.seconds)} for _ in range(repeats)]


# ---------------------------------------------------------------- 成对


def test_ratio_is_the_median_of_the_ratios_not_the_ratio_of_medians(suite: Any) -> None:
    """机器在第二、三轮慢了三倍，两边都慢：比值不受影响。"""
    ours, theirs = [1.0, 3.0, 3.0, 1.0, 1.0], [2.0, 6.0, 6.0, 2.0, 200.0]
    assert suite.pairing.paired(theirs, ours) == (2.0, 2.0, 2.0)


def test_quartiles(suite: Any) -> None:
    assert suite.pairing.quartiles([5.0, 1.0, 4.0, 2.0, 3.0]) == (3.0, 2.0, 4.0)
    assert suite.pairing.quartiles([7.0]) == (7.0, 7.0, 7.0)
    with pytest.raises(ValueError, match="zip"):
        suite.pairing.paired([1.0, 2.0], [1.0])


def test_order_is_swapped_each_round_and_warm_runs_are_not_counted(suite: Any) -> None:
    calls: list[str] = []
    slow = suite.pairing.TURN  # 两遍的时间正好不必重复
    sides = {
        name: Fake(name, calls, [9.0, scale * slow, *(scale * n for n in (1.0, 2.0, 3.0))])
        for name, scale in (("A", 1.0), ("B", 2.0))
    }
    times = suite.pairing.alternate(sides, rounds=3, rest=0)
    assert calls == list("ABABBAAB")
    assert suite.pairing.totals(times["A"]) == [1.0, 2.0, 3.0]
    assert suite.pairing.totals(times["B"]) == [2.0, 4.0, 6.0]


def test_fast_sides_repeat_and_drop_the_first_run(suite: Any) -> None:
    fast = suite.pairing.TURN / 4
    runs = [1.0, fast, 50.0, fast, 2 * fast, fast, 3 * fast]
    times = suite.pairing.alternate({"A": Fake("A", [], runs)}, rounds=1, rest=0)
    assert suite.pairing.totals(times["A"]) == [1.5 * fast]  # 50 是换到它之后的第一遍


def test_parts_are_reduced_separately(suite: Any) -> None:
    runs = [{"forward": f, "backward": b} for f, b in ((1.0, 9.0), (2.0, 7.0), (3.0, 8.0))]
    assert suite.pairing.middle(runs) == {"forward": 2.0, "backward": 8.0}


# ---------------------------------------------------------------- 尺寸与下限


@pytest.mark.parametrize(("name", "blocks"), [("S", 2), ("M", 4), ("G", 0)])
def test_parameters_are_counted_as_the_model_has_them(suite: Any, name: str, blocks: int) -> None:
    size = suite.sizes.SIZES[name]._replace(blocks=blocks)
    _, context, embedding, heads, _, vocab = size
    model = GPT(vocab, context, embedding, heads, blocks, tied=size.tied, head_bias=not size.tied)
    assert model.num_parameters == size.parameters


def test_gpt2_has_124_million_parameters(suite: Any) -> None:
    size = suite.sizes.SIZES["G"]._replace(context=1024)
    assert size.parameters == 124_439_808


def test_multiply_adds(suite: Any) -> None:
    """一块、一个头、两个位置，逐项数。"""
    size = suite.sizes.Size(3, 2, 4, 1, 1, 5)
    weights = 4 * 12 + 4 * 4 + 4 * 16 + 16 * 4 + 4 * 5  # c_attn、output、前馈的两层、输出头
    attention = (1 + 2) * (4 + 4)  # 位置 1 看一个键，位置 2 看两个：分数与加权和
    assert size.multiply_adds == 3 * 3 * (2 * weights + attention)


def test_floor(suite: Any) -> None:
    """两个核、每个每秒 1024³ 次乘加，做 1024³ 次要半秒。"""
    floor = suite.floor
    assert floor.floor_seconds(floor.WIDTH**3, sgemm_seconds=1.0, threads=2) == 0.5


# ---------------------------------------------------------------- 结果与表


def row(suite: Any, part: str, name: str, size: str, ours: float, torch: float, **more: Any) -> Any:
    times = {"gptcore": [{"all": ours}], "PyTorch": [{"all": torch}]}
    return suite.rows.make_row(part, name, size, times, **more)


def test_row_has_medians_ratios_and_pieces(suite: Any) -> None:
    times = {
        "gptcore": [{"forward": 1.0, "backward": 3.0}, {"forward": 2.0, "backward": 2.0}],
        "PyTorch": [{"forward": 2.0, "backward": 6.0}, {"forward": 2.0, "backward": 6.0}],
    }
    found = suite.rows.make_row("kernels", "GELU", "M", times, problems={"别的": "没有安装"})
    assert found["sides"]["gptcore"]["median"] == 4
    assert found["ratios"] == {"PyTorch": {"median": 2, "low": 2, "high": 2}}
    assert found["pieces"]["forward"]["PyTorch"]["median"] == 1.5
    assert found["pieces"]["backward"]["PyTorch"]["median"] == 2.5
    assert (found["rounds"], found["problems"]) == (2, {"别的": "没有安装"})
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5, "2.50 秒"), (0.0123, "12.3 毫秒"), (0.123, "123 毫秒"), (4.5e-6, "4.50 微秒")],
)
def test_durations_have_three_digits(suite: Any, seconds: float, text: str) -> None:
    assert suite.table.duration(seconds) == text


def test_table_of_two_sides_shows_both_times(suite: Any) -> None:
    found = suite.table.part_table([row(suite, "optimizer", "AdamW", "M", 0.001, 0.002)])
    assert found["head"] == ["项目", "尺寸", "gptcore", "PyTorch", "PyTorch ÷ gptcore"]
    cells = ["AdamW", "M", "1.00 毫秒", "2.00 毫秒", "2.00（2.00–\u20602.00）"]
    assert (found["rows"], found["align"]) == ([cells], "llrrr")


def test_table_with_a_missing_side(suite: Any) -> None:
    times = {side: [{"all": 1.0}] for side in ("gptcore", "PyTorch", "下限")}
    some = suite.rows.make_row("step", "S", "S", times)
    found = suite.table.part_table([some, row(suite, "step", "L", "L", 2.0, 1.0)])
    assert found["head"] == ["尺寸", "gptcore", "PyTorch ÷ gptcore", "下限 ÷ gptcore"]
    assert found["rows"][1] == ["L", "2.00 秒", "0.50（0.50–\u20600.50）", "–"]


def test_kernels_of_the_page_are_side_by_side(suite: Any) -> None:
    times = {
        "gptcore": [{"forward": 1.0, "backward": 1.0}],
        "PyTorch": [{"forward": 1.0, "backward": 3.0}],
    }
    rows = [suite.rows.make_row("kernels", "GELU", size, times) for size in ("M", "L")]
    rows.append(suite.rows.make_row("kernels", "ReLU", "L", times))
    found = suite.table.page_tables(rows)["kernels"]
    assert found["head"] == ["核函数", "M", "L"]
    cell = "2.00（1.00，\u20603.00）"
    assert found["rows"] == [["GELU", cell, cell], ["ReLU", "–", cell]]


def test_terminal_table_is_aligned_for_chinese(suite: Any) -> None:
    table = {"head": ["项目", "比"], "align": "lr", "rows": [["GELU", "1.0"], ["嵌入表", "12.0"]]}
    assert suite.table.render(table) == "项目      比\nGELU     1.0\n嵌入表  12.0"


# ---------------------------------------------------------------- 要求


def test_every_target_of_the_project_is_there(suite: Any) -> None:
    limits = {(t.part, t.size, t.name): t.at_least for t in suite.targets.TARGETS}
    assert limits == {
        ("step", "S", None): 1.6,
        ("step", "M", None): 1.0,
        ("step", "L", None): 0.95,
        ("step", "G", None): 0.85,
        ("memory", "M", None): 1.0,
        ("memory", "L", None): 1.0,
        ("optimizer", "G", "AdamW"): 0.7,
        ("kernels", "M", None): 0.8,
        ("kernels", "L", None): 0.8,
    }


def test_missed_targets_are_named(suite: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        row(suite, "step", "S", "S", 1.0, 1.5),
        row(suite, "kernels", "GELU", "L", 1.0, 0.8),
        row(suite, "kernels", "GELU", "G", 1.0, 0.1),  # G 的核函数没有要求
        row(suite, "optimizer", "梯度裁剪", "G", 1.0, 0.1),
    ]
    assert [(c.row["name"], c.passed) for c in suite.targets.checks(rows)] == [
        ("S", False),
        ("GELU", True),
    ]
    idle, busy = suite.machine.Busy(), suite.machine.Busy()
    idle.share, busy.share = 0.01, 0.5
    assert not suite.table.judge(rows, idle)
    assert capsys.readouterr().out.count("没有达到") == 1
    assert suite.table.judge(rows[1:], idle)
    assert not suite.table.judge(rows[1:], busy)  # 机器忙时，比值好看得不真实
    assert "请在空闲的机器上重测" in capsys.readouterr().out


def test_own_work_is_not_counted_as_others(suite: Any) -> None:
    with suite.machine.Busy() as busy:
        sum(range(1_000_000))
    assert busy.share is None or busy.share >= 0


# ---------------------------------------------------------------- 时间花在哪里


def test_breakdown_adds_up_to_the_step(suite: Any) -> None:
    size = suite.sizes.SIZES["M"]
    rows = [row(suite, "kernels", k.title, "M", 1.0, 2.0) for k in suite.kernels.KERNELS.values()]
    rows += [
        row(suite, "optimizer", name, "M", 5.0, 5.0) for name in suite.optimizer.NAMES.values()
    ]
    assert suite.breakdown.breakdowns(rows) == {}  # 没有测一步训练
    rows.append(row(suite, "step", "M", "M", 100.0, 100.0))
    found = suite.breakdown.breakdowns(rows)["M"]
    ours = found["gptcore"]
    assert ours["矩阵乘法"] == 4 * size.blocks + 1
    assert (ours["归一化"], ours["嵌入与损失"], ours["更新"]) == (2 * size.blocks + 1, 2, 10)
    assert sum(ours.values()) == sum(found["PyTorch"].values()) == 100
    assert [row[:2] for row in suite.table.breakdown_table(rows)["rows"]] == [
        ["M", "gptcore"],
        ["M", "PyTorch"],
    ]


# ---------------------------------------------------------------- 另一个进程


def test_worker_runs_a_real_step_in_its_own_process(suite: Any) -> None:
    with suite.worker.Worker("step:sides", 1) as side:
        side.choose("S")
        runs = side.run(3)
    assert len(runs) == 3
    assert all(0 < run["all"] < 60 for run in runs)
    assert side.facts["parameters"] == suite.sizes.SIZES["S"].parameters
    assert side.facts["threads"] in (1, None)  # 有的 BLAS 认不出
    assert 3 < side.facts["first_loss"] < 8


def test_worker_and_local_agree(suite: Any) -> None:
    with suite.worker.Worker("floor:sides") as apart, suite.worker.Local("floor:sides") as here:
        for side in (apart, here):
            (run,) = side.choose("S").run(1)
            assert set(run) == {"all"}
        assert apart.facts["blas"] == here.facts["blas"]


def test_a_failing_side_says_why(suite: Any) -> None:
    with pytest.raises(suite.worker.SideError, match="no_such"):
        suite.worker.Worker("no_such_module:sides")
    with suite.worker.Worker("floor:sides") as side, pytest.raises(suite.worker.SideError):
        side.choose("没有的尺寸")


def test_book_and_library_do_the_same_step(suite: Any) -> None:
    size = suite.sizes.SIZES["S"]
    losses = []
    for make in (suite.step.gptcore_step, suite.step.book_step):
        np.random.seed(0)
        step = make(size, *size.random_batch())
        losses.append([step() for _ in range(30)][-1])
        assert step.parameters == size.parameters
    assert abs(losses[0] - losses[1]) < 0.5  # 初值不同，都在记住这一批
    assert max(losses) < 4.0


# ---------------------------------------------------------------- 页面


def test_figures_are_drawn_from_the_results() -> None:
    code = ROOT / "docs" / "guides" / "code"
    sys.path.insert(0, str(code))
    try:
        import speed_figures

        drawn = speed_figures.figures()
    finally:
        sys.path.remove(str(code))
        for name in ("speed_figures", "growth_figures"):
            sys.modules.pop(name, None)
    folder = ROOT / "docs" / "guides" / "figures"
    stale = [n for n, svg in drawn.items() if (folder / f"{n}.svg").read_text("utf-8") != svg]
    assert not stale, "请运行 python docs/guides/code/speed_figures.py"


def test_tables_of_the_page_are_made_from_the_rows(suite: Any) -> None:
    path = ROOT / "docs" / "book" / "results" / "speed.json"
    results = json.loads(path.read_text(encoding="utf-8"))
    rows = results["rows"]
    assert results["tables"] == suite.table.page_tables(rows)
    assert results["breakdown"] == suite.breakdown.breakdowns(rows)
    assert {"cpu", "cores", "system", "python", "packages", "blas"} <= set(results["machine"])
    assert {"command", "commit", "date", "seed", "others_busy"} <= set(results)
