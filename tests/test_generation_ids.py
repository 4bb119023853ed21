"""生成词元：缓存开与关、一条与几条、上下文的边缘、停止、对数概率、模式与线程数"""

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from gptcore import (
    GPT,
    ArgumentError,
    DataError,
    DtypeError,
    GPTLoss,
    Sampler,
    Tensor,
    blas_threads,
    is_grad_enabled,
    no_grad,
)
from gptcore.models import GeneratedToken, generate_ids
from gptcore.models.generation import scoring
from gptcore.threads import blas_info

KINDS: list[dict[str, Any]] = [
    {},
    {"norm": "RMSNorm", "init": "gpt2"},
    {"norm": None},
    {"norm_position": "post"},
    {"bias": False, "head_bias": False, "tied": True, "init": "gpt2"},
    {"norm": "RMSNorm", "norm_position": "post", "tied": True, "dropout": 0.3},
]
SAMPLING: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0, "repetition_penalty": 1.3},
    {},
    {"temperature": 0.7, "top_k": 5},
    {"top_p": 0.8, "repetition_penalty": 1.2},
    {"temperature": 1.4, "min_p": 0.1, "top_k": 9},
]


def make(seed: int = 0, dtype: Any = np.float32, **options: Any) -> GPT:
    return GPT(23, 12, 16, 4, 2, rng=np.random.default_rng(seed), **options).astype(dtype)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def by_forward(model: GPT, ids: list[int], count: int, seed: int, **options: Any) -> list[int]:
    """按定义：每一步把最后 `context_size` 个词元整个送进模型。"""
    ids, sampler, draws = list(ids), Sampler(**options), rng(seed)
    start = len(ids)
    for _ in range(count):
        with model.evaluating(), no_grad():
            x = model(Tensor([ids[-model.context_size :]])).data[0, -1].astype(np.float64)
        u = float(draws.random()) if sampler.temperature else 0.0
        seen = np.unique(ids if sampler.repetition_penalty != 1 else [])
        ids.append(sampler.choose(x, seen.astype(np.int64), u)[0])
    return ids[start:]


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("length", [1, 5, 11, 12, 30])
def test_cache_on_off_and_by_definition(
    options: dict[str, Any], sampling: dict[str, Any], length: int
) -> None:
    model = make(length, **options)
    prompt = rng(length).integers(0, 23, length).tolist()
    for seed in range(2):
        on = list(model.generate(prompt, 20, rng=rng(seed), **sampling))
        off = list(model.generate(prompt, 20, rng=rng(seed), use_cache=False, **sampling))
        assert on == off == by_forward(model, prompt, 20, seed, **sampling)
        assert all(type(i) is int for i in on)


def test_many_seeds() -> None:
    """两百个模型，各两种：逐个词元比较，越过边缘。"""
    for seed in range(200):
        model = make(seed, **KINDS[seed % len(KINDS)])
        prompt = rng(seed).integers(0, 23, 1 + seed % 14).tolist()
        for sampling in (SAMPLING[0], SAMPLING[2 + seed % 4]):
            on = list(model.generate(prompt, 16, rng=rng(seed), **sampling))
            off = list(model.generate(prompt, 16, rng=rng(seed), use_cache=False, **sampling))
            assert on == off, (seed, sampling)


@pytest.mark.parametrize("tied", [True, False])
def test_exact_ties(tied: bool) -> None:
    """分数完全相同的词元：缓存的舍入误差不能改变取哪一个。"""
    model = make(tied=tied, head_bias=False, init="gpt2")
    for weight in (model.output.linear.weight, model.embedding.embedding.weight):
        weight.data[12:] = weight.data[:11]  # 后一半与前一半相同
    for seed in range(20):
        prompt = rng(seed).integers(0, 23, 4).tolist()
        on = list(model.generate(prompt, 14, temperature=0))
        assert on == list(model.generate(prompt, 14, temperature=0, use_cache=False))
    model.output.linear.weight.data[...] = 0
    if not tied:
        assert list(model.generate([1], 5, temperature=0)) == [0] * 5


