"""safetensors 的分段写入；分段的内容存进文件夹；接着做完中断的保存"""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptcore import DataError
from gptcore.serialization import (
    MANIFEST,
    ArrayFile,
    array_chunks,
    dump_arrays,
    finish_folder,
    folders,
    load_folder,
    parse_arrays,
    save_folder,
)

MIB = 1 << 20


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    wide = rng.standard_normal((700, 900)).astype(np.float32)
    return {
        "one": np.array([1, 2, 3], np.int8),
        "转置": wide.T,
        "slice": wide[::3, 5:],
        "f2": wide[:9, :7].astype(np.float16),
        "f8": rng.standard_normal(5),
        "big": wide.astype(">f4"),
        "scalar": np.array(2.5, np.float32),
        "empty": np.empty((3, 0, 2), np.float32),
        "bool": np.array([[True], [False]]),
        "cube": rng.standard_normal((3, 4, 5)).astype(np.float32).transpose(2, 0, 1),
    }


def test_agrees_with_the_library(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    from safetensors import safe_open
    from safetensors.numpy import load

    content = b"".join(array_chunks(arrays, {"format": "pt", "说明": "中文"}))
    for found in (load(content), parse_arrays(content, "x")):
        assert found.keys() == arrays.keys()
        for name, expected in arrays.items():
            assert found[name].dtype == expected.dtype.newbyteorder("<")
            np.testing.assert_array_equal(found[name], expected)
    (tmp_path / "x").write_bytes(content)
    with safe_open(tmp_path / "x", "np") as file:
        assert file.metadata() == {"format": "pt", "说明": "中文"}
    with ArrayFile(tmp_path / "x") as file:
        for name, entry in file.entries.items():
            assert entry.begin % arrays[name].dtype.itemsize == 0  # 都对齐，可以映射


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_bytes_as_the_library(dtype: type) -> None:
    arrays = {f"层.{i % 7}.{i}": np.full((i % 5 + 1, 3), i, dtype) for i in range(30)}
    assert b"".join(array_chunks(arrays)) == dump_arrays(arrays)
    assert b"".join(array_chunks({})) == dump_arrays({})


def test_nothing_is_copied(arrays: dict[str, np.ndarray]) -> None:
    w = np.zeros((2048, 2048), np.float32)
    tracemalloc.start()
    total = sum(len(piece) for piece in array_chunks({"a": w, "b": w.T}))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total > 2 * w.nbytes
    assert peak < 4 * MIB


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"w": np.zeros(2, np.complex64)}, "array_chunks：数组 'w' 的类型是 complex64"),
        ({"w": np.array(["a"])}, "类型是 <U1"),
        ({"__metadata__": np.zeros(2)}, "名字不能是 __metadata__"),
        ({"\ud800": np.zeros(2)}, "要能写成 JSON"),
    ],
)
def test_refuses_before_the_first_piece(arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        array_chunks(arrays)


def test_folder_of_pieces(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    content = b"".join(array_chunks(arrays))
    save_folder(tmp_path, {"x": array_chunks(arrays), "y": [b"a", memoryview(b"bc"), b""]})
    assert load_folder(tmp_path, ["x", "y"]) == {"x": content, "y": b"abc"}


def test_failure_in_the_middle_keeps_the_old_folder(tmp_path: Path) -> None:
    save_folder(tmp_path, {"x": b"old"})

    def pieces() -> Iterator[bytes]:
        yield b"new"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_folder(tmp_path, {"a": b"new", "x": pieces()})
    assert load_folder(tmp_path, ["x"]) == {"x": b"old"}
    assert sorted(path.name for path in tmp_path.iterdir()) == [MANIFEST, "x"]


def test_finish_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """在提交之后、改名之前被杀：finish_folder 做完剩下的。"""
    finish_folder(tmp_path)  # 没有清单
    save_folder(tmp_path, {"x": b"old x", "y": b"old y"})
    finish_folder(tmp_path)
    assert (tmp_path / "x").read_bytes() == b"old x"
    done: list[Path] = []

    def replace(source: Path, target: Path) -> None:
        if done:
            raise KeyboardInterrupt
        done.append(target)
        source.replace(target)

    with monkeypatch.context() as patch:
        patch.setattr(folders, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            save_folder(tmp_path, {"x": b"new x", "y": b"new y"})
    assert (tmp_path / "x").read_bytes() == b"new x"
    assert (tmp_path / "y").read_bytes() == b"old y"
    finish_folder(tmp_path)
    assert (tmp_path / "y").read_bytes() == b"new y"
    assert sorted(path.name for path in tmp_path.iterdir()) == [MANIFEST, "x", "y"]


def test_finish_folder_leaves_others_alone(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text('{"files": {"a": {"new": "../b"}}}', encoding="utf-8")
    finish_folder(tmp_path)
    content = '{"format": "gptcore", "version": 1, "files": {"a": {"new": "../b"}, "c": 3}}'
    (tmp_path / MANIFEST).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match="不是普通的文件名"):
        finish_folder(tmp_path)
    (tmp_path / MANIFEST).write_text(content.replace("../b", "b"), encoding="utf-8")
    finish_folder(tmp_path)
