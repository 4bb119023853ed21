"""几个文件作为一个整体：只认普通文件与普通名字，大小先核对再读，写的时候不出文件夹"""

import hashlib
import json
import os
import re
import stat
import tracemalloc
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from gptcore import load_model
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
