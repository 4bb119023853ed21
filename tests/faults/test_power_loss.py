"""断电：记下保存时的每一个操作，在每一处断电，没有落盘的操作任意丢掉一部分，读到的总是整个旧的或整个新的

磁盘的模型是最坏的一种：文件的内容在 `fsync` 之后才在；文件夹里的新建、改名、删除在 `fsync` 文件夹之后才在，
在那之前，断电时可能留下其中任意几个，先后不论。
"""

import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gptcore.errors import DataError
from gptcore.serialization import MANIFEST, load_folder, save_folder, write_bytes

OLD = {"a.json": b"old a", "b.bin": b"old b"}
NEW = {"a.json": b"new a!", "b.bin": b"new b!"}
Content = list[bytes]  # 一个文件：断电之后它的内容，与它现在的内容


class Recorder:
    """记下一个文件夹里的操作：新建、写、落盘、改名、删除、文件夹落盘。"""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.log: list[tuple[Any, ...]] = []
        self.open: dict[int, str | None] = {}
        for name in ("open", "write", "fsync"):
            monkeypatch.setattr(
                os, name, self._wrapped(getattr(os, name), getattr(self, "_" + name))
            )
        for name in ("replace", "unlink"):
            own = self._wrapped(getattr(Path, name), getattr(self, "_" + name))
            monkeypatch.setattr(Path, name, lambda *a, own=own, **k: own(*a, **k))

    def _wrapped(self, real: Any, record: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            result = real(*args, **options)
            record(result, *args)
            return result

        return call

    def _name(self, path: Any) -> str | None:
        path = Path(path)
        return path.name if path.parent == self.folder else None

    def _open(self, descriptor: int, path: Any, flags: int, *mode: Any) -> None:
        self.open[descriptor] = "" if Path(path) == self.folder else self._name(path)
        if flags & os.O_CREAT:
            self.log.append(("create", self._name(path)))

    def _write(self, count: int, descriptor: int, data: Any) -> None:
        self.log.append(("write", self.open[descriptor], bytes(data[:count])))

    def _fsync(self, result: None, descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        name = self.open[descriptor]
        if name is not None:  # 不是上一级文件夹
            self.log.append(("sync folder",) if is_folder else ("sync", name))

    def _replace(self, result: Path, source: Path, target: Path) -> None:
        self.log.append(("rename", source.name, target.name))

    def _unlink(self, result: None, path: Path, **options: Any) -> None:
        if not path.exists():
            self.log.append(("unlink", path.name))


def after_power_loss(
    before: dict[str, bytes], log: list[tuple[Any, ...]]
) -> Iterator[dict[str, bytes]]:
    """做完 `log` 里的操作时断电，之后文件夹里可能是什么。"""
    durable, pending = replay(before, log)
    for kept in itertools.product((False, True), repeat=len(pending)):
        names = dict(durable)
        for old, new, file in itertools.compress(pending, kept):
            names.pop(old, None)
            if new:
                names[new] = file
        yield {name: content[0] for name, content in names.items()}


def replay(
    before: dict[str, bytes], log: list[tuple[Any, ...]]
) -> tuple[dict[str, Content], list[Any]]:
    """文件夹里已经落盘的名字，与之后还没有落盘的改动：去掉的名字、增加的名字、文件。"""
    durable: dict[str, Content] = {name: [content, content] for name, content in before.items()}
    now = dict(durable)
    pending: list[Any] = []
    for operation, *names in log:
        if operation == "create":
            now[names[0]] = [b"", b""]
            pending.append(("", names[0], now[names[0]]))
        elif operation == "write":
            now[names[0]][1] += names[1]
        elif operation == "sync":
            now[names[0]][0] = now[names[0]][1]
        elif operation == "rename":
            now[names[1]] = now.pop(names[0])
            pending.append((*names, now[names[1]]))
        elif operation == "unlink":
            if now.pop(names[0], None):
                pending.append((names[0], "", None))
        else:
            durable, pending = dict(now), []
    return durable, pending


def place(folder: Path, contents: dict[str, bytes]) -> None:
    for path in folder.iterdir():
        path.unlink()
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def which(folder: Path) -> str:
    for word, contents in (("旧", OLD), ("新", NEW)):
        try:
            if load_folder(folder, contents) == contents:
                return word
        except DataError:
            continue
    return "坏"


def record(folder: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes]) -> Any:
    """保存之前的内容，与保存时的操作。"""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with monkeypatch.context() as context:
        recorder = Recorder(folder, context)
        save_folder(folder, files)
    return before, recorder.log


@pytest.mark.parametrize("leftovers", [False, True])
def test_power_loss_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leftovers: bool
) -> None:
    folder, disk = tmp_path / "folder", tmp_path / "disk"
    disk.mkdir()
    save_folder(folder, OLD)
    if leftovers:  # 上一次保存提交之后、改名之前就断了电，之前还有一次没有提交
        for name in OLD:
            (folder / name).unlink()
        real = Path.replace
        with monkeypatch.context() as context:
            context.setattr(
                Path, "replace", lambda a, b: interrupt() if a.suffix == ".new" else real(a, b)
            )
            with pytest.raises(KeyboardInterrupt):
                save_folder(folder, OLD)
        (folder / f".b.bin.{'0' * 16}.new").write_bytes(b"half")
    before, log = record(folder, monkeypatch, NEW)
    assert len(log) > 10
    outcomes = []
    for moment in range(len(log) + 1):
        found = set()
        for contents in after_power_loss(before, log[:moment]):
            place(disk, contents)
            found.add(which(disk))
            assert "坏" not in found, f"在第 {moment} 个操作之后断电：{log[:moment]}"
        outcomes.append("".join(sorted(found)))
    assert outcomes[0] == "旧"
    assert outcomes[-1] == "新"
    # 换上清单的那一次改名之前总是旧的，它落盘之后总是新的
    commit = next(i for i, e in enumerate(log) if e[0] == "rename" and e[2] == MANIFEST)
    synced = log.index(("sync folder",), commit)
    assert set(outcomes[: commit + 1]) == {"旧"}
    assert set(outcomes[synced + 1 :]) == {"新"}


