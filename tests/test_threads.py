"""线程：同样的设置每一位都相同，不同的设置结果相近；线程里、`fork` 出的子进程里照样能训练"""

import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from gptcore import GPT, AdamWOptimizer, GPTLoss, Tensor, blas_threads


def train(steps: int = 3, seed: int = 0) -> list[np.ndarray]:
    """训练几步，矩阵大到 BLAS 会用几个线程；返回各个参数。"""
    rng = np.random.default_rng(seed)
    model = GPT(65, 64, 128, 4, 1, rng=rng, dropout=0.1)
    optimizer, loss_fn = AdamWOptimizer(model.parameters), GPTLoss()
    ids = Tensor(rng.integers(0, 65, (8, 64)))
    for _ in range(steps):
        optimizer.zero_grad()
        loss_fn(model(ids), ids).backward()
        optimizer.clip_grad_norm(1.0)
        optimizer.step()
    return [p.data for p in model.parameters]


def gradients() -> np.ndarray:
    """一次反向传播的全部梯度，首尾相接。"""
    rng = np.random.default_rng(0)
    model = GPT(65, 64, 128, 4, 1, rng=rng)
    ids = Tensor(rng.integers(0, 65, (8, 64)))
    GPTLoss()(model(ids), ids).backward()
    return np.concatenate([p.grad for p in model.parameters], axis=None)


def digest(arrays: list[np.ndarray]) -> str:
    return hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_threads_give_the_same_bits(threads: int) -> None:
    with blas_threads(threads):
        assert digest(train()) == digest(train())


def test_another_number_of_threads_gives_nearly_the_same() -> None:
    with blas_threads(1):
        one = gradients()
    with blas_threads(2):
        two = gradients()
    assert np.linalg.norm(one - two) <= 1e-5 * np.linalg.norm(one)


def test_threads_of_the_user_do_not_disturb_each_other() -> None:
    expected = [digest(train(seed=seed)) for seed in range(3)]
    found: dict[int, str] = {}

    def work(seed: int) -> None:
        found[seed] = digest(train(seed=seed))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [found[seed] for seed in range(3)] == expected


FORK = """
import os, sys
sys.path.insert(0, {tests!r})
from test_threads import blas_threads, digest, train

with blas_threads(2):
    expected = digest(train())
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, digest(train()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 64).decode() == expected, "子进程里的结果不同"
    assert digest(train()) == expected, "父进程里后来的结果不同"
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="没有 fork")
def test_training_goes_on_after_a_fork() -> None:
    program = FORK.format(tests=str(Path(__file__).parent))
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr


IMPORT = """
import threading
from threadpoolctl import threadpool_info
import numpy
before = threading.active_count(), threadpool_info()
import gptcore
gptcore.GPT
assert (threading.active_count(), threadpool_info()) == before
"""


def test_import_starts_no_thread_and_changes_no_setting() -> None:
    subprocess.run([sys.executable, "-c", IMPORT], check=True, timeout=60)
