"""采样：各步的公式、与直白写法和 Hugging Face 的对照、参数的检查"""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from gptcore import ArgumentError, DtypeError, Sampler
from gptcore.models.generation import sample
from gptcore.models.generation.sampling import log_probability

LOGITS = st.lists(
    st.one_of(st.floats(-30, 30, width=32), st.sampled_from([0.0, 1.0, -3.0, 3.0])),
    min_size=1,
    max_size=40,
).map(np.array)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.floats(0.05, 5),
        "top_k": st.integers(0, 45),
        "top_p": st.floats(0, 1, exclude_min=True),
        "min_p": st.floats(0, 1),
    },
)


def plainly(
    logits: np.ndarray,
    seen: list[int],
    temperature: float = 1,
    top_k: int = 0,
    top_p: float = 1,
    min_p: float = 0,
    repetition_penalty: float = 1,
) -> tuple[np.ndarray, float]:
    """直白的写法：一个一个地排序、相加；以及离去留的界线最近的有多近。"""
    x = [float(v) for v in logits]
    for i in set(seen):
        x[i] = x[i] / repetition_penalty if x[i] > 0 else x[i] * repetition_penalty
    z = [v / temperature for v in x]
    ranked = sorted(range(len(z)), key=lambda i: (-z[i], i))
    if top_k:
        ranked = ranked[:top_k]
    weights = [math.exp(z[i] - z[ranked[0]]) for i in ranked]
    kept, total, margin = [], 0.0, 1.0
    for i, w in zip(ranked, weights, strict=True):
        kept.append(i)
        total += w / sum(weights)
        margin = min(margin, abs(total - top_p) if top_p < 1 else 1)
        if total >= top_p and top_p < 1:
            break
    ratios = {i: math.exp(z[i] - z[ranked[0]]) for i in kept}
    margin = min(margin, *(abs(r - min_p) for r in ratios.values()))
    gaps = np.diff(np.unique(z))
    margin = min(margin, gaps.min(initial=1))
    p = np.zeros(len(z))
    for i, ratio in ratios.items():
        p[i] = ratio * (ratio >= min_p)
    return p / p.sum(), margin


@given(LOGITS, OPTIONS, st.floats(0.2, 3), st.data())
def test_against_the_plain_version(
    logits: np.ndarray, options: dict[str, Any], penalty: float, data: st.DataObject
) -> None:
    seen = data.draw(st.lists(st.integers(0, len(logits) - 1), max_size=5))
    p = Sampler(**options, repetition_penalty=penalty).probabilities(logits, seen)
    expected, margin = plainly(logits, seen, **options, repetition_penalty=penalty)
    assert_allclose(p.sum(), 1, rtol=1e-12)
    assume(margin > 1e-12)  # 恰在界线上的，去留由舍入决定
    assert_allclose(p, expected, rtol=1e-9, atol=1e-300)


@given(LOGITS, st.integers(0, 2**32))
def test_zero_temperature_is_argmax(logits: np.ndarray, seed: int) -> None:
    x = logits.astype(np.float64)
    best = int(np.argmax(x))
    u = float(np.random.default_rng(seed).random())
    none = np.zeros(0, np.int64)
    assert Sampler(temperature=0).choose(x, none, u)[0] == best
    assert Sampler(top_k=1).choose(x, none, u)[0] == best
    assert Sampler(top_p=1e-9).choose(x, none, u)[0] == best
    p = Sampler(temperature=0).probabilities(x)
    assert p[best] == 1
    assert p.sum() == 1


@given(LOGITS, st.integers(1, 50))
def test_top_k_keeps_exactly_k(logits: np.ndarray, k: int) -> None:
    p = Sampler(top_k=k).probabilities(logits)
    assert np.count_nonzero(p) == min(k, len(logits))
    assert_array_equal(np.flatnonzero(p), np.sort(np.argsort(-logits, kind="stable")[:k]))


def test_exact_behaviours() -> None:
    assert_array_equal(
        Sampler(repetition_penalty=1.5).penalize([3.0, -3.0, 1.0], [0, 1, 0]), [2, -4.5, 1]
    )
    logits = np.array([0.5, 2.0, 2.0, 1.0])
    tiny = Sampler(top_p=1e-9).probabilities(logits)
    assert_array_equal(tiny, [0, 1, 0, 0])  # 恰好一个；同分时编号小的
    assert_array_equal(tiny, Sampler(top_p=1e-9).probabilities(logits))
    full = Sampler().probabilities(logits)
    for off in ({"top_k": 0}, {"top_k": 4}, {"top_k": 10**9}, {"top_p": 1}, {"min_p": 0}):
        assert_array_equal(Sampler(**off).probabilities(logits), full)
    flat = Sampler(top_p=1e-9).probabilities(np.zeros(1000))
    assert_array_equal(np.flatnonzero(flat), [0])
    assert_array_equal(np.flatnonzero(Sampler(min_p=1.0).probabilities(logits)), [1, 2])
    assert np.count_nonzero(Sampler(top_p=0.5).probabilities(np.zeros(10))) == 5


