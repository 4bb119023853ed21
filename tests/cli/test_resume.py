"""中断与接着训练，在真正的进程里：逐位相同，第二次 Ctrl-C，SIGTERM，管道被关闭"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.running import clean_environment, process
from cli.test_terminal import unix

from gptcore.plotting import read_metrics
from gptcore.training.checkpoints import find_checkpoints

SIZE = ("--context-size", "8", "--embedding-size", "16", "--heads", "2", "--blocks", "1")
WAIT = "print('拖住了', flush=True); [time.sleep(0.1) for _ in range(600)]"
"""分成许多段来等：信号若恰好在一段开始之前送到，这一段之后就处理"""
RUN = (*SIZE, "--dropout", "0.1", "--accumulate", "2", "--eval-every", "7", "--save-every", "20")
PAUSED = """
import sys, time
import gptcore.training.checkpoints as c, gptcore.training.interrupts as i
heard, steps = [], []
receive, on_step = i.Interrupts._receive, c.Checkpoints.on_step
def hear(self, number):
    heard.append(number)
    receive(self, number)
def pause(self, trainer, report):
    steps.append(report.step)
    for _ in range(6000):
        if len(steps) != 60 or heard:
            break
        time.sleep(0.01)
    on_step(self, trainer, report)
i.Interrupts._receive, c.Checkpoints.on_step = hear, pause
from gptcore.cli import main
sys.exit(main())
"""
"""做完 60 步就停下来等信号（至多一分钟）：发信号的进程再慢，训练也不会先做完"""


def start(
    *args: object, env: dict[str, str] | None = None, program: str | None = None
) -> subprocess.Popen[bytes]:
    """运行 `gptcore`；给出 `program` 时运行这段程序。"""
    code = ["-m", "gptcore"] if program is None else ["-c", program]
    return subprocess.Popen(
        [sys.executable, *code, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(env),
    )


def wait_for_step(child: subprocess.Popen[bytes], step: int = 1) -> None:
    assert child.stdout
    for raw in child.stdout:
        if (match := re.match(r"步 (\d+)/", raw.decode())) and int(match[1]) >= step:
            return
    raise AssertionError("没有等到那一步")


def wait_for(child: subprocess.Popen[bytes], *texts: str) -> None:
    """等到几段文字都在标准输出里出现过，次序不限。"""
    assert child.stdout
    missing = set(texts)
    for raw in child.stdout:
        missing -= {text for text in missing if text in raw.decode()}
        if not missing:
            return
    raise AssertionError(f"没有等到 {missing}")


def contents(out: Path) -> dict[str, object]:
    """训练完的文件夹里应当逐位相同的：模型、最好的模型、最后的检查点与训练的状态。"""
    last = find_checkpoints(out / "checkpoints")[-1]
    files = [out / "model.safetensors", out / "tokenizer.json", out / "config.json"]
    files += [last / "model.safetensors", last / "training_state.safetensors"]
    files += [out / "checkpoints" / "best" / "model.safetensors"]
    state = json.loads((last / "training_state.json").read_text(encoding="utf-8"))
    del state["generators"]["default"]  # 命令行不用 NumPy 全局的那一个
    return {"state": state} | {str(path.relative_to(out)): path.read_bytes() for path in files}


@unix
@pytest.mark.parametrize(("number", "times"), [(1, 1), (signal.SIGINT, 2), (signal.SIGTERM, 1)])
def test_interrupted_and_resumed_gives_the_same_bytes(
    text_file: Path, tmp_path: Path, number: int, times: int
) -> None:
    """打乱、随机失活、累积、评估都开着；中断的时刻不定，结果应当逐位相同。"""
    train = ("train", "--corpus", text_file, *RUN, "--steps", "400", "--out")
    whole = process(*train, tmp_path / "whole")
    assert (whole.code, whole.err) == (0, "")
    broken = tmp_path / "broken"
    name = {1: "SIGHUP，终端关闭了", 2: "Ctrl-C", 15: "SIGTERM"}[number]
    command = (*train, broken)
    for _ in range(times):
        with start(*command, program=PAUSED) as child:
            wait_for_step(child, 40)
            child.send_signal(number)
            out, error = child.communicate(timeout=60)
        assert child.returncode == 128 + number
        saved = find_checkpoints(broken / "checkpoints")[-1]
        step = int(saved.name.removeprefix("step-"))
        assert 40 <= step < 400
        again = f"gptcore train --out {broken} --resume"
        assert error.decode() == (
            f"已中断（{name}），第 {step} 步之后的状态存在 {saved}，接着训练：{again}\n"
        )
        assert "正在保存，再按一次 Ctrl-C 立即退出" in out.decode()
        assert not (broken / "model.safetensors").exists()
        command = ("train", "--out", broken, "--resume")
    resumed = process(*command)
    assert (resumed.code, resumed.err) == (0, "")
    assert f"从 {saved} 接着训练：做完 {step} 步，共 400 步" in resumed.out
    assert contents(broken) == contents(tmp_path / "whole")
    last = [re.findall(r"测试损失 \S+", r.out) for r in (whole, resumed)]
    assert last[0] == last[1] != []
    metrics = read_metrics(broken)  # 几次的记录读起来是一次
    assert list(metrics.steps) == list(range(400))
    assert len(metrics.restarts) == times
    assert list(metrics.evaluation_steps) == [*range(7, 400, 7), 400]


@unix
def test_a_second_interrupt_exits_at_once(text_file: Path, tmp_path: Path) -> None:
    """第一次 Ctrl-C 之后，保存被拖住；第二次立即退出，原来的检查点还在。

    第一次被收到之后才发第二次：同一个信号没有处理完时再来一次，系统只送达一次。
    """
    slow = (
        "import time, gptcore.training.checkpoints as c\n"
        "save = c.save_checkpoint\n"
        "def slow(trainer, folder):\n"
        "    if trainer.state.step == 20: return save(trainer, folder)\n"
        f"    {WAIT}\n"
        "c.save_checkpoint = slow\n"
        "import sys; from gptcore.cli import main; sys.exit(main())\n"
    )
    out = tmp_path / "m"
    args = ("train", "--corpus", text_file, "--out", out, *RUN[:-2])
    with start(*args, "--save-every", "20", "--steps", "39", program=slow) as child:
        wait_for_step(child, 21)
        child.send_signal(signal.SIGINT)
        wait_for(child, "正在保存，再按一次 Ctrl-C 立即退出", "拖住了")
        begin = time.monotonic()
        child.send_signal(signal.SIGINT)
        _, error = child.communicate(timeout=30)
        assert time.monotonic() - begin < 20
    assert child.returncode == 130
    assert error.decode().startswith(f"已中断（Ctrl-C），第 20 步之后的状态存在 {out}")
    resumed = process("train", "--out", out, "--resume")
    assert (resumed.code, resumed.err) == (0, "")
    assert "做完 20 步，共 39 步" in resumed.out


@unix
def test_two_processes_do_not_train_in_one_folder(text_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    args = ("train", "--corpus", text_file, *SIZE, "--steps", 10**6, "--save-every", "20")
    with start(*args, "--out", out) as child:
        wait_for_step(child)
        run = (out / "run.json").read_bytes()
        other = process(*args, "--out", out, "--restart")
        assert other.code == 2
        assert "另一个进程正在" in other.err
        assert "--resume" not in other.err
        assert (out / "run.json").read_bytes() == run
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=30)
    assert child.returncode == 130
    assert find_checkpoints(out / "checkpoints")
    assert json.loads(run)["id"] in (out / "run.json").read_text(encoding="utf-8")


@unix
def test_killed_before_the_first_checkpoint(text_file: Path, tmp_path: Path) -> None:
    out, whole = tmp_path / "m", tmp_path / "whole"
    args = ("--corpus", text_file, *SIZE, "--steps", "300", "--save-every", "1000")
    with start("train", *args, "--out", out, program=PAUSED) as child:
        wait_for_step(child)
        child.kill()
        child.communicate(timeout=30)
    assert child.returncode == -signal.SIGKILL
    told = process("generate", out)
    assert told.code == 2
    assert "还没有存过检查点" in told.err
    resumed = process("train", "--out", out, "--resume")
    assert (resumed.code, resumed.err) == (0, "")
    assert "还没有检查点，从第一步开始，共 300 步" in resumed.out
    assert process("train", *args, "--out", whole).code == 0
    assert contents(out) == contents(whole)


@unix
def test_an_interrupt_reaches_the_disk_though_the_pipe_is_gone(
    text_file: Path, tmp_path: Path
) -> None:
    """`gptcore train | tee 日志` 时按 Ctrl-C，tee 先死：照样保存。"""
    out = tmp_path / "m"
    with start("train", "--corpus", text_file, *SIZE, "--steps", 10**6, "--out", out) as child:
        wait_for_step(child)
        assert child.stdout
        child.stdout.close()
        child.send_signal(signal.SIGINT)
        assert child.stderr
        error = child.stderr.read().decode()
        assert child.wait(30) == 130
    assert "第 " in error
    assert "--resume" in error
    assert len(find_checkpoints(out / "checkpoints")) == 1


@unix
def test_a_closed_pipe_saves_before_it_ends(text_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    args = ("--corpus", text_file, *SIZE, "--steps", 10**6, "--eval-every", "50")
    with start("train", *args, "--out", out) as child:
        wait_for_step(child)
        assert child.stdout
        child.stdout.close()
        assert child.wait(30) == 141
        assert child.stderr
        assert child.stderr.read() == b""
    assert len(find_checkpoints(out / "checkpoints")) == 1


@unix
def test_interrupted_while_evaluating_at_the_end(text_file: Path, tmp_path: Path) -> None:
    """训练已经做完，正在评估时被中断：接着训练只做剩下的评估与保存。"""
    slow = (
        "import time, gptcore.cli.train as t\n"
        "def save(*_):\n"
        f"    {WAIT}\n"
        "t.RunFolder.save = save\n"
        "import sys; from gptcore.cli import main; sys.exit(main())\n"
    )
    out = tmp_path / "m"
    args = ("train", "--corpus", text_file, "--out", out, *SIZE, "--steps", "30")
    with start(*args, program=slow) as child:
        wait_for(child, "拖住了")
        child.send_signal(signal.SIGINT)
        _, error = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "第 30 步之后的状态存在" in error.decode()
    resumed = process("train", "--out", out, "--resume")
    assert (resumed.code, resumed.err) == (0, "")
    assert "测试损失 " in resumed.out
    assert (out / "model.safetensors").is_file()


def test_a_changed_environment_is_reported(text_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    args = ("--corpus", text_file, *SIZE, "--steps", "40", "--save-every", "20", "--keep", "9")
    assert process("train", *args, "--out", out).code == 0
    for name in ("training.json", "manifest.json"):
        (out / name).unlink()
    resumed = process("train", "--out", out, "--resume", "--threads", "2")
    assert resumed.code == 0
    assert re.fullmatch(
        r"提醒：从 \S+ 接着训练：BLAS 的线程数由 1 变成 2。训练可以继续，.*不再与不中断的那一次逐位相同\n",
        resumed.err,
    )
    record = json.loads((out / "run.json").read_text(encoding="utf-8"))
    assert record["settings"]["threads"] == 2


def test_a_damaged_newest_checkpoint_is_passed_over(text_file: Path, tmp_path: Path) -> None:
    out, whole = tmp_path / "m", tmp_path / "whole"
    args = ("--corpus", text_file, *SIZE, "--steps", "60", "--save-every", "20", "--dropout", "0.1")
    for folder in (out, whole):
        assert process("train", *args, "--out", folder).code == 0
    (out / "manifest.json").unlink()
    newest = find_checkpoints(out / "checkpoints")[-1]
    with (newest / "model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    resumed = process("train", "--out", out, "--resume")
    assert resumed.code == 0
    assert resumed.err.startswith(f"提醒：检查点 {newest} 已损坏，改用前一个：")
    assert resumed.err.count("\n") == 1
    assert "做完 40 步，共 60 步" in resumed.out
    assert contents(out) == contents(whole)
