"""`gptcore doctor`：输出、结论与退出码；管道、窄终端、写不出中文的编码；折行"""

import io
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.running import Outcome, clean_environment
from cli.test_terminal import terminal, unix
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from gptcore.cli import doctor
from gptcore.cli.doctor import run_doctor
from gptcore.cli.terminal import Terminal
from gptcore.cli.wrapping import wrap
from gptcore.diagnostics import CheckResult, check, failure, ok, warning

SCRIPT = """
import sys
from gptcore.cli.streams import prepare_streams
prepare_streams()
from gptcore.cli.doctor import run_doctor
from gptcore.cli.terminal import open_terminal
try:
    sys.exit(run_doctor(open_terminal()))
except KeyboardInterrupt:
    sys.exit(130)
"""
LIGHT = """
import gptcore.cli.doctor as doctor
doctor.SECTIONS = {k: v for k, v in doctor.SECTIONS.items() if k in ("BLAS", "编码与文件")}
"""
"""只留下不训练的两节"""
FAULT = """
import gptcore.layers.activation as activation
right = activation.gelu_backward
activation.gelu_backward = lambda dy, derivative: right(dy, derivative) * 1.01
"""
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """在自己的文件夹里运行，缓存也在里面。"""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPTCORE_CACHE", str(tmp_path / "缓存"))
    monkeypatch.delenv("GPTCORE_DATA", raising=False)
    for name in BLAS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(Path(doctor.__file__).parents[2]))
    return tmp_path


def run(code: str = SCRIPT, env: dict[str, str] | None = None) -> Outcome:
    encoding = (env or {}).get("PYTHONIOENCODING", "utf-8")
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=False,
        env=clean_environment(env),
        timeout=60,
    )
    return Outcome(
        result.returncode, result.stdout.decode(encoding), result.stderr.decode(encoding)
    )


# 真正的检查，在真正的进程里


def test_a_healthy_machine(folder: Path) -> None:
    start = time.perf_counter()
    result = run()
    assert time.perf_counter() - start < 20
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == "环境"
    shown = [line for line in lines if re.match(r"  (正常|提醒)  ", line)]
    assert len(shown) == 22
    for part in ("gptcore ", "NumPy ", "OpenBLAS", "写得出中文", "上限 1e-06", "ln 65 = 4.174"):
        assert part in result.out
    assert re.search(
        r"^(一切正常|可以使用，有 \d 项提醒)（22 项检查，\d+ 秒）", result.out, re.MULTILINE
    )
    assert "Traceback" not in result.out
    assert "\x1b" not in result.out
    assert list(folder.iterdir()) == []


def test_a_wrong_kernel_is_found(folder: Path) -> None:
    result = run(FAULT + SCRIPT)
    assert (result.code, result.err) == (1, "")
    assert "\n  错误  梯度  " in result.out
    assert re.search(r"^有 1 项要处理（22 项检查，\d+ 秒）：$", result.out, re.MULTILINE)
    assert re.search(
        r"^  1\. 梯度：\d+ 个参数的梯度与有限差分不符；.*反向传播给出", result.out, re.MULTILINE
    )
    assert "     办法：在代码文件夹里重新安装" in result.out
    assert "一切正常" not in result.out


def test_in_other_encodings(folder: Path) -> None:
    result = run(LIGHT + SCRIPT, {"PYTHONIOENCODING": "gbk"})
    assert (result.code, result.err) == (0, "")
    assert "?" not in result.out
    assert "stdout gbk，stderr gbk（写得出中文）" in result.out


def test_an_encoding_without_chinese_says_so_in_english(folder: Path) -> None:
    result = run(LIGHT + SCRIPT, {"PYTHONIOENCODING": "ascii"})
    assert (result.code, result.err) == (1, "")
    assert result.out.startswith("The output encoding (ascii) cannot show Chinese")
    assert "PYTHONIOENCODING=utf-8" in result.out.splitlines()[0]


def test_oversubscription_is_only_a_warning(folder: Path) -> None:
    result = run(LIGHT + SCRIPT, {"OPENBLAS_NUM_THREADS": "4096"})
    assert result.code == 0
    assert "可以使用，有 " in result.out
    assert "\n     办法：把环境变量 OPENBLAS_NUM_THREADS 设为 " in result.out


def plain_lines(out: str) -> list[str]:
    """终端上收到的各行；去掉颜色，擦掉的不算。"""
    text = re.sub(r"[^\n]*\r\x1b\[2K", "", out.replace("\r\n", "\n"))
    return ESCAPE.sub("", text).split("\n")


@unix
@pytest.mark.parametrize("columns", [40, 80])
def test_in_a_terminal(folder: Path, columns: int) -> None:
    code, out = terminal(columns, "-c", FAULT + SCRIPT)
    assert code == 1
    assert out.rindex("\x1b[?25h") > out.rindex("\x1b[?25l") >= 0  # 光标藏起来，又还原
    assert "\x1b[1;31m" in out
    lines = plain_lines(out)
    assert max(cell_len(line) for line in lines) <= columns
    assert not [line for line in lines if line.rstrip().endswith("…") and "检查" not in line]
    assert not [line for line in lines if re.match(r"\s*[，。：；、）]", line)]
    assert "stdout utf-8" in out  # 转圈的时候没有换掉标准输出


