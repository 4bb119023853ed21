"""真正的 transformers，只用本机的文件；建立各种随机的 GPT-2"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptcore import GPT, Tensor, generate_ids, no_grad

torch = pytest.importorskip("torch", reason="没有安装 PyTorch")
os.environ["HF_HUB_OFFLINE"] = "1"  # 要在导入之前
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
transformers = pytest.importorskip("transformers", reason="没有安装 transformers")

SMALL = {"vocab_size": 101, "n_positions": 96, "n_embd": 48, "n_layer": 3, "n_head": 4}
ODD = {
    "vocab_size": 523,
    "n_positions": 83,
    "n_embd": 60,
    "n_layer": 2,
    "n_head": 5,
    "layer_norm_epsilon": 1e-6,
    "tie_word_embeddings": False,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "resid_pdrop": 0.0,
    "n_inner": 240,
    "activation_function": "gelu_pytorch_tanh",
}
GPT2: dict[str, Any] = {}
"""GPT-2 124M：全是 GPT2Config 的默认值"""


def make_theirs(config: dict[str, Any]) -> Any:
    """transformers 的随机模型。权重比初始的大：各个分数拉开，贪心的结果才不只是重复一个词元。"""
    torch.manual_seed(0)
    tokens, positions, matrices = (1, 20, 3) if config == GPT2 else (10, 40, 10)
    ends = {} if config == GPT2 else dict.fromkeys(("bos_token_id", "eos_token_id"))
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**config, **ends))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim > 1:
                p *= tokens if "wte" in name else positions if "wpe" in name else matrices
            else:
                p += torch.randn(p.shape) * 0.1
    return model.eval()


def their_logits(model: Any, ids: np.ndarray) -> np.ndarray:
    """transformers 的分数。"""
    with torch.no_grad():
        return model(torch.from_numpy(ids)).logits.float().numpy()


def our_logits(model: GPT, ids: np.ndarray) -> np.ndarray:
    """gptcore 的分数。"""
    with model.evaluating(), no_grad():
        return model(Tensor(ids)).data


def their_continuation(model: Any, prompt: Sequence[int], steps: int) -> list[int]:
    """transformers 的贪心续写。"""
    settings = transformers.GenerationConfig(
        do_sample=False, max_new_tokens=steps, min_new_tokens=steps, pad_token_id=0
    )
    ids = torch.tensor([list(prompt)])
    out = model.generate(ids, settings, attention_mask=torch.ones_like(ids))
    return out[0, len(prompt) :].tolist()


def our_continuation(model: GPT, prompt: Sequence[int], steps: int) -> list[int]:
    """gptcore 的贪心续写。"""
    return list(generate_ids(model, prompt, steps, model.context_size, temperature=0))


def agree(theirs: Any, ours: GPT) -> None:
    """同样的词元，分数相差不到 1e-4，贪心的 64 个词元完全相同。"""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, ours.vocab_size, (3, min(ours.context_size, 40)))
    expected = their_logits(theirs, ids)
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(our_logits(ours, ids), expected, rtol=0, atol=1e-4)
    prompt = ids[0, :7].tolist()
    continuation = their_continuation(theirs, prompt, 64)
    assert len(set(continuation)) > 8  # 不是重复几个词元
    assert our_continuation(ours, prompt, 64) == continuation


def load_theirs(folder: Path, **options: Any) -> Any:
    """transformers 读入文件夹；有缺少、多出的参数就失败。"""
    model, info = transformers.GPT2LMHeadModel.from_pretrained(
        folder, output_loading_info=True, **options
    )
    assert not any(info.values()), info
    return model.eval()
