"""键值缓存：核函数与直白写法对照，逐个词元与一次算完相同，容量与长短不一"""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from gptcore import (
    GPT,
    ArgumentError,
    GPTAttention,
    GPTFeedForward,
    KVCache,
    Linear,
    RangeError,
    ShapeError,
    Tensor,
    no_grad,
)
from gptcore.kernels.attention_cached import attention_cached, hidden_positions
from gptcore.models import GPTTransformer

KINDS: list[dict[str, Any]] = [
    {},
    {"norm": "RMSNorm", "init": "gpt2"},
    {"norm": None},
    {"norm_position": "post"},
    {"bias": False, "head_bias": False, "tied": True},
    {"norm": "RMSNorm", "norm_position": "post", "tied": True, "dropout": 0.3},
]


def make(seed: int = 0, dtype: Any = np.float64, **options: Any) -> GPT:
    return GPT(11, 9, 12, 3, 2, rng=np.random.default_rng(seed), **options).astype(dtype)


def forward(model: GPT, ids: Any) -> np.ndarray:
    with model.evaluating(), no_grad():
        return model(Tensor(np.asarray(ids))).data


@given(st.data(), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(0, 2**32))
def test_kernel_against_the_plain_version(
    data: st.DataObject, batch: int, heads: int, n: int, seed: int
) -> None:
    size, capacity = 5, 12
    lengths = np.array([data.draw(st.integers(0, capacity - n)) for _ in range(batch)])
    rng = np.random.default_rng(seed)
    keys, values = np.zeros((2, batch, heads, capacity, size))
    for b, length in enumerate(lengths):
        keys[b, :, :length] = rng.standard_normal((heads, length, size))
        values[b, :, :length] = rng.standard_normal((heads, length, size))
    qkv = rng.standard_normal((batch, n, 3 * heads * size))
    hidden = hidden_positions(lengths, n, np.dtype(np.float64))
    context = attention_cached(qkv, keys, values, lengths, hidden)
    for b, i, h in itertools.product(range(batch), range(n), range(heads)):
        q, k, v = qkv[b, i].reshape(3, heads, size)[:, h]
        stop = lengths[b] + i + 1
        assert_array_equal(keys[b, h, stop - 1], k)
        assert_array_equal(values[b, h, stop - 1], v)
        e = np.exp([q @ keys[b, h, j] / math.sqrt(size) for j in range(stop)])
        expected = (e / e.sum()) @ values[b, h, :stop]
        assert_allclose(context[b, i, h * size : (h + 1) * size], expected, atol=1e-12)


