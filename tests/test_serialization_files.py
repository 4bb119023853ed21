"""safetensors 文件：映射与逐个读入，各种类型，bfloat16，坏的文件"""

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptcore import DataError
from gptcore.serialization import ArrayFile, dump_arrays

MIB = 1 << 20


def store(path: Path, entries: dict[str, tuple[str, list[int], bytes]], pad: int = 0) -> Path:
    """手写的 safetensors 文件；`pad` 个空格把数据挪开。"""
    header, place = {}, 0
    for name, (kind, shape, content) in entries.items():
        header[name] = {
            "dtype": kind,
            "shape": shape,
            "data_offsets": [place, place + len(content)],
        }
        place += len(content)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8 + pad)
    body = b"".join(content for _, _, content in entries.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "f2": rng.standard_normal((7, 3)).astype(np.float16),
        "f4": rng.standard_normal((600, 513)).astype(np.float32),
        "f8": rng.standard_normal((2, 3, 4)),
        "i4": rng.integers(-9, 9, (5,), np.int32),
        "bool": np.array([True, False, True]),
        "empty": np.empty((0, 3), np.float32),
        "scalar": np.array(2.5, np.float32),
    }


@pytest.fixture
def path(tmp_path: Path, arrays: dict[str, np.ndarray]) -> Path:
    path = tmp_path / "数组.safetensors"
    path.write_bytes(dump_arrays(arrays))
    return path


