"""GPT-2 124M 的形状：参数个数，读入与存出的内存，与 transformers 对照"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hf_folders import CONFIG, shapes

from gptcore import GPT
from gptcore.serialization import array_chunks

pytestmark = pytest.mark.slow

GPT2 = {**CONFIG, "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_head": 12}
GPT2 |= {"n_layer": 12, "n_ctx": 1024}
PARAMETERS = 124_439_808
WEIGHTS = 4 * PARAMETERS
MIB = 1 << 20

PROGRAM = """
import json, sys
import numpy as np
from gptcore import GPT, Tensor, no_grad

def memory():
    lines = open("/proc/self/status", encoding="utf-8").read().split("\\n")
    return {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines if line[:3] in ("VmR", "Rss", "VmH")}

def step(model):
    with no_grad():
        return model(Tensor([[1, 2, 3, 4]])).data

tiny = GPT.from_pretrained(sys.argv[1])
step(tiny)
tiny.save_pretrained(sys.argv[3])
marks = [memory()]
model = GPT.from_pretrained(sys.argv[2], memory_map=sys.argv[4] == "map")
marks.append(memory())
assert model.num_parameters == 124_439_808
assert np.isfinite(step(model)).all()
marks.append(memory())
model.save_pretrained(sys.argv[3])
marks.append(memory())
print(json.dumps(marks))
"""


def write_gpt2(folder: Path, dtype: type) -> Path:
    """随机的 124M 模型，参数一份一份地写。"""
    rng = np.random.default_rng(0)
    state = {
        name: (rng.standard_normal(shape, np.float32) * np.float32(0.02)).astype(dtype)
        for name, shape in shapes(GPT2).items()
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(GPT2), encoding="utf-8")
    with (folder / "model.safetensors").open("wb") as file:
        for piece in array_chunks(state, {"format": "pt"}):
            file.write(piece)
    return folder


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """用完就删：几个 500 MB 的文件不留在临时文件夹里。"""
    yield tmp_path
    for path in tmp_path.rglob("*.safetensors"):
        path.unlink()


@pytest.mark.skipif(sys.platform != "linux", reason="内存取自 /proc")
@pytest.mark.parametrize(
    ("dtype", "way"), [(np.float32, "map"), (np.float32, "read"), (np.float16, "map")]
)
def test_memory(place: Path, dtype: type, way: str) -> None:
    """峰值不超过参数加 50 MiB；映射的参数不占自己的内存。"""
    tiny = GPT(5, 7, 6, 2, 1, head_bias=False).save_pretrained(place / "tiny")
    folder = write_gpt2(place / "gpt2", dtype)
    command = [sys.executable, "-c", PROGRAM, tiny, folder, place / "out", way]
    result = subprocess.run(command, check=True, capture_output=True, encoding="utf-8")
    start, loaded, stepped, saved = json.loads(result.stdout)
    mapped = dtype is np.float32 and way == "map"
    own = 0 if mapped else WEIGHTS
    assert loaded["RssAnon"] - start["RssAnon"] < own + 20 * MIB
    assert stepped["RssAnon"] - start["RssAnon"] < own + 50 * MIB
    for mark in (loaded, stepped, saved):
        assert mark["VmHWM"] - start["VmRSS"] < WEIGHTS + 50 * MIB
    if mapped:  # 用到的都是文件的页
        assert loaded["VmRSS"] - start["VmRSS"] < 50 * MIB
        assert stepped["RssFile"] - start["RssFile"] > 0.9 * WEIGHTS
    if dtype is np.float32:  # 存出来的与读入的一位不差
        assert _same(folder / "model.safetensors", place / "out" / "model.safetensors")


def _same(one: Path, other: Path) -> bool:
    """两个 safetensors 文件里的数组相同。"""
    from safetensors import safe_open

    with safe_open(one, "np") as a, safe_open(other, "np") as b:
        assert set(a.keys()) == set(b.keys())
        return all(np.array_equal(a.get_tensor(n), b.get_tensor(n)) for n in a.keys())  # noqa: SIM118


@pytest.mark.reference
def test_agrees_with_transformers(place: Path) -> None:
    """两个方向：分数相差不到 1e-4，贪心的 64 个词元相同。"""
    pytest.importorskip("transformers", reason="没有安装 transformers")
    from hf_reference import GPT2 as DEFAULTS
    from hf_reference import agree, load_theirs, make_theirs

    theirs: Any = make_theirs(DEFAULTS)
    theirs.save_pretrained(place / "theirs")
    ours = GPT.from_pretrained(place / "theirs")
    assert ours.num_parameters == PARAMETERS
    assert ours.num_parameters == sum(p.numel() for p in theirs.parameters())
    assert ours.output.linear.weight is ours.embedding.embedding.weight
    agree(theirs, ours)
    del theirs
    back = load_theirs(ours.save_pretrained(place / "ours"))
    assert back.lm_head.weight is back.transformer.wte.weight
    agree(back, ours)
