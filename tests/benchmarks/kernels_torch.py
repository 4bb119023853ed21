"""各个核函数的前向与反向：PyTorch 的一方，用它自己的运算与自动求导"""

from collections.abc import Callable
from functools import partial
from time import perf_counter

import torch
from sizes import SIZES
from torch.nn import functional
from worker import Jobs, Once

Tensor = torch.Tensor
Case = tuple[Callable[..., Tensor], list[Tensor]]
"""前向，与要求梯度的输入"""


def sides(name: str, threads: int) -> Jobs:
    """一个尺寸的全部核函数。"""
    size = SIZES[name]
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    n, e, v, heads = size.tokens, size.embedding, size.vocab, size.heads
    square = (size.batch, heads, size.context, size.context)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, requires_grad=True)

    def linear(inputs: int, outputs: int) -> Case:
        return functional.linear, [normal(n, inputs), normal(outputs, inputs), normal(outputs)]

    def embedding() -> Case:
        ids = torch.randint(0, v, (n,))
        return partial(functional.embedding, ids), [normal(v, e)]

    def layer_norm() -> Case:
        return (
            lambda x, w, b: functional.layer_norm(x, (e,), w, b),
            [normal(n, e), normal(e), normal(e)],
        )

    def rms_norm() -> Case:
        return lambda x, w: functional.rms_norm(x, (e,), w, 1e-5), [normal(n, e), normal(e)]

    def attention(p: float) -> Case:
        def forward(qkv: Tensor) -> Tensor:
            q, k, v = (
                part.view(size.batch, size.context, heads, -1).transpose(1, 2)
                for part in qkv.split(e, 2)
            )
            context = functional.scaled_dot_product_attention(q, k, v, None, p, is_causal=True)
            return context.transpose(1, 2).reshape(size.batch, size.context, e)

        return forward, [normal(size.batch, size.context, 3 * e)]

    def cross_entropy() -> Case:
        labels = torch.randint(0, v, (n,))
        return lambda x: functional.cross_entropy(x, labels), [normal(n, v)]

    makers: dict[str, Callable[[], Case]] = {
        "linear E→3E": lambda: linear(e, 3 * e),
        "linear E→E": lambda: linear(e, e),
        "linear E→4E": lambda: linear(e, 4 * e),
        "linear 4E→E": lambda: linear(4 * e, e),
        "linear E→V": lambda: linear(e, v),
        "embedding": embedding,
        "layer norm": layer_norm,
        "RMSNorm": rms_norm,
        "GELU": lambda: (
            partial(functional.gelu, approximate="tanh"),
            [normal(n, 4 * e)],
        ),
        "ReLU": lambda: (functional.relu, [normal(n, 4 * e)]),
        "softmax": lambda: (partial(functional.softmax, dim=-1), [normal(*square)]),
        "attention": lambda: attention(0.0),
        "attention, dropout": lambda: attention(0.1),
        "dropout": lambda: (partial(functional.dropout, p=0.1), [normal(n, e)]),
        "cross entropy": cross_entropy,
    }
    return {kernel: partial(_both, make) for kernel, make in makers.items()}


def _both(make: Callable[[], Case]) -> Once:
    forward, inputs = make()
    dy = torch.randn_like(forward(*inputs).detach())

    def once() -> dict[str, float]:
        start = perf_counter()
        y = forward(*inputs)
        half = perf_counter()
        torch.autograd.grad(y, inputs, dy)
        return {"forward": half - start, "backward": perf_counter() - half}

    return once
