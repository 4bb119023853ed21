"""`gptcore plot`：写出图，找记录，各种错误；没有安装 matplotlib 时跳过"""

import errno
import io
from pathlib import Path
from typing import Any

import pytest

from gptcore import DataError
from gptcore.cli.failures import describe
from gptcore.cli.plot import run_plot
from gptcore.cli.terminal import open_terminal
from gptcore.cli.usage import UsageError
from gptcore.plotting import MissingMatplotlibError

pytest.importorskip("matplotlib", reason="没有安装 matplotlib")

LINES = '{"run": {}, "step": 0}\n' + "".join(
    f'{{"step": {i}, "loss": {3 - i / 50}, "lr": 0.1, "grad_norm": 1, "tokens": 8, "seconds": {i}}}\n'
    for i in range(60)
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "我的模型 🐳"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text(LINES, encoding="utf-8")
    return folder


def plot(folder: Path, out: Path | None = None) -> str:
    output = io.StringIO()
    run_plot(folder, out, open_terminal(output))
    return output.getvalue()


def test_the_folder_and_the_file_give_the_same_picture(folder: Path) -> None:
    said = plot(folder)
    target = folder / "metrics.png"
    assert said == f"图存在 {target}\n"
    first = target.read_bytes()
    assert first.startswith(b"\x89PNG")
    plot(folder / "metrics.jsonl")
    assert target.read_bytes() == first
    assert {path.name for path in folder.iterdir()} == {"metrics.jsonl", "metrics.png"}


def test_svg_twice_is_the_same(folder: Path) -> None:
    pictures = []
    for name in ("a.svg", "深/b.SVG"):
        plot(folder, folder / name)
        pictures.append((folder / name).read_bytes())
    assert pictures[0] == pictures[1]
    assert b"<svg" in pictures[0]


def test_a_relative_folder_has_a_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    titles: list[Any] = []
    monkeypatch.chdir(folder)
    monkeypatch.setattr("gptcore.cli.plot.plot_metrics", lambda _, **kw: titles.append(kw["title"]))
    plot(Path())
    assert titles == [folder.name]


@pytest.mark.parametrize(
    ("out", "message"),
    [("a.pdf", r"--out：图的后缀要是 \.png 或 \.svg，这里是 'a\.pdf'.*metrics\.svg"), ("a", "'a'")],
)
def test_unknown_formats(folder: Path, out: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plot(folder, folder / out)


def test_out_is_a_folder(folder: Path) -> None:
    (folder / "a.png").mkdir()
    with pytest.raises(UsageError, match=r"--out：.*a\.png 是文件夹"):
        plot(folder, folder / "a.png")


def test_nothing_there(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"没有 .*哪里.*gptcore train"):
        plot(tmp_path / "哪里")
    with pytest.raises(UsageError, match=r"里没有训练的记录 metrics\.jsonl.*gptcore train"):
        plot(tmp_path)


def test_broken_and_empty_records_leave_the_old_picture(folder: Path) -> None:
    plot(folder)
    before = (folder / "metrics.png").read_bytes()
    for content, message in (("", "还没有任何一步"), ("a\nb\n", "第 1 行不是 JSON")):
        (folder / "metrics.jsonl").write_text(content, encoding="utf-8")
        with pytest.raises(DataError, match=message) as caught:
            plot(folder)
        assert describe(caught.value, "plot").startswith(str(folder / "metrics.jsonl"))
    assert (folder / "metrics.png").read_bytes() == before


def test_not_writable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """没有权限；管理员什么都能写，所以由替身报告。"""

    def denied(path: Path, content: bytes) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("gptcore.cli.plot.atomic_write", denied)
    with pytest.raises(UsageError, match=r"--out：不能写 .*没有权限"):
        plot(folder)


def test_a_place_that_cannot_be_written(folder: Path) -> None:
    with pytest.raises(
        UsageError, match=r"--out：不能写 .*metrics\.jsonl.a\.png（.*）；请用 --out"
    ):
        plot(folder, folder / "metrics.jsonl" / "a.png")


def test_without_matplotlib(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise MissingMatplotlibError("没有 matplotlib")

    monkeypatch.setattr("gptcore.cli.plot.load_matplotlib", missing)
    with pytest.raises(MissingMatplotlibError):
        plot(folder)
    assert not (folder / "metrics.png").exists()
