"""数组：与 safetensors 库写的、读的一致；文件头里的任何数都先核对再用"""

import contextlib
import json
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from safetensors.numpy import load

from gptcore.errors import DataError
from gptcore.serialization import dump_arrays, parse_arrays
from gptcore.serialization.arrays import HEADER_LIMIT

DTYPES = "? u1 i1 u2 i2 u4 i4 u8 i8 f2 f4 f8".split()


def file(header: Any, data: bytes = b"", size: int | None = None) -> bytes:
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(content) if size is None else size) + content + data


def entry(begin: int, end: int, shape: Any = None, dtype: Any = "F32") -> dict[str, Any]:
    shape = [(end - begin) // 4] if shape is None else shape
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


arrays = st.dictionaries(
    st.text(max_size=5).filter(lambda s: s.isprintable()),
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: npst.arrays(np.dtype(dtype), npst.array_shapes(min_dims=0, min_side=0))
    ),
    max_size=5,
)


@given(arrays)
def test_the_same_as_the_library(values: dict[str, Any]) -> None:
    content = dump_arrays(values)
    for again in (parse_arrays(content, "x"), load(content)):
        assert again.keys() == values.keys()
        for name, array in values.items():
            assert again[name].dtype == array.dtype
            assert again[name].shape == array.shape
            assert again[name].tobytes() == array.tobytes()


def test_other_layouts_of_the_same_values() -> None:
    a = np.arange(6, dtype="<f4").reshape(2, 3)
    given = {"大端": a.astype(">f4"), "转置": a.T, "跳着": a[:, ::2], "零维": np.float64(3)[()]}
    again = parse_arrays(dump_arrays({k: np.asarray(v) for k, v in given.items()}), "x")
    for name, array in given.items():
        np.testing.assert_array_equal(again[name], array)
        assert again[name].dtype.isnative


