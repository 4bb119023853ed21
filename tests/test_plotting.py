"""画图：四格里画了什么，字体与语言，错误；没有安装 matplotlib 时跳过"""

import builtins
import io
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gptcore import (
    ArgumentError,
    ConstantScheduler,
    DataError,
    DtypeError,
    GptcoreError,
    LinearScheduler,
    WarmupCosineScheduler,
)
from gptcore.plotting import MissingMatplotlibError, plot_metrics, plot_schedule, read_metrics
from gptcore.plotting.panels import TEXTS, nice_bounds
from gptcore.plotting.style import chinese_font

matplotlib = pytest.importorskip("matplotlib", reason="没有安装 matplotlib")
matplotlib.use("agg")

from matplotlib import pyplot as plt  # noqa: E402


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """画图不改动全局的设置，测试不留下打开的图。"""
    before = dict(matplotlib.rcParams)
    yield
    plt.close("all")
    assert dict(matplotlib.rcParams) == before


def record(folder: Path, steps: int, evaluate: int = 0, **values: Any) -> Path:
    """一份像样的记录；`values` 改动每一步的值。"""
    lines: list[dict[str, Any]] = [{"run": {}, "step": 0}]
    for i in range(steps):
        line = {
            "step": i,
            "loss": 2 + 3 * math.exp(-i / 50) + 0.1 * math.sin(37 * i),
            "lr": 1e-3 * (1 - i / steps),
            "grad_norm": 0.5 + math.exp(-i / 20) + 0.1 * math.sin(11 * i),
            "tokens": 128,
            "seconds": 0.01 * (i + 1),
        }
        lines.append(line | {k: v(i) if callable(v) else v for k, v in values.items()})
        if evaluate and (i + 1) % evaluate == 0:
            lines.append({"evaluation": 2.2 + 3 / (i + 1), "step": i + 1})
    path = folder / "metrics.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    return path


def drawn(figure: Any) -> bytes:
    """真的画出来：所有的警告在测试里都是错误，例如缺少字形。"""
    buffer = io.BytesIO()
    figure.savefig(buffer)
    return buffer.getvalue()


def texts(figure: Any) -> str:
    """图里全部的文字。"""
    found = figure.findobj(matplotlib.text.Text)
    return "\n".join(t.get_text() for t in found)


def test_four_panels(tmp_path: Path) -> None:
    path = record(tmp_path, 400, evaluate=100)
    metrics = read_metrics(path)
    figure = plot_metrics(path, title="第一次", language="en")
    loss, lr, norm, throughput = figure.axes
    raw, mean, evaluation, best = loss.lines
    assert_array_equal(raw.get_ydata(), metrics.losses)
    assert mean.get_ydata()[-1] == pytest.approx(2, abs=0.05)
    assert_array_equal(evaluation.get_xydata(), [[n, 2.2 + 3 / n] for n in (100, 200, 300, 400)])
    assert_allclose(best.get_xydata(), [[400, 2.2 + 3 / 400]])
    assert_array_equal(lr.lines[0].get_ydata(), metrics.lrs)
    assert_array_equal(norm.lines[0].get_ydata(), metrics.grad_norms)
    assert norm.get_yscale() == "log"
    assert_allclose(throughput.lines[1].get_ydata(), 12_800, rtol=1e-9)
    assert "best 2.208 (step 400)" in texts(figure)
    assert "400 steps  ·  51,200 tokens  ·  4 s" in texts(figure)
    assert figure.get_facecolor() == (1, 1, 1, 1)
    drawn(figure)


def test_chinese_where_there_is_a_font(tmp_path: Path) -> None:
    font = chinese_font(matplotlib)
    figure = plot_metrics(record(tmp_path, 100, evaluate=50), title="我的模型")
    assert ("损失" in texts(figure)) == ("我的模型" in texts(figure)) == (font is not None)
    drawn(figure)


