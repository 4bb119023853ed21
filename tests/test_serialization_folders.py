"""几个文件作为一个整体：只认普通文件与普通名字，大小先核对再读，写的时候不出文件夹"""

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import threading
import tracemalloc
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from gptcore import files, load_model
from gptcore.errors import DataError
from gptcore.serialization import (
    MANIFEST,
    is_leftover,
    is_plain_name,
    load_folder,
    read_bytes,
    save_folder,
    write_bytes,
)
from gptcore.serialization.single import read_exactly

OLD = {"a.json": b"old a", "b.bin": b"old b" * 1000}
NEW = {"a.json": b"new a!", "b.bin": b"new b" * 900}
posix = pytest.mark.skipif(os.name == "nt", reason="Windows 没有管道文件与符号链接")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_folder(tmp_path / "库", OLD)
    return tmp_path / "库"


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def edit(folder: Path, change: Any) -> None:
    value = json.loads((folder / MANIFEST).read_bytes())
    change(value)
    (folder / MANIFEST).write_text(json.dumps(value), encoding="utf-8")


def test_round_trip(folder: Path) -> None:
    assert load_folder(folder, OLD) == OLD
    assert listing(folder) == sorted([*OLD, MANIFEST])
    save_folder(folder, NEW)
    assert load_folder(folder, NEW) == NEW
    assert load_folder(folder, ()) == {}
    assert listing(folder) == sorted([*OLD, MANIFEST])


# 名字


PLAIN = ["a", "配置.json", ".a.0123456789abcdef.new", "a b", "a..b", "长" * 73]
ESCAPES = ["", ".", "..", "/", "a/b", "../a", "/etc/passwd", "a\\b", "..\\a", "C:a", "a\0b", "a\nb"]
ESCAPES += ["\ud800", "长" * 74, "a:stream"]


def test_plain_names() -> None:
    assert all(map(is_plain_name, PLAIN))
    assert not any(map(is_plain_name, [*ESCAPES, None, 3, ["a"]]))


@pytest.mark.parametrize("name", [*ESCAPES, MANIFEST, "Manifest.JSON"])
def test_names_that_are_not_saved(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"save_folder：名字是 .*不含路径的文件名"):
        save_folder(tmp_path / "x", {"a": b"1", name: b"2"})
    assert listing(tmp_path) == []
    with pytest.raises(DataError, match="彼此不同"):
        save_folder(tmp_path / "x", {"a": b"1", "A": b"2"})


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("place", ["name", "new", "another"])
def test_names_in_the_manifest_that_escape(folder: Path, name: str, place: str) -> None:
    outside = folder.parent / "a"
    outside.write_bytes(OLD["a.json"])

    def change(manifest: Any) -> None:
        entries = manifest["files"]
        if place == "name":
            entries[name] = entries["a.json"]
        else:
            entries["a.json" if place == "new" else "b.bin"]["new"] = name

    edit(folder, change)
    (folder / "a.json").unlink()
    with pytest.raises(DataError, match=r"manifest\.json 里的名字 .* 不是普通的文件名.*SHA-256"):
        load_folder(folder, ["a.json"])
    with pytest.raises(DataError):
        load_folder(folder, [name])


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", MANIFEST])
def test_asking_for_what_is_not_listed(folder: Path, name: str) -> None:
    with pytest.raises(DataError, match=re.escape(f"里没有 {name}")):
        load_folder(folder, [name])


@pytest.mark.parametrize("new", [3, ["a"], {}])
def test_names_of_another_type(folder: Path, new: Any) -> None:
    edit(folder, lambda m: m["files"]["a.json"].update(new=new))
    with pytest.raises(DataError, match="不是普通的文件名"):
        load_folder(folder, ["b.bin"])


# 版本


@pytest.mark.parametrize("version", [2, 10**30, 0, "1", None, True, 1.0, [1], "9" * 999])
def test_other_versions(folder: Path, version: Any) -> None:
    edit(folder, lambda m: m.update(version=version))
    with pytest.raises(
        DataError, match=r"格式版本是 .*只认识版本 1.*更新的 gptcore.*请升级"
    ) as caught:
        load_folder(folder, ["a.json"])
    assert len(str(caught.value)) < 400


# 大小


