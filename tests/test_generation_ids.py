"""生成词元：缓存开与关、上下文的边缘、停止、对数概率、参数"""

from typing import Any

import numpy as np
import pytest
from generation_models import KINDS, SAMPLING, make, rng
from numpy.testing import assert_allclose

from gptcore import (
    GPT,
    ArgumentError,
    DataError,
    DtypeError,
    GPTLoss,
    Sampler,
    Tensor,
    is_grad_enabled,
    no_grad,
)
from gptcore.models import GeneratedToken, generate_ids
from gptcore.models.generation import scoring


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


def test_only_greedy_is_settled_with_a_large_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """词表大时，抽样的界线密得几乎每步都要重算：不重算；取分数最高的照旧。"""
    model = GPT(600, 12, 16, 4, 2, rng=rng())
    monkeypatch.setitem(scoring.ROUNDING, "LayerNorm", 10**9)
    calls: list[int] = []
    exact = scoring.WindowScorer.exact

    def counted(self: Any, ids: list[int]) -> Any:
        calls.append(len(ids))
        return exact(self, ids)

    monkeypatch.setattr(scoring.WindowScorer, "exact", counted)
    list(model.generate([1, 2], 6, rng=rng()))
    assert calls == []
    list(model.generate([1, 2], 6, temperature=0))
    assert calls == [3, 4, 5, 6, 7]


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


@pytest.mark.parametrize(
    ("prompts", "kind", "message"),
    [
        (None, DtypeError, "prompts 必须是几条提示的列表，这里是 None"),
        ([1, 2], DtypeError, r"prompts 必须是几条提示的列表，这里是 \[1, 2\]；.*\[提示\]"),
        (np.array([1, 2]), DtypeError, "prompts 必须是几条提示的列表"),
        ([[1], []], DataError, "第 1 条提示：.*不能为空"),
        ([[1], [99]], DataError, "第 1 条提示：.*99 超出范围"),
        ("ab", DtypeError, "第 0 条提示：.*文本请用 encode"),
    ],
)
def test_batches_of_the_wrong_kind(prompts: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        GPT(40, 12, 16, 2, 2).generate_batch(prompts, 3)


@pytest.mark.parametrize(("method", "prompt"), [("generate", [1]), ("generate_batch", [[1]])])
def test_unknown_options(method: str, prompt: Any) -> None:
    with pytest.raises(DtypeError, match=f"{method}：没有 topk 这个选项；.*top_k"):
        getattr(GPT(40, 12, 16, 2, 2), method)(prompt, 3, topk=3)
