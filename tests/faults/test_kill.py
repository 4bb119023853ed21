"""SIGKILL：无论什么时候被杀，最新的完整的检查点都读得回来，接着训练的结果与没有被打断的逐位相同"""

import json
import os
import random
import shutil
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults.killing import Child, Reports, Server, start_fresh
from training.runs import write_text

from gptcore.serialization import is_leftover

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="需要 fork 与 SIGKILL")

STEPS = 90  # 一轮 15 步，共六轮
SHORT = 14
SIGKILLED = -9


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@dataclass
class Whole:
    """没有被打断的那一次：结果、记录，与各个时间。"""

    result: dict[str, Any]
    steps: dict[int, Any]
    evaluations: dict[int, float]
    seconds: float
    save_seconds: float


def train_whole(server: Server, folder: Path, steps: int) -> Whole:
    folder.mkdir()
    write_text(folder)
    reports = server.start(folder, steps).finish()
    times = [float(line[-1]) for line in reports.lines if line[0] in "RSE"]
    starts, ends = (reports.named(kind, "checkpoint") for kind in "SE")
    saves = [float(e[3]) - float(s[3]) for s, e in zip(starts, ends, strict=True)]
    records, evaluations, torn = read_records(folder)
    assert not torn
    return Whole(
        read_result(folder), records, evaluations, times[-1] - times[0], statistics.median(saves)
    )


def read_result(folder: Path) -> dict[str, Any]:
    with np.load(folder / "result.npz") as saved:
        return dict(saved)


def read_records(folder: Path) -> tuple[dict[int, Any], dict[int, float], int]:
    """metrics.jsonl：每一步的记录（时间除外）、每一次评估，以及读不懂的行数。"""
    steps: dict[int, Any] = {}
    evaluations: dict[int, float] = {}
    torn = 0
    for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            torn += 1
            continue
        if "evaluation" in record:
            evaluations[record["step"]] = record["evaluation"]
        elif "loss" in record:
            del record["seconds"]
            steps[record["step"]] = record
    return steps, evaluations, torn


def assert_same(folder: Path, whole: Whole, kills: int) -> None:
    """参数、矩、评估、各个生成器的状态与每一步的记录都逐位相同；没有留下多余的文件。"""
    result = read_result(folder)
    assert result.keys() == whole.result.keys()
    for name, value in whole.result.items():
        np.testing.assert_array_equal(result[name], value, name)
        assert result[name].dtype == value.dtype
    steps, evaluations, torn = read_records(folder)
    assert (steps, evaluations) == (whole.steps, whole.evaluations)
    assert torn <= kills
    names = sorted(path.name for path in (folder / "run").iterdir())
    last = len(whole.steps)
    before = (last - 1) // 3 * 3
    assert names == ["best", f"step-{before:08d}", f"step-{last:08d}"]
    left = [path for path in (folder / "run").rglob("*") if is_leftover(path)]
    # 清单自己的临时文件不到 2 KB，过十分钟才清除
    assert all(path.suffix == ".tmp" and path.stat().st_size < 2000 for path in left)
    assert len(left) <= kills


@dataclass
class Chain:
    """同一次训练被杀了又杀，直到做完。"""

    folder: Path
    kills: list[str] = field(default_factory=list[str])  # 每次被杀时正在保存什么
    saved: int = 0

    def started(self, reports: Reports) -> None:
        """接着训练的不能早于上一个保存完的检查点；正在保存时被杀，也许晚一个。"""
        assert self.saved <= reports.resumed <= self.saved + 3
        self.saved = reports.resumed

    def killed(self, reports: Reports) -> None:
        self.kills.append(reports.saving)
        self.saved = max(self.saved, reports.saved)


def kill_somewhere(child: Child, rng: random.Random, whole: Whole) -> bool:
    """在随机的一刻杀死它，一半的时候等到开始保存；它先做完了就返回假。"""
    reports = child.reports
    if rng.random() < 0.5:
        count = rng.randint(1, 3)
        reports.until(lambda: len(reports.named("S", "checkpoint")) >= count)
        delay = rng.uniform(0, whole.save_seconds)
    else:
        delay = rng.uniform(0, whole.seconds / 5)
    reports.read_for(delay)
    child.kill()
    return child.wait() == SIGKILLED


