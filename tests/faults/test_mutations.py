"""改坏的模型文件夹：两千多种改法，每一种都只会得到 DataError，或者一个正常的模型"""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults.examine import examine
from faults.mutations import Mutations

from gptcore import GPT, CharTokenizer, DataError, Tensor, load_model, save_model
from gptcore.serialization import dump_arrays, dump_json

FAST, FULL = 210, 2500


def build(folder: Path, text: str, seed: int, **options: Any) -> Path:
    tokenizer = CharTokenizer.from_text(text)
    rng = np.random.default_rng(seed)
    return save_model(folder, GPT(tokenizer.vocab_size, 5, 6, 3, 1, rng=rng, **options), tokenizer)


def fingerprint(loaded: Any) -> bytes:
    """模型与分词器的全部内容。"""
    model, tokenizer = loaded
    parts = dump_json([model.config, tokenizer.to_dict()]), dump_arrays(model.state_dict())
    return b"".join(parts)


def require_usable(loaded: Any, folder: Path) -> None:
    """形状与设置相符，能前向，存了再读一模一样。"""
    model, tokenizer = loaded
    config = model.config
    assert tokenizer.vocab_size == config["vocab_size"]
    assert {p.dtype for p in model.parameters} <= {np.dtype("f4"), np.dtype("f8")}
    ids = tokenizer.encode(
        tokenizer.decode(list(range(config["vocab_size"]))[: config["context_size"]])
    )
    with np.errstate(all="ignore"):
        assert model(Tensor([ids])).shape == (1, len(ids), config["vocab_size"])
    assert fingerprint(load_model(save_model(folder, model, tokenizer))) == fingerprint(loaded)


@pytest.mark.parametrize(
    ("start", "count"), [(0, FAST), pytest.param(FAST, FULL - FAST, marks=pytest.mark.slow)]
)
def test_mutated_models(tmp_path: Path, start: int, count: int) -> None:
    first = build(tmp_path / "first", "你好，GPT！\n😀", 1)
    second = build(tmp_path / "second", "甲乙丙丁，GPT！\n", 2, head_bias=False)
    originals = {fingerprint(load_model(folder)) for folder in (first, second)}
    weights = (first / "model.safetensors").read_bytes()
    mutations = Mutations(first, second)
    parent = tmp_path / "parent"
    parent.mkdir()
    outcomes: Counter[str] = Counter()
    for number in range(start, start + count):
        mutation = mutations.make(number)
        try:
            loaded, error = examine(mutation, parent, load_model, {"outside.bin": weights})
            if error is None:
                same = fingerprint(loaded) in originals
                assert same or mutation.sealed, "清单没有重算，却读出了不同的模型"
                require_usable(loaded, tmp_path / "again")
                outcomes["相同" if same else "不同"] += 1
            else:
                assert isinstance(error, DataError), repr(error)
                assert "请" in str(error) or "被截断或改动过" in str(error), f"没有办法：{error}"
                assert len(str(error)) < 5000, f"消息有 {len(str(error))} 个字"
                outcomes["重算而拒绝" if mutation.sealed else "拒绝"] += 1
        except BaseException as error:
            error.add_note(f"第 {number} 种改法：{mutation.kind}，重算清单：{mutation.sealed}")
            raise
    print(dict(outcomes))
    least = {"拒绝": 0.2, "重算而拒绝": 0.3, "不同": 0.01, "相同": 0.01}
    assert all(outcomes[kind] > share * count for kind, share in least.items()), outcomes


def test_mutations_are_seeded_and_varied(tmp_path: Path) -> None:
    mutations = Mutations(build(tmp_path / "a", "ab", 1), build(tmp_path / "b", "bcd", 2))
    made = [mutations.make(number) for number in range(FAST)]
    again = [mutations.make(number) for number in range(FAST)]
    assert [m.files for m in made] == [m.files for m in again]
    assert {m.kind for m in made} == set(mutations.kinds)
    changed = sum(m.files != mutations.first or bool(m.places) for m in made)
    assert changed > 0.95 * FAST
    assert len({tuple(sorted(m.files.items())) for m in made}) > 0.85 * FAST
