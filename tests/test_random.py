"""生成器的状态：写进 JSON 再读回，接着抽出来的数一位不差；坏的状态一律拒绝"""

import copy
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gptcore.errors import DataError, DtypeError
from gptcore.random import (
    default_generator_state,
    default_rng,
    generator_state,
    set_default_generator_state,
    set_generator_state,
)

NAMES = ["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"]
LEGACY: Any = np.random


def make(name: str, seed: int = 1) -> np.random.Generator:
    return np.random.Generator(getattr(np.random, name)(seed))


@pytest.fixture(autouse=True)
def same_default() -> Iterator[None]:
    """默认生成器是全局的：测试之后换回原来的位生成器与状态。"""
    own, state = LEGACY.get_bit_generator(), LEGACY.get_state(legacy=False)
    yield
    LEGACY.set_bit_generator(own)
    LEGACY.set_state(state)


def draw(rng: np.random.Generator) -> list[bytes]:
    """各种抽法，包括只用掉半个 64 位数的 32 位整数。"""
    return [
        rng.random(5, dtype=np.float32).tobytes(),
        rng.integers(0, 9, 3, dtype=np.uint32).tobytes(),
        rng.standard_normal(7).tobytes(),
        rng.permutation(11).tobytes(),
    ]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("used", [0, 1, 2, 3, 5, 623, 624, 625])
def test_json_round_trip(name: str, used: int) -> None:
    rng = make(name)
    for _ in range(used):
        rng.integers(0, 9, dtype=np.uint32)
    text = json.dumps(generator_state(rng), allow_nan=False)
    rest = draw(rng)
    other = make(name, 2)
    set_generator_state(other, json.loads(text))
    assert json.dumps(generator_state(other)) == text
    assert draw(other) == rest
    set_generator_state(rng, json.loads(text))  # 原来的生成器也能回到过去
    assert draw(rng) == rest


@pytest.mark.parametrize("name", NAMES)
def test_saving_never_advances(name: str) -> None:
    rng, other = make(name), make(name)
    for _ in range(3):
        first = generator_state(rng)
        assert generator_state(rng) == first
        assert draw(rng) == draw(other)
    first["state"].clear()  # 改动得到的字典，不影响生成器
    assert draw(rng) == draw(other)


def test_128_bit_integers_stay_exact() -> None:
    rng = make("PCG64", 7)
    state = json.loads(json.dumps(generator_state(rng)))
    assert state["state"] == rng.bit_generator.state["state"]
    assert state["state"]["state"].bit_length() > 64


def test_numpys_own_state_is_accepted() -> None:
    for name in NAMES:
        rng, other = make(name), make(name, 2)
        set_generator_state(other, rng.bit_generator.state)
        assert draw(other) == draw(rng)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_default_generator(name: str, count: int) -> None:
    """正态数一次算出两个，留着的那个也要恢复。"""
    LEGACY.set_bit_generator(getattr(np.random, name)(3))
    np.random.standard_normal(count)
    text = json.dumps(default_generator_state(), allow_nan=False)
    assert json.loads(text)["has_gauss"] == count % 2
    assert json.dumps(default_generator_state()) == text

    def rest() -> list[bytes]:
        legacy = [np.random.standard_normal(3).tobytes(), np.random.rand(3).tobytes()]
        return legacy + draw(default_rng())

    expected = rest()
    own = LEGACY.get_bit_generator()
    set_default_generator_state(json.loads(text))
    assert rest() == expected
    assert LEGACY.get_bit_generator() is own  # 同一种位生成器，就地恢复
    for current in NAMES:  # 新的进程里可能是另一种
        LEGACY.set_bit_generator(getattr(np.random, current)(4))
        np.random.standard_normal()
        set_default_generator_state(json.loads(text))
        assert rest() == expected


def test_another_bit_generator() -> None:
    rng = make("PCG64")
    before = generator_state(rng)
    for name in ("MT19937", "PCG64DXSM", "Philox", "SFC64"):
        words = rf"状态来自 {name}，这里的生成器是 PCG64；.*np\.random\.{name}\(\)"
        with pytest.raises(DataError, match=words):
            set_generator_state(rng, generator_state(make(name)))
    assert generator_state(rng) == before


BAD_VALUES: list[Any] = [
    None, True, -1, 1.0, "1", [], {}, [1], [[1]], 2**128, 10**5000, float("nan"), {"a": {"b": {}}},
]  # fmt: skip


