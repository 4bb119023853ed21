"""`gptcore plot`：把训练的过程画成图"""

import io
import warnings
from pathlib import Path
from typing import Any

from gptcore.cli.terminal import Terminal
from gptcore.cli.usage import UsageError
from gptcore.errors import system_reason
from gptcore.files import atomic_write
from gptcore.plotting import plot_metrics
from gptcore.plotting.metrics import FILE_NAME
from gptcore.plotting.panels import SIZE
from gptcore.plotting.style import load_matplotlib

FORMATS = (".png", ".svg")


def run_plot(folder: Path, out: Path | None, terminal: Terminal) -> None:
    """读 `metrics.jsonl`，写出一张图，并说明它在哪里。

    Args:
        folder: 训练的文件夹，或者 `metrics.jsonl` 自己。
        out: 图的文件名，后缀决定格式；不给时是同一个文件夹里的 `metrics.png`。
        terminal: 终端。

    Raises:
        UsageError: 没有这个文件夹，里面没有记录，后缀不认识，或者不可写。
        DataError: 记录坏了，或者一步也没有。
        MissingMatplotlibError: 没有安装 matplotlib。
    """
    source = _find(folder)
    target = out or source.with_name("metrics.png")
    if target.suffix.lower() not in FORMATS:
        raise UsageError(
            f"--out：图的后缀要是 .png 或 .svg，这里是 {target.name!r}；请写例如 --out metrics.svg"
        )
    if target.is_dir():
        raise UsageError(f"--out：{target} 是文件夹；请写文件名，例如 {target / 'metrics.png'}")
    content = _draw(source, target.suffix.lower()[1:])
    try:
        atomic_write(target, content)
    except OSError as error:
        raise UsageError(
            f"--out：不能写 {target}（{system_reason(error)}）；请用 --out 换一个可写的位置"
        ) from error
    terminal.say(f"图存在 {target}")


def _find(folder: Path) -> Path:
    """记录的文件。"""
    source = folder / FILE_NAME if folder.is_dir() else folder
    if source.exists():
        return source
    if not folder.exists():
        raise UsageError(
            f"没有 {folder}；请给出 gptcore train 写成的文件夹，或者里面的 {FILE_NAME}"
        )
    raise UsageError(
        f"{folder} 里没有训练的记录 {FILE_NAME}；请给出 gptcore train 写成的文件夹，或者用它再训练一次"
    )


def _draw(source: Path, kind: str) -> bytes:
    """图的文件的全部字节；同样的记录得到同样的文件。"""
    matplotlib: Any = load_matplotlib()
    figure = matplotlib.figure.Figure(figsize=SIZE, dpi=150)
    buffer = io.BytesIO()
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.hashsalt": "gptcore"}):
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # 名字里的表情符号
        plot_metrics(source, title=source.resolve().parent.name, figure=figure)
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(buffer, format=kind, metadata=metadata, facecolor="white", dpi="figure")
    return buffer.getvalue()
