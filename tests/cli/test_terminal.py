"""在真正的进程里：编码、管道、伪终端、中断"""

import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.running import TINY, clean_environment, process

unix = pytest.mark.skipif(os.name == "nt", reason="伪终端、信号与 SIGPIPE 只在类 Unix 系统上")
STRICT = ("-X", "warn_default_encoding", "-W", "error::EncodingWarning")
C_LOCALE = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.mark.parametrize("env", [{}, C_LOCALE, {"PYTHONIOENCODING": "gbk"}])
def test_no_default_encoding_anywhere(text_file: Path, tmp_path: Path, env: dict[str, str]) -> None:
    out = tmp_path / "m"
    encoding = env.get("PYTHONIOENCODING", "utf-8")
    for args in (
        ("train", "--corpus", text_file, "--out", out, *TINY),
        ("info", out),
        ("generate", out, "--prompt", "春", "--length", "5"),
    ):
        result = process(*args, python=STRICT, env=env, encoding=encoding)
        assert (result.code, result.err) == (0, "")
    assert result.out.startswith("春")
    assert len(result.out) == 7


def test_columns_zero_is_not_silence(text_file: Path, tmp_path: Path) -> None:
    """有的编辑器与 CI 设 COLUMNS=0，意思是不知道多宽。"""
    plain = process("--version")
    assert plain.out.startswith("gptcore ")
    assert process("--version", env={"COLUMNS": "0"}).out == plain.out
    train = ("train", "--corpus", text_file, "--out", tmp_path / "m", *TINY)
    assert "测试损失" in process(*train, env={"COLUMNS": "0"}).out


def test_help_in_any_encoding() -> None:
    for encoding in ("gbk", "utf-8"):
        result = process("train", "-h", env={"PYTHONIOENCODING": encoding}, encoding=encoding)
        assert result.code == 0
        assert "嵌入尺寸" in result.out
    result = process("-h", env={"PYTHONIOENCODING": "ascii"}, encoding="ascii")
    assert result.code == 0
    assert "?" in result.out


def test_characters_outside_gbk_are_replaced(tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_bytes("🙂你好\n".encode() * 60)
    env = {"PYTHONIOENCODING": "gbk"}
    out = tmp_path / "m"
    trained = process("train", "--corpus", text, "--out", out, *TINY, env=env, encoding="gbk")
    assert trained.code == 0
    result = process("generate", out, "--prompt", "🙂你", "--length", 20, env=env, encoding="gbk")
    assert result.code == 0
    assert result.out.startswith("?你")
    wrong = process("generate", out, "--prompt", "🙃", env=env, encoding="gbk")
    assert wrong.code == 2
    assert "--prompt '?'" in wrong.err


def test_latin1_output_becomes_utf8_unless_asked_for(tmp_path: Path) -> None:
    code = (
        "import io, sys; from gptcore.cli.streams import prepare_streams\n"
        "sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='cp1252')\n"
        "prepare_streams(); print('中文', sys.stdout.encoding)"
    )
    for extra, expected in (({}, "中文 utf-8"), ({"PYTHONIOENCODING": "cp1252"}, "?? cp1252")):
        result = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=True,
            env=clean_environment(extra),
        )
        assert result.stdout.decode().strip() == expected


