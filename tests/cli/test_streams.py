"""输出流被关闭、写满，信号，与送到终端上的控制字符"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.running import TINY, Outcome, clean_environment
from cli.test_terminal import terminal, unix

from gptcore import GPT, CharTokenizer, save_model
from gptcore.cli.generate import GenerateSettings, run_generate
from gptcore.training.checkpoints import find_checkpoints

Cli = Callable[..., Outcome]
FULL = Path("/dev/full")


def shell(command: str, *args: object) -> tuple[int, str]:
    """用 bash 运行，`gptcore` 是 "$@"；返回退出码与标准错误。"""
    words = [sys.executable, "-m", "gptcore", *map(str, args)]
    result = subprocess.run(
        ["bash", "-c", command, "bash", *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        check=False,
        env=clean_environment(),
        timeout=60,
    )
    return result.returncode, result.stderr.decode()


@unix
def test_streams_closed_from_the_start(model_folder: Path) -> None:
    generate = ("generate", model_folder, "--length", "3")
    assert shell('"$@" >&-', *generate) == (0, "")
    assert shell('"$@" >&-', "--help") == (0, "")
    code, error = shell('"$@" >&-', "info", "没有")
    assert (code, error.count("\n")) == (2, 1)
    assert shell('"$@" 2>&-', "info", "没有") == (2, "")
    assert shell('"$@" >&- 2>&-', "info", "没有") == (2, "")


@unix
@pytest.mark.skipif(not FULL.exists(), reason="没有 /dev/full")
def test_full_disk_behind_a_stream(model_folder: Path) -> None:
    assert shell('"$@" 2>/dev/full', "info", "没有") == (2, "")
    for args in (("info", model_folder), ("generate", model_folder, "--length", "3"), ("-h",)):
        code, error = shell('"$@" >/dev/full', *args)
        assert code == 2
        assert error.startswith("错误：读写时出错：磁盘满了；")
        assert error.count("\n") == 1


@unix
def test_one_exit_code_for_a_closed_pipe(
    model_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    train = ("train", "--corpus", text_file, "--out", tmp_path / "a" / "m", *TINY[:-1], "1000")
    for args in (("-h",), ("train", "-h"), ("--version",), ("info", model_folder), train):
        assert shell('"$@" | true; exit ${PIPESTATUS[0]}', *args) == (141, "")
    assert list(tmp_path.iterdir()) == []


@unix
@pytest.mark.parametrize("package", ["numpy", "typer", "rich"])
def test_interrupted_while_importing(package: str) -> None:
    code = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {package!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from gptcore.cli import main\n"
        "sys.exit(main())\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (130, b"", b"")


@unix
def test_sigterm_restores_the_cursor_and_saves(text_file: Path, tmp_path: Path) -> None:
    args = ["--corpus", str(text_file), "--out", str(tmp_path / "m"), "--steps", "1000000"]
    code, out = terminal(
        80, "-m", "gptcore", "train", *args, interrupt_at="剩余", interrupt=signal.SIGTERM
    )
    assert code == 143
    assert out.rindex("\x1b[?25h") > out.rindex("\x1b[?25l")
    assert "Traceback" not in out
    assert re.search(r"已中断（SIGTERM），第 \d+ 步之后的状态存在 .*--resume\r\n$", out)
    assert find_checkpoints(tmp_path / "m" / "checkpoints")


@unix
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_swallowed_interrupt_is_raised_again(name: str, code: int) -> None:
    """弱引用与 ctypes 的回调会吞掉错误；下一次检查时补上。"""
    program = (
        "import signal, sys, weakref\n"
        "from gptcore.cli import main\n"
        "class Thing: pass\n"
        "def swallow(*_):\n"
        "    thing = Thing()\n"
        f"    reference = weakref.ref(thing, lambda _: signal.raise_signal(signal.{name}))\n"
        "    del thing\n"
        "    print('还在')\n"
        "import gptcore.cli.signals as signals\n"
        "check = signals.check\n"
        "signals.check = lambda: (swallow(), check())\n"
        "sys.exit(main())\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, env=clean_environment()
    )
    assert (result.returncode, result.stdout.decode()) == (code, "还在\n")


@unix
def test_ignored_interrupts_stay_ignored(model_folder: Path) -> None:
    command = 'trap "" INT; "$@" & wait $!'
    code, error = shell(command, "generate", model_folder, "--length", "3")
    assert (code, error) == (0, "")
    program = (
        "import signal, os, sys; from gptcore.cli import signals; signals.install();"
        "os.kill(os.getpid(), signal.SIGINT)"
    )
    result = subprocess.run(
        ["bash", "-c", 'trap "" INT; exec "$@"', "bash", sys.executable, "-c", program],
        check=False,
    )
    assert result.returncode == 0


EVIL = "\x1b]0;标题\x07\x9b31m"


@pytest.fixture
def evil_folder(tmp_path: Path) -> Path:
    """词表与训练记录里有控制字符的模型。"""
    tokenizer = CharTokenizer("\x1b\x07\x9b")
    record = {"settings": {"corpus": EVIL}, "result": {"test_loss": EVIL}}
    save_model(tmp_path / "m", GPT(3, 4, 4, 1, 1), tokenizer, {"training.json": record})
    return tmp_path / "m"


def test_info_shows_control_characters_as_escapes(cli: Cli, evil_folder: Path) -> None:
    result = cli("info", evil_folder)
    assert result.code == 0
    assert "\\x1b]0;标题\\x07\\x9b31m" in result.out
    assert not set("\x1b\x07\x9b") & set(result.out)


def test_generate_escapes_control_characters_only_on_a_terminal(
    cli: Cli,
    evil_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    piped = cli("generate", evil_folder, "--prompt", "\x1b", "--length", 9, "--seed", 1)
    assert set(piped.out) <= set("\x1b\x07\x9b\n")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    run_generate(evil_folder, ["\x1b"], GenerateSettings(9, seed=1))
    shown = capsys.readouterr().out
    assert shown.startswith("\\x1b")
    assert not set("\x1b\x07\x9b") & set(shown)
    assert shown.replace("\\x1b", "\x1b").replace("\\x07", "\x07").replace("\\x9b", "\x9b") == (
        piped.out
    )


@unix
@pytest.mark.parametrize(
    "name", ["a b", 'a"b', "$(id)", "it's", "-x", "a;b", "e\x1b[31m\n", "模型"]
)
def test_the_printed_command_can_be_copied(
    text_file: Path, tmp_path: Path, name: str, model_folder: Path
) -> None:
    from gptcore.cli.folders import next_command

    shutil.copytree(model_folder, tmp_path / name)
    for text, expected in (
        ("\n春眠不觉晓", "春眠"),
        ("\n\n，\n", "，"),
        (" \n\n", ""),
    ):
        command = next_command(Path(name), text)
        assert command.isprintable()
        result = subprocess.run(
            ["bash", "-c", f'gptcore() {{ {sys.executable} -m gptcore "$@"; }}\n{command}'],
            capture_output=True,
            check=True,
            cwd=tmp_path,
            env=clean_environment({"PYTHONPATH": os.getcwd()}),  # noqa: PTH109
        )
        assert result.stdout.decode().startswith(expected)
        assert result.stderr == b""


@unix
def test_prompts_that_need_quotes() -> None:
    from gptcore.cli.folders import next_command

    for text, shown in (
        ("-x", "=-x"),
        ("a'b", " 'a'\"'\"''"),
        ("\x1bb", " $'\\x1bb'"),
        ("$x", " '$x'"),
    ):
        assert next_command(Path("m"), text) == f"gptcore generate m --prompt{shown}"
