"""第 15 章《层归一化与 GPT》：在 gptcore 之上，用最直白的写法搭出整个 GPT

每一层都是 NumPy 的几行前向，加上一个写出反向的闭包。gptcore 自己的实现与这里算的是同一件事，
只是更快；tests/test_oracles.py 拿这个文件逐层对照。

用法：

    python chapter15.py [语料路径/tinyshakespeare.txt]

两轮共 31,368 步，用一个 BLAS 线程约需 100 秒。矩阵很小，多个线程多半在互相等待：
机器上还有别的程序时，先设置环境变量 OPENBLAS_NUM_THREADS=1。
"""

# ruff: noqa: F403, F405
import sys
import time
from pathlib import Path

import numpy as np

from gptcore import *


# --8<-- [start:dataset]
class CharDataset(Dataset):
    """字符数据集：标签是特征右移一个字符，于是每个位置都有下一个字符可学"""

    def __init__(self, filename, batch_size=1, context_size=64, stride=None, split=0.9):
        self.filename = filename
        self.context_size = context_size
        self.stride = stride or max(1, context_size // 2)
        self.split = split
        super().__init__(batch_size)

    def load(self):
        text = Path(self.filename).read_text(encoding="utf-8")
        self.vocab = sorted(set(text))
        self.vocab_size = len(self.vocab)
        self.stoi = {char: i for i, char in enumerate(self.vocab)}
        self.itos = dict(enumerate(self.vocab))
        self.tokens = self.encode(text)

        boundary = int(len(self.tokens) * self.split)
        self.train_data = self.pack(self.tokens[:boundary])
        self.test_data = self.pack(self.tokens[boundary:])

    def pack(self, tokens):
        features, labels = [], []
        for start in range(0, len(tokens) - self.context_size, self.stride):
            features.append(tokens[start : start + self.context_size])
            labels.append(tokens[start + 1 : start + self.context_size + 1])
        return np.array(features), np.array(labels)  # 都是 (窗口数, 上下文尺寸)

    def encode(self, text):
        return [self.stoi[char] for char in text]

    def decode(self, tokens):
        return "".join(self.itos[token] for token in tokens)

    # --8<-- [end:dataset]


# --8<-- [start:tril]
class Tril(Layer):
    """因果掩码：只留下三角，对角线以上换成一个很小的数"""

    def __init__(self, value=-1e9):
        super().__init__()
        self.value = value

    def forward(self, x):
        rows, columns = x.shape[-2:]
        keep = np.tril(np.ones((rows, columns), dtype=bool))
        p = Tensor(np.where(keep, x.data, self.value).astype(x.data.dtype))

        def gradient_fn():
            x.grad += p.grad * keep

        return p.attach(gradient_fn, {x})

    # --8<-- [end:tril]


# --8<-- [start:layer_norm]
class LayerNorm(Layer):
    """层归一化：把最后一个轴变成均值 0、方差 1，再缩放、平移"""

    def __init__(self, normalized_size, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = Tensor(np.ones(normalized_size, dtype=DTYPE))
        self.bias = Tensor(np.zeros(normalized_size, dtype=DTYPE))

    def forward(self, x):
        mean = x.data.mean(axis=-1, keepdims=True)
        variance = x.data.var(axis=-1, keepdims=True)  # 有偏方差：除以 E，不是 E - 1
        rstd = 1 / np.sqrt(variance + self.eps)
        normalized = (x.data - mean) * rstd
        p = Tensor(normalized * self.weight.data + self.bias.data)

        def gradient_fn():
            leading = tuple(range(p.grad.ndim - 1))  # 除最后一个轴以外的所有轴
            self.weight.grad += (p.grad * normalized).sum(axis=leading)
            self.bias.grad += p.grad.sum(axis=leading)

            g = p.grad * self.weight.data
            g_mean = g.mean(axis=-1, keepdims=True)  # 均值也依赖 x
            g_dot = (g * normalized).mean(axis=-1, keepdims=True)  # 方差也依赖 x
            x.grad += rstd * (g - g_mean - normalized * g_dot)

        return p.attach(gradient_fn, {x})

    # --8<-- [end:layer_norm]


# --8<-- [start:gelu]
class GELU(Layer):
    """平滑的 ReLU，tanh 近似：0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))"""

    def forward(self, x):
        c = float(np.sqrt(2 / np.pi))
        cube = x.data * x.data * x.data  # 比 x.data ** 3 快一个数量级
        tanh = np.tanh(c * (x.data + 0.044715 * cube))
        p = Tensor(0.5 * x.data * (1 + tanh))

        def gradient_fn():
            inner = c * (1 + 3 * 0.044715 * x.data * x.data)
            x.grad += p.grad * 0.5 * (1 + tanh + x.data * (1 - tanh * tanh) * inner)

        return p.attach(gradient_fn, {x})

    # --8<-- [end:gelu]


# --8<-- [start:loss]
class GPTLoss(Loss):
    """Softmax 与交叉熵合在一起：标签是整数，对所有位置取平均"""

    def loss(self, p, y):
        logits = p.data.reshape(-1, p.shape[-1])  # (B, T, V) -> (B·T, V)
        labels = y.data.reshape(-1).astype(int)  # (B, T) -> (B·T,)
        rows = np.arange(len(labels))

        shifted = logits - logits.max(axis=-1, keepdims=True)
        log_softmax = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        loss = Tensor(-log_softmax[rows, labels].mean())

        def gradient_fn():
            grad = np.exp(log_softmax)  # 概率减去独热标签
            grad[rows, labels] -= 1
            p.grad += loss.grad * grad.reshape(p.shape) / len(labels)

        return loss.attach(gradient_fn, {p})

    # --8<-- [end:loss]


# --8<-- [start:gpt_embedding]
class TokenEmbedding(Layer):
    """词元嵌入：第 7 章的查表，反向用 np.add.at 累加"""

    def __init__(self, vocab_size, embedding_size, std=0.02):
        super().__init__()
        self.weight = Tensor(np.random.normal(0, std, (vocab_size, embedding_size)).astype(DTYPE))

    def forward(self, x):
        ids = x.data.astype(int)
        p = Tensor(self.weight.data[ids])  # (B, T) -> (B, T, E)

        def gradient_fn():
            np.add.at(self.weight.grad, ids, p.grad)

        return p.attach(gradient_fn, [x])


class GPTEmbedding(Composite):
    """GPT 的输入：词元嵌入加位置嵌入"""

    def __init__(self, vocab_size, context_size, embedding_size):
        self.embedding = TokenEmbedding(vocab_size, embedding_size)
        self.positional_embedding = Embedding(context_size, embedding_size)
        super().__init__([self.embedding, self.positional_embedding])

    def forward(self, x):
        positions = Tensor(range(x.shape[-1]))
        return self.embedding(x) + self.positional_embedding(positions)  # (B, T, E) + (T, E)

    # --8<-- [end:gpt_embedding]


# --8<-- [start:attention]
class GPTAttention(Composite):
    """多头因果自注意力：先归一化，残差连接在里面"""

    def __init__(self, embedding_size, heads=1):
        self.heads = heads
        self.normalize = LayerNorm(embedding_size)
        self.query = Linear(embedding_size, embedding_size)
        self.key = Linear(embedding_size, embedding_size)
        self.value = Linear(embedding_size, embedding_size)
        self.mask = Tril()
        self.softmax = Softmax()
        self.output = Linear(embedding_size, embedding_size)
        super().__init__([self.normalize, self.query, self.key, self.value, self.output])

    def split(self, x):
        batch, context, embedding = x.shape
        x = x.reshape((batch, context, self.heads, embedding // self.heads))  # (B, T, H, D)
        return x.transpose((0, 2, 1, 3))  # (B, H, T, D)

    def forward(self, x):
        normalized = self.normalize(x)  # (B, T, E)
        query = self.split(self.query(normalized))
        key = self.split(self.key(normalized))
        value = self.split(self.value(normalized))

        scale = Tensor(1 / np.sqrt(query.shape[-1]))
        scores = query @ key.transpose((0, 1, 3, 2)) * scale  # (B, H, T, T)
        weights = self.softmax(self.mask(scores))
        context = weights @ value  # (B, H, T, D)
        merged = context.transpose((0, 2, 1, 3)).reshape((-1, *x.shape[1:]))  # (B, T, E)
        return x + self.output(merged)

    # --8<-- [end:attention]


# --8<-- [start:feed_forward]
class GPTFeedForward(Composite):
    """前馈网络：放大 4 倍、GELU、再缩回来，残差连接在里面"""

    def __init__(self, embedding_size):
        self.normalize = LayerNorm(embedding_size)
        self.input = Linear(embedding_size, 4 * embedding_size)
        self.gelu = GELU()
        self.output = Linear(4 * embedding_size, embedding_size)
        super().__init__([self.normalize, self.input, self.gelu, self.output])

    def forward(self, x):
        return x + self.output(self.gelu(self.input(self.normalize(x))))

    # --8<-- [end:feed_forward]


# --8<-- [start:gpt]
class GPTTransformer(Composite):
    """一个 Transformer 块：先看别的位置，再各自思考"""

    def __init__(self, embedding_size, heads):
        self.attention = GPTAttention(embedding_size, heads)
        self.feed_forward = GPTFeedForward(embedding_size)
        super().__init__([self.attention, self.feed_forward])

    def forward(self, x):
        return self.feed_forward(self.attention(x))


class GPTOutput(Composite):
    """GPT 的输出：归一化，再为词表里的每个词元打分"""

    def __init__(self, embedding_size, vocab_size):
        self.normalize = LayerNorm(embedding_size)
        self.linear = Linear(embedding_size, vocab_size)
        super().__init__([self.normalize, self.linear])

    def forward(self, x):
        return self.linear(self.normalize(x))  # (B, T, E) -> (B, T, V)


class GPT(Composite):
    """GPT：嵌入、若干个 Transformer 块、输出"""

    def __init__(self, vocab_size, context_size, embedding_size, heads, blocks):
        self.embedding = GPTEmbedding(vocab_size, context_size, embedding_size)
        self.transformers = Sequential(
            [GPTTransformer(embedding_size, heads) for _ in range(blocks)]
        )
        self.output = GPTOutput(embedding_size, vocab_size)
        super().__init__([self.embedding, self.transformers, self.output])

    def forward(self, x):
        return self.output(self.transformers(self.embedding(x)))

    # --8<-- [end:gpt]


# --8<-- [start:trainer]
class GPTTrainer(Trainer):
    """GPT 的训练器：学习率调度、梯度裁剪、按批测试、从最后一个位置采样"""

    def train(self, dataset, epochs, scheduler=None):
        dataset.train()
        self.model.train()
        for epoch in range(epochs):
            start, total = time.perf_counter(), 0.0
            for i in range(len(dataset)):
                if scheduler is not None:
                    self.optimizer.lr = scheduler.step(epoch * len(dataset) + i)
                x, y = dataset[i]
                self.optimizer.zero_grad()
                loss = self.loss_fn(self.model(x), y)
                loss.backward()
                self.optimizer.clip_grad_norm()
                self.optimizer.step()
                total += float(loss.data)
            mean, seconds = total / len(dataset), time.perf_counter() - start
            print(f"第 {epoch + 1} 轮：训练损失 {mean:.4f}，{seconds:.0f} 秒", file=sys.stderr)

    def test(self, dataset):
        dataset.eval()
        self.model.eval()
        predictions, losses = [], []
        with Tensor.no_grad():
            for i in range(len(dataset)):
                x, y = dataset[i]
                predictions.append(self.model(x))
                losses.append(float(self.loss_fn(predictions[-1], y).data))
        self.model.train()
        dataset.train()
        return predictions, sum(losses) / len(losses)

    def generate(self, dataset, prompt, steps=256):
        tokens = dataset.encode(prompt)
        self.model.eval()
        with Tensor.no_grad():
            for _ in range(steps):
                window = Tensor([tokens[-dataset.context_size :]])  # (1, T)
                logits = self.model(window).data[0, -1].astype(np.float64)  # (1, T, V) -> (V,)
                probabilities = np.exp(logits - logits.max())
                probabilities = probabilities / probabilities.sum()
                tokens.append(int(np.random.choice(dataset.vocab_size, p=probabilities)))
        self.model.train()
        return dataset.decode(tokens)

    # --8<-- [end:trainer]


# --8<-- [start:main]
def main(filename, epochs=2):
    np.random.seed(42)
    lr = 0.001

    dataset = CharDataset(filename, batch_size=4, context_size=32)
    model = GPT(dataset.vocab_size, dataset.context_size, embedding_size=64, heads=2, blocks=2)
    optimizer = AdamWOptimizer(model.parameters, lr=lr)
    scheduler = WarmupCosineScheduler(lr, epochs * len(dataset), 100, lr / 10)
    trainer = GPTTrainer(model, GPTLoss(), optimizer)

    trainer.train(dataset, epochs, scheduler)
    predictions, loss = trainer.test(dataset)
    print(f"predictions:\t{len(predictions)} × {predictions[0].shape}")
    print(f"loss:\t{loss}")
    print(trainer.generate(dataset, "ROMEO:"))
    return loss
    # --8<-- [end:main]


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else corpus_path("tinyshakespeare"))
