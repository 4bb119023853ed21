"""包本身的约定：版本、惰性导入、顶层目录、文件里不留机器的痕迹"""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import gptcore

ROOT = Path(__file__).resolve().parents[1]
TOP_LEVEL = {
    "gptcore",
    "docs",
    "examples",
    "tests",
    "mkdocs.yml",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
}
MAX_LINES = 400
# 某台机器的绝对路径，以及软件源的主机名
MACHINE_PATH = re.compile(rb"(?<![\w.\-/$}])/(?:work|root|home|tmp)(?=/)")
REGISTRY = re.compile(rb"pypi\.(?:org|python)|pythonhosted\.|registry\.npm|deb\.debian")
LAZY = ("typer", "rich", "pooch", "matplotlib", "safetensors", "torch", "http.client")


def committed_files() -> list[Path]:
    """检出目录里由 git 管理的文件；不在检出目录里就跳过。"""
    if not (ROOT / ".git").exists():
        pytest.skip("不是 git 检出目录（例如解开的 sdist）")
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode("utf-8")
    return [ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()]


def test_version_has_a_single_source() -> None:
    assert gptcore.__version__ == metadata.version("gptcore")


def test_import_leaves_heavy_packages_alone() -> None:
    code = (
        "import json, sys, gptcore; gptcore.GPT;"
        f"print(json.dumps([m for m in {LAZY!r} if m in sys.modules]))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, encoding="utf-8"
    )
    assert result.stdout.strip() == "[]"


def test_public_names_are_listed_once_and_exist() -> None:
    names = gptcore.__all__
    assert len(names) == len(set(names))
    assert [name for name in names if not hasattr(gptcore, name)] == []


def test_names_are_loaded_on_first_use() -> None:
    code = (
        "import sys, gptcore, gptcore.cli\n"
        "print('numpy' in sys.modules, 'GPT' in dir(gptcore), gptcore.GPT.__name__)\n"
        "names = {}; exec('from gptcore import *', names)\n"
        "print(set(gptcore.__all__) <= set(names), gptcore.layers.Linear is names['Linear'])\n"
        "print(gptcore.plotting.__name__)\n"
        "try: gptcore.GTP\n"
        "except AttributeError as error: print(error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, encoding="utf-8"
    )
    assert result.stdout.splitlines() == [
        "False True GPT",
        "True True",
        "gptcore.plotting",
        "module 'gptcore' has no attribute 'GTP'",
    ]


def test_top_level_is_exactly_as_fixed() -> None:
    names = {path.relative_to(ROOT).parts[0] for path in committed_files()}
    assert {name for name in names if not name.startswith(".")} == TOP_LEVEL


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match.group().decode()}"
        for path in committed_files()
        for pattern in (MACHINE_PATH, REGISTRY)
        for match in pattern.finditer(path.read_bytes())
    ]
    assert found == []


def test_no_pickle() -> None:
    found = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "gptcore").rglob("*.py")
        if re.search(
            r"^\s*(import|from) pickle\b|allow_pickle=True", path.read_text("utf-8"), re.MULTILINE
        )
    ]
    assert found == []


def test_source_files_stay_short() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for folder in ("gptcore", "tests", "examples", "docs")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert {name: lines for name, lines in lengths.items() if lines >= MAX_LINES} == {}
