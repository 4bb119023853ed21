"""训练的进度显示在哪里：终端与 Jupyter"""

import io
import os
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from test_progress import Clock, FakeTrainer, feed, lines_of
from training.runs import chars, gpt_trainer

from gptcore import Evaluate, ProgressDisplay
from gptcore.progress import LineView, LiveView, NotebookView, open_view
from gptcore.progress.views import pack

# ---------------------------------------------------------------- 终端


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_the_live_display_fits_any_width(tmp_path: Path, width: int) -> None:
    with (tmp_path / "x").open("w+", encoding="utf-8") as file:
        console = Console(file=file, width=width, force_terminal=True, color_system=None)
        clock, trainer = Clock(), FakeTrainer(10)
        display = ProgressDisplay(view=LiveView(console), unit="字符", clock=clock)
        display.on_start(trainer)  # type: ignore[arg-type]
        feed(display, trainer, clock, range(10), 1.0)
        trainer.state.evaluations.append((10, 1.5))
        display.on_evaluation(trainer, None)  # type: ignore[arg-type]
        display.close(trainer)  # type: ignore[arg-type]
        file.seek(0)
        out = file.read()
    last = out[out.rindex("训练 10/10") :]
    for part in ("损失 2.500", "学习率 1.0e-03", "梯度范数 0.50", "1,200 字符/秒", "剩余 0:00"):
        assert part in last
    assert "评估 1.500（最低）"[: width // 2] in last
    frames = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out).replace("\r", "\n").split("\n")
    assert max(map(cell_len, frames)) <= width
    assert out.rindex("\x1b[?25h") > out.rindex("\x1b[?25l")  # 光标还原


def test_a_live_display_without_steps_writes_nothing() -> None:
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True)
    display = ProgressDisplay(view=LiveView(console), clock=Clock())
    trainer: Any = FakeTrainer(10)
    display.on_start(trainer)
    display.close(trainer)
    assert file.getvalue() == ""
    clock = Clock()
    display = ProgressDisplay(view=LiveView(console), clock=clock)
    display.on_start(trainer)
    feed(display, trainer, clock, range(1), 0.01)  # 还不到刷新的时候就出了错
    display.close(trainer)
    assert "训练 1/10" in file.getvalue()


def test_the_live_display_refreshes_at_most_five_times_a_second() -> None:
    drawn: list[int] = []

    class Spy(LineView):
        live = True

        def draw(self, done: int, total: int | None, items: list[str]) -> None:
            drawn.append(done)

    clock, trainer = Clock(), FakeTrainer(100)
    display = ProgressDisplay(view=Spy(), clock=clock)
    display.on_start(trainer)  # type: ignore[arg-type]
    feed(display, trainer, clock, range(100), 1 / 16)
    assert drawn == [*range(4, 100, 4), 100]


def test_pack_keeps_items_whole() -> None:
    lines = [line.plain for line in pack(["一二", "三四", "五六七八九"], 10)]
    assert lines == ["一二  三四", "五六七八九"]


def test_a_notice_shows_at_once_and_stays() -> None:
    frames: list[list[str]] = []

    class Spy(LineView):
        live = True

        def draw(self, done: int, total: int | None, items: list[str]) -> None:
            frames.append(items)
            if len(frames) == 2:  # 信号在画到一半时到来：画完再画，不会重入
                display.notice("再说一次")
                assert len(frames) == 2

    clock, trainer = Clock(), FakeTrainer(100)
    display = ProgressDisplay(view=Spy(), clock=clock)
    display.on_start(trainer)  # type: ignore[arg-type]
    feed(display, trainer, clock, range(1), 0.01)
    display.notice("正在保存")
    assert frames[0][-1] == "正在保存"
    feed(display, trainer, clock, range(1, 2), 0.01)
    assert [frame[-1] for frame in frames] == ["正在保存", "正在保存", "再说一次"]
    clock, trainer = Clock(), FakeTrainer(100)
    display, written = lines_of(trainer, clock)
    display.notice("正在保存")
    assert written == ["正在保存"]


# ---------------------------------------------------------------- Jupyter


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, str]]]:
    """IPython 的替身：`display` 与 `update` 记在一张表里。"""
    shown: list[tuple[str, dict[str, str]]] = []

    class Handle:
        def update(self, data: dict[str, str], *, raw: bool) -> None:
            assert raw
            shown.append(("update", data))

    def display(data: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        shown.append(("display", data))
        return Handle()

    ipython: Any = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    return shown


def test_one_cell_is_updated_in_a_notebook(
    notebook: list[tuple[str, dict[str, str]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = chars(tmp_path)
    trainer = gpt_trainer(dataset)
    for _ in trainer.steps(dataset, 6, callbacks=[ProgressDisplay(), Evaluate(2)]):
        pass
    assert [kind for kind, _ in notebook] == ["display"] + ["update"] * (len(notebook) - 1)
    assert len(notebook) > 1
    last = notebook[-1][1]
    assert '<progress value="6" max="6"' in last["text/html"]
    assert "评估 " in last["text/html"]
    assert last["text/plain"].startswith("6/6  损失 ")
    assert capsys.readouterr().out == ""


def test_ipython_in_a_terminal_is_a_terminal(
    notebook: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(open_view(), NotebookView)
    sys.modules["IPython"].get_ipython = object  # type: ignore[attr-defined]
    assert isinstance(open_view(), LineView)
    monkeypatch.setattr(sys, "stdout", None)  # pythonw 没有标准输出
    assert isinstance(open_view(), LineView)


@pytest.mark.skipif(os.name == "nt", reason="伪终端只在类 Unix 系统上")
@pytest.mark.parametrize(("term", "kind"), [("xterm", LiveView), ("dumb", LineView)])
def test_a_terminal(monkeypatch: pytest.MonkeyPatch, term: str, kind: type) -> None:
    import pty

    main, child = pty.openpty()
    with os.fdopen(child, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setenv("TERM", term)
        assert type(open_view()) is kind
    os.close(main)