def interrupt() -> None:
    raise KeyboardInterrupt


def test_power_loss_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """断过电的文件夹里再保存一次，又断电：还是整个旧的或整个新的。"""
    folder, disk = tmp_path / "folder", tmp_path / "disk"
    disk.mkdir()
    save_folder(folder, OLD)
    before, log = record(folder, monkeypatch, NEW)
    states = {
        tuple(sorted(contents.items()))
        for moment in range(len(log) + 1)
        for contents in after_power_loss(before, log[:moment])
    }
    assert len(states) > 10
    for state in sorted(states):
        place(folder, dict(state))
        first, second = record(folder, monkeypatch, OLD)
        for moment in range(len(second) + 1):
            *_, worst = after_power_loss(first, second[:moment])
            least = next(after_power_loss(first, second[:moment]))
            for contents in (least, worst):
                place(disk, contents)
                assert which(disk) != "坏"


def test_a_single_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f" / "a"
    write_bytes(path, b"old")
    with monkeypatch.context() as context:
        recorder = Recorder(path.parent, context)
        write_bytes(path, b"new!")
    seen = [
        {contents["a"] for contents in after_power_loss({"a": b"old"}, recorder.log[:moment])}
        for moment in range(len(recorder.log) + 1)
    ]
    assert seen[0] == {b"old"}
    assert seen[-1] == {b"new!"}
    assert set.union(*seen) == {b"old", b"new!"}


def test_the_model_of_the_disk_notices_missing_syncs() -> None:
    """模型自己没有错：少了任何一次落盘，都有断电之后不对的时候。"""
    log: list[tuple[Any, ...]] = [
        ("create", "t"), ("write", "t", b"new"), ("sync", "t"), ("rename", "t", "a"), ("sync folder",),
    ]  # fmt: skip
    full = [contents["a"] for contents in after_power_loss({"a": b"old"}, log)]
    assert full == [b"new"]
    unsynced = [c["a"] for c in after_power_loss({"a": b"old"}, [e for e in log if e[0] != "sync"])]
    assert unsynced == [b""]
    loose = {c["a"] for c in after_power_loss({"a": b"old"}, log[:-1])}
    assert loose == {b"old", b"new"}