def test_english_without_a_chinese_font(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gptcore.plotting.style.chinese_font", lambda _: None)
    figure = plot_metrics(record(tmp_path, 100, evaluate=50), title="我的模型")
    assert texts(figure).isascii() or set(texts(figure)) - set(map(chr, range(128))) <= set("·−")
    assert "Learning rate" in texts(figure)
    drawn(figure)
    ax = plot_schedule(ConstantScheduler(1), 5)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Step", "Learning rate")


def test_both_languages_say_the_same_things() -> None:
    assert TEXTS["zh"].keys() == TEXTS["en"].keys()
    for key, text in TEXTS["zh"].items():
        assert text.count("{") == TEXTS["en"][key].count("{")


def test_a_title_is_not_mathematics(tmp_path: Path) -> None:
    figure = plot_metrics(record(tmp_path, 3), title=r"a$\frac{$b")
    drawn(figure)
    assert r"a$\frac{$b" in texts(figure)


def test_one_step(tmp_path: Path) -> None:
    figure = plot_metrics(record(tmp_path, 1), language="en")
    assert [line.get_marker() for line in figure.axes[0].lines] == ["o"]
    assert "1 step  ·" in texts(figure)
    drawn(figure)


def test_evaluations_only(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"evaluation": 2.0, "step": 5}\n{"evaluation": null, "step": 9}\n')
    figure = plot_metrics(path, language="en")
    assert texts(figure).count("not recorded") == 3
    assert_array_equal(figure.axes[0].lines[0].get_xydata(), [[5, 2]])
    drawn(figure)


def test_steps_without_any_numbers(tmp_path: Path) -> None:
    path = record(tmp_path, 3, loss=None, lr=None, grad_norm=None, tokens=None, seconds=None)
    figure = plot_metrics(path, language="en")
    assert texts(figure).count("not recorded") == 4
    drawn(figure)


@pytest.mark.parametrize(
    "values",
    [
        {"grad_norm": 0},
        {"grad_norm": 1e-300},
        {"grad_norm": 1e300, "loss": 1e300},
        {"loss": 0, "lr": 0, "tokens": 0},
        {"loss": -5.0},
        {"loss": lambda i: None if i % 2 else 1.0},
        {"seconds": 0},
        {"seconds": lambda i: -i},
        {"grad_norm": lambda i: 10.0 ** (i % 40 - 20)},
        {"loss": lambda i: 1e30 if i == 50 else 2.0},
    ],
)
@pytest.mark.parametrize("steps", [5, 200])
def test_extreme_values(tmp_path: Path, values: dict[str, Any], steps: int) -> None:
    drawn(plot_metrics(record(tmp_path, steps, evaluate=3, **values)))


def test_a_spike_leaves_the_picture_but_not_the_data(tmp_path: Path) -> None:
    path = record(tmp_path, 3000, loss=lambda i: 1e3 if i == 1234 else 2.0 + i / 3000)
    loss = plot_metrics(path).axes[0]
    assert loss.get_ylim()[1] < 100
    assert loss.lines[0].get_ydata().max() == 1e3


def test_long_runs_are_thinned(tmp_path: Path) -> None:
    figure = plot_metrics(record(tmp_path, 20_000, evaluate=10))
    assert all(len(line.get_xdata()) <= 802 for ax in figure.axes for line in ax.lines)
    drawn(figure)


def test_where_the_training_was_resumed(tmp_path: Path) -> None:
    path = record(tmp_path, 60)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"run": {}, "step": 40}\n{"step": 40, "loss": 2.0}\n')
    figure = plot_metrics(path)
    for ax in figure.axes:
        assert list(ax.lines[-1].get_xdata()) == [40, 40]


def test_a_figure_of_ones_own(tmp_path: Path) -> None:
    """给了图就不经过 pyplot：没有窗口，也没有全局的图。"""
    own = matplotlib.figure.Figure()
    assert plot_metrics(record(tmp_path, 5), figure=own) is own
    assert len(own.axes) == 4
    assert plt.get_fignums() == []


def test_wrong_arguments(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"run": {}, "step": 0}\n')
    with pytest.raises(DataError, match=r"^\S*metrics\.jsonl 里还没有任何一步.*至少训练一步"):
        plot_metrics(path)
    with pytest.raises(DataError, match="plot_metrics：还没有任何一步"):
        plot_metrics(read_metrics(path))
    with pytest.raises(DtypeError, match="read_metrics 的结果或文件的路径，这里是 dict"):
        plot_metrics({})  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="language 必须是 'zh'、'en' 或 None，这里是 'fr'"):
        plot_metrics(record(tmp_path, 2), language="fr")  # type: ignore[arg-type]
    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.3, 0.4, (0.2, 0.5)), (0.5, 0.5, (0.5, 1)), (0.11, 7, (0.1, 10)), (1, 1000, (1, 1000))],
)
def test_bounds_of_the_logarithmic_axis(
    low: float, high: float, expected: tuple[float, float]
) -> None:
    assert nice_bounds(low, high) == pytest.approx(expected)


# 学习率


