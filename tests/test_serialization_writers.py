"""保存时留下的临时文件，几个进程同时写同一个文件夹"""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gptcore import files
from gptcore.errors import DataError
from gptcore.serialization import (
    MANIFEST,
    is_leftover,
    load_folder,
    save_folder,
)

OLD = {"a.json": b"old a", "b.bin": b"old b" * 1000}
NEW = {"a.json": b"new a!", "b.bin": b"new b" * 900}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_folder(tmp_path / "库", OLD)
    return tmp_path / "库"


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# 留下的临时文件


def test_leftovers_are_swept_at_once(folder: Path) -> None:
    """被杀的保存留下的 .new 可能很大：下一次保存先删去，不等 10 分钟。"""
    stale = [f".b.bin.{'a' * 16}.new", f".旧的.{'b' * 16}.new"]
    kept = [f".b.bin.{'c' * 16}.tmp", ".b.bin.new", f"b.bin.{'d' * 16}.new"]
    for name in (*stale, *kept):
        (folder / name).write_bytes(b"x")
    (folder / f".x.{'e' * 16}.new").mkdir()  # 删不掉的不妨碍保存
    save_folder(folder, NEW)
    names = sorted([*NEW, MANIFEST, *kept, f".x.{'e' * 16}.new"])
    assert listing(folder) == names
    os.utime(folder / kept[0], (0, 0))
    save_folder(folder, NEW)
    assert listing(folder) == sorted(set(names) - {kept[0]})


def test_what_the_manifest_needs_is_not_swept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """提交之后、改名之前被杀：.new 是唯一的一份，失败的下一次保存不得删去它。"""
    replace = Path.replace

    def cut(self: Path, target: Path) -> Path:
        if self.name.endswith(".new"):
            raise KeyboardInterrupt
        return replace(self, target)

    quoted = {**NEW, 'a"引号.json': b"3"}
    monkeypatch.setattr(Path, "replace", cut)
    with pytest.raises(KeyboardInterrupt):
        save_folder(folder, quoted)
    assert load_folder(folder, quoted) == quoted
    assert sum(map(is_leftover, folder.iterdir())) == 3
    for path in folder.iterdir():
        os.utime(path, (0, 0))
    monkeypatch.setattr(Path, "replace", replace)

    def fail(*args: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(os, "write", fail)
        with pytest.raises(DataError, match="磁盘满了"):
            save_folder(folder, OLD)
    assert load_folder(folder, quoted) == quoted
    save_folder(folder, OLD)
    assert load_folder(folder, OLD) == OLD
    assert not any(map(is_leftover, folder.iterdir()))


def test_new_folders_are_removed_when_saving_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(DataError, match="磁盘满了"):
        save_folder(tmp_path / "a" / "b", OLD)
    assert listing(tmp_path) == []


# 几个进程


def test_a_second_writer_waits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with files.locked_folder(folder) as locked:
        assert locked
        monkeypatch.setattr(files, "LOCK_SECONDS", 0.05)
        with pytest.raises(DataError, match=r"不能写入 .*另一个进程正在写同一个文件夹"):
            save_folder(folder, NEW)
        assert listing(folder) == sorted([*OLD, MANIFEST])
        monkeypatch.setattr(files, "LOCK_SECONDS", 30.0)
        writer = threading.Thread(target=save_folder, args=(folder, NEW))
        writer.start()
        writer.join(0.1)
        assert writer.is_alive()
        assert load_folder(folder, OLD) == OLD
    writer.join(30)
    assert load_folder(folder, NEW) == NEW


def test_without_locks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """网络文件系统可能不支持锁：照样保存。"""

    def unsupported(descriptor: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(files, "_lock", unsupported)
    (folder / f".a.json.{'a' * 16}.new").write_bytes(b"x")  # 也许别的进程正在用
    save_folder(folder, NEW)
    assert load_folder(folder, NEW) == NEW
    assert listing(folder) == sorted([*NEW, MANIFEST, f".a.json.{'a' * 16}.new"])


WRITER = """
import sys
from pathlib import Path
from gptcore.serialization import save_folder
for i in range(int(sys.argv[3])):
    save_folder(Path(sys.argv[1]), {n: f"{sys.argv[2]} {i}".encode() * 99 for n in "abc"})
"""


def test_several_writers_and_a_reader(tmp_path: Path) -> None:
    """三个进程同时保存，一边读：每次读到的都是某一次保存的全部。"""
    save_folder(tmp_path, dict.fromkeys("abc", b"0"))
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(i), "40"])
        for i in range(3)
    ]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        contents = load_folder(tmp_path, "abc")
        assert len({bytes(content) for content in contents.values()}) == 1
        seen.add(bytes(contents["a"]))
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert len(seen) > 10
    assert len({bytes(content) for content in load_folder(tmp_path, "abc").values()}) == 1
    assert listing(tmp_path) == sorted(["a", "b", "c", MANIFEST])


def test_replacing_waits_for_other_programs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows 上杀毒软件常打开刚写的文件片刻。"""
    replace, failures = Path.replace, [PermissionError(13, "used by another process")] * 3

    def busy(self: Path, target: Path) -> Path:
        if failures:
            raise failures.pop()
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", busy)
    monkeypatch.setattr(files, "ATTEMPTS", 5)
    monkeypatch.setattr(files.time, "sleep", lambda seconds: None)
    save_folder(folder, NEW)
    assert load_folder(folder, NEW) == NEW