def test_order_of_the_steps() -> None:
    # top-p 看的是温度之后、top-k 之内的概率
    logits = np.log([0.4, 0.3, 0.2, 0.1])
    p = Sampler(top_k=2, top_p=0.55).probabilities(logits)
    assert_array_equal(np.flatnonzero(p), [0])  # 0.4/0.7 = 0.57 已经够了
    p = Sampler(temperature=100, top_p=0.55).probabilities(logits)
    assert_array_equal(np.flatnonzero(p), [0, 1, 2])  # 温度高，几乎一样可能
    p = Sampler(repetition_penalty=3.0, temperature=0).probabilities([3.0, 2.0], seen=[0])
    assert_array_equal(p, [0, 1])  # 惩罚在取最高之前


@pytest.mark.reference
@given(LOGITS, OPTIONS, st.floats(0.2, 3), st.data())
def test_against_hugging_face(
    logits: np.ndarray, options: dict[str, Any], penalty: float, data: st.DataObject
) -> None:
    torch = pytest.importorskip("torch")
    process = pytest.importorskip("transformers.generation.logits_process")
    seen = data.draw(st.lists(st.integers(0, len(logits) - 1), min_size=1, max_size=5))
    ours = Sampler(**options, repetition_penalty=penalty).probabilities(logits, seen)
    x, ids = torch.tensor(logits)[None].double(), torch.tensor([seen])
    x = process.RepetitionPenaltyLogitsProcessor(penalty)(ids, x)
    ties = len(np.unique(x[0].numpy())) < len(logits)
    if "temperature" in options:
        x = process.TemperatureLogitsWarper(options["temperature"])(ids, x)
    if options.get("top_k"):
        x = process.TopKLogitsWarper(options["top_k"])(ids, x)
    if options.get("top_p", 1) < 1:
        x = process.TopPLogitsWarper(options["top_p"])(ids, x)
    if options.get("min_p"):
        x = process.MinPLogitsWarper(options["min_p"])(ids, x)
    theirs = x.softmax(-1)[0].numpy()
    if not ties and np.array_equal(ours > 0, theirs > 0):
        assert_allclose(ours, theirs, rtol=1e-9, atol=1e-300)
    elif not ties:  # 舍入使界线上的一个去留不同
        assert abs(np.count_nonzero(ours) - np.count_nonzero(theirs)) <= 1
        both = (ours > 0) & (theirs > 0)
        assert_allclose(ours[both] / ours[both].sum(), theirs[both] / theirs[both].sum(), rtol=1e-9)


def test_frequencies() -> None:
    rng = np.random.default_rng(0)
    sampler = Sampler(temperature=0.7, top_k=4)
    logits = np.array([0.0, 2.0, 1.0, -1.0, 1.5, 0.5])
    none = np.zeros(0, np.int64)
    drawn = [sampler.choose(logits, none, float(rng.random()))[0] for _ in range(20_000)]
    observed = np.bincount(drawn, minlength=6) / len(drawn)
    assert_allclose(observed, sampler.probabilities(logits), atol=0.012)


@given(LOGITS, OPTIONS, st.integers(0, 2**32), st.floats(1e-9, 1e-2))
def test_a_clear_choice_survives_any_error(
    logits: np.ndarray, options: dict[str, Any], seed: int, tolerance: float
) -> None:
    """说“误差不会改变结果”时，把每个分数随意变动（实际的误差不到上限的四分之一），选出的确实还是它。"""
    rng = np.random.default_rng(seed)
    seen = np.unique(rng.integers(0, len(logits), 3))
    penalty = float(rng.choice([1.0, 1.3]))
    greedy = bool(rng.integers(2))
    sampler = Sampler(**{**options, "repetition_penalty": penalty})
    if greedy:
        sampler = Sampler(temperature=0, repetition_penalty=penalty)
    u = float(rng.random())
    x = logits.astype(np.float64)
    chosen, clear = sampler.choose(x, seen, u, tolerance)
    assert sampler.choose(x, seen, u)[0] == chosen
    if clear:
        for _ in range(20):
            moved = x + rng.uniform(-1, 1, len(x)) * tolerance / 4
            assert sampler.choose(moved, seen, u)[0] == chosen