def test_one_schedule() -> None:
    scheduler = WarmupCosineScheduler(1e-3, 100, 10)
    ax = plot_schedule(scheduler, 120)
    (line,) = ax.lines
    assert_array_equal(line.get_xdata(), np.arange(120))
    assert_allclose(line.get_ydata(), [scheduler.step(i) for i in range(120)])
    assert ax.get_legend() is None
    drawn(ax.figure)


def test_several_schedules_on_ones_own_axes() -> None:
    _, own = plt.subplots()
    many = {f"{n}": ConstantScheduler(0.1 * n, n) for n in range(1, 8)}
    assert plot_schedule(many, 50, own) is own
    assert [t.get_text() for t in own.get_legend().get_texts()] == list(many)
    assert len(own.lines) == 7
    drawn(own.figure)


def test_a_schedule_of_a_million_steps_is_sampled() -> None:
    ax = plot_schedule(LinearScheduler(1.0, 1_000_000, 50_000), 1_000_000)
    x, y = ax.lines[0].get_data()
    assert len(x) <= 802
    assert (x[0], x[-1]) == (0, 999_999)
    assert y.max() == pytest.approx(1, abs=1e-3)


def test_a_schedule_of_one_step() -> None:
    drawn(plot_schedule(ConstantScheduler(0.5), 1).figure)


@pytest.mark.parametrize(
    ("scheduler", "steps", "kind", "message"),
    [
        (ConstantScheduler(1), 0, ArgumentError, "steps 必须是正整数，这里是 0"),
        (ConstantScheduler(1), 2.5, ArgumentError, r"steps .*2\.5"),
        (ConstantScheduler(1), True, ArgumentError, "steps .*True"),
        ({}, 10, ArgumentError, "一个调度也没有"),
        (0.1, 10, DtypeError, r"方法 step\(i\)，这里是 0\.1"),
        (LinearScheduler, 10, DtypeError, "LinearScheduler"),
        ({"a": None}, 10, DtypeError, "这里是 None"),
    ],
)
def test_wrong_schedules(scheduler: Any, steps: Any, kind: type, message: str) -> None:
    with pytest.raises(kind, match="^plot_schedule：.*" + message):
        plot_schedule(scheduler, steps)


# matplotlib 与字体


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModuleNotFoundError("No module", name="matplotlib"), "画图需要 matplotlib；"),
        (ImportError("DLL load failed"), r"matplotlib 不能导入（DLL load failed）；"),
        (ModuleNotFoundError("No module named 'x'", name="x"), "不能导入（No module named 'x'）"),
    ],
)
def test_without_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: ImportError, message: str
) -> None:
    real = builtins.__import__

    def fails(name: str, *args: Any) -> Any:
        if name == "matplotlib":
            raise error
        return real(name, *args)

    path = record(tmp_path, 2)
    monkeypatch.setattr(builtins, "__import__", fails)
    for draw in (lambda: plot_metrics(path), lambda: plot_schedule(ConstantScheduler(1), 2)):
        with pytest.raises(MissingMatplotlibError, match=message) as caught:
            draw()
        assert 'pip install "gptcore[plot]"' in str(caught.value)
        assert isinstance(caught.value, GptcoreError | ImportError)
    assert len(read_metrics(path).steps) == 2  # 读记录不需要它


def test_matplotlib_is_imported_only_to_draw() -> None:
    code = "import sys, gptcore.plotting; print('matplotlib' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert result.stdout.strip() == b"False"


class Fonts:
    """替身：一开始目录里没有中文字体，`addfont` 之后才有。"""

    def __init__(self, files: list[str], good: str) -> None:
        self.files, self.good, self.added = files, good, []
        self.fontManager = self
        self.names = {"DejaVu Sans"}

    def findSystemFonts(self) -> list[str]:  # noqa: N802
        return self.files

    def get_font_names(self) -> list[str]:
        return sorted(self.names)

    def addfont(self, path: str) -> None:
        self.added.append(path)
        if path != self.good:
            raise RuntimeError("打不开")
        self.names |= {"Noto Sans CJK JP", "Noto Serif CJK SC"}


def test_a_font_installed_after_the_cache_was_made() -> None:
    files = ["/fonts/arial.ttf", "/fonts/msyh.ttc", "/fonts/NotoSansCJK-Regular.ttc"]
    fonts = Fonts(files, files[2])
    assert chinese_font(type("M", (), {"font_manager": fonts})) == "Noto Sans CJK JP"
    assert fonts.added == files[1:]  # 只试认得的，打不开的跳过
    assert chinese_font(type("M", (), {"font_manager": Fonts(files[:2], "")})) is None
