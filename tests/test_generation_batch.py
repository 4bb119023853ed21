"""几条一起生成：每一条都与单独生成时一样；模式、线程数与内存"""

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest
from generation_models import KINDS, SAMPLING, make, rng
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from gptcore import (
    GPT,
    blas_threads,
    is_grad_enabled,
    no_grad,
)
from gptcore.threads import blas_info


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("sampling", SAMPLING)
def test_each_row_is_as_if_alone(options: dict[str, Any], sampling: dict[str, Any]) -> None:
    model = make(**options)
    prompts = [rng(i).integers(0, 23, n).tolist() for i, n in enumerate((3, 1, 12, 7, 30, 3, 11))]
    together = model.generate_batch(prompts, 15, rng=[rng(i) for i in range(7)], **sampling)
    for i, prompt in enumerate(prompts):
        assert together[i] == list(model.generate(prompt, 15, rng=rng(i), **sampling))
    off = model.generate_batch(
        prompts, 15, rng=[rng(i) for i in range(7)], use_cache=False, **sampling
    )
    assert together == off


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.integers(0, 22), min_size=1, max_size=16), max_size=6), st.integers(0, 99)
)
def test_batches_of_any_shape(prompts: list[list[int]], seed: int) -> None:
    model = make(seed)
    expected = [list(model.generate(p, 14, temperature=0, end_of_text=[4, 9])) for p in prompts]
    assert model.generate_batch(prompts, 14, temperature=0, end_of_text=[4, 9]) == expected


def test_rows_do_not_depend_on_the_others() -> None:
    model = make()
    prompts = [[1, 2, 3], [4], [5, 6], [1, 2, 3]]
    all_rows = model.generate_batch(prompts, 12, rng=rng(3))
    assert model.generate_batch(prompts[:2], 12, rng=rng(3)) == all_rows[:2]
    other = model.generate_batch([[9] * 10, *prompts[1:]], 12, rng=rng(3), end_of_text=None)
    assert other[1:] == all_rows[1:]
    assert all_rows[0] != all_rows[3]  # 同一条提示的两个续写
    stopped = model.generate_batch(prompts, 12, rng=rng(3), end_of_text=all_rows[1][2])
    for i, row in enumerate(all_rows):
        stop = all_rows[1][2]
        assert stopped[i] == row[: row.index(stop)] if stop in row else row


def test_batch_with_log_probabilities() -> None:
    model = make(dtype=np.float64)
    prompts = [[1, 2, 3], [4]]
    rows = model.generate_batch(prompts, 13, temperature=0, return_logprobs=True)
    for prompt, row in zip(prompts, rows, strict=True):
        alone = list(model.generate(prompt, 13, temperature=0, return_logprobs=True))
        assert [t.id for t in row] == [t.id for t in alone]
        assert_allclose([t.logprob for t in row], [t.logprob for t in alone], rtol=1e-9)


def test_empty_batches() -> None:
    model = make()
    assert model.generate_batch([], 5) == []
    assert model.generate_batch([[1], [2]], 0) == [[], []]


# ---------------------------------------------------------------- 模式、线程、内存


def test_modes_between_steps() -> None:
    model = make(dropout=0.5)
    model.transformers[0].feed_forward.dropout.eval()  # 各层不必一样
    modes = [layer.training for layer in model.sublayers()]
    first, second = model.generate([1], 30, rng=rng(1)), model.generate([2], 30, rng=rng(2))
    mixed: tuple[list[int], list[int]] = ([], [])
    for _ in range(15):
        for stream, ids in zip((first, second), mixed, strict=True):
            ids.append(next(stream))
            assert [layer.training for layer in model.sublayers()] == modes
            assert is_grad_enabled()
    first.close()  # type: ignore[attr-defined]
    del second
    gc.collect()
    assert [layer.training for layer in model.sublayers()] == modes
    assert mixed[0] == list(model.generate([1], 15, rng=rng(1)))
    assert mixed[1] == list(model.generate([2], 15, rng=rng(2)))
    with no_grad():
        next(model.generate([1]))
        assert not is_grad_enabled()


def test_threads_are_as_before_between_steps() -> None:
    model = make()
    with blas_threads(2):
        seen = [blas_info()["threads"] for _ in model.generate([1], 15)]
        assert set(seen) == {blas_info()["threads"]}
    inside: list[Any] = []
    attention = model.transformers[0].attention
    product = attention.c_attn.infer

    def counted(x: Any) -> Any:
        inside.append(blas_info()["threads"])
        return product(x)

    attention.c_attn.infer = counted  # type: ignore[method-assign]
    with blas_threads(2):
        list(model.generate([1], 15))
    assert set(inside) <= {1, None}


def test_memory_does_not_grow() -> None:
    model = make()
    stream = model.generate([1], 10**6, rng=rng())
    for _ in range(200):
        next(stream)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(1000):
        next(stream)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 60_000  # 编号本身：一千个整数


def test_cache_is_no_larger_than_needed() -> None:
    model = GPT(23, 100_000, 16, 4, 2, rng=rng())
    tracemalloc.start()
    list(model.generate([1, 2, 3], 5))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300_000
