"""不可信的设置与数组：都只得到 DataError，很快，占用的内存不超过文件的大小加上 64 MiB"""

import json
import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore import (
    GPT,
    CharTokenizer,
    DataError,
    Dropout,
    DtypeError,
    GPTFeedForward,
    ShapeError,
    Tensor,
    load_model,
    save_model,
)
from gptcore.layers import without_values
from gptcore.models.layout import build
from gptcore.serialization import dump_arrays, dump_json, load_folder, parse_arrays, save_folder

PARTS = ["model.safetensors", "config.json", "tokenizer.json"]
MIB = 1 << 20
SECONDS = 10


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = GPT(3, 5, 6, 3, 2, rng=np.random.default_rng(1))
    return save_model(tmp_path / "模型", model, CharTokenizer("abc"))


def replace_part(folder: Path, name: str, content: bytes) -> None:
    save_folder(folder, {**load_folder(folder, PARTS), name: content})


def refused(folder: Path) -> str:
    """读入被拒绝：只能是 DataError，而且又快又省；返回消息。"""
    size = sum(p.stat().st_size for p in folder.iterdir())
    start = time.perf_counter()
    tracemalloc.start()
    try:
        with pytest.raises(DataError) as caught:
            load_model(folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - start < SECONDS
    assert peak < size + 64 * MIB, f"{peak / MIB:.0f} MiB"
    return str(caught.value)


HOSTILE: list[Any] = [
    10**9,
    10**9 - 1,
    10**12,
    2**63,
    10**4000,
    4,
    0,
    -1,
    1.0,
    2.5,
    1e300,
    "3",
    "",
    None,
    True,
    False,
    [],
    [3],
    [[3]],
    {},
    {"a": [1, {"b": 2}]},
    "LayerNorm",
    "RMSNorm",
    "post",
]
KEYS = list(GPT(2, 2, 2, 1, 1).config)
SAME = {  # 换上也不改变参数的形状，因而能读入
    ("dropout", 0),
    ("norm_eps", 0),
    ("norm", "LayerNorm"),
    ("head_bias", True),
    ("tied", False),
    ("bias", True),
}


@pytest.mark.parametrize("key", KEYS)
def test_hostile_settings(folder: Path, key: str) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for value in HOSTILE:
        if any(k == key and v == value and type(v) is type(value) for k, v in SAME):
            continue
        replace_part(folder, "config.json", json.dumps({**config, key: value}).encode())
        message = refused(folder)
        assert len(message) < 5000
        assert str(folder) in message


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("key", ["vocab_size", "dropout"])
def test_numbers_json_does_not_have(folder: Path, key: str, literal: str) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    text = json.dumps({**config, key: "这里"}, ensure_ascii=False)
    replace_part(folder, "config.json", text.replace('"这里"', literal).encode())
    refused(folder)


def test_several_hostile_settings_at_once(folder: Path) -> None:
    huge = {"vocab_size": 10**9, "context_size": 10**9, "embedding_size": 3 * 10**8}
    for more in ({}, {"heads": 3 * 10**8}, {"blocks": 10**9}, {"tied": True, "bias": False}):
        config = {**GPT(3, 5, 6, 3, 2).config, **huge, **more}
        replace_part(folder, "config.json", dump_json(config))
        refused(folder)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*KEYS, "rng", "self", "unknown"]),
        st.one_of(
            st.sampled_from(HOSTILE),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                lambda inner: (
                    st.lists(inner, max_size=3)
                    | st.dictionaries(st.text(max_size=3), inner, max_size=3)
                ),
                max_leaves=6,
            ),
        ),
    )
)
def test_any_settings_at_all(changes: dict[str, Any]) -> None:
    """建立成功的，参数正是给出的数组；否则是 DataError。"""
    model = GPT(3, 5, 6, 3, 1, rng=np.random.default_rng(1))
    arrays = model.state_dict()
    tracemalloc.start()
    try:
        other = build({**model.config, **changes}, arrays)
    except DataError:
        pass
    else:
        assert {n: a.shape for n, a in other.state_dict().items()} == {
            n: a.shape for n, a in arrays.items()
        }
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 4 * MIB


@pytest.mark.parametrize("config", [None, [], "x", 3, {}, {"vocab_size": 3}])
def test_settings_that_are_not_complete(config: Any) -> None:
    with pytest.raises(DataError):
        build(config, GPT(3, 5, 6, 3, 1).state_dict())