def test_reads_every_type(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with ArrayFile(path) as file:
        assert file.entries.keys() == arrays.keys()
        for name, expected in arrays.items():
            entry = file.entries[name]
            assert entry.shape == expected.shape
            assert entry.end - entry.begin == expected.nbytes
            actual = file.read(name, expected.dtype)
            assert actual.dtype == expected.dtype
            assert actual.flags.owndata
            assert actual.flags.writeable
            np.testing.assert_array_equal(actual, expected)
            if expected.dtype.kind == "f":
                wide = file.read(name, np.float32)
                assert wide.dtype == np.float32
                np.testing.assert_array_equal(wide, expected.astype(np.float32))
        assert file.map("bool") is None  # 布尔值的字节要先核对


@pytest.mark.parametrize("name", ["f2", "f4"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_transposes(path: Path, arrays: dict[str, np.ndarray], name: str, dtype: type) -> None:
    with ArrayFile(path) as file:
        actual = file.read(name, dtype, transposed=True)
    assert actual.flags.c_contiguous
    assert actual.dtype == dtype
    np.testing.assert_array_equal(actual, arrays[name].astype(dtype).T)


def test_maps_without_a_copy(path: Path, arrays: dict[str, np.ndarray]) -> None:
    before = path.read_bytes()
    tracemalloc.start()
    with ArrayFile(path) as file:
        mapped = {name: file.map(name) for name in ("f2", "f4", "f8", "i4", "empty", "scalar")}
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < arrays["f4"].nbytes / 4
    for name, array in mapped.items():
        assert array is not None
        assert array.dtype == arrays[name].dtype
        np.testing.assert_array_equal(array, arrays[name])
    assert mapped["f4"] is not None
    assert not mapped["f4"].flags.owndata
    mapped["f4"][...] = 0  # 写时复制：文件不变
    mapped["f4"] += 1
    assert path.read_bytes() == before


def test_replacing_the_file_keeps_the_old_mapping(
    path: Path, arrays: dict[str, np.ndarray]
) -> None:
    with ArrayFile(path) as file:
        mapped = file.map("f4")
    path.unlink()
    assert mapped is not None
    np.testing.assert_array_equal(mapped, arrays["f4"])


@pytest.mark.parametrize("pad", [1, 2, 4])
def test_misaligned_data_is_read_instead(tmp_path: Path, pad: int) -> None:
    """早先的文件，数据的位置不一定是 4 的倍数；那样的数组不能映射。"""
    values = np.arange(6, dtype="<f4")
    path = store(tmp_path / "x", {"w": ("F32", [2, 3], values.tobytes())}, pad)
    with ArrayFile(path) as file:
        assert (file.map("w") is None) == (pad != 4)
        actual = file.read("w", np.float32)
    assert actual.flags.aligned
    np.testing.assert_array_equal(actual, values.reshape(2, 3))


def test_every_bfloat16_is_exact(tmp_path: Path) -> None:
    bits = np.arange(1 << 16, dtype="<u2")
    path = store(tmp_path / "x", {"w": ("BF16", [256, 256], bits.tobytes())})
    with ArrayFile(path) as file:
        assert file.map("w") is None
        actual = file.read("w", np.float32)
        turned = file.read("w", np.float32, transposed=True)
    words = actual.view(np.uint32).reshape(-1)
    np.testing.assert_array_equal(words >> 16, bits)
    assert not (words & 0xFFFF).any()
    np.testing.assert_array_equal(turned.view(np.uint32), actual.view(np.uint32).T)
    assert actual[0x3F, 0x80] == 1.0
    assert actual[0xC0, 0x49] == -3.140625


@pytest.mark.reference
def test_bfloat16_agrees_with_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="没有安装 PyTorch")
    from safetensors.torch import save_file

    values = torch.randn(33, 65, generator=torch.Generator().manual_seed(0)).bfloat16()
    save_file({"w": values}, tmp_path / "x")
    with ArrayFile(tmp_path / "x") as file:
        np.testing.assert_array_equal(file.read("w", np.float32), values.float().numpy())


def test_converting_needs_little_memory(tmp_path: Path) -> None:
    values = np.zeros((4 * MIB,), "<f2")
    path = store(tmp_path / "x", {"w": ("F16", [2048, 2048], values.tobytes())})
    for transposed in (False, True):
        tracemalloc.start()
        with ArrayFile(path) as file:
            result = file.read("w", np.float32, transposed=transposed)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < result.nbytes + 4 * MIB


def test_values_out_of_range_are_refused(tmp_path: Path) -> None:
    values = np.array([1.0, 1e300])
    path = store(tmp_path / "x", {"w": ("F64", [2], values.tobytes())})
    with ArrayFile(path) as file:
        with pytest.raises(DataError, match=r"w 是 float64，有的数超出 float32 的范围"):
            file.read("w", np.float32)
        assert file.read("w", np.float64)[1] == 1e300
    store(path, {"w": ("F64", [2], np.array([np.inf, np.nan]).tobytes())})
    with ArrayFile(path) as file:  # 无穷与 NaN 本来就有，不是这里造成的
        np.testing.assert_array_equal(file.read("w", np.float32), [np.inf, np.nan])


def test_a_file_that_shrinks_is_noticed(path: Path) -> None:
    content = path.read_bytes()
    with ArrayFile(path) as file:
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(DataError, match="变短了"):
            file.read("f4", np.float32)


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"不能读取.*不存在"):
        ArrayFile(tmp_path / "没有")
    with pytest.raises(DataError, match=r"不能读取.*文件夹"):
        ArrayFile(tmp_path)
    path = store(tmp_path / "x", {"w": ("F8_E4M3", [4], bytes(4))})
    with pytest.raises(DataError, match=r"不能读类型 F8_E4M3.*BF16"):
        ArrayFile(path)
    content = store(path, {"w": ("F32", [4], bytes(16))}).read_bytes()
    for size in range(0, len(content), 5):
        path.write_bytes(content[:size])
        with pytest.raises(DataError, match="不是完整的 safetensors 文件"):
            ArrayFile(path)


@pytest.mark.parametrize("axes", [70, 1000])
def test_too_many_axes(tmp_path: Path, axes: int) -> None:
    path = store(tmp_path / "x", {"w": ("F32", [1] * axes, bytes(4))})
    with ArrayFile(path) as file:
        for load in (file.map, lambda name: file.read(name, np.float32)):
            with pytest.raises(DataError):
                load("w")


def test_a_claim_of_huge_memory(tmp_path: Path) -> None:
    """稀疏文件说自己有几个 TB：放不下时说清楚。"""
    path, size = tmp_path / "x", 1 << 42
    entry: dict[str, Any] = {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}
    text = json.dumps({"w": entry}).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        try:
            file.truncate(8 + len(text) + size)
        except OSError:
            pytest.skip("文件系统不支持这么大的文件")
    with ArrayFile(path) as opened, pytest.raises(DataError, match="内存放不下"):
        opened.read("w", np.float64)
