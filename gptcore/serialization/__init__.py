"""把数组与设置写成文件，再读回来

文件只有两种：`.safetensors`（数组）与 JSON（其余一切），没有 pickle，读取别人的文件不会执行代码。
写入是原子的：先写同一文件夹里的临时文件，落盘之后再改名；中途断电，留下的要么是旧文件，要么是新文件。
几个文件要作为一个整体时，用 `save_folder` 与 `load_folder`。

读的一方不相信文件：大小先与清单核对再读，文件头里的每个数先核对再用，
任何内容都只会得到数据或 `DataError`，占用的内存不超过文件的大小加上 `JSON_MEMORY`。
"""

from gptcore.serialization.array_files import ArrayFile
from gptcore.serialization.array_writing import array_chunks
from gptcore.serialization.arrays import dump_arrays, parse_arrays
from gptcore.serialization.folders import (
    FORMAT,
    FORMAT_VERSION,
    LEFTOVER_SECONDS,
    MANIFEST,
    finish_folder,
    is_leftover,
    is_plain_name,
    load_folder,
    save_folder,
)
from gptcore.serialization.single import read_bytes, write_bytes
from gptcore.serialization.texts import JSON_DEPTH, JSON_MEMORY, dump_json, parse_json

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "JSON_DEPTH",
    "JSON_MEMORY",
    "LEFTOVER_SECONDS",
    "MANIFEST",
    "ArrayFile",
    "array_chunks",
    "dump_arrays",
    "dump_json",
    "finish_folder",
    "is_leftover",
    "is_plain_name",
    "load_folder",
    "parse_arrays",
    "parse_json",
    "read_bytes",
    "save_folder",
    "write_bytes",
]
