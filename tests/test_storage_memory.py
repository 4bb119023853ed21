"""保存与读回的内存：参数没有第二份；Hugging Face 的文件夹另有读法"""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from gptcore import GPT, DataError, Tensor, load_model, save_model
from gptcore.data.tokenizers import ByteTokenizer
from gptcore.models.storage import is_pretrained

MIB = 1 << 20


@contextmanager
def peak_below(limit: int) -> Iterator[None]:
    """这一段里，NumPy 与 Python 另要的内存不超过 `limit` 个字节。"""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit, f"{peak / MIB:.1f} MiB"


def test_no_second_copy(tmp_path: Path) -> None:
    model = GPT(256, 128, 384, 4, 4, head_bias=False, init="gpt2")
    weights = 4 * model.num_parameters
    assert weights > 25 * MIB
    with peak_below(4 * MIB):
        save_model(tmp_path, model, ByteTokenizer())
    with peak_below(weights + 4 * MIB):
        again, _ = load_model(tmp_path)
    for (name, p), q in zip(model.named_parameters(), again.parameters, strict=True):
        np.testing.assert_array_equal(p.data, q.data, err_msg=name)
        assert q.data.flags.writeable
        assert q.data.flags.aligned


def test_transposed_parameters_are_saved_in_order(tmp_path: Path) -> None:
    """参数是转置的视图（例如映射的 Conv1D）时，存下的仍是它的值。"""
    model = GPT(256, 8, 6, 2, 1)
    for p in model.parameters:
        p.data = np.asfortranarray(p.data)
    again, _ = load_model(save_model(tmp_path, model, ByteTokenizer()))
    for p, q in zip(model.parameters, again.parameters, strict=True):
        np.testing.assert_array_equal(p.data, q.data)
        assert q.data.flags.c_contiguous


def test_loaded_parameters_are_independent(tmp_path: Path) -> None:
    """读回来的参数改一个，别的不变，文件也不变。"""
    folder = save_model(tmp_path, GPT(256, 8, 6, 2, 1), ByteTokenizer())
    before = (folder / "model.safetensors").read_bytes()
    model, _ = load_model(folder)
    first, second = model.parameters[0].data, model.parameters[1].data.copy()
    first[...] = 7
    np.testing.assert_array_equal(model.parameters[1].data, second)
    model(Tensor([[1, 2]])).sum().backward()
    assert (folder / "model.safetensors").read_bytes() == before


def test_hugging_face_folders_are_named(tmp_path: Path) -> None:
    model = GPT(256, 8, 6, 2, 1, head_bias=False)
    for tokenizer in (None, ByteTokenizer()):
        folder = model.save_pretrained(tmp_path / "hf", tokenizer)
        with pytest.raises(
            DataError, match=r"Hugging Face 格式的.*load_pretrained.*gptcore import"
        ):
            load_model(folder)
    assert is_pretrained(tmp_path / "hf")
    assert not is_pretrained(save_model(tmp_path / "ours", model, ByteTokenizer()))
    assert not is_pretrained(tmp_path)