@unix
def test_a_closed_pipe_is_quiet(model_folder: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "gptcore", "generate", str(model_folder), "--length", "100000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    )
    assert child.stdout
    assert child.stderr
    child.stdout.read(1)
    child.stdout.close()
    assert child.wait(30) == 141
    assert child.stderr.read() == b""
    child.stderr.close()


@unix
@pytest.mark.parametrize("env", [{}, {"PMI_RANK": "0", "PMI_SIZE": "2"}], ids=["", "mpiexec"])
def test_generate_streams(model_folder: Path, env: dict[str, str]) -> None:
    """由 `mpiexec` 启动几个，各自生成，也一样。"""
    args = ["generate", str(model_folder), "--prompt", "春", "--length", "100000"]
    with subprocess.Popen(
        [sys.executable, "-m", "gptcore", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(env),
    ) as child:
        assert child.stdout
        assert child.stderr
        pieces = []
        while len(b"".join(pieces)) < 60:  # 远未写完时就已经看得到
            assert select.select([child.stdout], [], [], 30)[0]
            pieces.append(os.read(child.stdout.fileno(), 4096))
        assert child.poll() is None
        child.send_signal(signal.SIGINT)
        rest, error = child.communicate(timeout=30)
    assert child.returncode == 130
    assert error.decode() == "已中断（Ctrl-C）\n"
    assert len(pieces) > 1
    assert (b"".join(pieces) + rest).decode().startswith("春")


def terminal(
    columns: int,
    *args: str,
    env: dict[str, str] | None = None,
    interrupt_at: str = "",
    interrupt: signal.Signals = signal.SIGINT,
) -> tuple[int, str]:
    """在伪终端里运行一段 Python，返回退出码与屏幕上收到的一切；看到 `interrupt_at` 就中断。"""
    import fcntl
    import pty
    import struct
    import termios

    main, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    with subprocess.Popen(
        [sys.executable, *args],
        stdin=child,
        stdout=child,
        stderr=child,
        env=clean_environment({"TERM": "xterm-256color", **(env or {})}),
        start_new_session=True,
    ) as running:
        os.close(child)
        received = b""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                piece = os.read(main, 65536)
            except OSError:  # Linux 上子进程退出后读伪终端是 EIO
                break
            if not piece:
                break
            received += piece
            if interrupt_at and interrupt_at.encode() in received:
                running.send_signal(interrupt)
                interrupt_at = ""
        code = running.wait(30)
    os.close(main)
    return code, received.decode((env or {}).get("PYTHONIOENCODING", "utf-8"))


DEMO = """
import sys
from pathlib import Path
from gptcore.cli.demo import DemoSettings, run_demo
from gptcore.cli.streams import prepare_streams
from gptcore.cli.terminal import open_terminal
prepare_streams()
small = dict(context_size=8, embedding_size=8, heads=2, blocks=1, steps=60, held_out=500)
run_demo(Path(sys.argv[1]), open_terminal(), DemoSettings(**small, samples=(5, 6, 30)))
"""


@unix
def test_live_display_in_a_terminal(tmp_path: Path) -> None:
    code, out = terminal(40, "-c", DEMO, str(tmp_path / "m"))
    assert code == 0
    assert out.rindex("\x1b[?25h") > out.rindex("\x1b[?25l") > 0  # 光标藏起来，又还原
    assert "训练 60/60" in out
    assert "步 1/60" not in out
    assert "━" in out
    assert "\x1b[1;36m" in out
    for part in ("练了 30 步写的", "字符/秒", "剩余 0:00", "语料的熵"):
        assert part in out


@unix
@pytest.mark.parametrize(
    ("env", "absent"),
    [({"NO_COLOR": "1"}, ["36m", "32m"]), ({"TERM": "dumb"}, ["\x1b"])],
)
def test_no_color_and_dumb_terminals(
    tmp_path: Path, env: dict[str, str], absent: list[str]
) -> None:
    code, out = terminal(80, "-c", DEMO, str(tmp_path / "m"), env=env)
    assert code == 0
    assert not [a for a in absent if a in out]


@unix
def test_gbk_terminal(tmp_path: Path) -> None:
    code, out = terminal(60, "-c", DEMO, str(tmp_path / "m"), env={"PYTHONIOENCODING": "gbk"})
    assert code == 0
    assert "训练 60/60" in out
    assert "?" not in out.replace("\x1b[?25", "")


@unix
def test_interrupted_live_display_restores_the_cursor(text_file: Path, tmp_path: Path) -> None:
    args = ["--corpus", str(text_file), "--out", str(tmp_path / "m"), "--steps", "1000000"]
    code, out = terminal(80, "-m", "gptcore", "train", *args, interrupt_at="剩余")
    assert code == 130
    assert out.rindex("\x1b[?25h") > out.rindex("\x1b[?25l")
    assert re.search(r"已中断（Ctrl-C），第 \d+ 步之后的状态存在 .*--resume\r\n$", out)
    assert "Traceback" not in out


def test_the_library_stays_light() -> None:
    code = (
        "import sys, gptcore, gptcore.cli\n"
        "print([m for m in ('typer', 'rich', 'pooch', 'matplotlib', 'safetensors', 'threadpoolctl')"
        " if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert result.stdout.decode().strip() == "[]"
