"""“更大的规模”一页：推算的公式、表与图、到 PyTorch 再回来的程序"""

import importlib.util
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from cli.running import clean_environment
from distributed.launching import ENVIRONMENT, MPIEXEC, needs_mpi

from gptcore.data import load_tokenizer

ROOT = Path(__file__).resolve().parents[1]
CODE = ROOT / "docs" / "guides" / "code"
PAGE = ROOT / "docs" / "guides" / "scaling.md"
RESULTS = ROOT / "docs" / "book" / "results"
NUMBER = re.compile(r"\d+\.\d+")


@pytest.fixture
def scaling(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(CODE))
    for name in ("scaling", "scaling_figure"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    spec = importlib.util.spec_from_file_location("scaling", CODE / "scaling.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "scaling", module)
    spec.loader.exec_module(module)
    return module


def read(name: str) -> dict[str, object]:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


# 公式：把环形归约真的走一遍，数一数收发了几次、多少字节


def walk_the_ring(arrays: list[np.ndarray]) -> tuple[list[np.ndarray], int, int, int]:
    """N 份数组分成 N 段，绕环归约再绕环收集；返回结果、每个节点的收发次数、字节数、相加的元素个数。"""
    n = len(arrays)
    parts = [np.array_split(array.copy(), n) for array in arrays]
    messages = sent = added = 0
    for turn in range(2 * (n - 1)):
        moving = [(rank - turn) % n if turn < n - 1 else (rank + 1 - (turn - n + 1)) % n
                  for rank in range(n)]  # fmt: skip
        packets = [parts[rank][moving[rank]].copy() for rank in range(n)]
        for rank in range(n):
            index, packet = moving[(rank - 1) % n], packets[(rank - 1) % n]
            if turn < n - 1:
                parts[rank][index] += packet
            else:
                parts[rank][index] = packet
        messages += 1
        sent += packets[0].nbytes
        added += packets[0].size * (turn < n - 1)
    return [np.concatenate(p) for p in parts], messages, sent, added


@pytest.mark.parametrize("nodes", [2, 3, 8])
def test_the_ring_formula_counts_what_a_ring_does(scaling: ModuleType, nodes: int) -> None:
    rng = np.random.default_rng(nodes)
    arrays = [rng.integers(0, 9, 24 * nodes).astype(np.float32) for _ in range(nodes)]
    results, messages, sent, added = walk_the_ring(arrays)
    for result in results:
        np.testing.assert_array_equal(result, sum(arrays))
    size = arrays[0].nbytes
    assert scaling.ring(nodes, size, 1e300, 1, 0) == pytest.approx(messages)
    assert scaling.ring(nodes, size, 1, 0, 0) == pytest.approx(sent)
    assert scaling.ring(nodes, size, 1e300, 0, 1) == pytest.approx(added / arrays[0].size)


def test_one_node_does_not_communicate(scaling: ModuleType) -> None:
    for way in (scaling.ring, scaling.halving, scaling.doubling):
        assert way(1, 1e9, 1e9, 1e-3, 1.0) == 0


def test_halving_sends_as_much_as_a_ring_in_fewer_messages(scaling: ModuleType) -> None:
    assert scaling.halving(64, 1e9, 1e8, 0, 0) == pytest.approx(scaling.ring(64, 1e9, 1e8, 0, 0))
    assert scaling.ring(64, 0, 1, 1, 0) == 126
    assert scaling.halving(64, 0, 1, 1, 0) == 12
    assert scaling.doubling(64, 0, 1, 1, 0) == 6
    assert scaling.doubling(64, 1e9, 1e9, 0, 0) == 6


def test_the_slowest_node_decides(scaling: ModuleType) -> None:
    assert scaling.step_time(8, 512, 2.0, 0.5, 0.25) == 64 * 2.0 + 0.75
    assert scaling.step_time(100, 512, 2.0, 0.0, 0.0) == 6 * 2.0


@pytest.mark.parametrize(
    ("value", "shown"),
    [(186.4, "186 秒"), (22.34, "22.3 秒"), (0.784, "784 毫秒"), (6.3e-3, "6.30 毫秒"), (6e-4, "600 微秒")],
)  # fmt: skip
def test_durations(scaling: ModuleType, value: float, shown: str) -> None:
    assert scaling.duration(value) == shown


def test_your_own_numbers(scaling: ModuleType) -> None:
    command = [sys.executable, CODE / "scaling.py", "try", "--compute", "0.5", "--gigabits", "10"]
    command += ["--parameters", "1e8", "--windows", "8", "--microseconds", "0"]
    environment = {**os.environ, "PYTHONUTF8": "1"}
    done = subprocess.run(command, check=True, capture_output=True, env=environment)
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 4
    assert lines[0].strip() == "1 个节点：一步 4.00 秒，通信 不到 1%，快 1.0 倍"
    assert lines[-1].strip() == "8 个节点：一步 1.06 秒，通信 53%，快 3.8 倍"  # 0.5 + 7/4 × 0.32


# 页面的表与图来自结果文件


def test_tables_follow_from_the_measurements(scaling: ModuleType) -> None:
    wanted = json.loads(json.dumps(scaling.summary()))
    assert read("scaling") == wanted, "请运行 python docs/guides/code/scaling.py"


def test_the_figure_is_up_to_date_and_accessible(scaling: ModuleType) -> None:
    import scaling_figure

    text = scaling_figure.FIGURE.read_text(encoding="utf-8")
    assert text == scaling_figure.figure(), "请运行 python docs/guides/code/scaling.py"
    root = ElementTree.fromstring(text)
    assert root.get("role") == "img"
    assert root.get("aria-label")
    assert "\n\n" not in text.strip()


def test_every_measurement_says_where_it_comes_from() -> None:
    mpi = read("scaling_mpi")
    for row in (read("scaling_compute")["gpt2"], mpi["M"], mpi["L"]):
        for fact in ("command", "commit", "date", "seed", "dtype", "machine", "rounds"):
            assert fact in row
        assert row["machine"]["blas"]["blas_kernel"]


# 到 PyTorch 里继续，再回来


def losses(output: str) -> list[float]:
    return [float(number) for number in re.findall(r"^\d+\.\d{4}", output, re.MULTILINE)]


@pytest.mark.reference
def test_training_continues_in_torch_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="没有安装 PyTorch")
    pytest.importorskip("transformers", reason="没有安装 transformers")
    monkeypatch.chdir(tmp_path)
    namespace = runpy.run_path(str(CODE / "continue_in_torch.py"))
    printed = capsys.readouterr().out
    left, arrived, trained, returned, final = losses(printed)
    assert arrived == pytest.approx(left, abs=1e-4)
    assert returned == pytest.approx(trained, abs=1e-4)
    assert trained < arrived - 0.1
    assert final < returned - 0.05
    sentence = "下午，下着小雨。"
    its_tokenizer, tokenizer = namespace["tokenizer"], load_tokenizer("to-torch")
    assert its_tokenizer.encode(sentence) == tokenizer.encode(sentence)
    with pytest.raises(SystemExit, match="损失变了"):
        namespace["require_same"](left, left + 2e-4)
    shown = str(read("scaling_torch")["output"])
    assert re.sub(r"\d+\.\d{4}", "", printed.rstrip("\n")) == re.sub(r"\d+\.\d{4}", "", shown)
    np.testing.assert_allclose(losses(printed), losses(shown), atol=0.05)


@needs_mpi
def test_two_processes_are_like_one_with_a_batch_twice_as_large(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    source = (CODE / "train_parallel.py").read_text(encoding="utf-8")
    printed = []
    for count, batch in ((2, 12), (1, 24)):
        program.write_text(source.replace("batch_size=12", f"batch_size={batch}"), encoding="utf-8")
        folder = tmp_path / f"{count}"
        folder.mkdir()
        command = [MPIEXEC, "-n", f"{count}", sys.executable, program]
        environment = clean_environment({**ENVIRONMENT, "PYTHONUTF8": "1"})
        done = subprocess.run(
            command, cwd=folder, check=True, capture_output=True, env=environment, timeout=60
        )
        assert done.stderr == b""
        printed.append(done.stdout.decode().splitlines())
    assert printed[0][1:] == printed[1][1:]
    shown = str(read("scaling_parallel")["output"]).splitlines()
    assert printed[0][0] == shown[0]
    for line, wanted in zip(printed[0][1:], shown[1:], strict=True):
        assert NUMBER.sub("", line) == NUMBER.sub("", wanted)
        assert float(NUMBER.search(line)[0]) == pytest.approx(
            float(NUMBER.search(wanted)[0]), abs=0.05
        )


def test_the_slurm_script_is_good_bash() -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("没有 bash")
    subprocess.run([bash, "-n", CODE / "train.sbatch"], check=True)


@pytest.mark.parametrize("name", ["train_parallel.py", "train.sbatch", "scaling.py:model"])
def test_the_page_shows_the_files(name: str) -> None:
    assert f'--8<-- "docs/guides/code/{name}"' in PAGE.read_text(encoding="utf-8")


def test_the_page_shows_the_whole_program() -> None:
    sections = re.findall(
        r"# --8<-- \[start:(\w+)\]", (CODE / "continue_in_torch.py").read_text("utf-8")
    )
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in sections if f"continue_in_torch.py:{name}" not in page] == []
