"""把数组与设置写成文件，再读回来

文件只有两种：`.safetensors`（数组）与 JSON（其余一切），没有 pickle，读取别人的文件不会执行代码。
写入是原子的：先写同一文件夹里的临时文件，落盘之后再改名；中途断电，留下的要么是旧文件，要么是新文件。
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gptcore.errors import DataError
from gptcore.files import atomic_write
from gptcore.kernels.array import Array


def write_bytes(path: Path, content: bytes) -> None:
    """原子地写一个文件；文件夹不存在时先建立。

    Args:
        path: 写到哪里。
        content: 全部内容。

    Raises:
        DataError: 写不进去；消息说明位置与原因。原来的文件不受影响。
    """
    try:
        atomic_write(path, content)
    except OSError as error:
        raise DataError(
            f"不能写入 {path}：{_reason(error)}；请换一个可写的位置，或检查磁盘空间"
        ) from error


def read_bytes(path: Path) -> bytes:
    """读一个文件的全部内容。

    Raises:
        DataError: 文件不存在、是文件夹，或读不出来。
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"不能读取 {path}：{_reason(error)}；请检查路径") from error


def save_json(path: Path, value: Any) -> None:
    """把一个值写成 JSON 文件（UTF-8，缩进两格，末尾换行）。"""
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    write_bytes(path, (text + "\n").encode("utf-8", "surrogatepass"))


def load_json(path: Path) -> Any:
    """读一个 JSON 文件。

    Raises:
        DataError: 读不出来，或者不是 JSON。
    """
    try:
        return json.loads(read_bytes(path).decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} 不是有效的 JSON：{error}；文件可能被截断或改动过") from error


def save_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """把若干数组写成 safetensors 文件。"""
    from safetensors.numpy import save

    write_bytes(path, save({name: np.asarray(a, order="C") for name, a in arrays.items()}))


def load_arrays(path: Path) -> dict[str, Array]:
    """读一个 safetensors 文件。

    Raises:
        DataError: 读不出来，或者不是完整的 safetensors 文件。
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(read_bytes(path))
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{path} 不是完整的 safetensors 文件：{error}；文件可能被截断或改动过"
        ) from error


def _reason(error: OSError) -> str:
    reasons: dict[type[OSError], str] = {
        FileNotFoundError: "文件不存在",
        IsADirectoryError: "它是文件夹",
        NotADirectoryError: "路径中间有一段不是文件夹",
        FileExistsError: "路径中间有一段不是文件夹",
        PermissionError: "没有权限",
    }
    return reasons.get(type(error), error.strerror or str(error))
