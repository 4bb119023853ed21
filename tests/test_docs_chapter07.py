"""第 7 章的结果文件、表和图：与程序一致，能重新算出来"""

import dataclasses
import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest
from oracles import CODE, load

for name in ("chapter07_parts", "chapter07_tables"):
    load(name)
experiments = load("chapter07_experiments")
drawing = load("chapter07_figures")

BOOK = CODE.parent
RESULTS = json.loads((BOOK / "results" / "chapter07.json").read_text(encoding="utf-8"))
SHORT_ROWS = [name for name in experiments.RUNS if name.startswith("lr_")]
LONG_ROWS = [name for name in experiments.RUNS if not name.startswith("lr_")]
PROVENANCE = {"command", "seed", "dtype", "versions", "machine", "seconds", "cpu_seconds"}


@pytest.fixture(scope="module")
def dataset(tinyshakespeare_path: Path) -> Any:
    return experiments.CharDataset(tinyshakespeare_path, batch_size=4, context_size=32)


def close(actual: dict[str, float], expected: dict[str, float], **tolerance: float) -> None:
    for key in ("mse", "cross_entropy", "entropy"):
        assert actual[key] == pytest.approx(expected[key], **tolerance), key


def test_every_row_is_there_with_its_settings_and_origin() -> None:
    assert list(RESULTS["runs"]) == list(experiments.RUNS)
    for name, run in experiments.RUNS.items():
        row = RESULTS["runs"][name]
        assert row["config"] == dataclasses.asdict(run), name
        assert row.keys() >= PROVENANCE, name
        assert row["command"].endswith(f"chapter07_experiments.py {name}")
        assert row["seed"] == run.seed
    assert RESULTS["baselines"].keys() >= PROVENANCE


def test_tables_follow_from_the_rows() -> None:
    assert RESULTS["tables"] == experiments.tables(RESULTS["baselines"], RESULTS["runs"])


def test_figures_are_drawn_from_the_results() -> None:
    for name, content in drawing.figures(RESULTS).items():
        path = BOOK / "figures" / f"{name}.svg"
        assert path.read_text(encoding="utf-8") == content, (
            f"请重新运行 chapter07_figures.py：{name}"
        )
        assert "\n\n" not in content  # 空行会让 Markdown 拆开这幅图


def test_the_main_row_is_the_chapters_figure() -> None:
    for name in ("loss_mse", "size_16"):
        row = RESULTS["runs"][name]
        assert row["after"]["mse"] == 0.015120499995513398
        digest = hashlib.sha256(row["sample"].encode("utf-8")).hexdigest()
        assert digest == "c0d5f3bf3d6babe5e3049ed0a4cb4da16031c52550362347c39e58363a6cb63f"


def test_baselines(dataset: Any) -> None:
    for name, scores in experiments.baselines(dataset).items():
        close(scores, RESULTS["baselines"][name], rel=1e-12)


def test_one_row_at_reduced_size(dataset: Any) -> None:
    name = random.SystemRandom().choice(list(experiments.RUNS))
    check_reduced(name, dataset)


@pytest.mark.slow
@pytest.mark.parametrize("name", experiments.RUNS)
def test_every_row_at_reduced_size(name: str, dataset: Any) -> None:
    check_reduced(name, dataset)


def check_reduced(name: str, dataset: Any) -> None:
    """从头训练几百步：每一步都对，才会走到同样的地方。"""
    expected = RESULTS["runs"][name]["short"]
    actual = experiments.train(experiments.RUNS[name], dataset, expected["steps"])
    print(name)
    close(actual, expected, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT_ROWS)
def test_short_rows_in_full(name: str, dataset: Any) -> None:
    actual = experiments.train(experiments.RUNS[name], dataset)
    close(actual["after"], RESULTS["runs"][name]["after"], rel=1e-3)


@pytest.mark.slow
def test_one_long_row_in_full(dataset: Any) -> None:
    """换一种 BLAS，舍入会积累起来，所以放宽到百分之一。"""
    name = random.SystemRandom().choice(LONG_ROWS)
    print(name)
    actual = experiments.train(experiments.RUNS[name], dataset)
    close(actual["after"], RESULTS["runs"][name]["after"], rel=0.01)
