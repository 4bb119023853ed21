"""README 里的命令和程序与实际一致"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.slow
def test_the_python_program_trains_and_generates(tmp_path: Path) -> None:
    (program,) = fences("python")
    result = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert result.returncode == 0, result.stderr
    losses = [float(loss) for loss in re.findall(r"^\d+ (\d+\.\d+)", result.stdout, re.MULTILINE)]
    assert len(losses) > 1
    assert losses[-1] < 0.7 * losses[0]
