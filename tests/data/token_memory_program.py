"""test_token_memory 的子进程：写一个 1 GB 的词元文件，或者用它训练；打印进程用过的最多内存（MB）

python token_memory_program.py write|train 词元文件
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gptcore import GPT, AdamWOptimizer, GPTLoss, GPTTrainer, TokenDataset, write_tokens
from gptcore.data import ByteTokenizer

DOCUMENTS, LENGTH = 512, 1 << 20
"""512 份，每份 1 MB 文字；每个词元 2 字节，共 1 GB"""
STEPS = 4000


def documents() -> Iterator[str]:
    """随机的小写字母；内容各处不同，磁盘与页缓存都不能偷懒。"""
    rng = np.random.default_rng(0)
    for _ in range(DOCUMENTS):
        yield rng.integers(97, 123, LENGTH, dtype=np.uint8).tobytes().decode("ascii")


def write(path: Path) -> None:
    file = write_tokens(path, documents(), ByteTokenizer(["<|endoftext|>"]))
    print(file.count)


def train(path: Path) -> None:
    dataset = TokenDataset(path, batch_size=16, context_size=32)
    model = GPT(dataset.vocab_size, 32, 16, 2, 1, rng=np.random.default_rng(0))
    optimizer = AdamWOptimizer(model.parameters, lr=3e-3)
    trainer = GPTTrainer(model, GPTLoss(), optimizer, rng=np.random.default_rng(0))
    losses = [report.loss for report in trainer.steps(dataset, STEPS, shuffle=True)]
    print(np.mean(losses[-100:]), trainer.evaluate(dataset, 2000).loss)


def peak() -> float:
    """这个进程占用过的最多内存；Linux 的 ru_maxrss 会带上父进程的，所以看 VmHWM。"""
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS 的单位是字节


if __name__ == "__main__":
    {"write": write, "train": train}[sys.argv[1]](Path(sys.argv[2]))
    print(peak())