def damaged(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """每个字段换成各种坏值，删去，或者多出一个。"""
    paths = [(key,) for key in state] + [("state", key) for key in state["state"]]
    for path in paths:
        for value in [*BAD_VALUES, "删去"]:
            bad = copy.deepcopy(state)
            place = bad
            for key in path[:-1]:
                place = place[key]
            if value == "删去":
                del place[path[-1]]
            else:
                place[path[-1]] = value
            yield bad
            if isinstance(state.get(path[-1]), list) or isinstance(
                state["state"].get(path[-1]), list
            ):
                bad = copy.deepcopy(state)
                (bad if len(path) == 1 else bad["state"])[path[-1]][-1] = value
                yield bad
    yield {**state, "more": 1}
    yield {**state, "state": {**state["state"], "more": 1}}


@pytest.mark.parametrize("name", NAMES)
def test_malformed_states_change_nothing(name: str) -> None:
    rng = make(name)
    before = generator_state(rng)
    count = 0
    for bad in damaged(generator_state(make(name, 2))):
        with pytest.raises(DataError, match=r"set_generator_state：.*请"):
            set_generator_state(rng, bad)
        count += 1
    assert count > 60
    assert generator_state(rng) == before

    LEGACY.set_bit_generator(getattr(np.random, name)(3))
    np.random.standard_normal()
    before = default_generator_state()
    for bad in damaged(before):
        if bad.get("gauss") == 1.0:
            continue  # 唯一说得通的一个
        with pytest.raises(DataError, match=r"set_default_generator_state：.*请"):
            set_default_generator_state(bad)
        assert default_generator_state() == before


@pytest.mark.parametrize(
    ("name", "field", "value", "words"),
    [
        ("MT19937", ("state", "pos"), 625, "state.pos 里有 625，应当是 0 到 624"),
        ("MT19937", ("state", "key"), [0] * 624, "全是 0"),
        ("MT19937", ("state", "key"), [1] * 623, "624 个整数的列表"),
        ("MT19937", ("state", "key"), [2**32] * 624, f"{2**32}，应当是 0 到 {2**32 - 1}"),
        ("Philox", ("buffer_pos",), 5, "buffer_pos 里有 5，应当是 0 到 4"),
        ("PCG64", ("state", "inc"), 4, "偶数"),
        ("PCG64", ("has_uint32",), 2, "has_uint32 里有 2，应当是 0 到 1"),
        ("SFC64", ("uinteger",), 2**32, "uinteger"),
    ],
)
def test_states_that_numpy_would_misread(name: str, field: Any, value: Any, words: str) -> None:
    """NumPy 自己不检查其中一些，读到数组之外或者只抽出 0。"""
    rng = make(name)
    bad = before = generator_state(rng)
    bad = place = copy.deepcopy(bad)
    for key in field[:-1]:
        place = place[key]
    place[field[-1]] = value
    with pytest.raises(DataError, match=words):
        set_generator_state(rng, bad)
    assert generator_state(rng) == before


@pytest.mark.parametrize("state", [None, 3, [], "PCG64", {}, {"bit_generator": []}, {"state": {}}])
def test_what_is_not_a_state(state: Any) -> None:
    with pytest.raises(DataError, match=r"set_generator_state：位生成器是 .*PCG64"):
        set_generator_state(make("PCG64"), state)
    with pytest.raises(DataError, match=r"set_default_generator_state：位生成器是 .*PCG64"):
        set_default_generator_state(state)


def test_what_is_not_a_generator() -> None:
    with pytest.raises(DtypeError, match=r"generator_state：rng .* int"):
        generator_state(42)  # type: ignore[arg-type]
    with pytest.raises(DtypeError, match=r"rng 是 None.*default_generator_state"):
        generator_state(None)  # type: ignore[arg-type]
    with pytest.raises(DtypeError, match=r"set_generator_state：rng .* str"):
        set_generator_state("x", {})  # type: ignore[arg-type]


def test_a_bit_generator_that_numpy_does_not_have() -> None:
    class Odd:
        state = {"bit_generator": "Odd", "state": {"x": 1}}  # noqa: RUF012

    rng = make("PCG64")

    class Wrapped(np.random.Generator):
        bit_generator = Odd()  # type: ignore[assignment]

    with pytest.raises(DataError, match="generator_state：位生成器是 'Odd'，认识的有 MT19937"):
        generator_state(Wrapped(rng.bit_generator))