@pytest.mark.parametrize("wrong", ["缺少", "形状", "多出", "块数"])
def test_a_file_of_very_many_blocks(folder: Path, wrong: str) -> None:
    """文件里真的有许多块：设置不符时，也不会先建立许多块的模型。"""
    small: dict[str, Any] = {"bias": False, "norm": None, "head_bias": False}
    with without_values():
        one = GPT(3, 1, 1, 1, 1, **small)
    arrays = {n: np.zeros(a.shape, np.float32) for n, a in one.state_dict().items()}
    inner = [n for n in arrays if n.startswith("transformers.0.")]
    blocks = 1500
    for i in range(1, blocks):
        arrays |= {n.replace(".0.", f".{i}."): arrays[n] for n in inner}
    config = {**one.config, "blocks": blocks}
    if wrong == "缺少":
        del arrays["transformers.1499.attention.output.weight"]
    elif wrong == "形状":
        arrays["transformers.1499.attention.output.weight"] = np.zeros((2, 1), np.float32)
    elif wrong == "多出":
        arrays["more"] = np.zeros(1, np.float32)
    else:
        config["blocks"] = 10**9
    replace_part(folder, "model.safetensors", dump_arrays(arrays))
    replace_part(folder, "config.json", dump_json(config))
    expected = {
        "缺少": r"1499.attention.output.weight 应当是 (1, 1)，却不在文件里",
        "形状": r"1499.attention.output.weight 应当是 (1, 1)，却形状是 (2, 1)",
        "多出": "多出 more",
        "块数": "blocks=1000000000 块，其中 transformers.1500.attention.c_attn.weight",
    }[wrong]
    assert expected in refused(folder)


# 数组


def changed(folder: Path, change: Any) -> str:
    arrays = dict(parse_arrays((folder / "model.safetensors").read_bytes(), "x"))
    change(arrays)
    replace_part(folder, "model.safetensors", dump_arrays(arrays))
    return refused(folder)


WEIGHT = "transformers.1.feed_forward.input.weight"


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.float16, np.bool_])
def test_an_array_of_another_type_is_named(folder: Path, dtype: Any) -> None:
    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays[WEIGHT] = arrays[WEIGHT].astype(dtype)

    message = changed(folder, change)
    assert f"{WEIGHT}：{np.dtype(dtype)}" in message
    assert "浮点类型 float32 或 float64" in message