def test_arrays_are_read_only_views() -> None:
    content = dump_arrays({"a": np.zeros(1_000_000, np.float32)})
    tracemalloc.start()
    array = parse_arrays(content, "x")["a"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 17
    assert not array.flags.writeable


@pytest.mark.parametrize(
    "array",
    [np.zeros(2, complex), np.zeros(2, object), np.zeros(2, "U3"), np.zeros(2, "M8[s]"),
     np.zeros(2, np.longdouble), np.zeros(2, [("a", "f4")])],
)  # fmt: skip
def test_types_that_cannot_be_saved(array: Any) -> None:
    with pytest.raises(DataError, match=r"dump_arrays：数组 'w' 的类型是 .*不能存.*astype"):
        dump_arrays({"w": array})


@pytest.mark.parametrize("name", ["__metadata__", "\ud800"])
def test_names_that_cannot_be_saved(name: str) -> None:
    with pytest.raises(DataError, match="dump_arrays"):
        dump_arrays({name: np.zeros(2)})


GOOD = {"a": entry(0, 8), "b": entry(8, 12)}


def test_what_is_allowed() -> None:
    data = np.arange(3, dtype="<f4")
    for header in (
        GOOD,
        {"b": GOOD["b"], "a": GOOD["a"]},
        {"__metadata__": {"format": "np"}, **GOOD},
        json.dumps(GOOD).encode() + b" " * 7,  # 末尾用空格补齐
        {**GOOD, "空": entry(12, 12, [0, 5]), "也空": entry(8, 8, [0])},
    ):
        again = parse_arrays(file(header, data.tobytes()), "x")
        np.testing.assert_array_equal(again["a"], data[:2])
        np.testing.assert_array_equal(again["b"], data[2:])
    assert parse_arrays(file({}), "x") == {}
    # 没有对齐也读得出来
    shifted = file({"i": entry(0, 1, [1], "U8"), "a": entry(1, 9)}, b"\1" + data[:2].tobytes())
    np.testing.assert_array_equal(parse_arrays(shifted, "x")["a"], data[:2])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "有 0 个字节，放不下文件头"),
        (b"\0" * 7, "有 7 个字节"),
        (b"\0" * 8, "不是 JSON 的字典"),
        (file({}, size=3), "放不下文件头"),
        (file({}, size=2**63), "放不下文件头"),
        (file({}, size=2**64 - 1), "放不下文件头"),
        (file(GOOD, bytes(12), size=5), "文件头 不是有效的 JSON"),
        (file([], bytes(12)), "不是 JSON 的字典"),
        (file(b'"x"'), "不是 JSON 的字典"),
        (file(b" {}"), "不是 JSON 的字典"),
        (file(b"{} {}"), "文件头 不是有效的 JSON"),
        (file(b"\xef\xbb\xbf{}"), "不是 JSON 的字典"),
        (file(b'{"\xff": 1}'), "文件头 不是有效的 JSON"),
        (file(b'{"a":' * 100_000), "文件头 不是有效的 JSON"),
        (file(b'{"a": NaN}'), "NaN"),
        (
            file(b'{"a": %s, "a": %s}' % ((json.dumps(entry(0, 4)).encode(),) * 2), bytes(4)),
            "键 'a' 出现了两次",
        ),
        (
            file(
                b'{"a": {"dtype": "F32", "dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
                bytes(4),
            ),
            "键 'dtype' 出现了两次",
        ),
        (file(GOOD, bytes(11)), "数组 'b'：位置 8 到 12 超出文件"),
        (file(GOOD, bytes(13)), "数据有 13 个字节，文件头只说到 12"),
        (file({}, bytes(1)), "数据有 1 个字节，文件头只说到 0"),
        (file({"a": entry(0, 8), "b": entry(4, 12)}, bytes(12)), "第 4 个字节处有重叠"),
        (file({"a": entry(0, 8), "b": entry(0, 8)}, bytes(8)), "第 0 个字节处有重叠"),
        (file({"a": entry(0, 4), "b": entry(8, 12)}, bytes(12)), "第 4 个字节处有空隙"),
        (file({"a": entry(4, 8)}, bytes(8)), "第 0 个字节处有空隙"),
        (file({"a": entry(0, 8), "b": entry(4, 4, [0])}, bytes(8)), "重叠"),
        (file({"a": entry(8, 4, [1])}, bytes(8)), "位置 8 到 4 超出文件"),
        (file({"a": entry(0, 2**62)}, bytes(8)), "超出文件"),
        (file({"a": entry(0, 8, [3])}, bytes(8)), r"形状 \(3,\) 与它的 8 个字节不符"),
        (file({"a": entry(0, 8, [2**40, 2**40])}, bytes(8)), "不符"),
        (file({"a": entry(0, 8, [2**62, 4, 2])}, bytes(8)), "不符"),  # 乘积模 2^64 是 8
        (file({"a": entry(0, 0, [0, 2**62, 2**62])}), "数组 'a'"),
        (file({"a": entry(0, 4, [1] * 65)}, bytes(4)), "数组 'a'"),
        (file({"a": entry(0, 8, [-2])}, bytes(8)), "0 到 2\\^63"),
        (file({"a": entry(0, 8, [2.0])}, bytes(8)), "0 到 2\\^63"),
        (file({"a": entry(0, 4, [True])}, bytes(4)), "0 到 2\\^63"),
        (file({"a": entry(0, 8, [2**63])}, bytes(8)), "0 到 2\\^63"),
        (file({"a": entry(0, 8, ["2"])}, bytes(8)), "0 到 2\\^63"),
        (file({"a": entry(0, 8, 2)}, bytes(8)), "整数的列表"),
        (file({"a": entry(0, 8, None) | {"shape": None}}, bytes(8)), "整数的列表"),
        (file({"a": entry(0, 8) | {"data_offsets": [0, 4, 8]}}, bytes(8)), "两个整数"),
        (file({"a": entry(0, 8) | {"data_offsets": [8]}}, bytes(8)), "两个整数"),
        (file({"a": entry(0, 8) | {"data_offsets": {"0": 8}}}, bytes(8)), "整数的列表"),
        (file({"a": entry(0, 8) | {"more": 1}}, bytes(8)), "三项"),
        (file({"a": {"dtype": "F32", "shape": [2]}}, bytes(8)), "三项"),
        (file({"a": 3}, bytes(8)), "三项"),
        (file({"a": None}, bytes(8)), "三项"),
        (file({"a": entry(0, 8, [4], "BF16")}, bytes(8)), "不能读类型 BF16，能读的有.*F32"),
        (file({"a": entry(0, 8, [8], "F8_E4M3")}, bytes(8)), "不能读类型 F8_E4M3"),
        (file({"a": entry(0, 8, [2], "f32")}, bytes(8)), "不能读类型 f32"),
        (file({"a": entry(0, 8, [2], None)}, bytes(8)), "不能读类型 None"),
        (file({"a": entry(0, 8, [2], ["F32"])}, bytes(8)), "不能读类型"),
        (file({"a": entry(0, 2, [2], "BOOL")}, b"\1\2"), "布尔值不是 0 或 1"),
    ],
)
def test_what_is_not_safetensors(content: bytes, words: str) -> None:
    with pytest.raises(
        DataError, match=f"^文件 不是完整的 safetensors 文件：.*{words}.*被截断或改动过"
    ):
        parse_arrays(content, "文件")


