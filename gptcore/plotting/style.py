"""matplotlib、颜色与字体；matplotlib 到画图时才导入"""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from gptcore.errors import ArgumentError, GptcoreError
from gptcore.kernels.convert import brief

Language = Literal["zh", "en"]

BLUE, ORANGE, GREEN, PURPLE, TEAL = "#1864ab", "#c2410c", "#287a39", "#862e9c", "#0b7285"
COLORS = (BLUE, ORANGE, GREEN, PURPLE, TEAL)
INK, MUTED, GRID = "#212529", "#5c636a", "#e9ecef"

CHINESE_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Source Han Sans CN"),
    *("PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "Heiti SC", "STHeiti", "SimHei"),
    *("WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Noto Sans CJK JP", "Noto Serif CJK SC"),
    *("Noto Serif CJK JP", "Arial Unicode MS", "SimSun", "Droid Sans Fallback"),
)
"""能写简体中文的字体，黑体在前；字体集合文件里，有的 matplotlib 只认得第一个，即 JP"""

FONT_FILES = (
    *("notosanscjk", "notosanssc", "sourcehansanssc", "sourcehansanscn", "pingfang"),
    *("hiragino sans gb", "msyh", "stheiti", "simhei", "wqy", "notoserifcjk", "droidsansfallback"),
)
"""它们的文件名的开头"""


class MissingMatplotlibError(GptcoreError, ImportError):
    """没有安装 matplotlib，或者它不能导入。"""


def load_matplotlib() -> Any:
    """导入 matplotlib。

    Raises:
        MissingMatplotlibError: 没有安装，或者不能导入。
    """
    try:
        import matplotlib

        for name in ("figure", "font_manager", "ticker"):
            import_module(f"matplotlib.{name}")
    except ImportError as error:
        problem = f"matplotlib 不能导入（{error}）"
        if isinstance(error, ModuleNotFoundError) and error.name == "matplotlib":
            problem = "画图需要 matplotlib"
        raise MissingMatplotlibError(f'{problem}；请运行 pip install "gptcore[plot]"') from error
    return matplotlib


def pyplot() -> Any:
    """`matplotlib.pyplot`；导入它会选定显示的方式，所以只在新建图的时候导入。"""
    return import_module("matplotlib.pyplot")


def chinese_font(matplotlib: Any) -> str | None:
    """一种能写中文的字体；没有时是 `None`。

    matplotlib 的字体目录是缓存的，后来才安装的字体不在里面，所以目录里没有时再看一遍系统里的文件。
    """
    manager = matplotlib.font_manager
    if found := _first_known(manager):
        return found
    for name in manager.findSystemFonts():
        if Path(name).name.lower().startswith(FONT_FILES):
            with suppress(OSError, RuntimeError):  # 打不开的字体
                manager.fontManager.addfont(name)
    return _first_known(manager)


def _first_known(manager: Any) -> str | None:
    known = set(manager.fontManager.get_font_names())
    return next((name for name in CHINESE_FONTS if name in known), None)


@contextmanager
def drawing(operation: str, language: Language | None) -> Generator[tuple[Any, Language]]:
    """在一段代码里用我们的字体与颜色画图。

    Args:
        operation: 哪个函数，写进消息。
        language: 文字的语言；`None` 表示有中文字体就写中文，否则写英文。

    Yields:
        matplotlib，与实际用的语言。
    """
    if language not in ("zh", "en", None):
        raise ArgumentError(
            f"{operation}：language 必须是 'zh'、'en' 或 None，这里是 {brief(language)}"
        )
    matplotlib = load_matplotlib()
    font = chinese_font(matplotlib)
    family = [*matplotlib.rcParams["font.family"], *([font] if font else [])]
    settings = {
        "font.family": family,
        "font.size": 11,
        "text.color": INK,
        "axes.labelcolor": MUTED,
        "axes.edgecolor": "#adb5bd",
        "axes.facecolor": "white",
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "grid.linewidth": 0.8,
        "grid.linestyle": "-",
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "legend.framealpha": 0.9,
        "legend.edgecolor": "none",
        "legend.facecolor": "white",
        "legend.labelcolor": INK,
        "lines.linewidth": 1.8,
        "lines.solid_capstyle": "round",
    }
    with matplotlib.rc_context(settings):
        yield matplotlib, language or ("zh" if font else "en")


def short_number(value: float, _: Any = None) -> str:
    """刻度上的数，不带多余的零：0.001、2e-05、1500；作 `FuncFormatter` 用。"""
    return f"{value:.6g}"
