"""保存与读回：一位不差；任何损坏都只报 DataError"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptcore import GPT, CharTokenizer, DataError, Tensor, load_model, save_model
from gptcore.serialization import load_arrays, load_json, save_arrays, save_json

FILES = ["model.safetensors", "config.json", "tokenizer.json"]
TEXT = "你好，GPT！\n😀"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = CharTokenizer(TEXT)
    model = GPT(tokenizer.vocab_size, 5, 6, 3, 2, rng=np.random.default_rng(1))
    return save_model(tmp_path / "一个 模型", model, tokenizer)


def rewrite(path: Path, change: Any) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")


def test_round_trip_is_exact(tmp_path: Path) -> None:
    tokenizer = CharTokenizer(TEXT)
    for options in ({}, {"head_bias": False}):
        model = GPT(tokenizer.vocab_size, 5, 6, 3, 2, **options)
        model.output.normalize.bias.data[:3] = [np.inf, np.nan, -0.0]
        model.eval()
        folder = save_model(str(tmp_path / "a" / "b"), model, tokenizer)
        assert sorted(p.name for p in folder.iterdir()) == sorted(FILES)  # 没有留下临时文件
        state = np.random.get_state()[1].copy()  # type: ignore[union-attr]
        other, again = load_model(folder)
        np.testing.assert_array_equal(np.random.get_state()[1], state)  # 不动全局的随机状态
        assert other.config == model.config
        for (name, p), (n, q) in zip(
            model.named_parameters(), other.named_parameters(), strict=True
        ):
            assert (name, p.dtype) == (n, q.dtype)
            assert p.data.tobytes() == q.data.tobytes()
        assert again.decode(again.encode(TEXT)) == TEXT
        assert again.vocab_size == tokenizer.vocab_size


def test_loaded_model_goes_on(folder: Path) -> None:
    model, tokenizer = load_model(folder)
    assert model.training
    y = model(Tensor([tokenizer.encode("你好")]))
    y.sum().backward()
    assert all(p.grad.shape == p.shape for p in model.parameters)
    model.parameters[0].data += 1  # 读回来的数组可以修改


def test_a_float64_model_is_loaded_with_its_values(tmp_path: Path) -> None:
    tokenizer = CharTokenizer("ab")
    model = GPT(2, 3, 4, 1, 1).astype(np.float64)
    other, _ = load_model(save_model(tmp_path, model, tokenizer))
    for p, q in zip(model.parameters, other.parameters, strict=True):
        np.testing.assert_array_equal(q.data, p.data.astype(np.float32))


def test_saving_again_replaces(folder: Path) -> None:
    tokenizer = CharTokenizer("xyz")
    model = GPT(3, 4, 4, 2, 1)
    save_model(folder, model, tokenizer)
    other, again = load_model(folder)
    assert (other.config, again.vocab_size) == (model.config, 3)


def test_tied_and_transposed_weights_are_saved(tmp_path: Path) -> None:
    model = GPT(2, 3, 4, 1, 1)
    weight = model.output.linear.weight
    weight.data = np.ascontiguousarray(weight.data.T).T  # 不连续
    other, _ = load_model(save_model(tmp_path, model, CharTokenizer("ab")))
    np.testing.assert_array_equal(other.output.linear.weight.data, weight.data)


# 损坏


@pytest.mark.parametrize("name", FILES)
def test_missing_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(DataError, match=rf"{name}.*文件不存在.*请检查路径"):
        load_model(folder)
    (folder / name).mkdir()
    with pytest.raises(DataError, match=rf"{name}.*文件夹"):
        load_model(folder)


@pytest.mark.parametrize("name", FILES)
def test_truncated_at_every_length(folder: Path, name: str) -> None:
    path = folder / name
    whole = path.read_bytes()
    for length in [*range(min(40, len(whole))), *range(40, len(whole) - 2, 97), len(whole) - 3]:
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=name.replace(".", r"\.")):
            load_model(folder)
    path.write_bytes(whole + b"\0\0")
    with pytest.raises(DataError):
        load_model(folder)


@pytest.mark.parametrize("name", FILES)
def test_any_flipped_bit_loads_or_is_a_data_error(folder: Path, name: str) -> None:
    """翻转一位，要么是读得通的另一个值，要么是 DataError，没有别的。"""
    path = folder / name
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    places = [*range(min(len(whole), 700)), *rng.integers(0, len(whole), 30).tolist()]
    failures = 0
    for i in places:
        flipped = bytearray(whole)
        flipped[i] ^= 1 << int(rng.integers(0, 8))
        path.write_bytes(bytes(flipped))
        try:
            load_model(folder)
        except DataError:
            failures += 1
    assert failures > len(places) // 8


def test_parameters_of_another_shape(folder: Path) -> None:
    rewrite(folder / "config.json", lambda c: c["model"].update(blocks=1, context_size=9))
    with pytest.raises(DataError) as caught:
        load_model(folder)
    message = str(caught.value)
    assert "positional_embedding.weight：参数形状 (9, 6)，给出的形状 (5, 6)" in message
    assert "多出 transformers.1.attention.normalize.weight，形状 (6,)" in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.update(version=2), "版本 2.*请升级"),
        (lambda c: c.update(version="1"), "版本 1"),
        (lambda c: c.update(format="other"), "other"),
        (lambda c: c.pop("format"), '缺少 "format"'),
        (lambda c: c.pop("version"), "版本 None"),
        (lambda c: c.pop("model"), "model"),
        (lambda c: c.update(model=[1, 2]), "model|mapping"),
        (lambda c: c.update(model=3), "mapping"),
        (lambda c: c["model"].update(heads=4), "heads=4.*embedding_size=6"),
        (lambda c: c["model"].update(vocab_size="10"), "vocab_size.*'10'"),
        (lambda c: c["model"].update(vocab_size=-3), "vocab_size.*-3"),
        (lambda c: c["model"].update(blocks=2.0), "blocks.*2.0"),
        (lambda c: c["model"].update(unknown=1), "unknown"),
        (lambda c: c["model"].pop("heads"), "heads"),
        (lambda c: c["model"].update(rng=1), "rng"),
    ],
)
def test_settings_that_were_changed(folder: Path, change: Any, words: str) -> None:
    rewrite(folder / "config.json", change)
    with pytest.raises(DataError, match=words):
        load_model(folder)


@pytest.mark.parametrize("content", ["", "[]", "3", "null", "{", '"x"', "NaN", "{}"])
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_json_of_another_kind(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(DataError):
        load_model(folder)


def test_deeply_nested_json(folder: Path) -> None:
    (folder / "config.json").write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(DataError, match=r"config\.json"):
        load_model(folder)


def test_a_tokenizer_from_another_model(folder: Path, tmp_path: Path) -> None:
    other = save_model(tmp_path / "b", GPT(3, 5, 6, 3, 2), CharTokenizer("abc"))
    (other / "tokenizer.json").replace(folder / "tokenizer.json")
    with pytest.raises(DataError, match=r"词表有 3 个词元，模型有 \d+ 个"):
        load_model(folder)


def test_arrays_of_other_types(folder: Path) -> None:
    arrays = load_arrays(folder / "model.safetensors")
    for dtype in (np.float64, np.float16, np.int64):
        save_arrays(folder / "model.safetensors", {n: a.astype(dtype) for n, a in arrays.items()})
        model, _ = load_model(folder)
        assert {p.dtype for p in model.parameters} == {np.dtype(np.float32)}


# 位置


def test_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"没有文件夹 .*nothing.*gptcore train --out"):
        load_model(tmp_path / "nothing")
    file = tmp_path / "file"
    file.write_text("x", encoding="utf-8")
    with pytest.raises(DataError, match="file 是文件.*它所在的文件夹"):
        load_model(file)
    with pytest.raises(DataError, match=r"不能写入 .*file.*请换一个可写的位置"):
        save_model(file, GPT(2, 3, 4, 1, 1), CharTokenizer("ab"))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    save_json(path, {"键": "值"})
    with pytest.raises(ValueError):  # noqa: PT011
        save_json(path, float("nan"))
    assert load_json(path) == {"键": "值"}
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_empty_and_scalar_arrays(tmp_path: Path) -> None:
    arrays = {"空": np.zeros((0, 3), np.float32), "数": np.asarray(1.5), "整": np.arange(3)}
    path = tmp_path / "a.safetensors"
    save_arrays(path, arrays)
    again = load_arrays(path)
    assert set(again) == set(arrays)
    for name, array in arrays.items():
        assert again[name].shape == array.shape
        np.testing.assert_array_equal(again[name], array)
