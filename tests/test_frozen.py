"""优化器：冻结的参数一步也不动；很大的数；参数组的检查"""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from gptcore import (
    AdamWOptimizer,
    ArgumentError,
    DtypeError,
    GPTLoss,
    RangeError,
    SGDOptimizer,
    Tensor,
    WarmupCosineScheduler,
)
from gptcore.kernels.array import BLOCK


@pytest.mark.parametrize("kind", [SGDOptimizer, AdamWOptimizer])
def test_frozen_parameters_do_not_move(kind: Any) -> None:
    sizes = (3, 4, BLOCK + 1, BLOCK + 2)  # 合在一起的小参数，各自一组的大参数
    parameters = [Tensor(np.ones(n, np.float32)) for n in sizes]
    frozen, free = parameters[::2], parameters[1::2]
    optimizer = kind(parameters, lr=0.1)
    for p in parameters:
        p.grad += 1
    for p in frozen:
        p.requires_grad = False
    norm = optimizer.clip_grad_norm(1e9)
    assert norm == pytest.approx(np.sqrt(sum(p.size for p in free)))
    optimizer.step()
    for p in frozen:
        assert_array_equal(p.data, 1)
    assert all((p.data < 1).all() for p in free)
    for p in frozen:
        p.requires_grad = True
    optimizer.step()
    assert all((p.data < 1).all() for p in parameters)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clipping_very_large_gradients(dtype: Any) -> None:
    w = Tensor(np.zeros(4, dtype))
    w.grad += dtype(1e30)
    assert SGDOptimizer([w], 1).clip_grad_norm() == pytest.approx(2e30)
    np.testing.assert_allclose(w.grad, 0.5, rtol=1e-6)


W = Tensor([1.0, 2.0])
READ_ONLY = Tensor(np.broadcast_to(np.float32(1), 3))


@pytest.mark.parametrize(
    ("build", "kind", "message"),
    [
        (lambda: SGDOptimizer([READ_ONLY], 1), ArgumentError, r"\(3,\) .*只读.*array\.copy\(\)"),
        (lambda: AdamWOptimizer([{"parameters": 5}]), DtypeError, "parameters .*列表，这里是 int"),
        (lambda: AdamWOptimizer([{"parameters": W}]), DtypeError, r"Tensor.*\[w\]"),
        (lambda: SGDOptimizer([W], 10**5000), ArgumentError, "lr .*2 的 16609 次方以上"),
        (lambda: AdamWOptimizer([W], eps=10**5000), ArgumentError, "eps .*2 的 16609 次方以上"),
        (lambda: AdamWOptimizer([W], betas=(0.9, 10**5000)), ArgumentError, "betas"),
        (lambda: SGDOptimizer([W], 1).clip_grad_norm(10**5000), ArgumentError, "max_norm .*2 的 16609 次方以上"),
        (lambda: WarmupCosineScheduler(1, 10**5000), ArgumentError, "total_steps .*2 的 16609 次方以上"),
        (lambda: WarmupCosineScheduler(1, 10, 0.5), ArgumentError, r"warmup_steps 必须是整数，这里是 0\.5"),  # type: ignore[arg-type]
        (lambda: WarmupCosineScheduler(1, 10.5), ArgumentError, r"total_steps .*int\(10\.5\)"),  # type: ignore[arg-type]
        (
            lambda: GPTLoss()(Tensor([[1.0, 2.0]]), Tensor(np.array([2**63], np.uint64))),
            RangeError,
            "标签 9223372036854775808 ",
        ),
    ],
)  # fmt: skip
def test_messages(build: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        build()
