"""文档里给 transformers 用的程序：示例与指南写的是同一个文件，真的能运行，写出的与 gptcore 的相同"""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from gptcore import GPT, load_corpus
from gptcore.data import BPETokenizer

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "docs" / "guides" / "code" / "use_transformers.py"


def test_the_example_shows_the_same_program() -> None:
    source = (ROOT / "examples" / "plot_huggingface.py").read_text(encoding="utf-8")
    (block,) = re.findall(r"^# ```python\n(.*?)^# ```$", source, re.MULTILINE | re.DOTALL)
    shown = re.sub(r"^# ?", "", block, flags=re.MULTILINE)
    assert shown == PROGRAM.read_text(encoding="utf-8")


@pytest.mark.reference
def test_the_program_runs_and_writes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="没有安装 PyTorch")
    pytest.importorskip("transformers", reason="没有安装 transformers")
    monkeypatch.chdir(tmp_path)
    tokenizer = BPETokenizer.train(load_corpus("stories"), 1000, special_tokens=["<|endoftext|>"])
    rng = np.random.default_rng(0)
    model = GPT(1000, 64, 48, 4, 2, head_bias=False, tied=True, init="gpt2", rng=rng)
    model.save_pretrained("my-gpt2", tokenizer)
    theirs = runpy.run_path(str(PROGRAM))
    prompt = tokenizer.encode("早上，下着小雨，")
    written = list(model.generate(prompt, 20, temperature=0))
    assert theirs["output"][0].tolist() == prompt + written
    assert capsys.readouterr().out == tokenizer.decode(prompt + written) + "\n"
