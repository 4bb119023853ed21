"""各个核函数的前向与反向：gptcore 的一方

数组进、数组出，直接调用 `gptcore.kernels`；线程数与训练这个尺寸的模型时相同。
"""

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from plan import use_our_threads
from sizes import SIZES
from worker import Jobs, Once

from gptcore.kernels import activation, attention, dropout, embedding, linear, loss, softmax
from gptcore.kernels import normalization as norm
from gptcore.layers import Dropout

Pair = tuple[Callable[[], Any], Callable[[Any], Any]]
"""前向，与由前向的结果开始的反向"""


def sides(name: str, threads: int | None = None) -> Jobs:
    """一个尺寸的全部核函数。"""
    size = SIZES[name]
    rng = np.random.default_rng(0)
    n, e, v, heads = size.tokens, size.embedding, size.vocab, size.heads
    square = (size.batch, heads, size.context, size.context)
    use_our_threads(size.parameters, threads)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    def make_linear(inputs: int, outputs: int) -> Pair:
        x, w, b, dy = (
            normal(n, inputs),
            normal(outputs, inputs),
            normal(outputs),
            normal(n, outputs),
        )
        return (
            lambda: linear.linear_forward(x, w, b),
            lambda _: linear.linear_backward(dy, x, w),
        )

    def make_embedding() -> Pair:
        ids, w, dy = rng.integers(0, v, n), normal(v, e), normal(n, e)
        return (
            lambda: embedding.embedding_forward(ids, w),
            lambda _: embedding.embedding_backward(dy, ids, v),
        )

    def make_layer_norm() -> Pair:
        x, w, b, dy = normal(n, e), normal(e), normal(e), normal(n, e)
        return (
            lambda: norm.layer_norm_forward(x, w, b, 1e-5),
            lambda result: norm.layer_norm_backward(dy, result[1], w),
        )

    def make_rms_norm() -> Pair:
        x, w, dy = normal(n, e), normal(e), normal(n, e)
        return (
            lambda: norm.rms_norm_forward(x, w, 1e-5),
            lambda result: norm.rms_norm_backward(dy, result[1], w),
        )

    def make_gelu() -> Pair:
        x, dy = normal(n, 4 * e), normal(n, 4 * e)
        return (
            lambda: activation.gelu_forward(x),
            lambda result: activation.gelu_backward(dy, result[1]),
        )

    def make_relu() -> Pair:
        x, dy = normal(n, 4 * e), normal(n, 4 * e)
        return lambda: activation.relu_forward(x), lambda y: activation.relu_backward(dy, y)

    def make_softmax() -> Pair:
        x, dy = normal(*square), normal(*square)
        return lambda: softmax.softmax_forward(x), lambda y: softmax.softmax_backward(dy, y)

    def make_attention(p: float) -> Pair:
        qkv, dc = normal(size.batch, size.context, 3 * e), normal(size.batch, size.context, e)
        draw = Dropout(p, np.random.default_rng(0)).drawing()
        return (
            lambda: attention.attention_forward(qkv, heads, p, draw),
            lambda result: attention.attention_backward(dc, qkv, *result, heads, p),
        )

    def make_dropout(p: float) -> Pair:
        x, dy = normal(n, e), normal(n, e)
        draw = Dropout(p, np.random.default_rng(0)).drawing()
        assert draw is not None

        def forward() -> Any:
            keep = draw(x.shape)
            return dropout.dropout(x, keep, p), keep

        return forward, lambda result: dropout.dropout(dy, result[1], p)

    def make_cross_entropy() -> Pair:
        logits, labels = normal(n, v), rng.integers(0, v, n)
        one = np.ones((), np.float32)
        return (
            lambda: loss.cross_entropy_forward(logits, labels),
            lambda result: loss.cross_entropy_backward(one, result[1], labels),
        )

    makers: dict[str, Callable[[], Pair]] = {
        "linear E→3E": partial(make_linear, e, 3 * e),
        "linear E→E": partial(make_linear, e, e),
        "linear E→4E": partial(make_linear, e, 4 * e),
        "linear 4E→E": partial(make_linear, 4 * e, e),
        "linear E→V": partial(make_linear, e, v),
        "embedding": make_embedding,
        "layer norm": make_layer_norm,
        "RMSNorm": make_rms_norm,
        "GELU": make_gelu,
        "ReLU": make_relu,
        "softmax": make_softmax,
        "attention": partial(make_attention, 0.0),
        "attention, dropout": partial(make_attention, 0.1),
        "dropout": partial(make_dropout, 0.1),
        "cross entropy": make_cross_entropy,
    }
    return {kernel: partial(_both, make) for kernel, make in makers.items()}


def _both(make: Callable[[], Pair]) -> Once:
    forward, backward = make()

    def once() -> dict[str, float]:
        start = perf_counter()
        result = forward()
        half = perf_counter()
        backward(result)
        return {"forward": half - start, "backward": perf_counter() - half}

    return once
