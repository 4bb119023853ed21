"""一步训练：PyTorch 的一方，eager 或 torch.compile，融合的 AdamW，scaled_dot_product_attention"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from sizes import SIZES, Size
from torch import nn
from torch.nn import functional
from worker import Jobs, Once, timed


class Block(nn.Module):
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
    """与 `gptcore.GPT` 相同的模型。"""

    def __init__(self, size: Size) -> None:
        super().__init__()
        _, length, e, heads, blocks, vocab = size
        self.tokens, self.positions = nn.Embedding(vocab, e), nn.Embedding(length, e)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(e, heads) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(e), nn.Linear(e, vocab, bias=not size.tied)
        if size.tied:
            self.head.weight = self.tokens.weight
        self.register_buffer("range", torch.arange(length))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(self.range)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def torch_training(
    size: Size, ids: np.ndarray, labels: np.ndarray, compiled: bool = False
) -> tuple[Callable[[], torch.Tensor], torch.optim.Optimizer, nn.Module]:
    """求出梯度的函数，优化器，模型。"""
    model = TorchGPT(size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    forward = torch.compile(model) if compiled else model
    x, y = torch.from_numpy(ids), torch.from_numpy(labels).flatten()

    def gradients() -> torch.Tensor:
        loss = functional.cross_entropy(forward(x).view(-1, size.vocab), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        return loss

    return gradients, optimizer, model


def torch_step(
    size: Size, ids: np.ndarray, labels: np.ndarray, compiled: bool = False
) -> Callable[[], float]:
    """完整的一步，给出损失。"""
    gradients, optimizer, model = torch_training(size, ids, labels, compiled)

    def step() -> float:
        loss = gradients()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    step.parameters = sum(p.numel() for p in model.parameters())
    return step


def sides(threads: int, compiled: bool = False) -> Jobs:
    """各个尺寸。"""
    torch.set_num_threads(threads)
    torch.manual_seed(0)

    def prepare(size: Size) -> Once:
        step = torch_step(size, *size.random_batch(), compiled)
        once = timed(step)
        once.facts = {
            "parameters": step.parameters,
            "threads": torch.get_num_threads(),
            "first_loss": step(),
        }
        return once

    return {name: partial(prepare, size) for name, size in SIZES.items()}