def test_no_mask_when_nothing_is_hidden() -> None:
    assert hidden_positions(np.array([4, 4]), 1, np.dtype(np.float32)) is None
    mask = hidden_positions(np.array([1, 3]), 1, np.dtype(np.float32))
    assert mask is not None
    assert mask.dtype == np.float32
    assert_array_equal(np.isfinite(mask[:, 0, 0]), [[True, True, False, False], [True] * 4])


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("cuts", [[9], [1] * 9, [3, 1, 1, 1, 1, 1, 1], [1, 4, 2, 2], [8, 1]])
def test_any_way_of_feeding_gives_the_same_scores(options: dict[str, Any], cuts: list[int]) -> None:
    model = make(**options)
    ids = np.random.default_rng(1).integers(0, 11, (3, 9))
    whole = forward(model, ids)
    cache = model.new_cache(3)
    start = 0
    for n in cuts:
        scores = model.next_scores(ids[:, start : start + n], cache)
        start += n
        assert_allclose(scores, whole[:, start - 1], rtol=1e-9, atol=1e-12)
        assert_array_equal(cache.lengths, [start] * 3)
    assert_allclose(model.next_scores(ids), whole[:, -1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_prompt_is_the_same_to_the_last_bit(dtype: Any) -> None:
    model = make(dtype=dtype)
    ids = np.random.default_rng(1).integers(0, 11, (1, 7))
    for n in range(1, 8):
        cache = model.new_cache()
        with_cache = model.next_scores(ids[:, :n], cache)
        assert with_cache.dtype == cache.keys.dtype == model.dtype == dtype
        assert_array_equal(with_cache, model.next_scores(ids[:, :n]))


def test_rows_of_unequal_length() -> None:
    model = make()
    texts = [np.random.default_rng(i).integers(0, 11, n) for i, n in enumerate((5, 1, 3, 8))]
    cache = model.new_cache(4)
    for i, text in enumerate(texts):
        model.next_scores(text[None], cache.row(i))
    assert_array_equal(cache.lengths, [5, 1, 3, 8])
    new = np.array([[2], [3], [4], [5]])
    together = model.next_scores(new, cache)
    for i, text in enumerate(texts):
        assert_allclose(together[i], forward(model, [[*text, *new[i]]])[0, -1], rtol=1e-9)
    few = cache.keep([2, 1])  # 去掉越过边缘的，其余照旧
    assert_array_equal(few.lengths, [4, 2])
    again = model.next_scores(np.array([[6], [7]]), few)
    for i, row in enumerate((2, 1)):
        expected = forward(model, [[*texts[row], *new[row], 6 + i]])[0, -1]
        assert_allclose(again[i], expected, rtol=1e-9)
    assert_array_equal(cache.lengths, [6, 2, 4, 9])  # 复制的一份，原来的不变


def test_an_error_leaves_the_cache_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    cache = model.new_cache()
    model.next_scores([[1, 2, 3]], cache)
    expected = model.next_scores(
        [[4]], KVCache(cache.keys.copy(), cache.values.copy(), cache.lengths.copy())
    )

    def fail(x: Any) -> Any:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(model.transformers[1].feed_forward, "infer", fail)
        patch.setattr(type(model), "cacheable", True)
        with pytest.raises(RuntimeError):
            model.next_scores([[9]], cache)
    with pytest.raises(RangeError, match="编号 11"):
        model.next_scores([[11]], cache)
    assert_array_equal(cache.lengths, [3])
    assert_array_equal(model.next_scores([[4]], cache), expected)


def test_limits() -> None:
    model = make()
    cache = model.new_cache(2, 5)
    assert cache.capacity == 5
    assert cache.nbytes == 2 * 2 * 2 * 5 * 12 * 8
    with pytest.raises(ShapeError, match=r"有 2 条文字，输入有 1 条；请用 model.new_cache\(1\)"):
        model.next_scores([[1]], cache)
    model.next_scores([[1] * 4] * 2, cache)
    with pytest.raises(ShapeError, match=r"已经有 4 个词元，再放 2 个就超过了容量 5"):
        model.next_scores([[1, 2]] * 2, cache)
    with pytest.raises(ArgumentError, match=r"capacity=10 超过了上下文尺寸 9"):
        model.new_cache(1, 10)
    for bad in (0, -1, 1.5, None):
        with pytest.raises(ArgumentError, match="batch 必须是正整数"):
            model.new_cache(bad)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="超过上下文尺寸 context_size=9"):
        model.next_scores([[1] * 10])
    with pytest.raises(ShapeError, match=r"应为 \(批大小, 长度\)"):
        model.next_scores([1, 2])


def test_no_blocks() -> None:
    model = GPT(11, 9, 12, 3, 0, rng=np.random.default_rng(0))
    cache = model.new_cache()
    model.next_scores([[1, 2]], cache)
    assert_allclose(
        model.next_scores([[3]], cache)[0], forward(model, [[1, 2, 3]])[0, -1], rtol=1e-5
    )


def test_other_linear_layers_may_be_put_in() -> None:
    """换上别的层（例如 LoRA）：只定义 `forward` 就可以，缓存照样能用。"""

    class Doubled(Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * 2.0

    model = make()
    model.transformers[0].attention.c_attn = Doubled(12, 36).astype(np.float64)
    model.transformers[1].feed_forward.input = Doubled(12, 48).astype(np.float64)
    assert model.cacheable
    ids = np.random.default_rng(1).integers(0, 11, (1, 9))
    cache = model.new_cache()
    model.next_scores(ids[:, :5], cache)
    for t in range(5, 9):
        scores = model.next_scores(ids[:, t : t + 1], cache)
    assert_allclose(scores[0], forward(model, ids)[0, -1], rtol=1e-9)


class Shifted(GPTFeedForward):
    def branch(self, x: Tensor) -> Tensor:
        return super().branch(x) + 1.0


class Reversed(GPTAttention):
    def enter(self, x: Tensor) -> Tensor:
        return super().enter(x) * -1.0


class Twice(GPTTransformer):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(super().forward(x))


@pytest.mark.parametrize("change", ["branch", "enter", "block", "instance", "model"])
def test_changed_models_are_not_cached(change: str) -> None:
    model = make(dropout=0.5)
    block = model.transformers[0]
    if change == "branch":
        block.feed_forward = Shifted(12).astype(np.float64)
    elif change == "enter":
        block.attention = Reversed(12, 3).astype(np.float64)
    elif change == "block":
        model.transformers[1] = Twice(12, 3).astype(np.float64)
    elif change == "instance":
        original = block.forward
        block.forward = lambda x: original(x) * 2.0  # type: ignore[method-assign]
    else:

        class Other(GPT):
            def forward(self, ids: Tensor) -> Tensor:
                return super().forward(ids) * -1.0

        model.__class__ = Other
    assert not model.cacheable
    with pytest.raises(ArgumentError, match="改写了 forward，不能用缓存"):
        model.next_scores([[1]], model.new_cache())
    expected = forward(model, [[1, 2, 3]])[:, -1]
    assert_array_equal(model.next_scores([[1, 2, 3]]), expected)
    assert model.training
    greedy = list(model.generate([1, 2, 3], 12, temperature=0))
    ids = [1, 2, 3]
    for _ in range(12):
        ids.append(int(forward(model, [ids[-9:]])[0, -1].argmax()))
    assert greedy == ids[3:]


@pytest.mark.parametrize("options", KINDS)
def test_attention_maps(options: dict[str, Any]) -> None:
    model = make(**options)
    ids = [3, 1, 4, 1, 5]
    maps = model.attention_maps(ids)
    assert maps.shape == (2, 3, 5, 5)
    assert_allclose(maps.sum(-1), 1, rtol=1e-12)
    assert not maps[..., np.triu_indices(5, 1)[0], np.triu_indices(5, 1)[1]].any()
    assert model.training
    model.eval()
    with no_grad():
        x = model.embedding(Tensor([ids]))
        for i, block in enumerate(model.transformers):
            assert_array_equal(maps[i], block.attention.weights(x).data[0])
            x = block(x)
    both = model.attention_maps([ids, ids[::-1]])
    assert both.shape == (2, 2, 3, 5, 5)
    assert_allclose(both[:, 0], maps, rtol=1e-9)
    with pytest.raises(ShapeError, match="不为空"):
        model.attention_maps([])
    with pytest.raises(ShapeError, match="超过上下文尺寸"):
        model.attention_maps([1] * 10)
    with pytest.raises(RangeError):
        model.attention_maps([11])
