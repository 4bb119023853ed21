"""1 GB 的词元文件：写与训练都只占很少的内存；写的内存与文本的大小无关"""

import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from gptcore import write_tokens
from gptcore.data import ByteTokenizer, TokenDataset

PROGRAM = Path(__file__).with_name("token_memory_program.py")
LIMIT = 300
"""整个进程最多占多少 MB，包括 Python、NumPy 与本库自己"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="用 POSIX 的方法测量内存")
def test_one_gigabyte_trains_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "tokens.npy"
    try:
        count, written = run("write", path)
        assert path.stat().st_size > 2**30
        losses, trained = run("train", path)
        train, test = map(float, losses.split())
    finally:
        path.unlink(missing_ok=True)
    assert int(count) == 512 * 2**20 + 511
    assert written < LIMIT, written
    assert trained < LIMIT, trained
    # 26 个字母均匀随机，熵是 ln 26 = 3.258；学到了，又不会比它低
    assert 3.25 < train < 3.3, train
    assert 3.25 < test < 3.27, test


def run(mode: str, path: Path) -> tuple[str, float]:
    command = [sys.executable, PROGRAM, mode, path]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    first, peak = result.stdout.splitlines()
    return first, float(peak)


def peak_of_writing(path: Path, documents: int) -> int:
    text = "天地玄黄，宇宙洪荒。\n" * 20_000  # 0.6 MB，每份都是新的字符串
    tracemalloc.start()
    try:
        write_tokens(path, (text + str(i) for i in range(documents)), ByteTokenizer())
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_of_writing_does_not_grow(tmp_path: Path) -> None:
    small = peak_of_writing(tmp_path / "a.npy", 5)
    large = peak_of_writing(tmp_path / "b.npy", 50)
    assert (tmp_path / "b.npy").stat().st_size > 9 * (tmp_path / "a.npy").stat().st_size
    assert large < 1.2 * small + 10**6, (small, large)


def test_opening_and_taking_read_little(tmp_path: Path) -> None:
    path = tmp_path / "tokens.npy"
    write_tokens(path, ("ab" * 10**6 for _ in range(8)), ByteTokenizer())  # 32 MB
    tracemalloc.start()
    try:
        dataset = TokenDataset(path, batch_size=8, context_size=64, stride=1)
        dataset.fingerprint()
        for i in range(0, len(dataset), len(dataset) // 50):
            dataset[i]
        dataset.take(np.arange(0, 14_000_000, 10**6))
        for _ in dataset.evaluation_batches(limit=100):
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10**6, peak
