"""各个核函数的前向与反向：gptcore 的一方

数组进、数组出，直接调用 `gptcore.kernels`；线程数与训练这个尺寸的模型时相同。
"""

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from plan import use_our_threads
from sizes import SIZES, Size
from worker import Jobs, Once

from gptcore.kernels import activation, attention, dropout, embedding, linear, loss, softmax
from gptcore.kernels import normalization as norm
from gptcore.layers import Dropout

Pair = tuple[Callable[[], Any], Callable[[Any], Any]]
"""前向，与由前向的结果开始的反向"""


class Cases:
    """一个尺寸的各个核函数。"""

    def __init__(self, size: Size) -> None:
        self.size, self.rng = size, np.random.default_rng(0)
        self.n, self.e, self.v = size.tokens, size.embedding, size.vocab

    def normal(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape, np.float32)

    def drawing(self, p: float) -> Any:
        return Dropout(p, np.random.default_rng(0)).drawing()

    def linear(self, inputs: int, outputs: int) -> Pair:
        x, w, b = self.normal(self.n, inputs), self.normal(outputs, inputs), self.normal(outputs)
        dy = self.normal(self.n, outputs)
        return lambda: linear.linear_forward(x, w, b), lambda _: linear.linear_backward(dy, x, w)

    def embedding(self) -> Pair:
        ids, v = self.rng.integers(0, self.v, self.n), self.v
        w, dy = self.normal(v, self.e), self.normal(self.n, self.e)
        return (
            lambda: embedding.embedding_forward(ids, w),
            lambda _: embedding.embedding_backward(dy, ids, v),
        )

    def layer_norm(self) -> Pair:
        x, w, b, dy = (
            self.normal(*s) for s in ((self.n, self.e), (self.e,), (self.e,), (self.n, self.e))
        )
        return (
            lambda: norm.layer_norm_forward(x, w, b, 1e-5),
            lambda result: norm.layer_norm_backward(dy, result[1], w),
        )

    def rms_norm(self) -> Pair:
        x, w, dy = self.normal(self.n, self.e), self.normal(self.e), self.normal(self.n, self.e)
        return (
            lambda: norm.rms_norm_forward(x, w, 1e-5),
            lambda result: norm.rms_norm_backward(dy, result[1], w),
        )

    def gelu(self) -> Pair:
        x, dy = self.normal(self.n, 4 * self.e), self.normal(self.n, 4 * self.e)
        return (
            lambda: activation.gelu_forward(x),
            lambda result: activation.gelu_backward(dy, result[1]),
        )

    def relu(self) -> Pair:
        x, dy = self.normal(self.n, 4 * self.e), self.normal(self.n, 4 * self.e)
        return lambda: activation.relu_forward(x), lambda y: activation.relu_backward(dy, y)

    def softmax(self) -> Pair:
        shape = (self.size.batch, self.size.heads, self.size.context, self.size.context)
        x, dy = self.normal(*shape), self.normal(*shape)
        return lambda: softmax.softmax_forward(x), lambda y: softmax.softmax_backward(dy, y)

    def attention(self, p: float) -> Pair:
        batch, context, heads = self.size.batch, self.size.context, self.size.heads
        qkv, dc = self.normal(batch, context, 3 * self.e), self.normal(batch, context, self.e)
        draw = self.drawing(p)
        return (
            lambda: attention.attention_forward(qkv, heads, p, draw),
            lambda result: attention.attention_backward(dc, qkv, *result, heads, p),
        )

    def dropout(self, p: float) -> Pair:
        x, dy, draw = self.normal(self.n, self.e), self.normal(self.n, self.e), self.drawing(p)

        def forward() -> Any:
            keep = draw(x.shape)
            return dropout.dropout(x, keep, p), keep

        return forward, lambda result: dropout.dropout(dy, result[1], p)

    def cross_entropy(self) -> Pair:
        logits, labels = self.normal(self.n, self.v), self.rng.integers(0, self.v, self.n)
        one = np.ones((), np.float32)
        return (
            lambda: loss.cross_entropy_forward(logits, labels),
            lambda result: loss.cross_entropy_backward(one, result[1], labels),
        )


def sides(name: str, threads: int | None = None) -> Jobs:
    """一个尺寸的全部核函数。"""
    size = SIZES[name]
    use_our_threads(size.parameters, threads)
    e, v, cases = size.embedding, size.vocab, Cases(size)
    makers: dict[str, Callable[[], Pair]] = {
        "linear E→3E": partial(cases.linear, e, 3 * e),
        "linear E→E": partial(cases.linear, e, e),
        "linear E→4E": partial(cases.linear, e, 4 * e),
        "linear 4E→E": partial(cases.linear, 4 * e, e),
        "linear E→V": partial(cases.linear, e, v),
        "embedding": cases.embedding,
        "layer norm": cases.layer_norm,
        "RMSNorm": cases.rms_norm,
        "GELU": cases.gelu,
        "ReLU": cases.relu,
        "softmax": cases.softmax,
        "attention": partial(cases.attention, 0.0),
        "attention, dropout": partial(cases.attention, 0.1),
        "dropout": partial(cases.dropout, 0.1),
        "cross entropy": cases.cross_entropy,
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
