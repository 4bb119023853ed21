"""safetensors 的写入：一段一段地给出字节，不必先在内存里拼成整个文件"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gptcore.errors import DataError
from gptcore.kernels.array import Array
from gptcore.serialization.array_files import CHUNK
from gptcore.serialization.arrays import DTYPES

_KINDS = {dtype: kind for kind, dtype in DTYPES.items()}


def array_chunks(
    arrays: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> Iterator[bytes | memoryview]:
    """safetensors 文件的字节，一段一段的，交给 `save_folder` 写入。

    连续的数组给出它自己的内存，不复制；转置之类的视图每次复制至多 1 MiB。写完之前请不要改动数组。

    Args:
        arrays: 名字与数组；类型可以是布尔、8 到 64 位的整数、16 到 64 位的小数。
        metadata: 写进文件头的说明；transformers 要求有 `{"format": "pt"}`。

    Returns:
        文件的各段。

    Raises:
        DataError: 名字或类型不合要求；在给出第一段之前就检查。

    Examples:
        >>> content = b"".join(array_chunks({"w": np.eye(2, dtype=np.float32)}))
        >>> from gptcore.serialization import parse_arrays
        >>> parse_arrays(content, "w")["w"].sum()
        np.float32(2.0)
    """
    # 大的类型在前，每个数组的位置就都对齐，读的时候可以映射；其次按名字，与 safetensors 库的次序相同
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    place = 0
    for name in order:
        array = arrays[name]
        kind = _KINDS.get(array.dtype.newbyteorder("<"))
        if kind is None or name == "__metadata__":
            raise DataError(
                f"array_chunks：数组 {name!r} 的类型是 {array.dtype}，不能存；可以存的有布尔、整数和"
                " float16、float32、float64，名字不能是 __metadata__；请先用 astype 转换"
            )
        end = place + array.nbytes
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [place, end]}
        place = end
    try:
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    except (UnicodeEncodeError, TypeError) as error:
        raise DataError(f"array_chunks：名字与说明要能写成 JSON：{error}") from error
    text += b" " * (-len(text) % 8)
    return _chunks(len(text).to_bytes(8, "little") + text, [arrays[name] for name in order])


def _chunks(header: bytes, arrays: list[Array]) -> Iterator[bytes | memoryview]:
    yield header
    for array in arrays:
        little = array.dtype.newbyteorder("<")
        if array.flags.c_contiguous and array.dtype == little:
            yield array.reshape(-1).view(np.uint8).data
        elif array.size:
            rows = array.reshape(len(array), -1) if array.ndim else array.reshape(1, 1)
            step = max(1, CHUNK // (rows.shape[1] * array.itemsize))
            for start in range(0, len(rows), step):
                yield rows[start : start + step].astype(little, order="C").tobytes()
