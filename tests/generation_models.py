"""生成的测试共用的小模型与选项"""

from typing import Any

import numpy as np

from gptcore import GPT

KINDS: list[dict[str, Any]] = [
    {},
    {"norm": "RMSNorm", "init": "gpt2"},
    {"norm": None},
    {"norm_position": "post"},
    {"bias": False, "head_bias": False, "tied": True, "init": "gpt2"},
    {"norm": "RMSNorm", "norm_position": "post", "tied": True, "dropout": 0.3},
]
SAMPLING: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0, "repetition_penalty": 1.3},
    {},
    {"temperature": 0.7, "top_k": 5},
    {"top_p": 0.8, "repetition_penalty": 1.2},
    {"temperature": 1.4, "min_p": 0.1, "top_k": 9},
]


def make(seed: int = 0, dtype: Any = np.float32, **options: Any) -> GPT:
    return GPT(23, 12, 16, 4, 2, rng=np.random.default_rng(seed), **options).astype(dtype)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)
