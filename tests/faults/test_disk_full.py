"""磁盘满了、磁盘出错：说清楚原因，旧模型完好，不留下妨碍以后的东西，腾出地方之后照常保存"""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptcore import GPT, CharTokenizer, DataError, load_model, save_model
from gptcore.serialization import dump_arrays

PROGRAM = Path(__file__).with_name("disk_full_program.py")
NAMES = ["config.json", "manifest.json", "model.safetensors", "tokenizer.json"]
MOUNT = 'mount -t tmpfs -o size=400k,nr_inodes=40 tmpfs "$0" && exec "$@"'


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="要用 Linux 的 tmpfs")
def test_a_real_disk_that_fills_up(tmp_path: Path) -> None:
    """在只有 400 KB 的 tmpfs 上保存；挂载在自己的命名空间里，进程一结束就没有了。"""
    command: list[str] = []
    problems = []
    for prefix in (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"]):
        command = [*prefix, "sh", "-c", MOUNT, str(tmp_path)]
        try:
            subprocess.run([*command, "true"], check=True, capture_output=True, text=True)
            break
        except (OSError, subprocess.CalledProcessError) as error:
            problems.append(f"{prefix}：{getattr(error, 'stderr', '') or error}")
    else:
        pytest.fail(
            "不能挂载 tmpfs，这个测试不能跳过；请以 root 运行，或者允许用户命名空间：\n"
            + "\n".join(problems)
        )
    program = [*command, sys.executable, str(PROGRAM), str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert counts["失败"] > 15
    assert counts["成功"] >= 4


# 同样的事，每一次系统调用轮流失败


class Failing:
    """第 `k` 次调用失败：抛出 `error`；`lasting` 时以后也都失败，`half` 时先写进去一半，下一次才失败。"""

    def __init__(self, k: int, error: BaseException, lasting: bool, half: bool) -> None:
        self.k, self.error, self.lasting, self.half = k, error, lasting, half
        self.calls = 0

    def wrapped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.calls += 1
            if self.half and self.calls == self.k:
                return real(args[0], args[1][: max(len(args[1]) // 2, 1)])
            first = self.k + self.half
            if self.calls == first or (self.lasting and self.calls > first):
                raise self.error
            return real(*args, **options)

        return call


CALLS = {
    "write": (os, "write"),
    "fsync": (os, "fsync"),
    "open": (os, "open"),
    "replace": (Path, "replace"),
    "mkdir": (Path, "mkdir"),
    "unlink": (Path, "unlink"),
}


@pytest.fixture(scope="module")
def models() -> dict[bytes, tuple[GPT, CharTokenizer]]:
    """两个模型：参数的字节 → 模型与分词器。"""
    built = [GPT(2, 3, 4, 1, 1, rng=np.random.default_rng(seed)) for seed in (1, 2)]
    return {
        dump_arrays(m.state_dict()): (m, CharTokenizer(t))
        for m, t in zip(built, ("ab", "xy"), strict=True)
    }


@pytest.mark.parametrize("lasting", [False, True], ids=["一次", "一直"])
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("write", errno.ENOSPC),
        ("write", errno.EDQUOT),
        ("write", errno.EIO),
        ("fsync", errno.EIO),
        ("fsync", errno.ENOSPC),
        ("open", errno.ENOSPC),
        ("open", errno.EMFILE),
        ("replace", errno.ENOSPC),
        ("replace", errno.EIO),
        ("mkdir", errno.ENOSPC),
        ("unlink", errno.EIO),
        *[(name, None) for name in CALLS],  # 像被杀死一样，从任何一步退出
    ],
)
def test_every_call_fails_in_turn(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    models: dict[bytes, tuple[GPT, CharTokenizer]],
    name: str,
    code: int | None,
    lasting: bool,
) -> None:
    old, new = models
    error = OSError(code, os.strerror(code)) if code else KeyboardInterrupt()
    owner, attribute = CALLS[name]
    outcomes = []
    for k in range(1, 60):
        folder = save_model(tmp_path / str(k), *models[old])
        failing = Failing(k, error, lasting, half=name == "write" and k % 2 == 0)
        with monkeypatch.context() as context:
            call = failing.wrapped(getattr(owner, attribute))
            context.setattr(owner, attribute, lambda *a, call=call, **o: call(*a, **o))
            raised = saving_raises(folder, models[new])
        assert raised is None or type(raised) is (DataError if code else KeyboardInterrupt)
        if code and raised:
            reason = {
                errno.ENOSPC: "磁盘满了",
                errno.EDQUOT: "磁盘配额",
                errno.EIO: "设备",
                errno.EMFILE: "太多",
            }
            assert f"不能写入 {folder}：" in str(raised)
            assert reason[code] in str(raised)
        found = dump_arrays(load_model(folder)[0].state_dict())
        assert found in models
        assert raised or found == new
        clean = sorted(path.name for path in folder.iterdir()) == NAMES
        assert clean or name == "unlink" or found == new, "没有保存成，却留下了临时文件"
        outcomes.append((raised is not None, found == new))
        save_model(folder, *models[new])  # 问题消失之后，照常保存，留下的也清除了
        assert dump_arrays(load_model(folder)[0].state_dict()) == new
        assert {path.name for path in folder.iterdir() if path.suffix != ".tmp"} == set(NAMES)
        if failing.calls < k:
            break
    assert failing.calls < k, "没有试完"
    assert outcomes[-1] == (False, True)
    failed = [is_new for raised, is_new in outcomes if raised]
    assert failed == sorted(failed)  # 一旦提交，就总是新的
    if name in {"write", "fsync", "replace"}:
        assert len(failed) > 3
        assert not failed[0]


def test_nothing_can_be_opened_right_after_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: dict[bytes, tuple[GPT, CharTokenizer]]
) -> None:
    """换上清单之后就打不开任何文件，也就不知道换没换上：不得删去清单要用的那些。"""
    old, new = models
    save_model(tmp_path, *models[old])
    replace, committed = Path.replace, False

    def replacing(self: Path, target: Path) -> Path:
        nonlocal committed
        result, committed = replace(self, target), True
        return result

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if committed:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return real(*args, **options)

        return call

    with monkeypatch.context() as context:
        context.setattr(Path, "replace", replacing)
        context.setattr(os, "open", failing(os.open))
        context.setattr(Path, "read_bytes", failing(Path.read_bytes))
        assert "打开的文件太多" in str(saving_raises(tmp_path, models[new]))
    assert dump_arrays(load_model(tmp_path)[0].state_dict()) == new


def saving_raises(folder: Path, model: tuple[GPT, CharTokenizer]) -> BaseException | None:
    """保存时抛出的错误。"""
    try:
        save_model(folder, *model)
    except (DataError, KeyboardInterrupt) as error:
        return error
    return None