def test_most_choices_are_clear() -> None:
    rng = np.random.default_rng(0)
    none = np.zeros(0, np.int64)
    for options in (
        {},
        {"temperature": 0},
        {"top_k": 50},
        {"top_p": 0.9},
        {"top_k": 50, "min_p": 0.05},
    ):
        sampler = Sampler(**options)  # type: ignore[arg-type]
        unclear = sum(
            not sampler.choose(rng.standard_normal(5000) * 3, none, float(rng.random()), 1e-5)[1]
            for _ in range(300)
        )
        assert unclear <= 3, options


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": -1}, r"temperature 必须是非负的有限数，这里是 -1；.*0\.8"),
        ({"temperature": math.nan}, r"temperature .*nan"),
        ({"temperature": math.inf}, r"temperature .*inf"),
        ({"temperature": True}, r"temperature .*True"),
        ({"temperature": "热"}, r"temperature .*热"),
        ({"temperature": 10**400}, r"temperature .*2 的 1328 次方以上"),
        ({"top_k": -1}, r"top_k 必须是非负整数，这里是 -1；.*写 0"),
        ({"top_k": 2.5}, r"top_k .*2\.5"),
        ({"top_k": None}, r"top_k .*None"),
        ({"top_k": True}, r"top_k .*True"),
        ({"top_p": 0}, r"top_p 必须满足 0 < top_p ≤ 1，这里是 0；.*写 1"),
        ({"top_p": 1.5}, r"top_p .*1\.5"),
        ({"top_p": -0.1}, r"top_p .*-0\.1"),
        ({"top_p": math.nan}, r"top_p .*nan"),
        ({"top_p": None}, r"top_p .*None"),
        ({"min_p": -0.1}, r"min_p .*-0\.1"),
        ({"min_p": 1.1}, r"min_p .*1\.1"),
        ({"repetition_penalty": 0}, r"repetition_penalty 必须是有限的正数，这里是 0；.*1\.3"),
        ({"repetition_penalty": -1.2}, r"repetition_penalty .*-1\.2"),
        ({"repetition_penalty": math.inf}, r"repetition_penalty .*inf"),
    ],
)
def test_arguments(arguments: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=rf"generate：{message}") as caught:
        Sampler(**arguments)
    assert isinstance(caught.value, ValueError)


def test_numpy_numbers_are_numbers() -> None:
    sampler = Sampler(temperature=np.float32(0.5), top_k=np.int64(3), top_p=1)  # type: ignore[arg-type]
    assert sampler == Sampler(0.5, 3)
    assert type(sampler.temperature) is type(sampler.top_p) is float
    assert type(sampler.top_k) is int


@pytest.mark.parametrize("bad", [None, "a", [], [[1.0, 2.0]], 3.0])
def test_scores_must_be_one_row(bad: Any) -> None:
    with pytest.raises(DtypeError, match=r"Sampler：分数必须是形状"):
        Sampler().probabilities(bad)


def test_seen_must_be_ids() -> None:
    with pytest.raises(ArgumentError, match=r"编号 5 超出范围"):
        Sampler(repetition_penalty=2).penalize([1.0, 2.0], seen=[5])
    with pytest.raises(DtypeError, match=r"整数"):
        Sampler(repetition_penalty=2).penalize([1.0, 2.0], seen=[0.5])  # type: ignore[list-item]


def test_extreme_scores() -> None:
    none = np.zeros(0, np.int64)
    only = np.array([-np.inf, 5.0, -np.inf, -np.inf])
    for options in ({}, {"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.5}, {"temperature": 5e-324}):
        for tolerance in (0.0, 1e-5):
            assert Sampler(**options).choose(only, none, 0.7, tolerance)[0] == 1  # type: ignore[arg-type]
    big = np.array([1e4, -1e4, 9999.0])
    assert_allclose(Sampler().probabilities(big), [0.731058578630005, 0, 0.268941421369995])
    forbidden = Sampler(repetition_penalty=1e308).probabilities([-10.0, 1.0], seen=[0])
    assert_array_equal(forbidden, [0, 1])
    for bad in (np.nan, np.inf):
        with pytest.raises(ArgumentError, match=r"最高分是.*NaN 或无穷"):
            Sampler().probabilities([0.0, bad])


def test_log_probability() -> None:
    x = np.array([1.0, 2.0, -np.inf, 1e3])
    assert log_probability(x, 3) == 0
    assert log_probability(x, 0) == -999
    assert log_probability(np.zeros(4), 1) == -math.log(4)


def test_sample_never_takes_the_impossible() -> None:
    class Largest(np.random.Generator):
        def random(self, *args: Any, **kwargs: Any) -> Any:
            return 1 - 2**-53

    rng = Largest(np.random.PCG64(0))
    assert sample(np.array([0.1] * 10 + [0.0, 0.0]), rng) == 9
