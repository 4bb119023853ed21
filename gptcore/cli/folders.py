"""模型文件夹：写之前检查，读的时候说清楚哪里不对"""

import tempfile
from pathlib import Path
from typing import Any, cast

from gptcore.cli.usage import UsageError
from gptcore.data import Tokenizer
from gptcore.errors import DataError, GptcoreError
from gptcore.models import GPT, load_model, save_model
from gptcore.serialization import MANIFEST, is_leftover, load_folder, parse_json

RECORD = "training.json"
"""训练的设置与结果，和模型放在一起；没有它模型也读得出来"""


def prepare_folder(folder: Path, option: str = "--out") -> bool:
    """训练之前检查模型能不能存进这个文件夹，不存在就建立。

    只有空文件夹和 gptcore 自己写的模型文件夹可以写：别的东西不覆盖。

    Args:
        folder: 文件夹。
        option: 选项名，写进消息。

    Returns:
        里面是否已有模型，保存时会被替换。

    Raises:
        UsageError: 它是文件，装着别的东西，或者不可写。
    """
    try:
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{option}：{folder} 是一个文件；请换一个文件夹的名字")
        folder.mkdir(parents=True, exist_ok=True)
        replaces = any(folder.iterdir())
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"{option}：不能写入文件夹 {folder}（{reason}）；请用 {option} 换一个可写的位置"
        ) from error
    if replaces and not is_model_folder(folder):
        raise UsageError(
            f"{option}：{folder} 里有别的文件，又不是 gptcore 的模型文件夹，不会覆盖它；"
            f"请用 {option} 换一个新的或空的文件夹"
        )
    return replaces


def is_model_folder(folder: Path) -> bool:
    """是不是 `save_model` 写成的文件夹；只有我们中断时留下的临时文件也算。"""
    if (folder / MANIFEST).is_file():
        return True
    return all(is_leftover(path) for path in folder.iterdir())


def write_model(folder: Path, model: GPT, tokenizer: Tokenizer, record: dict[str, Any]) -> None:
    """保存模型、分词器和训练记录，作为一个整体。

    Args:
        folder: 文件夹。
        model: 模型。
        tokenizer: 分词器。
        record: 训练的设置与结果。
    """
    save_model(folder, model, tokenizer, {RECORD: record})


def open_model(folder: Path) -> tuple[GPT, Tokenizer]:
    """读回模型与分词器；文件被怎样改动过，都只有一句话的错误。

    Args:
        folder: 文件夹。

    Returns:
        模型与分词器。

    Raises:
        DataError: 不是模型文件夹，或者文件损坏。
    """
    try:
        return load_model(folder)
    except GptcoreError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise DataError(
            f"{folder} 里的文件不完整或被改动过：{error}；请重新训练，或换回原来的文件"
        ) from error


def read_record(folder: Path) -> dict[str, Any]:
    """读训练记录；没有或读不出来时是空的。"""
    try:
        record: Any = parse_json(load_folder(folder, [RECORD])[RECORD], RECORD)
    except DataError:
        return {}
    return cast("dict[str, Any]", record) if isinstance(record, dict) else {}
