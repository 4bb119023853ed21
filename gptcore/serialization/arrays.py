"""数组：safetensors 的写与读"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np

from gptcore.errors import DataError
from gptcore.kernels.array import Array
from gptcore.serialization.texts import JSON_MEMORY, items, parse_json

HEADER_LIMIT = 8 << 20
"""文件头最多多少字节：够写几万个数组"""

DTYPES = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype("<u1"),
    "I8": np.dtype("<i1"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}
"""safetensors 的类型名与 NumPy 的类型"""


class Entry(NamedTuple):
    """文件头里的一项：一个数组的类型、形状，与它在文件里的起止位置。"""

    kind: str
    shape: tuple[int, ...]
    begin: int
    end: int


def dump_arrays(arrays: Mapping[str, Array]) -> bytes:
    """把若干数组变成 safetensors 的字节；数值一位不差。

    Args:
        arrays: 名字与数组；类型可以是布尔、8 到 64 位的整数、16 到 64 位的小数。

    Raises:
        DataError: 名字或类型不合要求。
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save

    ready: dict[str, Array] = {}
    for name, array in arrays.items():
        dtype = array.dtype.newbyteorder("<")
        if dtype not in DTYPES.values() or name == "__metadata__":
            raise DataError(
                f"dump_arrays：数组 {name!r} 的类型是 {array.dtype}，不能存；可以存的有布尔、整数和"
                " float16、float32、float64，名字不能是 __metadata__；请先用 astype 转换"
            )
        ready[name] = np.asarray(array, dtype, order="C")
    try:
        return save(ready)
    except (SafetensorError, ValueError, TypeError) as error:
        raise DataError(f"dump_arrays：不能写成 safetensors：{error}；请检查数组的名字") from error


def parse_arrays(content: bytes | bytearray, name: object) -> dict[str, Array]:
    """把 safetensors 的字节变回数组。

    格式：8 字节的小端整数 $n$，$n$ 字节的 JSON（各数组的类型、形状、起止位置），其余是数据，首尾相接，没有空隙。
    来源：<https://github.com/huggingface/safetensors>，“Format”一节。

    Args:
        content: 字节。
        name: 文件的名字，写进错误消息。

    Returns:
        名字与数组，类型与保存时相同。数组是 `content` 的视图，不另占内存；
        `content` 是 `bytes` 时只读，是 `bytearray` 时可以改动。

    Raises:
        DataError: 不是完整的 safetensors 文件，或者有 NumPy 没有的类型，例如 BF16。
    """
    size = header_size(content[:8], len(content), name)
    layout = parse_header(content[8 : 8 + size], 8 + size, len(content), name)
    arrays: dict[str, Array] = {}
    for key, (kind, shape, begin, end) in layout.items():
        dtype = DTYPES[kind]
        try:
            if end == begin:
                arrays[key] = np.empty(shape, dtype)
            else:
                flat = np.frombuffer(content, dtype, (end - begin) // dtype.itemsize, begin)
                if dtype.kind == "b" and flat.view(np.uint8).max() > 1:
                    raise ValueError("布尔值不是 0 或 1")
                arrays[key] = flat.reshape(shape)
        except (ValueError, OverflowError) as error:  # 形状太大或太多轴也是 ValueError
            damaged(name, f"数组 {key[:200]!r}：{error}")
    return arrays


def header_size(first: bytes | bytearray, total: int, name: object) -> int:
    """文件头有多少字节。

    Args:
        first: 文件开头的 8 个字节。
        total: 文件有多少字节。
        name: 文件的名字，写进错误消息。

    Raises:
        DataError: 文件放不下它，或者它太大。
    """
    if first == b"version " and total < 1024:
        raise DataError(
            f"{name} 只是 Git LFS 的指针（{total} 个字节），不是文件本身；"
            "请在那个文件夹里运行 git lfs pull，或者重新下载这个文件"
        )
    size = int.from_bytes(first, "little")
    if len(first) < 8 or size > total - 8:
        damaged(name, f"文件有 {total} 个字节，放不下文件头")
    if size > HEADER_LIMIT:
        damaged(name, f"文件头有 {size} 个字节，最多 {HEADER_LIMIT} 个")
    return size


def parse_header(
    header: bytes | bytearray,
    start: int,
    total: int,
    name: object,
    dtypes: Mapping[str, np.dtype[Any]] = DTYPES,
) -> dict[str, Entry]:
    """文件头说了哪些数组；起止位置已经核对：都在文件里，首尾相接，与形状相符。

    Args:
        header: 文件头的 JSON。
        start: 数据从文件的第几个字节开始。
        total: 文件有多少字节。
        name: 文件的名字，写进错误消息。
        dtypes: 能读的类型。

    Returns:
        各数组的类型、形状、在文件里的起止位置。

    Raises:
        DataError: 不是完整的 safetensors 文件，或者有不能读的类型。
    """
    if header[:1] != b"{":
        damaged(name, "文件头不是 JSON 的字典")
    try:
        fields = parse_json(header, "文件头", JSON_MEMORY - len(header))
    except DataError as error:
        damaged(name, str(error).removesuffix("；文件可能被截断或改动过"))
    fields.pop("__metadata__", None)
    layout: dict[str, Entry] = {}
    for key, value in fields.items():
        try:
            kind, shape, begin, end = _array_entry(value, dtypes)
            if not begin <= end <= total - start:
                raise ValueError(f"位置 {begin} 到 {end} 超出文件")
            if math.prod(shape) * dtypes[kind].itemsize != end - begin:
                raise ValueError(f"形状 {shape} 与它的 {end - begin} 个字节不符")
        except ValueError as error:
            damaged(name, f"数组 {key[:200]!r}：{error}")
        layout[key] = Entry(kind, shape, start + begin, start + end)
    place = 0
    for begin, end in sorted((entry.begin - start, entry.end - start) for entry in layout.values()):
        if begin != place:
            damaged(
                name,
                f"数据在第 {min(begin, place)} 个字节处有{'重叠' if begin < place else '空隙'}",
            )
        place = end
    if place != total - start:
        damaged(name, f"数据有 {total - start} 个字节，文件头只说到 {place}")
    return layout


def _array_entry(
    entry: Any, dtypes: Mapping[str, np.dtype[Any]]
) -> tuple[str, tuple[int, ...], int, int]:
    """文件头里的一项：类型，形状，起止位置。"""
    fields = cast("dict[str, Any]", entry if isinstance(entry, dict) else {})
    if fields.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError("应有 dtype、shape、data_offsets 三项")
    kind, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(kind, str) or kind not in dtypes:
        raise ValueError(f"不能读类型 {str(kind)[:60]}，能读的有 {'、'.join(dtypes)}")
    numbers = [*items(shape), *items(offsets)]
    if not isinstance(shape, list) or not isinstance(offsets, list) or len(numbers) < 2:
        raise ValueError("shape 与 data_offsets 应当是整数的列表")
    for number in numbers:
        if type(number) is not int or not 0 <= number < 2**63:
            raise ValueError("shape 与 data_offsets 里应当是 0 到 2^63 的整数")
    if len(cast("list[int]", offsets)) != 2:
        raise ValueError("data_offsets 应当是两个整数")
    begin, end = cast("list[int]", offsets)
    return kind, tuple(cast("list[int]", shape)), begin, end


def damaged(name: object, problem: str) -> NoReturn:
    """不是完整的 safetensors 文件。"""
    raise DataError(f"{name} 不是完整的 safetensors 文件：{problem}；文件可能被截断或改动过")