def test_unclear_choices_are_settled_by_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """误差可能改变结果时重算：把允许的误差放大到总是重算，结果不变，重算的次数是步数。"""
    model = make()
    expected = list(model.generate([1, 2], 8, rng=rng()))
    monkeypatch.setitem(scoring.ROUNDING, "LayerNorm", 10**9)
    calls: list[int] = []
    exact = scoring.WindowScorer.exact

    def counted(self: Any, ids: list[int]) -> Any:
        calls.append(len(ids))
        return exact(self, ids)

    monkeypatch.setattr(scoring.WindowScorer, "exact", counted)
    assert list(model.generate([1, 2], 8, rng=rng())) == expected
    assert calls == [3, 4, 5, 6, 7, 8, 9]
    assert list(model.generate([1, 2], 8, temperature=0)) == by_forward(
        model, [1, 2], 8, 0, temperature=0
    )


def test_work_per_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """缓存之内一个词元算一个位置；越过边缘的算整个窗口。"""
    model = make()
    sizes: list[int] = []
    attention = model.transformers[0].attention
    product = attention.c_attn.infer

    def counted(x: Any) -> Any:
        sizes.append(x.shape[1])
        return product(x)

    attention.c_attn.infer = counted  # type: ignore[method-assign]
    list(model.generate([1, 2, 3], 13, temperature=0))
    assert [n for n in sizes if n != 1] == [3, 12, 12, 12]
    assert sizes.count(1) == 9
    sizes.clear()
    list(model.generate([1, 2, 3], 4, temperature=0, use_cache=False))
    assert sizes == [3, 4, 5, 6]


def test_temperature_zero_ignores_the_seed() -> None:
    model = make()
    draws = rng()
    state = draws.bit_generator.state
    first = list(model.generate([3], 20, temperature=0, rng=draws))
    assert draws.bit_generator.state == state
    for seed in range(5):
        assert list(model.generate([3], 20, temperature=0, rng=rng(seed))) == first
        assert list(model.generate([3], 20, top_k=1, rng=rng(seed))) == first
        assert list(model.generate([3], 20, top_p=1e-9, rng=rng(seed))) == first


def test_default_generator_follows_the_seed() -> None:
    model = make()
    texts = []
    for _ in range(2):
        np.random.seed(7)
        texts.append(list(model.generate([3], 10)))
    assert texts[0] == texts[1]
    assert list(generate_ids(model, [3], 10, 12, rng=rng(4))) == list(
        model.generate([3], 10, rng=rng(4))
    )


def test_end_of_text() -> None:
    model = make()
    whole = list(model.generate([5, 6], 20, temperature=0))
    stop = whole[6]
    cut = whole[: whole.index(stop)]
    assert list(model.generate([5, 6], 20, temperature=0, end_of_text=stop)) == cut
    assert (
        list(model.generate([5, 6], 20, temperature=0, end_of_text=[stop, whole[3]]))
        == whole[: min(whole.index(stop), whole.index(whole[3]))]
    )
    assert list(model.generate([5, 6], 20, temperature=0, end_of_text=[])) == whole
    assert list(model.generate([stop], 0)) == []


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_probabilities_sum_to_minus_the_loss(use_cache: bool, dtype: Any) -> None:
    model = make(dtype=dtype)
    for options in (
        {"temperature": 0},
        {"temperature": 0.5, "top_k": 4, "repetition_penalty": 1.5},
    ):
        tokens = list(
            model.generate(
                [3, 1], 10, return_logprobs=True, use_cache=use_cache, rng=rng(), **options
            )  # type: ignore[arg-type]
        )
        assert all(type(t) is GeneratedToken and type(t.logprob) is float for t in tokens)
        assert [t.id for t in tokens] == list(model.generate([3, 1], 10, rng=rng(), **options))  # type: ignore[arg-type]
        ids = [3, 1, *(i for i, _ in tokens)]
        with model.evaluating(), no_grad():
            labels = np.array([[-100, *ids[2:]]])
            loss = GPTLoss()(model(Tensor([ids[:-1]])), Tensor(labels))
        total = sum(t.logprob for t in tokens)
        assert_allclose(total, -10 * float(loss), rtol=1e-5 if dtype == np.float32 else 1e-12)


