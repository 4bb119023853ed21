"""保存与读回：一位不差；任何损坏都只报 DataError"""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptcore import GPT, CharTokenizer, DataError, DtypeError, Tensor, load_model, save_model
from gptcore.serialization import (
    MANIFEST,
    dump_arrays,
    dump_json,
    load_folder,
    parse_arrays,
    parse_json,
    save_folder,
)

PARTS = ["model.safetensors", "config.json", "tokenizer.json"]
FILES = [*PARTS, MANIFEST]
TEXT = "你好，GPT！\n😀"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = CharTokenizer(TEXT)
    model = GPT(tokenizer.vocab_size, 5, 6, 3, 2, rng=np.random.default_rng(1))
    return save_model(tmp_path / "一个 模型", model, tokenizer)


def replace_part(folder: Path, name: str, content: bytes) -> None:
    """换掉一个文件，清单也跟着换：内容仍要自己说得通。"""
    save_folder(folder, {**load_folder(folder, PARTS), name: content})


def rewrite(folder: Path, name: str, change: Any) -> None:
    value = json.loads((folder / name).read_text(encoding="utf-8"))
    change(value)
    replace_part(folder, name, json.dumps(value).encode())


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


def test_a_float64_model_stays_float64(tmp_path: Path) -> None:
    model = GPT(2, 3, 4, 1, 1).astype(np.float64)
    for p in model.parameters:
        p.data += 1e-12
    other, _ = load_model(save_model(tmp_path, model, CharTokenizer("ab")))
    for p, q in zip(model.parameters, other.parameters, strict=True):
        assert q.dtype == np.float64
        np.testing.assert_array_equal(q.data, p.data)


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


@pytest.mark.parametrize("name", PARTS)
def test_missing_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(DataError, match=rf"缺少 {name}.*重新保存"):
        load_model(folder)
    (folder / name).mkdir()
    with pytest.raises(DataError, match=name):
        load_model(folder)


def test_missing_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    with pytest.raises(DataError, match=rf"不是 gptcore 的模型文件夹.*{MANIFEST}.*save_model"):
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


@pytest.mark.parametrize("name", PARTS)
def test_any_flipped_bit_is_noticed(folder: Path, name: str) -> None:
    path = folder / name
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    places = [*range(min(len(whole), 300)), *rng.integers(0, len(whole), 100).tolist()]
    for i in places:
        flipped = bytearray(whole)
        flipped[i] ^= 1 << int(rng.integers(0, 8))
        path.write_bytes(bytes(flipped))
        with pytest.raises(DataError, match=r"SHA-256.*换回原来的文件"):
            load_model(folder)


def test_a_flipped_bit_in_the_manifest(folder: Path) -> None:
    """清单里翻转一位，要么不影响内容，要么是 DataError。"""
    path = folder / MANIFEST
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    before = (folder / "model.safetensors").read_bytes()
    for i in range(len(whole)):
        flipped = bytearray(whole)
        flipped[i] ^= 1 << int(rng.integers(0, 8))
        path.write_bytes(bytes(flipped))
        try:
            model, _ = load_model(folder)
        except DataError:
            continue
        assert dump_arrays(model.state_dict()) == before


def test_parameters_of_another_shape(folder: Path) -> None:
    rewrite(folder, "config.json", lambda c: c.update(blocks=1, context_size=9))
    with pytest.raises(DataError) as caught:
        load_model(folder)
    message = str(caught.value)
    assert "positional_embedding.weight：参数形状 (9, 6)，给出的形状 (5, 6)" in message
    assert "多出 transformers.1.attention.normalize.weight，形状 (6,)" in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.update(heads=4), "heads=4.*embedding_size=6"),
        (lambda c: c.update(vocab_size="10"), "vocab_size.*'10'"),
        (lambda c: c.update(vocab_size=-3), "vocab_size.*-3"),
        (lambda c: c.update(blocks=2.0), "blocks.*2.0"),
        (lambda c: c.update(unknown=1), "unknown"),
        (lambda c: c.pop("heads"), "heads"),
        (lambda c: c.update(rng=1), "rng"),
    ],
)
def test_settings_that_were_changed(folder: Path, change: Any, words: str) -> None:
    rewrite(folder, "config.json", change)
    with pytest.raises(DataError, match=words):
        load_model(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.update(version=2), "版本是 2.*请升级"),
        (lambda c: c.update(version="1"), "版本是 1"),
        (lambda c: c.pop("version"), "版本是 None"),
        (lambda c: c.update(format="other"), "不是 gptcore 的清单"),
        (lambda c: c.pop("format"), "不是 gptcore 的清单"),
        (lambda c: c.pop("files"), "没有 model.safetensors"),
        (lambda c: c.update(files=3), "没有 model.safetensors"),
        (lambda c: c["files"].update({"config.json": 3}), "没有 config.json"),
        (lambda c: c["files"]["config.json"].pop("sha256"), "SHA-256"),
        (lambda c: c["files"]["config.json"].update(sha256="0", new="../x"), "SHA-256"),
    ],
)
def test_a_manifest_that_was_changed(folder: Path, change: Any, words: str) -> None:
    value = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    change(value)
    (folder / MANIFEST).write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(DataError, match=words):
        load_model(folder)


