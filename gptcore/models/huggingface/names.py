"""参数的名字与形状：gptcore 的，与 Hugging Face GPT-2 的"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

PREFIX = "transformer."
HEAD = "lm_head.weight"
TOKENS = "wte.weight"
BUFFER = re.compile(r"h\.[0-9]+\.attn\.(bias|masked_bias)")
"""以前的版本把因果掩码也存进文件；它不是参数"""

_BLOCK = (
    ("attention.normalize", "ln_1", False),
    ("attention.c_attn", "attn.c_attn", True),
    ("attention.output", "attn.c_proj", True),
    ("feed_forward.normalize", "ln_2", False),
    ("feed_forward.input", "mlp.c_fc", True),
    ("feed_forward.output", "mlp.c_proj", True),
)


class Pair(NamedTuple):
    """一个参数的两个名字。

    Attributes:
        ours: gptcore 的名字，`named_parameters()` 里的。
        theirs: Hugging Face 的名字，没有开头的 `transformer.`
        shape: 文件里的形状。
        transposed: 文件里的矩阵是不是转置的，即 Conv1D 的 `(输入, 输出)`
    """

    ours: str
    theirs: str
    shape: tuple[int, ...]
    transposed: bool

    @property
    def full(self) -> str:
        """`GPT2LMHeadModel` 里的全名。"""
        return self.theirs if self.theirs == HEAD else PREFIX + self.theirs


def pairs(settings: dict[str, Any], tied: bool) -> Iterator[Pair]:
    """依次给出各个参数，次序与 `named_parameters()` 相同；块数很多时也不先列出全部。

    Args:
        settings: `GPT.config` 那样的设置。
        tied: 输出头是否与词元嵌入共用权重；共用的不另列。
    """
    size, vocab = settings["embedding_size"], settings["vocab_size"]
    widths = {"attn.c_attn": (size, 3 * size), "mlp.c_fc": (size, 4 * size)}
    widths |= {"attn.c_proj": (size, size), "mlp.c_proj": (4 * size, size)}
    yield Pair("embedding.embedding.weight", TOKENS, (vocab, size), False)
    positions = (settings["context_size"], size)
    yield Pair("embedding.positional_embedding.weight", "wpe.weight", positions, False)
    for i in range(settings["blocks"]):
        for ours, theirs, matrix in _BLOCK:
            shape = widths.get(theirs, (size,))
            ours, name = f"transformers.{i}.{ours}", f"h.{i}.{theirs}"
            yield Pair(f"{ours}.weight", f"{name}.weight", shape, matrix)
            yield Pair(f"{ours}.bias", f"{name}.bias", shape[-1:], False)
    yield Pair("output.normalize.weight", "ln_f.weight", (size,), False)
    yield Pair("output.normalize.bias", "ln_f.bias", (size,), False)
    if not tied:
        yield Pair("output.linear.weight", HEAD, (vocab, size), False)