# ---------------------------------------------------------------- 一批


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


# ---------------------------------------------------------------- 参数


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"prompt": []}, DataError, "提示不能为空"),
        ({"prompt": "ab"}, DtypeError, "'ab'.*encode"),
        ({"prompt": None}, DtypeError, "ids 得到 None"),
        ({"prompt": [1, 23]}, DataError, r"位置 1.*编号 23 超出范围，应当是 0 到 22"),
        ({"prompt": [-1]}, DataError, "编号 -1 超出范围"),
        ({"prompt": [0.5]}, DtypeError, "0.5.*整数"),
        ({"prompt": [[1, 2]]}, (DtypeError, ArgumentError), "整数|一维"),
        ({"max_tokens": -1}, ArgumentError, "max_tokens 必须是非负整数，这里是 -1"),
        ({"max_tokens": 2.5}, ArgumentError, "max_tokens .*2.5"),
        ({"max_tokens": None}, ArgumentError, "max_tokens .*None"),
        ({"temperature": -1}, ArgumentError, "temperature .*-1"),
        ({"top_k": -1}, ArgumentError, "top_k .*-1"),
        ({"top_p": 0}, ArgumentError, "top_p .*0"),
        ({"min_p": 2}, ArgumentError, "min_p .*2"),
        ({"repetition_penalty": 0}, ArgumentError, "repetition_penalty .*0"),
        ({"end_of_text": 23}, ArgumentError, "end_of_text 是 23，要是 0 到 22 的编号"),
        ({"end_of_text": -1}, ArgumentError, "end_of_text 是 -1"),
        ({"end_of_text": "。"}, ArgumentError, "end_of_text 是 '。'"),
        ({"end_of_text": 1.5}, ArgumentError, "end_of_text 是 1.5"),
        ({"rng": 42}, DtypeError, r"rng=np.random.default_rng\(42\)"),
        ({"use_cache": 1}, DtypeError, "use_cache 必须是 True 或 False"),
        ({"return_logprobs": None}, DtypeError, "return_logprobs 必须是 True 或 False"),
    ],
)
def test_arguments(arguments: Any, kind: Any, message: str) -> None:
    model = make()
    given = {"prompt": [1], "max_tokens": 3, **arguments}
    with pytest.raises(kind, match=message):  # 在取第一个词元之前
        model.generate(**given)
    given["prompts"] = [[1], given.pop("prompt")]
    with pytest.raises(kind, match=message):
        model.generate_batch(**given)


def test_generators_of_a_batch() -> None:
    model = make()
    for rngs in ([rng()], [rng(), rng(), rng()]):
        with pytest.raises(ArgumentError, match=rf"有 2 条提示，rng 给了 {len(rngs)} 个"):
            model.generate_batch([[1], [2]], 3, rng=rngs)
    same = rng()
    with pytest.raises(ArgumentError, match="各不相同"):
        model.generate_batch([[1], [2]], 3, rng=[same, same])


@pytest.mark.parametrize("prompt", [np.array([1, 2]), Tensor([1, 2]), (1, 2), range(1, 3)])
def test_kinds_of_prompts(prompt: Any) -> None:
    model = make()
    expected = list(model.generate([1, 2], 5, temperature=0))
    assert list(model.generate(prompt, 5, temperature=0)) == expected
    assert model.generate_batch([prompt], 5, temperature=0) == [expected]


def test_the_prompt_is_not_changed() -> None:
    prompt = [1, 2, 3]
    make().generate_batch([prompt, prompt], 4)
    list(make().generate(prompt, 4))
    assert prompt == [1, 2, 3]


def test_scores_that_are_not_numbers() -> None:
    model = make()
    stream = model.generate([1], 9, temperature=0)
    next(stream)
    model.output.linear.weight.data[3] = np.nan
    with pytest.raises(ArgumentError, match=r"最高分是 nan.*学习率"):
        next(stream)
    assert model.training
    assert is_grad_enabled()