@pytest.mark.parametrize("content", ["", "[]", "3", "null", "{", '"x"', "NaN", "{}", "[" * 9999])
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_json_of_another_kind(folder: Path, name: str, content: str) -> None:
    replace_part(folder, name, content.encode())
    with pytest.raises(DataError):
        load_model(folder)


def test_a_tokenizer_of_another_size(folder: Path) -> None:
    replace_part(folder, "tokenizer.json", dump_json(CharTokenizer("abc").to_dict()))
    with pytest.raises(DataError, match=r"词表有 3 个词元，模型有 \d+ 个"):
        load_model(folder)


def test_integer_weights(folder: Path) -> None:
    arrays = parse_arrays((folder / "model.safetensors").read_bytes(), "x")
    integers = {name: a.astype(np.int64) for name, a in arrays.items()}
    replace_part(folder, "model.safetensors", dump_arrays(integers))
    with pytest.raises(DataError, match="浮点"):
        load_model(folder)


# 中断


class KilledError(BaseException):
    """像被杀死一样，从任何一步退出。"""


def test_a_save_that_is_cut_short_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """在每一次改名之前中断：读到的要么是整个旧模型，要么是整个新模型。"""
    old, new = (GPT(2, 3, 4, 1, 1, rng=np.random.default_rng(seed)) for seed in (1, 2))
    states = {dump_arrays(m.state_dict()): t for m, t in ((old, "ab"), (new, "xy"))}
    replace = Path.replace
    outcomes = []
    for moment in range(9):
        folder = save_model(tmp_path / str(moment), old, CharTokenizer("ab"))
        (folder / "笔记.txt").write_text("别的文件", encoding="utf-8")
        left = moment

        def cut(self: Path, target: Path) -> Path:
            nonlocal left
            left -= 1
            if left < 0:
                raise KilledError
            return replace(self, target)

        monkeypatch.setattr(Path, "replace", cut)
        with contextlib.suppress(KilledError):
            save_model(folder, new, CharTokenizer("xy"))
        monkeypatch.setattr(Path, "replace", replace)
        model, tokenizer = load_model(folder)
        assert states[dump_arrays(model.state_dict())] == tokenizer.decode([0, 1])
        outcomes.append(tokenizer.decode([0, 1]))
        assert (folder / "笔记.txt").is_file()
        save_model(folder, new, CharTokenizer("xy"))  # 中断之后可以照常再存
        assert load_model(folder)[1].decode([0, 1]) == "xy"
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {"ab", "xy"}


def test_old_leftovers_are_swept(folder: Path) -> None:
    stale, own = folder / ".config.json.0123456789abcdef.new", folder / ".我的.tmp"
    for path in (stale, own):
        path.write_text("x", encoding="utf-8")
        os.utime(path, (0, 0))
    model, tokenizer = load_model(folder)
    save_model(folder, model, tokenizer)
    assert sorted(p.name for p in folder.iterdir()) == sorted([*FILES, own.name])


# 位置


def test_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"没有文件夹 .*nothing.*gptcore train --out"):
        load_model(tmp_path / "nothing")
    file = tmp_path / "file"
    file.write_text("x", encoding="utf-8")
    with pytest.raises(DataError, match=r"file 是文件.*它所在的文件夹"):
        load_model(file)
    with pytest.raises(DataError, match=r"不能写入 .*file.*请换一个可写的位置"):
        save_model(file, GPT(2, 3, 4, 1, 1), CharTokenizer("ab"))


def test_a_failed_write_leaves_the_old_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {p.name: p.read_bytes() for p in folder.iterdir()}

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(DataError, match="磁盘空间"):
        save_model(folder, GPT(2, 3, 4, 1, 1), CharTokenizer("ab"))
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_empty_and_scalar_arrays() -> None:
    arrays = {"空": np.zeros((0, 3), np.float32), "数": np.asarray(1.5), "整": np.arange(3)}
    again = parse_arrays(dump_arrays(arrays), "x")
    assert set(again) == set(arrays)
    for name, array in arrays.items():
        assert again[name].shape == array.shape
        np.testing.assert_array_equal(again[name], array)
    assert parse_json(dump_json({"键": "值"}), "x") == {"键": "值"}


def test_what_does_not_belong_together_is_not_saved(tmp_path: Path) -> None:
    model = GPT(2, 3, 4, 1, 1)
    with pytest.raises(DataError, match=r"词表有 3 个词元，模型有 2 个.*训练时用的分词器"):
        save_model(tmp_path, model, CharTokenizer("abc"))
    with pytest.raises(DtypeError, match=r"save_model.*CharTokenizer 与 GPT.*dataset\.tokenizer"):
        save_model(tmp_path, CharTokenizer("ab"), model)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
