"""第二章的 GPT，用 PyTorch 写成：参数的名字与 gptcore 的一样，注意力写成最直白的几步"""

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional


class Embeddings(nn.Module):
    def __init__(self, vocab_size: int, context_size: int, embedding_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embedding_size)
        self.positional_embedding = nn.Embedding(context_size, embedding_size)

    def forward(self, ids: Tensor) -> Tensor:
        return self.embedding(ids) + self.positional_embedding(torch.arange(ids.shape[1]))


class Attention(nn.Module):
    def __init__(self, embedding_size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.normalize = nn.LayerNorm(embedding_size)
        self.c_attn = nn.Linear(embedding_size, 3 * embedding_size)
        self.output = nn.Linear(embedding_size, embedding_size)

    def forward(self, x: Tensor) -> Tensor:
        batch, context, embedding = x.shape
        q, k, v = (
            part.view(batch, context, self.heads, -1).transpose(1, 2)  # (B, H, T, D)
            for part in self.c_attn(self.normalize(x)).split(embedding, dim=2)
        )
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])  # (B, H, T, T)
        future = torch.ones(context, context, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, -math.inf).softmax(dim=-1)
        merged = (weights @ v).transpose(1, 2).reshape(batch, context, embedding)
        return x + self.output(merged)


class FeedForward(nn.Module):
    def __init__(self, embedding_size: int) -> None:
        super().__init__()
        self.normalize = nn.LayerNorm(embedding_size)
        self.input = nn.Linear(embedding_size, 4 * embedding_size)
        self.output = nn.Linear(4 * embedding_size, embedding_size)

    def forward(self, x: Tensor) -> Tensor:
        h = functional.gelu(self.input(self.normalize(x)), approximate="tanh")
        return x + self.output(h)


class Transformer(nn.Module):
    def __init__(self, embedding_size: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(embedding_size, heads)
        self.feed_forward = FeedForward(embedding_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.feed_forward(self.attention(x))


class Output(nn.Module):
    def __init__(self, embedding_size: int, vocab_size: int) -> None:
        super().__init__()
        self.normalize = nn.LayerNorm(embedding_size)
        self.linear = nn.Linear(embedding_size, vocab_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.normalize(x))


class TorchGPT(nn.Module):
    def __init__(
        self, vocab_size: int, context_size: int, embedding_size: int, heads: int, blocks: int
    ) -> None:
        super().__init__()
        self.embedding = Embeddings(vocab_size, context_size, embedding_size)
        self.transformers = nn.ModuleList(Transformer(embedding_size, heads) for _ in range(blocks))
        self.output = Output(embedding_size, vocab_size)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for transformer in self.transformers:
            x = transformer(x)
        return self.output(x)


def draw_weights(model: nn.Module, seed: int) -> dict[str, np.ndarray]:
    """给每个参数抽一组不平凡的初值（float64）：归一化的缩放不是 1，偏置不是 0。

    RandomState 的随机序列永远不变，所以任何版本的 NumPy 抽到的都一样。
    """
    draw = np.random.RandomState(seed).standard_normal
    weights: dict[str, np.ndarray] = {}
    for name, parameter in model.named_parameters():
        noise = draw(tuple(parameter.shape))
        if name.endswith("normalize.weight"):
            weights[name] = 1 + 0.2 * noise
        elif name.endswith("bias"):
            weights[name] = 0.2 * noise
        elif "embedding.weight" in name:
            weights[name] = 0.5 * noise
        else:
            weights[name] = noise / math.sqrt(parameter.shape[1])
    return weights


def set_weights(model: nn.Module, weights: dict[str, np.ndarray]) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(weights[name]))


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def arrays(tensors: dict[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy().copy() for name, tensor in tensors.items()}


def reference_run(
    config: dict[str, int],
    weights: dict[str, np.ndarray],
    ids: np.ndarray,
    labels: np.ndarray,
    dtype: type,
    lr: float = 1e-3,
) -> dict[str, np.ndarray]:
    """一次前向与反向，再做若干步 AdamW（裁剪到范数 1），返回打平的数组。

    Args:
        config: 模型的尺寸。
        weights: 各参数的初值。
        ids: 每一步的词元编号，形状 `(步数, B, T)`；第一批也用于 logits 和梯度。
        labels: 每一步的标签，形状同上。
        dtype: np.float64 或 np.float32。
        lr: 学习率。

    Returns:
        `logits`、`gradient/参数名`、`losses`、`norms`（裁剪前的梯度范数）和 `final/参数名`。
    """
    model = TorchGPT(**config).to(torch.from_numpy(np.zeros(1, dtype)).dtype)
    set_weights(model, weights)
    result: dict[str, np.ndarray] = {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)  # 衰减 0.01，所有参数都衰减
    losses, norms = [], []
    for step in range(len(ids)):
        logits = model(torch.from_numpy(ids[step]))
        loss = loss_of(logits, torch.from_numpy(labels[step]))
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            result["logits"] = logits.detach().numpy().copy()
            gradients = {name: p.grad for name, p in model.named_parameters()}
            result |= {f"gradient/{name}": g for name, g in arrays(gradients).items()}
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        losses.append(loss.item())
    result["losses"], result["norms"] = np.array(losses), np.array(norms)
    final = arrays(dict(model.named_parameters()))
    return result | {f"final/{name}": value for name, value in final.items()}
