"""缓冲区：用完收回、不与别的数组混淆、不无限地占内存"""

import gc
import platform
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from gptcore import GELU, GPT, GPTLoss, Linear, Tensor
from gptcore.kernels import buffers
from gptcore.kernels.buffers import ALIGNMENT, SLACK, SMALLEST, empty, is_owner

COUNT = SMALLEST // 4
FLOAT = np.dtype(np.float32)


@pytest.fixture(autouse=True)
def fresh_pool() -> None:
    gc.collect()
    buffers.release()


def address(x: np.ndarray[Any, Any]) -> int:
    return int(x.__array_interface__["data"][0])


def pool() -> Any:
    return buffers._local.pool  # pyright: ignore[reportPrivateUsage]


def test_arrays_are_aligned_and_writable() -> None:
    for shape in [(COUNT,), (COUNT, 3), (2, 1, COUNT + 5)]:
        x = empty(shape, FLOAT)
        assert x.shape == shape
        assert x.dtype == FLOAT
        assert x.flags.c_contiguous
        assert x.flags.writeable
        assert address(x) % ALIGNMENT == 0
        assert is_owner(x)


def test_small_arrays_come_from_numpy() -> None:
    x = empty((COUNT - 1,), FLOAT)
    assert x.base is None
    assert is_owner(x)
    assert empty((0, COUNT), FLOAT).shape == (0, COUNT)
    assert empty((), FLOAT).shape == ()


def test_memory_returns_only_after_the_last_view() -> None:
    x = empty((COUNT, 2), FLOAT)
    where, view = address(x), x[1:].T
    assert not is_owner(view)
    del x
    y = empty((COUNT, 2), FLOAT)
    assert address(y) != where
    del view
    assert address(empty((2, COUNT), FLOAT)) == where  # 同样的字节数，形状不同也行


def test_two_living_arrays_never_share_memory() -> None:
    rng = np.random.default_rng(0)
    living: list[np.ndarray[Any, Any]] = []
    for i in range(300):
        if living and rng.random() < 0.5:
            living.pop(int(rng.integers(len(living))))
        x = empty((int(rng.integers(1, 4)) * COUNT,), FLOAT)
        x[:] = i
        living.append(x)
        assert len({int(a[0]) for a in living}) == len(living)
        assert all((a == a[0]).all() for a in living)


def test_idle_memory_is_bounded_and_can_be_released() -> None:
    for n in range(1, 200):  # 每次大小都不同，没有一块能再用
        empty((COUNT + n * 1024,), FLOAT)
    assert pool().idle + pool().leased <= pool().most * 5 // 4 + SLACK
    buffers.release()
    assert pool().idle == 0


def test_an_array_may_die_in_another_thread() -> None:
    box = [empty((COUNT,), FLOAT)]
    where = address(box[0])
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    assert address(empty((COUNT,), FLOAT)) == where


def test_each_thread_has_its_own_pool() -> None:
    seen: list[int] = []
    mine = address(empty((COUNT,), FLOAT))

    def work() -> None:
        x = empty((COUNT,), FLOAT)
        seen.append(address(x))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen[0] != mine


def test_results_a_user_keeps_do_not_change() -> None:
    rng = np.random.default_rng(0)
    layer, gelu = Linear(256, 512, rng=rng), GELU()
    x = Tensor(rng.standard_normal((512, 256), np.float32))
    kept = gelu(layer(x))
    copy = kept.data.copy()
    for _ in range(3):
        y = gelu(layer(Tensor(rng.standard_normal((512, 256), np.float32))))
        y.sum().backward()
        del y
    np.testing.assert_array_equal(kept.data, copy)
    kept.sum().backward()
    gradient = x.grad.copy()
    gelu(layer(Tensor(x.data * 2))).sum().backward()
    np.testing.assert_array_equal(x.grad, gradient)


def test_forgotten_intermediates_do_not_change_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.random.default_rng(0).integers(0, 13, (2, 8))

    def gradients() -> list[Any]:
        model = GPT(13, 8, 12, 2, 2, dropout=0.1, rng=np.random.default_rng(1))
        GPTLoss()(model(Tensor(ids)), Tensor(ids)).backward()
        return [p.grad.copy() for p in model.parameters]

    forgotten = gradients()
    monkeypatch.setattr(Tensor, "forget", lambda _: None)
    for a, b in zip(forgotten, gradients(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_forgetting_keeps_shape_and_type() -> None:
    x = Tensor(np.ones((3, 4)))
    x.forget()
    assert x.shape == (3, 4)
    assert x.dtype == np.float64


CHURN = """
import resource
import numpy as np
from gptcore.kernels.buffers import SMALLEST, empty

def churn(n):
    for _ in range(n):
        [np.ones(SMALLEST // 8, np.float32) for _ in range(30)]

empty((SMALLEST,), np.dtype(np.float32))
churn(20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
churn(20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="别的 C 库有自己的规矩")
def test_small_arrays_keep_their_memory_too() -> None:
    """30 个 64 KiB 的数组反复要、反复放：借过一次大的之后，不再缺页；没有借过时有七千多次。"""
    command = [sys.executable, "-c", CHURN]
    result = subprocess.run(command, capture_output=True, check=True, text=True)
    assert int(result.stdout) < 200