def test_a_size_that_differs_is_not_read(folder: Path) -> None:
    """换成 4 GiB 的稀疏文件：不读，不分配。"""
    with (folder / "b.bin").open("r+b") as file:
        file.truncate(4 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(
            DataError, match=rf"b\.bin .*SHA-256 不符（它有 {4 << 30} 个字节，应有 5000 个）"
        ):
            load_folder(folder, OLD)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_manifest_that_is_huge_is_not_read(folder: Path) -> None:
    with (folder / MANIFEST).open("r+b") as file:
        file.truncate(4 << 30)
    with pytest.raises(DataError, match=rf"manifest\.json 有 {4 << 30} 个字节，这里最多"):
        load_folder(folder, OLD)


@pytest.mark.parametrize("size", [True, -1, 5.0, "5", [5], 10**30])
def test_sizes_that_make_no_sense(folder: Path, size: Any) -> None:
    edit(folder, lambda m: m["files"]["a.json"].update(size=size))
    with pytest.raises(DataError, match=r"a\.json .*SHA-256 不符（它有 5 个字节"):
        load_folder(folder, ["a.json"])


def test_older_manifests_have_no_sizes(folder: Path) -> None:
    edit(folder, lambda m: [entry.pop("size") for entry in m["files"].values()])
    assert load_folder(folder, OLD) == OLD
    (folder / "b.bin").write_bytes(bytes(200 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="SHA-256"):  # 先算 SHA-256，不读进内存
            load_folder(folder, OLD)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_file_that_changes_while_it_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fstat, looks = os.fstat, 0

    def changing(descriptor: int) -> os.stat_result:
        nonlocal looks
        result = fstat(descriptor)
        looks += stat.S_ISREG(result.st_mode) and result.st_size == size
        if looks == 2:  # 看过大小之后
            os.truncate(path, changed)
        return result

    monkeypatch.setattr(os, "fstat", changing)
    for name, by in (("b.bin", 1), ("a.json", -1)):
        path, size, looks = folder / name, len(OLD[name]), 0
        changed = size + by
        with pytest.raises(DataError, match=rf"{name} 在读的时候变了大小"):
            load_folder(folder, [name])


def test_more_than_the_memory(folder: Path) -> None:
    class Full(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise MemoryError

    with pytest.raises(DataError, match=r"b\.bin 有 5000 个字节，内存放不下"):
        read_exactly(folder / "b.bin", Full(), 5000)  # type: ignore[arg-type]


# 不是普通文件


@posix
@pytest.mark.parametrize(
    "kind", ["管道", "设备", "套接字", "文件夹", "指向管道", "指向文件夹", "圈", "断"]
)
@pytest.mark.parametrize("name", [*OLD, MANIFEST])
def test_what_is_not_a_regular_file(tmp_path: Path, name: str, kind: str) -> None:
    folder = tmp_path / "f"
    save_folder(folder, OLD)
    path = folder / name
    path.unlink()
    target = path if not kind.startswith("指向") else tmp_path / "target"
    if "管道" in kind:
        os.mkfifo(target)
    elif kind == "设备":
        path.symlink_to("/dev/zero")
    elif kind == "套接字":
        import socket

        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    elif "文件夹" in kind:
        target.mkdir()
    else:
        path.symlink_to(path if kind == "圈" else folder / "没有")
    if target != path:
        path.symlink_to(target)
    words = {
        "管道": "不是普通文件",
        "设备": "不是普通文件",
        "套接字": "不是普通文件",
        "文件夹": "它是文件夹",
    }
    expected = next(
        (w for k, w in words.items() if k in kind), "符号链接绕成了圈" if kind == "圈" else ""
    )
    with pytest.raises(DataError, match=rf"{name}.*{expected}"):  # 不会等在管道上
        load_folder(folder, OLD)
    if kind == "文件夹":
        with pytest.raises(DataError, match=rf"不能写入 .*{name}：它是文件夹"):
            save_folder(folder, NEW)
        assert listing(folder) == sorted([*OLD, MANIFEST])
    else:
        save_folder(folder, NEW)  # 保存时换掉的是它自己，不是它指向的
        assert load_folder(folder, NEW) == NEW
        assert not path.is_symlink()
        assert not target.is_file() or target == path


@posix
def test_links_never_lead_writes_outside(tmp_path: Path) -> None:
    outside = tmp_path / "外面"
    outside.mkdir()
    folder = tmp_path / "f"
    save_folder(folder, OLD)
    for name in (*OLD, MANIFEST):
        (outside / name).write_bytes((folder / name).read_bytes())
        (folder / name).unlink()
        (folder / name).symlink_to(outside / name)
    (folder / f".a.json.{'0' * 16}.new").symlink_to(outside / "a.json")
    (folder / f".b.bin.{'1' * 16}.tmp").symlink_to(outside)
    assert load_folder(folder, OLD) == OLD  # 指向普通文件的链接照常读，例如缓存里的
    before = {path.name: path.read_bytes() for path in outside.iterdir()}
    save_folder(folder, NEW)
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == before
    assert load_folder(folder, NEW) == NEW
    assert not any((folder / name).is_symlink() for name in (*NEW, MANIFEST))


@posix
def test_a_folder_that_is_a_link_is_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    save_folder(tmp_path / "link", NEW)
    assert (tmp_path / "link").is_symlink()
    assert load_folder(folder, NEW) == NEW


# 路径


@pytest.mark.parametrize("name", ["a\0b", "\udcff\ud800", "长" * 100])
def test_paths_that_cannot_be(tmp_path: Path, name: str) -> None:
    for path in (tmp_path / name, tmp_path / name / "x"):
        with pytest.raises(DataError, match="不能写入"):
            save_folder(path, OLD)
        with pytest.raises(DataError, match="不能写入"):
            write_bytes(path, b"x")
        with pytest.raises(DataError, match="不能读取"):
            load_folder(path, OLD)
        with pytest.raises(DataError, match="不能读取"):
            read_bytes(path)
    assert listing(tmp_path) == []


def test_single_files(tmp_path: Path) -> None:
    path = tmp_path / "新" / "a"
    write_bytes(path, b"1")
    write_bytes(path, b"22")
    assert read_bytes(path) == read_bytes(path, 2) == b"22"
    assert listing(path.parent) == ["a"]
    with pytest.raises(DataError, match="有 2 个字节，这里最多 1 个"):
        read_bytes(path, 1)


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
        assert len(set(contents.values())) == 1
        seen.add(contents["a"])
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert len(seen) > 10
    assert len(set(load_folder(tmp_path, "abc").values())) == 1
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


def test_the_manifest_itself(folder: Path) -> None:
    value = json.loads((folder / MANIFEST).read_bytes())
    assert value["format"] == "gptcore"
    assert value["version"] == 1
    for name, content in OLD.items():
        entry = value["files"][name]
        assert entry["size"] == len(content)
        assert entry["sha256"] == hashlib.sha256(content).hexdigest()
        assert is_leftover(folder / entry["new"])


@pytest.mark.parametrize("name", ["长" * 100, "a\0b", "\ud800"])
def test_models_at_paths_that_cannot_be(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="请"):
        load_model(tmp_path / name)
