"""examples/ 里的每个示例都能整份复制，单独运行到底，有打印的输出，图都能看"""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("plot_*.py"))
# 其余的要训练，十几秒到几十秒
QUICK = {"plot_autograd", "plot_backward", "plot_bigram", "plot_bpe", "plot_huggingface"}

# 运行一个示例，不让它收起图，再逐个检查：有标题（页面用它作替代文字），用 constrained 布局，画得出来
RUN = """
import io, runpy, sys, warnings
warnings.simplefilter("error")
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
runpy.run_path(sys.argv[1], run_name="__main__")
figures = [plt.figure(number) for number in plt.get_fignums()]
assert figures, "没有图"
for figure in figures:
    assert any(ax.get_title() for ax in figure.axes), "图没有标题"
    assert figure.get_constrained_layout(), "图没有用 constrained 布局"
    assert figure.get_figwidth() <= 5, "图比手机的屏幕宽得多，字会小得看不清"
    figure.savefig(io.BytesIO(), format="png")
"""


def run(path: Path, folder: Path, code: str = RUN) -> str:
    """在空文件夹里运行示例的副本，返回打印的东西。"""
    copy = folder / path.name
    copy.write_bytes(path.read_bytes())
    result = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", code, copy],
        cwd=folder,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    # 第一次用 Matplotlib 时，它会说正在建立字体的缓存
    errors = re.sub(r"Matplotlib is building the font cache.*\n", "", result.stderr)
    assert (result.returncode, errors) == (0, "")
    assert [item.name for item in folder.iterdir()] == [path.name], "示例在当前文件夹里留下了东西"
    return result.stdout


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[] if path.stem in QUICK else [pytest.mark.slow])
        for path in EXAMPLES
    ],
)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert run(path, tmp_path).strip()


@pytest.mark.slow
def test_without_chinese_font(tmp_path: Path) -> None:
    """机器上没有中文字体时，图里是编号，编号对应的字打印出来。"""
    pytest.importorskip("matplotlib")
    (path,) = (path for path in EXAMPLES if path.stem == "plot_embedding")
    blind = "import matplotlib.font_manager as m\nm.findSystemFonts = lambda: []\n"
    legend = re.search(r"^(\d+ \S  )+\d+ \S$", run(path, tmp_path, blind + RUN), re.MULTILINE)
    assert legend
    assert "红" in legend[0]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_written_for_the_gallery(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(source)) or ""
    title, intro = docstring.split("\n\n")[:2]
    assert re.fullmatch(r"# \S.*", title), "文档字符串的第一行是 # 标题"
    assert len(intro) <= 120, "第一段是卡片上的简介，要短"
    assert "\n# %%\n# " in source, "正文分成以 # %% 开头的单元"
