"""库的 GPT 与已提交的 PyTorch 标准答案：logits、每个梯度、十步 AdamW"""

from pathlib import Path

import numpy as np
import pytest
from golden.library import assert_agree, library_run

FILE = Path(__file__).parent / "golden" / "gpt.npz"
SIZES = ("vocab_size", "context_size", "embedding_size", "heads", "blocks")


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(FILE, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gpt_agrees_with_the_golden_file(golden: dict[str, np.ndarray], dtype: type) -> None:
    config = {name: int(size) for name, size in zip(SIZES, golden["config"], strict=True)}
    initial, kind = "initial/", f"{np.dtype(dtype).name}/"
    weights = {k.removeprefix(initial): v for k, v in golden.items() if k.startswith(initial)}
    reference = {k.removeprefix(kind): v for k, v in golden.items() if k.startswith(kind)}

    mine = library_run(config, weights, golden["ids"], golden["labels"], dtype)

    assert_agree(mine, reference, dtype)


def test_golden_sizes_are_not_degenerate(golden: dict[str, np.ndarray]) -> None:
    vocab, context, embedding, heads, blocks = golden["config"].tolist()
    _, batch, length = golden["ids"].shape
    sizes = [batch, length, context, embedding, heads, embedding // heads, vocab]
    assert len(set(sizes)) == len(sizes)
    assert heads > 1
    assert blocks > 1
    assert np.all(golden["float64/norms"] > 1)  # 裁剪确实起了作用


def test_golden_file_is_small() -> None:
    assert FILE.stat().st_size < 1_000_000
