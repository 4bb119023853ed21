"""页面的数字来自结果文件；结果文件里的数字能重新算出来"""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def module(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


hook = module("docs/_hooks/results.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    table = {"head": ["归一化", "损失"], "align": "lr", "rows": [["无", "1.81"]]}
    results = {"main": {"loss": 1.78237, "curve": [[200, 3.1]], "steps": 31368}, "table": table}
    path = tmp_path / "chapter99.json"
    path.write_text(json.dumps(results, ensure_ascii=False), encoding="utf-8")
    return tmp_path


def test_placeholders_become_numbers(folder: Path) -> None:
    text = "损失 {{ chapter99.main.loss:.3f }}，{{chapter99.main.steps:,}} 步，{{ chapter99.main.curve.0.1 }}"
    assert hook.fill(text, folder) == "损失 1.782，31,368 步，3.1"


def test_table_becomes_markdown(folder: Path) -> None:
    expected = "| 归一化 | 损失 |\n| :--- | ---: |\n| 无 | 1.81 |"
    assert hook.fill("{{ table chapter99.table }}", folder) == expected


def test_other_braces_are_left_alone(folder: Path) -> None:
    text = "`{{ x }}`、f'{{a.b'、$\\{\\{x\\}\\}$"
    assert hook.fill(text, folder) == text


@pytest.mark.parametrize(
    ("placeholder", "message"),
    [
        ("{{ chapter99.main.lost }}", "没有 lost"),
        ("{{ chapter98.main.loss }}", "没有结果文件"),
        ("{{ chapter99.main }}", "不是一个数"),
        ("{{ chapter99.main.curve.7 }}", "没有 7"),
        ("{{ chapter99.main.loss:d }}", "格式不合"),
        ("{{ table chapter99.main }}", "不是一张表"),
    ],
)
def test_mistakes_stop_the_build(folder: Path, placeholder: str, message: str) -> None:
    with pytest.raises(hook.ResultError, match=message):
        hook.fill(placeholder, folder)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_page_finds_its_numbers(page: Path) -> None:
    hook.fill(page.read_text(encoding="utf-8"))