def test_bfloat16_is_named(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    begin, end = header[WEIGHT]["data_offsets"]
    shape = header[WEIGHT]["shape"]
    header[WEIGHT] = {
        "dtype": "BF16",
        "shape": [shape[0], 2 * shape[1]],
        "data_offsets": [begin, end],
    }
    text = json.dumps(header).encode()
    replace_part(
        folder, "model.safetensors", struct.pack("<Q", len(text)) + text + content[8 + size :]
    )
    message = refused(folder)
    assert WEIGHT in message
    assert "BF16" in message


def test_wrong_shapes_missing_and_extra_arrays_are_all_named(folder: Path) -> None:
    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays[WEIGHT] = arrays[WEIGHT].T.copy()
        del arrays["output.linear.bias"]
        arrays["more"] = np.zeros((2, 3), np.float32)

    message = changed(folder, change)
    assert f"{WEIGHT}：参数形状 (24, 6)，给出的形状 (6, 24)" in message
    assert "缺少 output.linear.bias，形状 (3,)" in message
    assert "多出 more，形状 (2, 3)" in message


def test_a_long_list_of_problems_is_cut(folder: Path) -> None:
    def change(arrays: dict[str, np.ndarray]) -> None:
        for i in range(3000):
            arrays[f"{'长' * 400}{i}"] = np.zeros(1, np.float32)

    message = changed(folder, change)
    assert "……另有 2950 处" in message
    assert len(message) < 20_000


def test_empty_arrays_and_scalars(folder: Path) -> None:
    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays[WEIGHT] = np.zeros((0, 6), np.float32)
        arrays["output.linear.bias"] = np.asarray(np.float32(0))

    message = changed(folder, change)
    assert "(0, 6)" in message
    assert "形状 ()" in message


def test_a_large_file_is_not_copied_before_it_is_refused(tmp_path: Path) -> None:
    model = GPT(3, 200_000, 48, 3, 1, rng=np.random.default_rng(1))  # 37 MiB
    folder = save_model(tmp_path, model, CharTokenizer("abc"))
    replace_part(folder, "config.json", dump_json({**model.config, "context_size": 200_001}))
    size = (folder / "model.safetensors").stat().st_size
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"\(200001, 48\).*\(200000, 48\)"):
            load_model(folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size + 4 * MIB


# 能读入的


def test_parameters_that_are_not_finite_load(tmp_path: Path) -> None:
    model = GPT(3, 5, 6, 3, 1, init="gpt2")
    model.parameters[0].data[0, :3] = [np.nan, np.inf, -np.inf]
    other, _ = load_model(save_model(tmp_path, model, CharTokenizer("abc")))
    assert other.parameters[0].data.tobytes() == model.parameters[0].data.tobytes()


def test_settings_saved_before_there_were_options(folder: Path) -> None:
    old = ["vocab_size", "context_size", "embedding_size", "heads", "blocks", "head_bias", "tied"]
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    replace_part(folder, "config.json", dump_json({key: config[key] for key in old}))
    model, _ = load_model(folder)
    assert model.config == config


def test_each_array_keeps_its_own_type(tmp_path: Path) -> None:
    model = GPT(3, 5, 6, 3, 1)
    model.output.astype(np.float64)
    other, _ = load_model(save_model(tmp_path, model, CharTokenizer("abc")))
    for p, q in zip(model.parameters, other.parameters, strict=True):
        assert p.dtype == q.dtype
        np.testing.assert_array_equal(p.data, q.data)
    assert other(Tensor([[0, 1]])).dtype == np.float64


def test_a_tied_matrix_under_either_name(folder: Path) -> None:
    model = GPT(3, 5, 6, 3, 1, tied=True)
    state = model.state_dict()
    first, second = "embedding.embedding.weight", "output.linear.weight"
    moved = {(second if n == first else n): a for n, a in state.items()}
    for arrays in (moved, {**state, second: state[first]}):
        other = build(model.config, arrays)
        assert other.output.linear.weight is other.embedding.embedding.weight
        np.testing.assert_array_equal(other.output.linear.weight.data, state[first])
    with pytest.raises(DataError, match="同一个张量"):
        build(model.config, {**state, second: state[first] + 1})


def test_loaded_arrays_may_be_changed_and_are_independent(folder: Path) -> None:
    arrays = dict(parse_arrays((folder / "model.safetensors").read_bytes(), "x"))
    one, two = (build(load_model(folder)[0].config, arrays) for _ in range(2))
    for p, q in zip(one.parameters, two.parameters, strict=True):
        p.data += 1
        assert not np.shares_memory(p.data, q.data)
        np.testing.assert_allclose(p.data, q.data + 1, rtol=1e-6)
        assert not p.grad.any()


def test_loading_draws_nothing_and_takes_a_generator_for_dropout(tmp_path: Path) -> None:
    model = GPT(3, 5, 6, 3, 1, dropout=0.5, rng=np.random.default_rng(1))
    folder = save_model(tmp_path, model, CharTokenizer("abc"))
    np.random.seed(1)
    before = np.random.get_state()[1].copy()  # type: ignore[union-attr]
    rng = np.random.default_rng(7)
    plain, _ = load_model(folder)
    seeded, _ = load_model(folder, rng=rng)
    np.testing.assert_array_equal(np.random.get_state()[1], before)
    assert rng.bit_generator.state == np.random.default_rng(7).bit_generator.state
    assert {d.rng for d in plain.sublayers() if isinstance(d, Dropout)} == {None}
    assert {d.rng for d in seeded.sublayers() if isinstance(d, Dropout)} == {rng}
    with pytest.raises(DtypeError, match=r"load_model：rng .*default_rng\(3\)"):
        load_model(folder, rng=3)  # type: ignore[arg-type]


# 保存


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    model = GPT(3, 5, 6, 3, 1)
    model.transformers[0].feed_forward = GPTFeedForward(6, bias=False)
    with pytest.raises(DataError, match=r"save_model：.*改动过.*feed_forward\.input\.bias"):
        save_model(tmp_path / "a", model, CharTokenizer("abc"))
    assert not (tmp_path / "a").exists()


# 用数组代替原来的


def test_assign_takes_the_types_of_the_arrays() -> None:
    model = GPT(3, 5, 6, 3, 1, tied=True)
    with without_values():
        other = GPT(**model.config)
    state = {n: a.astype(np.float64) for n, a in model.state_dict().items()}
    with pytest.raises(ShapeError, match="只读"):
        other.load_state_dict(state)
    other.load_state_dict(state, assign=True)
    assert {p.dtype for p in other.parameters} == {np.dtype(np.float64)}
    assert other.output.linear.weight is other.embedding.embedding.weight
    ids = Tensor([[0, 1, 2]])
    np.testing.assert_array_equal(other(ids).data, model.astype(np.float64)(ids).data)
    with pytest.raises(DtypeError, match=r"output\.linear\.bias：int64"):
        other.load_state_dict({"output.linear.bias": np.arange(3)}, False, assign=True)
