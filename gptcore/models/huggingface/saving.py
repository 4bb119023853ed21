"""存成 Hugging Face 的 GPT-2 文件夹"""

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np

from gptcore.data import Tokenizer
from gptcore.errors import DataError, DtypeError
from gptcore.kernels.array import Array
from gptcore.models.gpt import GPT
from gptcore.models.huggingface.names import pairs
from gptcore.models.huggingface.settings import dump_settings
from gptcore.models.huggingface.vocabulary import dump_tokenizer, end_of_text
from gptcore.models.huggingface.weights import WEIGHTS
from gptcore.models.layout import require_rebuildable
from gptcore.serialization import array_chunks, dump_json, save_folder
from gptcore.tensor import Tensor

REPLACES_MAPPED = os.name != "nt"
"""能不能替换正被映射的文件；Windows 不能"""


def save_pretrained(
    model: GPT, folder: str | os.PathLike[str], tokenizer: Tokenizer | None = None
) -> Path:
    """存成 transformers 能读的文件夹：`GPT2LMHeadModel.from_pretrained` 与 `AutoTokenizer.from_pretrained`。

    写的是 `config.json`、`generation_config.json`、`model.safetensors` 与分词器的文件，作为一个整体换上，
    另有一份清单 `manifest.json`；文件夹里别的文件不动。数值一位不差，参数不在内存里另拼一份。

    Args:
        model: 模型，结构要是 GPT-2 的：`head_bias=False`、有偏置、`LayerNorm`、`norm_position="pre"`。
        folder: 文件夹，不存在时建立。
        tokenizer: 分词器；不给时只存模型。

    Returns:
        文件夹的路径。

    Raises:
        DataError: 模型的结构不是 GPT-2 的（消息写出选项），分词器写不成这个格式，词表比模型的大，或者写不进去。
        DtypeError: 模型不是 GPT，或分词器不是分词器。
    """
    given: tuple[Any, Any] = model, tokenizer
    if not isinstance(given[0], GPT) or not isinstance(given[1], Tokenizer | None):
        raise DtypeError(
            f"save_pretrained：要依次给出 GPT、文件夹与分词器，这里的模型是 {type(model).__name__}，"
            f"分词器是 {type(tokenizer).__name__}"
        )
    try:
        path = Path(folder)
    except TypeError:
        raise DtypeError(
            f"save_pretrained：folder 得到 {type(folder).__name__}，它必须是文件夹的路径（str 或 Path）"
        ) from None
    require_rebuildable("save_pretrained", model)
    config = dump_settings(model, end_of_text(tokenizer))
    if tokenizer is not None and tokenizer.vocab_size > model.vocab_size:
        raise DataError(
            f"save_pretrained：词表有 {tokenizer.vocab_size} 个词元，模型只有 {model.vocab_size} 个；"
            "请给出训练时用的分词器"
        )
    if not REPLACES_MAPPED:
        _unmap(model)
    state = model.state_dict()  # 冻结的参数也在内
    arrays = {
        pair.full: state[pair.ours].T if pair.transposed else state[pair.ours]
        for pair in pairs(model.config, model.config["tied"])
    }
    ends = {k: config[k] for k in ("bos_token_id", "eos_token_id") if config[k] is not None}
    files: dict[str, Any] = {
        "config.json": dump_json(config),
        "generation_config.json": dump_json({"_from_model_config": True, **ends}),
        WEIGHTS: array_chunks(arrays, {"format": "pt"}),
    }
    if tokenizer is not None:
        files |= dump_tokenizer(tokenizer, model.context_size)
    save_folder(path, files)
    return path


def _unmap(model: GPT) -> None:
    """映射的参数换成内存里的副本，文件就可以替换了。"""
    for layer in model.sublayers():
        for tensor in vars(layer).values():
            if isinstance(tensor, Tensor) and is_mapped(tensor.data):
                tensor.data = np.array(tensor.data)


def is_mapped(array: Array) -> bool:
    """数组是不是映射的文件（或者它的视图）。"""
    base: Any = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.obj if isinstance(base, memoryview) else base.base
    return isinstance(base, mmap.mmap)
