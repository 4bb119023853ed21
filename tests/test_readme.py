"""README 里的命令和程序与实际一致"""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gptcore import GPT
from gptcore.data import ByteTokenizer

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")


def fences(language: str) -> list[str]:
    """README 里某种语言的代码块。"""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_two_commands_stand_in_blocks_of_their_own() -> None:
    commands = [block.strip() for block in fences("bash")]
    assert commands == ["pip install . && gptcore demo", 'pip install -e ".[test]" && pytest']


def test_linked_files_exist() -> None:
    root = Path(__file__).resolve().parents[1]
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert [link for link in links if "://" not in link and not (root / link).exists()] == []


def run(program: str, folder: Path) -> str:
    """在一个文件夹里运行一段程序，返回打印的东西。"""
    result = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", program],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
def test_the_python_program_trains_and_generates(tmp_path: Path) -> None:
    program, _ = fences("python")
    output = run(program, tmp_path)
    losses = [
        float(loss) for loss in re.findall(r"^第 \d+ 步，损失 (\d+\.\d+)$", output, re.MULTILINE)
    ]
    assert len(losses) > 1
    assert losses[-1] < 0.7 * losses[0]


def test_the_second_program_reads_a_hugging_face_folder(tmp_path: Path) -> None:
    _, program = fences("python")
    model = GPT(257, 64, 32, 4, 1, head_bias=False, rng=np.random.default_rng(0))
    model.save_pretrained(tmp_path / "gpt2", ByteTokenizer(["<|endoftext|>"]))
    assert run(program, tmp_path)