@pytest.mark.parametrize("unit", ["", '"%x":{},', '"%x":1e9,', '"%x":{"dtype":"F32"},'])
@pytest.mark.parametrize("size", [1 << 20, HEADER_LIMIT, 100_000_000])
def test_a_header_of_many_megabytes(unit: str, size: int) -> None:
    """文件里没有那么多，就什么也不分配；有那么多，另占的也不超过 64 MiB。"""
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="放不下文件头"):
            parse_arrays(file({}, size=size), "x")
        assert tracemalloc.get_traced_memory()[1] < 1 << 16
        count = min(size, HEADER_LIMIT) // (len(unit) + 3) if unit else 0
        header = ("{" + "".join(unit % i for i in range(count)) + '"":0').encode()
        content = file(header.ljust(size - 1) + b"}")
        del header
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        with pytest.raises(DataError, match="文件头有" if size > HEADER_LIMIT else "x 不是完整"):
            parse_arrays(content, "x")
        assert tracemalloc.get_traced_memory()[1] - before < 64 << 20
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=200))
def test_any_bytes(content: bytes) -> None:
    with contextlib.suppress(DataError):
        parse_arrays(content, "x")


@given(st.data())
def test_any_change_of_the_header(data: st.DataObject) -> None:
    """文件头里任何一处换成任何值：读得成的，数组恰好铺满数据。"""
    header: Any = json.loads(json.dumps(GOOD))
    place = header[data.draw(st.sampled_from("ab"))]
    value = st.one_of(
        st.integers(-2, 13), st.integers(), st.floats(), st.text(max_size=4), st.none(),
        st.lists(st.integers(0, 12), max_size=3), st.sampled_from(["F16", "I32", "F64", "U8"]),
    )  # fmt: skip
    field = data.draw(st.sampled_from(["dtype", "shape", "data_offsets"]))
    if field == "dtype" or data.draw(st.booleans()):
        place[field] = data.draw(value)
    else:
        place[field][data.draw(st.integers(-1, 0))] = data.draw(value)
    try:
        again = parse_arrays(file(header, bytes(range(12))), "x")
    except DataError:
        return
    assert sum(a.nbytes for a in again.values()) == 12


def test_git_lfs_pointer() -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 548105171\n"
    with pytest.raises(DataError, match="git lfs pull"):
        parse_arrays(pointer, "model.safetensors")
