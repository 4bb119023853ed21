"""生成：transformers 的 GPT-2，权重抄自 gptcore 的模型"""

from collections.abc import Callable

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from gptcore import GPT


def same_model(model: GPT) -> "Writer":
    """同一组权重。"""
    hf = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=model.vocab_size,
            n_positions=model.context_size,
            n_embd=model.config["embedding_size"],
            n_layer=len(model.transformers),
            n_head=model.config["heads"],
            bos_token_id=None,
            eos_token_id=None,
        )
    ).eval()
    with torch.no_grad():
        state = hf.transformer
        state.wte.weight.copy_(torch.from_numpy(model.embedding.embedding.weight.data))
        state.wpe.weight.copy_(torch.from_numpy(model.embedding.positional_embedding.weight.data))
        for layer, block in zip(state.h, model.transformers, strict=True):
            attention, forward = block.attention, block.feed_forward
            for theirs, mine in (
                (layer.attn.c_attn, attention.c_attn),
                (layer.attn.c_proj, attention.output),
                (layer.mlp.c_fc, forward.input),
                (layer.mlp.c_proj, forward.output),
            ):
                theirs.weight.copy_(torch.from_numpy(mine.weight.data.T))
    return Writer(hf)


class Writer:
    """总取分数最高的，写若干个词元。"""

    def __init__(self, model: GPT2LMHeadModel) -> None:
        self._model = model

    def write(
        self, ids: torch.Tensor, mask: torch.Tensor, count: int, tick: Callable[[], None]
    ) -> torch.Tensor:
        """每写出一个词元调用一次 `tick`；返回提示与写出的。"""
        with torch.inference_mode():
            return self._model.generate(
                ids,
                attention_mask=mask,
                max_new_tokens=count,
                do_sample=False,
                pad_token_id=0,
                streamer=_Ticker(tick),
            )


class _Ticker:
    """由 `generate` 在每个词元之后调用；第一次给出的是提示。"""

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick, self._started = tick, False

    def put(self, value: torch.Tensor) -> None:
        if self._started:
            self._tick()
        self._started = True

    def end(self) -> None:
        """写完了，不用做什么。"""
