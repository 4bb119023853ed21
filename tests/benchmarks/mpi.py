"""两个进程（各一个 BLAS 线程）与一个进程（两个线程，一个线程）比：同样的一批，吞吐量之比，全归约占一步的多少

各方做完一次就等着，不占处理器；主进程叫到哪一方，哪一方才运行，所以能在同一次运行里成对地轮流。
需要 mpi4py 与 MPI：`pip install "gptcore[mpi]" mpich`。

    python tests/benchmarks/mpi.py                                          # 打印
    python tests/benchmarks/mpi.py --json docs/book/results/scaling_mpi.json
    python tests/benchmarks/mpi.py --sizes M --rounds 3                     # 试一试
"""

import argparse
import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from machine import machine_facts, package_version, run_facts
from pairing import Ratio, Times, alternate, paired, quartiles, totals
from sizes import SIZES

WORKER = Path(__file__).with_name("mpi_worker.py")
PATIENCE = 120.0  # 进程启动、做一次，最多等几秒
PURE = 20


class Team:
    """比较的一方：一个或几个进程。"""

    def __init__(self, size: str, ranks: int, threads: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(PATIENCE)
            port = server.getsockname()[1]
            command = [sys.executable, str(WORKER), str(port), size, str(threads)]
            if ranks > 1:
                command = [find_mpiexec(), "-n", str(ranks), *command]
            self._process = subprocess.Popen(command)
            self._peers: list[Any] = []
            for _ in range(ranks):
                peer, _ = server.accept()
                peer.settimeout(PATIENCE)
                self._peers.append(peer.makefile("rw", encoding="utf-8"))
        self.facts = self._ask("facts", 0)[0]

    def run(self, repeats: int) -> list[Times]:
        """走几步；一步以最慢的进程为准。"""
        by_rank = self._ask("run", repeats)
        return [
            max((steps[i] for steps in by_rank), key=lambda times: sum(times.values()))
            for i in range(repeats)
        ]

    def reduce(self, repeats: int) -> list[float]:
        """只做全归约，各进程同时开始。"""
        return [max(times) for times in zip(*self._ask("reduce", repeats), strict=True)]

    def _ask(self, action: str, count: int) -> list[Any]:
        for peer in self._peers:
            peer.write(json.dumps([action, count]) + "\n")
            peer.flush()
        return [json.loads(peer.readline()) for peer in self._peers]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self._peers:
            peer.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()


def find_mpiexec() -> str:
    """与解释器在同一个环境里的 mpiexec，其次是系统的。"""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if not found:
        sys.exit('找不到 mpiexec；请运行 pip install "gptcore[mpi]" mpich')
    return found


def milliseconds(seconds: list[float]) -> Ratio:
    return quartiles([1e3 * value for value in seconds])


def measure(size: str, ranks: int, rounds: int) -> dict[str, Any]:
    """一种尺寸的一行。"""
    with Team(size, 1, ranks) as single, Team(size, 1, 1) as thread, Team(size, ranks, 1) as team:
        times = alternate({"single": single, "thread": thread, "team": team}, rounds)
        pure = milliseconds(team.reduce(PURE))
        facts = team.facts
    one, alone, several = (totals(times[name]) for name in ("single", "thread", "team"))
    share = quartiles([t["reduce"] / sum(t.values()) for t in times["team"]])
    return {
        "size": list(SIZES[size]),
        "ranks": ranks,
        "rounds": rounds,
        **facts,
        "single_ms": round(milliseconds(one).median, 3),
        "thread_ms": round(milliseconds(alone).median, 3),
        "team_ms": round(milliseconds(several).median, 3),
        "ratio": [round(value, 3) for value in paired(one, several)],
        "thread_ratio": [round(value, 3) for value in paired(alone, several)],
        "share": [round(value, 4) for value in share],
        "pure_ms": round(pure.median, 3),
    }


def environment() -> dict[str, Any]:
    """结果从哪里来。"""
    machine = machine_facts()
    machine["packages"]["mpi4py"] = package_version("mpi4py")
    return {**run_facts(), "machine": machine, "dtype": "float32"}


def shown(row: dict[str, Any]) -> list[str]:
    """表里的一行。"""
    return [
        f"{row['team_ms']:.1f} 毫秒",
        *(
            f"**{middle:.2f}**（{low:.2f}–{high:.2f}）"
            for middle, low, high in (row["ratio"], row["thread_ratio"])
        ),
        f"{100 * row['share'][0]:.1f}%",
    ]


def table(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    ranks = next(iter(rows.values()))["ranks"]
    head = ["尺寸", f"{ranks} 个进程的一步", f"与 1 个进程 {ranks} 个线程比", "与 1 个线程比"]
    return {
        "head": [*head, "归约占一步"],
        "align": "lrrrr",
        "rows": [[name, *shown(row)] for name, row in rows.items()],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="几个进程与一个进程的几个线程比")
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=["M", "L"])
    parser.add_argument("--ranks", type=int, default=2, help="几个进程；另一边是同样多的线程")
    parser.add_argument("--rounds", type=int, default=20, help="轮数")
    parser.add_argument("--at-least", type=float, default=0.0, help="吞吐量之比的下限")
    parser.add_argument("--json", type=Path, help="把结果写到哪里；没有量的尺寸保留原来的")
    options = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    for size in options.sizes:
        row = {**environment(), **measure(size, options.ranks, options.rounds)}
        rows[size] = row
        ratio, alone = row["ratio"], row["thread_ratio"]
        print(
            f"{size}：{row['ranks']} 个进程 {row['team_ms']:.2f} 毫秒；1 个进程 {row['ranks']} 个线程 "
            f"{row['single_ms']:.2f} 毫秒，吞吐量之比 {ratio[0]:.2f}（{ratio[1]:.2f} – {ratio[2]:.2f}）；"
            f"1 个线程 {row['thread_ms']:.2f} 毫秒，{alone[0]:.2f}（{alone[1]:.2f} – {alone[2]:.2f}）；"
            f"归约占一步的 {100 * row['share'][0]:.1f}%，只做归约 {row['pure_ms']:.2f} 毫秒",
            flush=True,
        )
    machine = row["machine"]
    print(f"{machine['cpu']}，{machine['cores']} 核，{machine['blas']}，{row['mpi']}")
    if options.json:
        kept = json.loads(options.json.read_text("utf-8")) if options.json.exists() else {}
        content = {**{name: kept[name] for name in kept if name in SIZES}, **rows}
        content = dict(sorted(content.items(), key=lambda item: list(SIZES).index(item[0])))
        content["table"] = table(content)
        text = json.dumps(content, ensure_ascii=False, indent=1) + "\n"
        options.json.write_text(text, encoding="utf-8", newline="\n")
    return int(any(row["ratio"][0] < options.at_least for row in rows.values()))


if __name__ == "__main__":
    raise SystemExit(main())
