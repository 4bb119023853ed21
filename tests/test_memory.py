"""内存：一步训练的峰值，与逐项数出来的必需量相比"""

import gc
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest

from gptcore import (
    GELU,
    GPT,
    AdamWOptimizer,
    Dataset,
    GPTLoss,
    GPTTrainer,
    LayerNorm,
    Linear,
    Softmax,
    Tensor,
)
from gptcore.kernels.attention import QUERY_BLOCK

B, T, E, H, L, V = 12, 64, 128, 4, 4, 65
"""批大小、上下文尺寸、嵌入尺寸、头数、块数、词表大小"""


def saved_activations() -> int:
    """反向传播要用、因而前向必须留下的元素数，按各个核函数的公式数。"""
    n = B * T
    keys = sum(  # 每个查询块只存它看得见的键：e (b, H, q, j)
        min(QUERY_BLOCK, T - i) * min(i + QUERY_BLOCK, T) for i in range(0, T, QUERY_BLOCK)
    )
    norm = n * E + n  # x̂ 与 r；层归一化的输入不必留
    attention = (
        norm
        + n * E  # c_attn 的输入：dW = dyᵀ x
        + n * 3 * E  # 查询、键、值
        + B * H * keys  # 未归一化的权重 e
        + B * H * T  # 1/ℓ
        + n * E  # 各头的结果：既是 D_t 要的 c，也是输出层的输入
    )
    feed_forward = (
        norm
        + n * E  # 第一个线性层的输入
        + n * 4 * E  # GELU 的导数；它的输入不必留
        + n * 4 * E  # GELU 的结果，第二个线性层的输入
    )
    output = norm + n * E + n * V  # 归一化，线性层的输入，softmax 的概率
    return L * (attention + feed_forward) + output


def one_step(model: GPT, optimizer: AdamWOptimizer, ids: Tensor, labels: Tensor) -> None:
    optimizer.zero_grad()
    loss = GPTLoss()(model(ids), labels)
    loss.backward()
    optimizer.clip_grad_norm()
    optimizer.step()


def peak_of(run: Any) -> tuple[int, int]:
    """运行期间的峰值与结束时的占用，字节。"""
    gc.collect()
    tracemalloc.start()
    try:
        keep = run()
        current, peak = tracemalloc.get_traced_memory()
        del keep
    finally:
        tracemalloc.stop()
    return peak, current


def test_peak_of_one_training_step() -> None:
    class Random(Dataset):
        def load(self) -> None:
            x, y = np.random.default_rng(0).integers(0, V, (2, 2 * B, T))
            self.train_data = self.test_data = (x, y)

    dataset = Random(B)

    def run() -> Any:
        model = GPT(V, T, E, H, L)
        trainer = GPTTrainer(model, GPTLoss(), AdamWOptimizer(model.parameters))
        tracemalloc.reset_peak()  # 初始化时的 float64 随机数不算
        return trainer, list(trainer.steps(dataset, 3))

    peak, _ = peak_of(run)
    parameters = GPT(V, T, E, H, L).num_parameters
    needed = 4 * (parameters * 4 + saved_activations())  # 参数、梯度、两个矩；float32
    print(f"峰值 {peak:,} 字节，必需量 {needed:,} 字节，{peak / needed:.3f} 倍")
    assert peak <= 1.3 * needed, (
        f"峰值 {peak:,} 字节是必需量 {needed:,} 字节的 {peak / needed:.2f} 倍"
    )


def test_memory_does_not_grow_from_step_to_step() -> None:
    rng = np.random.default_rng(0)
    ids, labels = (Tensor(rng.integers(0, 7, (4, 9))) for _ in range(2))
    model = GPT(7, 9, 12, 3, 2, rng=rng)
    optimizer = AdamWOptimizer(model.parameters)
    for _ in range(20):
        one_step(model, optimizer, ids, labels)
    gc.collect()
    gc.disable()  # 只靠引用计数
    tracemalloc.start()
    try:
        one_step(model, optimizer, ids, labels)
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(20):
            one_step(model, optimizer, ids, labels)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert after - before < 16_000  # 每一步只要漏掉一个 (4, 9, 12) 的数组，就会多出 34,000


def test_forward_only_keeps_nothing_but_the_result() -> None:
    rng = np.random.default_rng(0)
    model = GPT(V, T, E, H, L, rng=rng)
    ids = Tensor(rng.integers(0, V, (B, T)))

    def run() -> Tensor:
        with Tensor.no_grad():
            return model(ids)

    peak, current = peak_of(run)
    n = B * T
    assert current < 4 * n * V + 20_000
    # 最宽的一处：前馈网络的输入、中间 (4E) 与激活 (4E)，以及一份残差
    assert peak < 4 * n * E * 12


@pytest.mark.parametrize("name", ["linear", "gelu", "norm", "softmax"])
def test_saved_arrays_are_freed_as_backward_consumes_them(name: str) -> None:
    """反向传播走到一个节点时，它上面（更靠近损失）的节点保存的数组已经没有了。"""
    layers = {"linear": Linear(6, 6), "gelu": GELU(), "norm": LayerNorm(6), "softmax": Softmax()}
    layer = layers[name]
    x = Tensor(np.ones((4, 6), np.float32))
    seen: list[int] = []
    outputs: list[weakref.ref[Tensor]] = []

    def watch(value: Tensor) -> Tensor:
        """照抄输入；反向传播经过时，数一数还有几个后面的张量活着。"""
        index = len(outputs)

        def vjp(dy: np.ndarray) -> tuple[np.ndarray]:
            seen.append(sum(ref() is not None for ref in outputs[index + 1 :]))
            return (dy,)

        result = Tensor(value.data.copy()).record((value,), vjp)
        outputs.append(weakref.ref(result))
        return result

    y = watch(x)
    for _ in range(5):
        y = watch(layer(y))
    loss = y.sum()
    del y
    loss.backward()
    assert seen == [0] * 6


def test_arrays_saved_by_a_closure_are_freed_too() -> None:
    x = Tensor([1.0, 2.0])
    saved: list[weakref.ref[np.ndarray]] = []
    alive: list[bool] = []

    def square(x: Tensor) -> Tensor:
        twice = 2 * x.data
        saved.append(weakref.ref(twice))
        p = Tensor(x.data * x.data)

        def gradient_fn() -> None:
            x.grad += p.grad * twice

        return p.attach(gradient_fn, {x})

    def probe(x: Tensor) -> Tensor:
        def vjp(dy: np.ndarray) -> tuple[np.ndarray]:
            alive.append(saved[0]() is not None)
            return (dy,)

        return Tensor(x.data * 1).record((x,), vjp)

    square(probe(x)).sum().backward()
    gc.collect()
    assert saved[0]() is None
    assert len(alive) == 1