def run_chain(
    server: Server, folder: Path, rng: random.Random, whole: Whole, limit: int
) -> tuple[Chain, int]:
    """训练到做完为止，至多杀 `limit` 次；返回它与用了几个新的解释器。"""
    chain, fresh = Chain(folder), 0
    folder.mkdir()
    write_text(folder)
    while True:
        new = len(chain.kills) % 6 == 5
        child = start_fresh(folder, STEPS) if new else server.start(folder, STEPS)
        fresh += new
        child.reports.until(lambda reports=child.reports: reports.named("R"))
        chain.started(child.reports)
        if len(chain.kills) >= limit:
            child.finish()
            return chain, fresh
        if not kill_somewhere(child, rng, whole):
            return chain, fresh
        chain.killed(child.reports)


def kill_many(
    server: Server, folder: Path, kills: int, inside: int, seed: int
) -> tuple[list[Chain], int]:
    """一次次训练，直到总共杀了 `kills` 次，其中保存时 `inside` 次；每一次训练的结果都相同。"""
    whole = train_whole(server, folder / "whole", STEPS)
    rng, chains, fresh = random.Random(seed), list[Chain](), 0
    while sum(len(c.kills) for c in chains) < kills or count_inside(chains) < inside:
        assert len(chains) < kills
        chain, new = run_chain(server, folder / f"chain{len(chains)}", rng, whole, 12)
        assert_same(chain.folder, whole, len(chain.kills))
        chains.append(chain)
        fresh += new
    return chains, fresh


def count_inside(chains: list[Chain]) -> int:
    return sum(name == "checkpoint" for chain in chains for name in chain.kills)


def test_a_few_kills(server: Server, tmp_path: Path) -> None:
    chains, _ = kill_many(server, tmp_path, kills=10, inside=3, seed=1)
    assert count_inside(chains) >= 3


@pytest.mark.slow
def test_fifty_kills_at_random_moments(server: Server, tmp_path: Path) -> None:
    chains, fresh = kill_many(server, tmp_path, kills=50, inside=10, seed=20260)
    assert sum(len(chain.kills) for chain in chains) >= 50
    assert count_inside(chains) >= 10
    assert len(chains) >= 3
    assert fresh >= 5


# 保存时的每一个系统调用


@pytest.fixture(scope="module")
def short(server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Whole, int]:
    """没有被打断的一次短的训练，以及从第 6 步的检查点接着训练时，第一次保存调用文件系统的次数。"""
    folder = tmp_path_factory.mktemp("short")
    whole = train_whole(server, folder / "whole", SHORT)
    half = folder / "half"
    half.mkdir()
    write_text(half)
    server.start(half, 6).finish()
    (half / "result.npz").unlink()
    copy = folder / "copy"
    shutil.copytree(half, copy)
    reports = server.start(copy, 9, die=1_000_000).finish()
    return half, whole, int(reports.named("C")[0][1])


def die_at(server: Server, folder: Path, short: tuple[Path, Whole, int], call: int) -> str:
    """从第 6 步接着训练，第 `call` 次调用文件系统时被杀；再接着训练到底。返回被杀时正在保存什么。"""
    half, whole, _ = short
    shutil.copytree(half, folder)
    child = server.start(folder, SHORT, die=call)
    assert child.wait() == SIGKILLED
    again = server.start(folder, SHORT).finish()
    assert again.resumed in ({6, 9} if child.reports.saving else {child.reports.saved or 6})
    assert_same(folder, whole, 1)
    shutil.rmtree(folder)
    return child.reports.saving


def test_killed_at_some_system_calls(
    server: Server, short: tuple[Path, Whole, int], tmp_path: Path
) -> None:
    calls = random.Random(7).sample(range(1, short[2] + 1), 12)
    assert "checkpoint" in {die_at(server, tmp_path / str(n), short, n) for n in calls}


@pytest.mark.slow
def test_killed_at_every_system_call(
    server: Server, short: tuple[Path, Whole, int], tmp_path: Path
) -> None:
    """最好的模型、检查点、删去旧的：每一个系统调用之前都被杀一次，写文件时写到一半。"""
    seen = [die_at(server, tmp_path / str(n), short, n) for n in range(1, short[2] + 1)]
    assert len(seen) >= 50
    assert {"checkpoint", "folder", ""} == set(seen)
