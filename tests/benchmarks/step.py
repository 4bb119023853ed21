"""一步训练的时间：gptcore 与 PyTorch 在同一个进程里轮流运行

一步是前向、损失、反向、梯度裁剪与 AdamW，都走公开的接口。两边的线程数相同；PyTorch 用融合的 AdamW
与 scaled_dot_product_attention。机器忽快忽慢，所以每一轮两边各测几步、次序交替，比较每一轮的比值，取中位数。

    python tests/benchmarks/step.py                  # 第 15 章的尺寸，一个线程
    python tests/benchmarks/step.py --size M --threads 2
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from threadpoolctl import threadpool_info, threadpool_limits
from torch import nn
from torch.nn import functional

import gptcore
from gptcore import GPT, AdamWOptimizer, GPTLoss, Tensor

SIZES = {  # 批大小、上下文、嵌入、头数、块数、词表
    "S": (4, 32, 64, 2, 2, 65),
    "M": (12, 64, 128, 4, 4, 65),
    "L": (16, 256, 384, 6, 6, 65),
    "G": (2, 128, 768, 12, 12, 50257),
}


class TorchBlock(nn.Module):
    def __init__(self, embedding_size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(embedding_size), nn.LayerNorm(embedding_size)
        self.c_attn = nn.Linear(embedding_size, 3 * embedding_size)
        self.output = nn.Linear(embedding_size, embedding_size)
        self.up = nn.Linear(embedding_size, 4 * embedding_size)
        self.down = nn.Linear(4 * embedding_size, embedding_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, size = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)  # (B, H, T, d)
            for part in self.c_attn(self.norm1(x)).split(size, 2)
        )
        context = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(context.transpose(1, 2).reshape(batch, length, size))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class TorchGPT(nn.Module):
    def __init__(self, length: int, size: int, heads: int, blocks: int, vocab: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, size), nn.Embedding(length, size)
        self.blocks = nn.ModuleList(TorchBlock(size, heads) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, vocab)
        self.register_buffer("range", torch.arange(length))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(self.range)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def gptcore_step(
    config: tuple[int, ...], ids: np.ndarray, labels: np.ndarray
) -> Callable[[], float]:
    _, length, size, heads, blocks, vocab = config
    model = GPT(vocab, length, size, heads, blocks)
    optimizer, loss_fn = AdamWOptimizer(model.parameters, lr=1e-3), GPTLoss()
    x, y = Tensor(ids), Tensor(labels)

    def step() -> float:
        loss = loss_fn(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.clip_grad_norm(1.0)
        optimizer.step()
        return float(loss)

    return step


def torch_step(config: tuple[int, ...], ids: np.ndarray, labels: np.ndarray) -> Callable[[], float]:
    _, length, size, heads, blocks, vocab = config
    model = TorchGPT(length, size, heads, blocks, vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    x, y = torch.from_numpy(ids), torch.from_numpy(labels).flatten()

    def step() -> float:
        loss = functional.cross_entropy(model(x).view(-1, vocab), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step


def milliseconds(step: Callable[[], float], repeats: int) -> float:
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        step()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def main() -> int:
    parser = argparse.ArgumentParser(description="一步训练：gptcore 与 PyTorch 的时间之比")
    parser.add_argument("--size", choices=SIZES, default="S", help="模型的尺寸")
    parser.add_argument("--threads", type=int, default=1, help="两边的线程数")
    parser.add_argument("--rounds", type=int, default=20, help="轮数")
    parser.add_argument("--repeats", type=int, default=20, help="每一轮两边各多少步")
    parser.add_argument("--at-least", type=float, default=1.0, help="比值的下限")
    options = parser.parse_args()

    config = SIZES[options.size]
    rng = np.random.default_rng(0)
    ids = rng.integers(0, config[-1], config[:2])
    labels = rng.integers(0, config[-1], config[:2])
    np.random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    with threadpool_limits(options.threads, "blas"):
        steps = {
            "PyTorch": torch_step(config, ids, labels),
            "gptcore": gptcore_step(config, ids, labels),
        }
        for step in steps.values():
            milliseconds(step, 5)
        rounds: list[dict[str, float]] = []
        for i in range(options.rounds):
            order = list(steps) if i % 2 == 0 else list(steps)[::-1]
            rounds.append({name: milliseconds(steps[name], options.repeats) for name in order})
        blas = [
            f"{p['internal_api']} {p.get('version')}"
            for p in threadpool_info()
            if p["user_api"] == "blas"
        ]

    ratio = statistics.median(r["PyTorch"] / r["gptcore"] for r in rounds)
    print(
        f"尺寸 {options.size} {config}，{options.threads} 个线程，{options.rounds} 轮 × {options.repeats} 步"
    )
    print(
        f"Python {platform.python_version()}，NumPy {np.__version__}（{'、'.join(blas)}），"
        f"PyTorch {torch.__version__}，gptcore {gptcore.__version__}"
    )
    for name in steps:
        times = [r[name] for r in rounds]
        print(f"{name:8} 中位数 {statistics.median(times):8.2f} 毫秒，最小 {min(times):8.2f} 毫秒")
    print(f"PyTorch 的时间 ÷ gptcore 的时间 = {ratio:.2f}（大于 1 表示 gptcore 更快）")
    return int(ratio < options.at_least)


if __name__ == "__main__":
    raise SystemExit(main())
