"""把训练好的模型存成文件夹，再读回来

一个文件夹四个文件：`model.safetensors`（参数）、`config.json`（模型的设置）、`tokenizer.json`（词表），
以及记着它们 SHA-256 的清单 `manifest.json`。换上清单的那一刻才算保存：中途断电或被杀，原来的模型仍在；
有一个字节对不上，就不会读进来。
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gptcore.data import Tokenizer, tokenizer_from_dict
from gptcore.errors import DataError, DtypeError, GptcoreError, system_reason
from gptcore.layers import Dropout
from gptcore.models.gpt import GPT
from gptcore.models.layout import build, require_rebuildable
from gptcore.random import resolve_rng
from gptcore.serialization import (
    MANIFEST,
    array_chunks,
    dump_json,
    load_folder,
    parse_arrays,
    parse_json,
    read_bytes,
    save_folder,
)
from gptcore.serialization.single import as_path

WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"


def save_model(
    directory: str | os.PathLike[str],
    model: GPT,
    tokenizer: Tokenizer,
    records: Mapping[str, Any] | None = None,
) -> Path:
    """把模型与分词器存进文件夹；里面原有的模型会被替换，别的文件不动。

    Args:
        directory: 文件夹，不存在时建立。
        model: 模型。
        tokenizer: 分词器。
        records: 一起保存的 JSON 文件，名字与内容，例如训练的记录。

    Returns:
        文件夹的路径。

    Raises:
        DtypeError: 模型不是 GPT，或分词器不是分词器。
        DataError: 文件夹不可写；词表与模型的大小不同；或者模型建立之后换过层，由它的设置不能重建。
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
    require_rebuildable("save_model", model)
    folder = as_path("save_model", "directory", directory)
    save_folder(
        folder,
        {
            WEIGHTS: array_chunks(model.state_dict()),
            CONFIG: dump_json(model.config),
            TOKENIZER: dump_json(tokenizer.to_dict()),
            **{name: dump_json(value) for name, value in (records or {}).items()},
        },
    )
    return folder


def load_model(
    directory: str | os.PathLike[str], *, rng: np.random.Generator | None = None
) -> tuple[GPT, Tokenizer]:
    """从文件夹读回模型与分词器；不抽取随机数。

    先核对设置与数组，再分配内存：不论 `config.json` 里写着什么，占用的内存不超过文件的大小加上 64 MiB。
    参数就用读进来的那一份，不再复制。
    参数里的 NaN 与无穷照样读入。

    Args:
        directory: `save_model` 写成的文件夹。
        rng: 以后训练时随机失活用的生成器；不给时用默认的。

    Returns:
        模型（训练模式）与分词器。

    Raises:
        DataError: 文件夹不存在，缺文件，文件损坏，设置与参数对不上，或者由更新的版本写成。
        DtypeError: `rng` 不是生成器。
    """
    resolve_rng("load_model", rng)
    folder = as_path("load_model", "directory", directory)
    try:
        _require_model_folder(folder)
    except OSError as error:  # 名字太长、没有权限等等
        raise DataError(f"不能读取 {folder}：{system_reason(error)}；请检查路径") from error
    files = load_folder(folder, (WEIGHTS, CONFIG, TOKENIZER))
    config = parse_json(files[CONFIG], folder / CONFIG)
    arrays = parse_arrays(files[WEIGHTS], folder / WEIGHTS)
    vocabulary = parse_json(files[TOKENIZER], folder / TOKENIZER)
    try:
        tokenizer = tokenizer_from_dict(vocabulary)
        model = build(config, arrays)
    except (GptcoreError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise DataError(
            f"{folder} 里的文件彼此不符：{error}；请换回原来的文件，或重新保存"
        ) from error
    if tokenizer.vocab_size != model.vocab_size:
        raise DataError(
            f"{folder}：词表有 {tokenizer.vocab_size} 个词元，模型有 {model.vocab_size} 个；请重新保存"
        )
    for layer in model.sublayers():
        if isinstance(layer, Dropout):
            layer.rng = rng
    return model, tokenizer


def _require_model_folder(folder: Path) -> None:
    if folder.is_file():
        raise DataError(f"{folder} 是文件，不是文件夹；请给出它所在的文件夹")
    if not folder.is_dir():
        raise DataError(
            f"没有文件夹 {folder}；请给出 save_model、gptcore train --out 或 gptcore demo 写成的文件夹"
        )
    if not (folder / MANIFEST).is_file():
        raise DataError(
            f"{folder} 不是 gptcore 的模型文件夹，里面没有 {MANIFEST}；"
            "请给出 save_model、gptcore train --out 或 gptcore demo 写成的文件夹"
        )
    if is_pretrained(folder):
        raise DataError(
            f"{folder} 是 Hugging Face 格式的模型文件夹；请用 load_pretrained 读入，"
            "或者用 gptcore import 换成 gptcore 的"
        )


def is_pretrained(folder: Path) -> bool:
    """是不是 Hugging Face 格式的模型文件夹，例如 `save_pretrained` 写成的。"""
    try:
        config: Any = parse_json(read_bytes(folder / CONFIG, 1 << 20), folder / CONFIG)
    except DataError:
        return False
    return isinstance(config, dict) and "model_type" in config
