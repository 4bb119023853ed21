"""手写的 Hugging Face GPT-2 文件夹：不经过 gptcore，也不需要 transformers"""

import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

CONFIG = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "vocab_size": 11,
    "n_positions": 7,
    "n_ctx": 7,
    "n_embd": 6,
    "n_head": 3,
    "n_layer": 2,
    "n_inner": None,
    "activation_function": "gelu_new",
    "embd_pdrop": 0.25,
    "attn_pdrop": 0.25,
    "resid_pdrop": 0.25,
    "layer_norm_epsilon": 1e-5,
    "initializer_range": 0.02,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
    "summary_type": "cls_index",
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "bos_token_id": 10,
    "eos_token_id": 10,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "transformers_version": "4.57.1",
    "use_cache": True,
}
KINDS = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I64": "<i8", "U8": "<u1"}


def shapes(config: dict[str, Any], untied: bool = False) -> dict[str, tuple[int, ...]]:
    """GPT-2 的参数：名字与形状，Conv1D 的矩阵是 `(输入, 输出)`。"""
    size = config["n_embd"]
    found: dict[str, tuple[int, ...]] = {
        "transformer.wte.weight": (config["vocab_size"], size),
        "transformer.wpe.weight": (config["n_positions"], size),
    }
    for i in range(config["n_layer"]):
        h = f"transformer.h.{i}"
        found |= {f"{h}.ln_1.weight": (size,), f"{h}.ln_1.bias": (size,)}
        found |= {f"{h}.attn.c_attn.weight": (size, 3 * size), f"{h}.attn.c_attn.bias": (3 * size,)}
        found |= {f"{h}.attn.c_proj.weight": (size, size), f"{h}.attn.c_proj.bias": (size,)}
        found |= {f"{h}.ln_2.weight": (size,), f"{h}.ln_2.bias": (size,)}
        found |= {f"{h}.mlp.c_fc.weight": (size, 4 * size), f"{h}.mlp.c_fc.bias": (4 * size,)}
        found |= {f"{h}.mlp.c_proj.weight": (4 * size, size), f"{h}.mlp.c_proj.bias": (size,)}
    found |= {"transformer.ln_f.weight": (size,), "transformer.ln_f.bias": (size,)}
    if untied:
        found["lm_head.weight"] = (config["vocab_size"], size)
    return found


def draw_state(
    config: dict[str, Any] = CONFIG, seed: int = 0, untied: bool = False
) -> dict[str, np.ndarray]:
    """随机的参数。"""
    rng = np.random.default_rng(seed)
    return {
        name: (rng.standard_normal(shape) * 0.3 + (name.endswith("ln_f.weight"))).astype(np.float32)
        for name, shape in shapes(config, untied).items()
    }


def to_bfloat16(array: np.ndarray) -> np.ndarray:
    """截断成 bfloat16，用 16 位的整数表示。"""
    return (array.astype("<f4").view("<u4") >> 16).astype("<u2")


def safetensors(state: dict[str, np.ndarray], kind: str = "F32", pad: int = 0) -> bytes:
    """safetensors 文件的字节。"""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    pieces, place = [], 0
    for name, array in state.items():
        own = kind if array.dtype.kind == "f" else {"u": "U8", "i": "I64"}[array.dtype.kind]
        stored = to_bfloat16(array) if own == "BF16" else array.astype(KINDS[own])
        content = stored.tobytes()
        header[name] = {
            "dtype": own,
            "shape": list(array.shape),
            "data_offsets": [place, place + len(content)],
        }
        pieces.append(content)
        place += len(content)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8 + pad)
    return struct.pack("<Q", len(text)) + text + b"".join(pieces)


def write_folder(
    folder: Path,
    config: dict[str, Any] = CONFIG,
    state: dict[str, np.ndarray] | None = None,
    kind: str = "F32",
    pad: int = 0,
) -> Path:
    """一个文件夹，参数在一个文件里。"""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    state = draw_state(config) if state is None else state
    (folder / "model.safetensors").write_bytes(safetensors(state, kind, pad))
    return folder


def write_shards(
    folder: Path, state: dict[str, np.ndarray], cuts: Iterable[int], config: Any = CONFIG
) -> Path:
    """一个文件夹，参数在几个分片里，`cuts` 是从第几个参数处切开。"""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    names, starts = list(state), [0, *cuts]
    mapping = {}
    for i, start in enumerate(starts):
        shard = f"model-{i + 1:05}-of-{len(starts):05}.safetensors"
        chosen = names[start : (*starts, len(names))[i + 1]]
        (folder / shard).write_bytes(safetensors({name: state[name] for name in chosen}))
        mapping |= dict.fromkeys(chosen, shard)
    index = {"metadata": {"total_size": 1}, "weight_map": mapping}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return folder