@unix
def test_without_color_and_on_dumb_terminals(folder: Path) -> None:
    code, out = terminal(80, "-c", LIGHT + SCRIPT, env={"TERM": "dumb"})
    assert code == 0
    assert "\x1b" not in out
    assert "正在检查" not in out


@unix
def test_interrupted(folder: Path) -> None:
    code, out = terminal(80, "-c", SCRIPT, interrupt_at="BLAS")
    assert code == 130
    assert out.rindex("\x1b[?25h") > out.rindex("\x1b[?25l")
    assert "Traceback" not in out
    assert [p for p in folder.iterdir() if p.name != "缓存"] == []


# 结论与退出码，检查是假的


@check("好的")
def good() -> CheckResult:
    return ok("值", "说明")


@check("可疑的")
def doubtful() -> CheckResult:
    return warning("值二", "有点慢", "换一台")


@check("坏的")
def bad() -> CheckResult:
    return failure("值三", "算错了", "修好它")


@check("出错的")
def raising() -> CheckResult:
    raise RuntimeError("炸了\n\x1b[31m")


@pytest.mark.parametrize(
    ("checks", "code", "told"),
    [
        ((good, good), 0, ["一切正常（2 项检查，0 秒）。可以开始了：\n  gptcore demo\n"]),
        (
            (good, doubtful),
            0,
            [
                "可以使用，有 1 项提醒（2 项检查，0 秒）：\n",
                "  1. 可疑的：有点慢（值二）\n     办法：换一台\n",
            ],
        ),
        (
            (bad, doubtful, raising, good),
            1,
            [
                "有 2 项要处理（4 项检查，0 秒）：\n  1. 坏的：算错了（值三）\n     办法：修好它\n",
                "  2. 出错的：检查中途出错，没有做完（RuntimeError：炸了 \\x1b[31m）\n",
                "另有 1 项提醒，可以先不管：\n  1. 可疑的：有点慢（值二）\n",
                "  正常  好的          值（说明）\n",
                "  错误  坏的          值三\n",
            ],
        ),
    ],
)
def test_verdicts(
    checks: tuple[Callable[[], CheckResult], ...],
    code: int,
    told: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "SECTIONS", {"一节": checks})
    out = io.StringIO()
    console = Console(file=out, width=80, highlight=False, markup=False)
    assert run_doctor(Terminal(console)) == code
    assert out.getvalue().startswith("一节\n")
    for part in told:
        assert part in out.getvalue()


def test_a_closed_pipe_is_left_to_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SECTIONS", {"一节": (good,)})

    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    from gptcore.cli.terminal import open_terminal

    with pytest.raises(BrokenPipeError):
        run_doctor(open_terminal(Closed()))


# 折行


def folded(text: str, width: int) -> list[str]:
    return [line.plain for line in wrap(Text(text), width)]


def test_wrapping_examples() -> None:
    assert folded("", 10) == [""]
    assert folded("一二三四五六", 8) == ["一二三四", "五六"]
    assert folded("一二三四，五六", 8) == ["一二三", "四，五六"]  # 标点不在行首
    assert folded("一二三（四五）", 8) == ["一二三", "（四五）"]  # 左括号不在行末
    assert folded("可以用的核 2 个，够了", 12) == ["可以用的核", "2 个，够了"]  # 数与量词不分开
    assert folded("运行 pip install numpy", 12) == ["运行 pip", "install", "numpy"]
    assert folded("在/usr/lib/python", 8) == ["在", "/usr/lib", "/python"]
    assert folded("甲\n\n乙", 8) == ["甲", "", "乙"]


def test_wrapping_keeps_styles() -> None:
    lines = wrap(Text.assemble(("一二三四", "red"), ("五六", "dim")), 6)
    assert [line.plain for line in lines] == ["一二三", "四五六"]
    assert [(s.start, s.end, s.style) for s in lines[1].spans] == [(0, 1, "red"), (1, 3, "dim")]


@given(st.text(st.sampled_from("一二三，。（）“”ab1/ -\n"), max_size=80), st.integers(8, 40))
def test_wrapping_never_loses_or_overflows(text: str, width: int) -> None:
    lines = folded(text, width)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(cell_len(line) <= width for line in lines)
    assert all(line == line.rstrip() for line in lines)
    assert len(lines) >= text.count("\n") + 1


def test_every_name_fits_its_column() -> None:
    source = "".join(
        path.read_text(encoding="utf-8")
        for path in (Path(doctor.__file__).parents[1] / "diagnostics").glob("*.py")
    )
    names = re.findall(r'^@check\("(.*)"\)$', source, re.MULTILINE)
    assert len(names) == 22
    assert max(map(cell_len, names)) <= doctor.NAME
