"""读入 Hugging Face 的 GPT-2 文件夹"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from gptcore.data import Tokenizer
from gptcore.errors import DataError, DtypeError, GptcoreError, system_reason
from gptcore.layers import Dropout
from gptcore.layers.checks import require_flag, require_number
from gptcore.layers.initial import without_values
from gptcore.models.gpt import GPT
from gptcore.models.huggingface.settings import parse_settings
from gptcore.models.huggingface.vocabulary import read_tokenizer
from gptcore.models.huggingface.weights import Weights, load_weights, require_weights
from gptcore.random import resolve_rng
from gptcore.serialization import finish_folder, parse_json, read_bytes

CONFIG = "config.json"
CONFIG_LIMIT = 1 << 20
"""设置最多多少字节；正常的不到 2 KB"""


def from_pretrained(
    folder: str | os.PathLike[str],
    *,
    dropout: float | None = None,
    memory_map: bool = True,
    rng: np.random.Generator | None = None,
) -> GPT:
    """读入一个 Hugging Face 格式的 GPT-2 文件夹；不抽随机数，也不用网络。

    参数可以是 float32、float16、bfloat16 或 float64，模型的参数总是 float32。先核对设置、名字与形状，再分配内存。

    Args:
        folder: 文件夹：`config.json`，以及 `model.safetensors`（或者索引与各个分片）。
        dropout: 随机失活的概率；不给时用文件里的，文件里三处不同时必须给出。
        memory_map: float32 的参数直接映射文件，几乎不用等，也没有第二份；改动写时复制，文件不变。
            `False` 时读成普通的连续数组：训练时优化器少一次转置。
        rng: 以后训练时随机失活用的生成器；不给时用默认的。

    Returns:
        模型，处于评估模式，与 transformers 相同；接着训练请先 `model.train()`。

    Raises:
        DataError: 缺文件，文件损坏，不是 GPT-2，或者有这里没有实现的选项；消息写出字段与它的值。
        ArgumentError: `dropout` 不合要求。
        DtypeError: `folder` 不是路径，`memory_map` 不是布尔值，或 `rng` 不是生成器。
    """
    resolve_rng("from_pretrained", rng)
    memory_map = require_flag("from_pretrained", "memory_map", memory_map)
    if dropout is not None:
        require_number("from_pretrained", "dropout", dropout, 0, 1)
    return _read_model(
        existing_folder("from_pretrained", folder), dropout=dropout, memory_map=memory_map, rng=rng
    )


def load_pretrained(
    folder: str | os.PathLike[str],
    *,
    dropout: float | None = None,
    memory_map: bool = True,
    rng: np.random.Generator | None = None,
) -> tuple[GPT, Tokenizer]:
    """读入一个 Hugging Face 格式的 GPT-2 文件夹，连同分词器。

    各参数同 `from_pretrained`。分词器取自 `tokenizer.json`，没有时取自 `vocab.json` 与 `merges.txt`。
    它的词表可以比模型的小：有人把模型的词表补齐到 64 的倍数。

    Args:
        folder: 文件夹。
        dropout: 随机失活的概率。
        memory_map: 是否映射文件。
        rng: 以后训练时随机失活用的生成器。

    Returns:
        模型（评估模式）与分词器。

    Raises:
        DataError: 同 `from_pretrained`；或者分词器读不了，词表比模型的大。
        ArgumentError: `dropout` 不合要求。
        DtypeError: `folder` 不是路径，`memory_map` 不是布尔值，或 `rng` 不是生成器。
    """
    path = existing_folder("load_pretrained", folder)
    model = from_pretrained(path, dropout=dropout, memory_map=memory_map, rng=rng)
    tokenizer = read_tokenizer(path)
    if tokenizer.vocab_size > model.vocab_size:
        raise DataError(
            f"{path}：分词器有 {tokenizer.vocab_size} 个词元，模型只有 {model.vocab_size} 个；"
            "它们不是同一个模型的，请重新下载"
        )
    return model, tokenizer


def _read_model(
    path: Path, *, dropout: float | None, memory_map: bool, rng: np.random.Generator | None
) -> GPT:
    finish_folder(path)
    config = parse_json(read_bytes(path / CONFIG, CONFIG_LIMIT), path / CONFIG)
    settings, tie = parse_settings(config, path / CONFIG, dropout)
    with Weights(path) as weights:
        tied = require_weights(weights, settings, tie)
        try:
            with without_values():
                model = GPT(**settings, tied=tied)
        except GptcoreError as error:
            raise DataError(f"{path / CONFIG}：{error}") from error
        load_weights(model, weights, settings, memory_map)
    for layer in model.sublayers():
        if isinstance(layer, Dropout):
            layer.rng = rng
    return model.eval()


def existing_folder(operation: str, folder: Any) -> Path:
    """一个 Hugging Face 的模型文件夹：存在，有 `config.json`，不是 gptcore 自己的。"""
    try:
        path = Path(folder)
    except TypeError:
        raise DtypeError(
            f"{operation}：folder 得到 {type(folder).__name__}，它必须是文件夹的路径（str 或 Path）"
        ) from None
    try:
        _require_model(operation, path)
    except OSError as error:  # 名字太长、没有权限等等
        raise DataError(f"不能读取 {path}：{system_reason(error)}；请检查路径") from error
    return path


def _require_model(operation: str, path: Path) -> None:
    if not path.is_dir():
        found = "是文件，不是文件夹" if path.is_file() else "不存在"
        raise DataError(
            f"{operation}：{path} {found}；请给出本机的文件夹，"
            "要按名字下载请用 gptcore import 或 download_pretrained"
        )
    if not (path / CONFIG).is_file():
        raise DataError(
            f"{operation}：{path} 里没有 {CONFIG}，不是 Hugging Face 的模型文件夹；请检查路径"
        )
