"""把训练好的模型存成文件夹，再读回来

一个文件夹三个文件：`model.safetensors`（参数）、`config.json`（模型的设置）、`tokenizer.json`（词表）。
"""

import os
from pathlib import Path
from typing import Any, cast

import numpy as np

from gptcore.data import Tokenizer, tokenizer_from_dict
from gptcore.errors import DataError, DtypeError, GptcoreError
from gptcore.models.gpt import GPT
from gptcore.serialization import load_arrays, load_json, save_arrays, save_json

FORMAT_VERSION = 1


def save_model(directory: str | os.PathLike[str], model: GPT, tokenizer: Tokenizer) -> Path:
    """把模型与分词器存进文件夹；同名的文件会被替换。

    Args:
        directory: 文件夹，不存在时建立。
        model: 模型。
        tokenizer: 分词器。

    Returns:
        文件夹的路径。

    Raises:
        DtypeError: 模型不是 GPT，或分词器不是分词器。
        DataError: 文件夹不可写，或者词表与模型的大小不同。
    """
    given: tuple[Any, Any] = model, tokenizer
    if not isinstance(given[0], GPT) or not isinstance(given[1], Tokenizer):
        raise DtypeError(
            f"save_model：要依次给出文件夹、GPT 与分词器，这里的后两个是 {type(model).__name__} 与 "
            f"{type(tokenizer).__name__}；数据集的分词器是 dataset.tokenizer"
        )
    if tokenizer.vocab_size != model.vocab_size:
        raise DataError(
            f"save_model：词表有 {tokenizer.vocab_size} 个词元，模型有 {model.vocab_size} 个；请给出训练时用的分词器"
        )
    folder = Path(directory)
    save_arrays(folder / "model.safetensors", model.state_dict())
    save_json(folder / "tokenizer.json", tokenizer.to_dict())
    save_json(
        folder / "config.json",
        {"format": "gptcore", "version": FORMAT_VERSION, "model": model.config},
    )
    return folder


def load_model(directory: str | os.PathLike[str]) -> tuple[GPT, Tokenizer]:
    """从文件夹读回模型与分词器。

    Args:
        directory: `save_model` 写成的文件夹。

    Returns:
        模型（训练模式）与分词器。

    Raises:
        DataError: 文件夹不存在，缺文件，文件损坏，或者由更新的版本写成。
    """
    folder = Path(directory)
    if folder.is_file():
        raise DataError(f"{folder} 是文件，不是文件夹；请给出它所在的文件夹")
    if not folder.is_dir():
        raise DataError(
            f"没有文件夹 {folder}；请给出 save_model、gptcore train --out 或 gptcore demo 写成的文件夹"
        )
    config = load_json(folder / "config.json")
    if not isinstance(config, dict) or "format" not in config:
        raise DataError(f'{folder / "config.json"} 不是 gptcore 的设置：缺少 "format"')
    settings = cast("dict[str, Any]", config)
    if (settings["format"], settings.get("version")) != ("gptcore", FORMAT_VERSION):
        raise DataError(
            f"{folder} 的格式是 {settings['format']} 版本 {settings.get('version')}，"
            f"这里只认识 gptcore 版本 {FORMAT_VERSION}；如果由更新的 gptcore 写成，请升级"
        )
    try:
        model = GPT(**settings["model"], rng=np.random.default_rng(0))  # 不动全局的随机状态
        tokenizer = tokenizer_from_dict(load_json(folder / "tokenizer.json"))
        model.load_state_dict(load_arrays(folder / "model.safetensors"))
    except DataError:
        raise
    except (GptcoreError, KeyError, TypeError) as error:
        raise DataError(f"{folder} 的文件不完整、被改动过，或不是同一次保存的：{error}") from error
    if tokenizer.vocab_size != model.vocab_size:
        raise DataError(
            f"{folder}：词表有 {tokenizer.vocab_size} 个词元，模型有 {model.vocab_size} 个；文件不是同一次保存的"
        )
    return model, tokenizer
