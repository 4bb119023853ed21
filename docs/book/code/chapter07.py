"""第 7 章《嵌入》的完整程序

只用 NumPy，从张量、反向传播、数据集一直写到训练和生成：给出 32 个字符，预测下一个字符。

用法：

    python chapter07.py 语料路径/tinyshakespeare.txt

不给路径时，从环境变量 GPTCORE_DATA 指定的文件夹里找 tinyshakespeare.txt。
"""

import os
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np


# --8<-- [start:tensor]
class Tensor:
    """张量：一个数组，加上它的梯度和它的来历"""

    def __init__(self, data):
        self.data = np.asarray(data)
        self.grad = np.zeros(self.data.shape)
        self.gradient_fn = None  # 怎样把自己的梯度传给来源
        self.parents = ()  # 来源：由哪些张量算出来

    def attach(self, gradient_fn, parents):
        """记下来历：反向传播时调用 gradient_fn，再轮到 parents"""
        self.gradient_fn = gradient_fn
        self.parents = parents
        return self

    def backward(self):
        """从自己出发反向传播：一个节点的梯度加齐了，才继续往前传"""
        order, visited, stack = [], set(), [(self, False)]
        while stack:
            node, expanded = stack.pop()
            if expanded:
                order.append(node)  # 它的来源都已经排在前面
            elif id(node) not in visited:
                visited.add(id(node))
                stack.append((node, True))
                stack.extend((parent, False) for parent in node.parents)

        self.grad = np.ones(self.data.shape)
        for node in reversed(order):
            if node.gradient_fn is not None:
                node.gradient_fn()

    def __repr__(self):
        return f"Tensor({self.data})"

    # --8<-- [end:tensor]


# --8<-- [start:dataset]
class Dataset(ABC):
    """数据集：训练和测试两份 `(特征, 标签)`，按批取用"""

    def __init__(self, batch_size=1):
        self.batch_size = batch_size
        self.train_data = self.test_data = None
        self.load()
        self.train()

    @abstractmethod
    def load(self):
        """设置 train_data 和 test_data，各是一对数组"""

    def train(self):
        self.data = self.train_data

    def eval(self):
        self.data = self.test_data

    def all(self):
        """当前这一份的全部样本"""
        x, y = self.data
        return Tensor(x), Tensor(y)

    def __len__(self):
        return len(self.data[0]) // self.batch_size  # 凑不满一批的尾巴不要

    def __getitem__(self, index):
        if not 0 <= index < len(self):
            raise IndexError(f"第 {index} 批不存在，一共 {len(self)} 批")
        batch = slice(index * self.batch_size, (index + 1) * self.batch_size)
        x, y = self.data
        return Tensor(x[batch]), Tensor(y[batch])

    # --8<-- [end:dataset]


# --8<-- [start:char_dataset]
class CharDataset(Dataset):
    """字符数据集：特征是一段文字的编号，标签是下一个字符的独热编码"""

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
        self.tokens = np.array(self.encode(text))

        boundary = int(len(self.tokens) * self.split)
        self.train_data = self.pack(self.tokens[:boundary])
        self.test_data = self.pack(self.tokens[boundary:])

    def pack(self, tokens):
        starts = np.arange(0, len(tokens) - self.context_size, self.stride)
        x = tokens[starts[:, None] + np.arange(self.context_size)]  # (窗口数, 上下文尺寸)
        y = np.eye(self.vocab_size)[tokens[starts + self.context_size]]  # (窗口数, 词表大小)
        return x, y

    def encode(self, text):
        return [self.stoi[char] for char in text]

    def decode(self, tokens):
        return "".join(self.itos[token] for token in tokens)

    # --8<-- [end:char_dataset]


# --8<-- [start:layer]
class Layer(ABC):
    """层：像函数一样调用，并交出自己的参数"""

    @abstractmethod
    def forward(self, x):
        """由输入张量算出输出张量"""

    def __call__(self, x):
        return self.forward(x)

    @property
    def parameters(self):
        return [value for value in vars(self).values() if isinstance(value, Tensor)]


class Sequential(Layer):
    """顺序：前一层的输出是后一层的输入"""

    def __init__(self, layers):
        self.layers = layers

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

    @property
    def parameters(self):
        return [parameter for layer in self.layers for parameter in layer.parameters]

    # --8<-- [end:layer]


# --8<-- [start:linear]
class Linear(Layer):
    """线性层：y = x Wᵀ + b"""

    def __init__(self, in_size, out_size):
        self.weight = Tensor(np.random.normal(0, np.sqrt(2 / in_size), (out_size, in_size)))
        self.bias = Tensor(np.zeros(out_size))

    def forward(self, x):
        p = Tensor(x.data @ self.weight.data.T + self.bias.data)  # (B, I) -> (B, O)

        def gradient_fn():
            self.weight.grad += p.grad.T @ x.data  # (O, B) @ (B, I) -> (O, I)
            self.bias.grad += p.grad.sum(axis=0)
            x.grad += p.grad @ self.weight.data  # (B, O) @ (O, I) -> (B, I)

        return p.attach(gradient_fn, [x])

    # --8<-- [end:linear]


# --8<-- [start:embedding]
class Embedding(Layer):
    """嵌入层：按编号取出权重的一行"""

    def __init__(self, vocab_size, embedding_size, std=0.02):
        self.weight = Tensor(np.random.normal(0, std, (vocab_size, embedding_size)))

    def forward(self, x):
        p = Tensor(self.weight.data[x.data])  # (B, T) -> (B, T, E)

        def gradient_fn():
            # 同一个编号出现几次，梯度就加几次；写成 grad[x.data] += p.grad 只会留下一次
            np.add.at(self.weight.grad, x.data, p.grad)

        return p.attach(gradient_fn, [x])

    # --8<-- [end:embedding]


# --8<-- [start:mean_pool]
class MeanPool(Layer):
    """平均池化：把一段文字的各个向量平均成一个"""

    def forward(self, x):
        p = Tensor(x.data.mean(axis=1))  # (B, T, E) -> (B, E)

        def gradient_fn():
            x.grad += p.grad[:, None, :] / x.data.shape[1]  # 平均分给每个位置

        return p.attach(gradient_fn, [x])

    # --8<-- [end:mean_pool]


# --8<-- [start:activations]
class ReLU(Layer):
    """负数变成 0，其余不变"""

    def forward(self, x):
        p = Tensor(np.maximum(0, x.data))

        def gradient_fn():
            x.grad += p.grad * (x.data > 0)

        return p.attach(gradient_fn, [x])


class Softmax(Layer):
    """把一组数变成概率：都是正数，加起来等于 1"""

    def __init__(self, axis=-1):
        self.axis = axis

    def forward(self, x):
        exp = np.exp(x.data - x.data.max(axis=self.axis, keepdims=True))  # 减去最大值，防止溢出
        p = Tensor(exp / exp.sum(axis=self.axis, keepdims=True))

        def gradient_fn():
            inner = (p.grad * p.data).sum(axis=self.axis, keepdims=True)
            x.grad += p.data * (p.grad - inner)

        return p.attach(gradient_fn, [x])

    # --8<-- [end:activations]


# --8<-- [start:loss]
class Loss(ABC):
    """损失函数：预测和标签差多少"""

    @abstractmethod
    def loss(self, p, y):
        """由预测 p 和标签 y 算出一个数"""

    def __call__(self, p, y):
        return self.loss(p, y)


class MSELoss(Loss):
    """均方误差：对批里的每个样本、词表里的每个字符取平均"""

    def loss(self, p, y):
        error = p.data - y.data
        mse = Tensor(np.mean(error**2))

        def gradient_fn():
            p.grad += 2 * error / error.size * mse.grad

        return mse.attach(gradient_fn, [p])

    # --8<-- [end:loss]


# --8<-- [start:optimizer]
class SGDOptimizer:
    """随机梯度下降：每个参数朝负梯度方向走一小步"""

    def __init__(self, parameters, lr):
        self.parameters = parameters
        self.lr = lr

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad.fill(0)

    def step(self):
        for parameter in self.parameters:
            parameter.data -= self.lr * parameter.grad

    # --8<-- [end:optimizer]


# --8<-- [start:trainer]
class Trainer:
    """训练器：训练、测试、生成"""

    def __init__(self, model, loss_fn, optimizer):
        self.model = model
        self.loss_fn = loss_fn
        self.optimizer = optimizer

    def train(self, dataset, epochs):
        dataset.train()
        for epoch in range(epochs):
            start, total = time.perf_counter(), 0.0
            for x, y in dataset:
                self.optimizer.zero_grad()
                loss = self.loss_fn(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                total += loss.data
            mean, seconds = total / len(dataset), time.perf_counter() - start
            # 进度写到标准错误，标准输出只留结果
            print(f"第 {epoch + 1} 轮：训练损失 {mean:.6f}，{seconds:.1f} 秒", file=sys.stderr)

    def test(self, dataset):
        dataset.eval()
        x, y = dataset.all()
        prediction = self.model(x)
        return prediction, self.loss_fn(prediction, y)

    def generate(self, dataset, prompt, steps=256):
        tokens = dataset.encode(prompt)
        for _ in range(steps):
            window = Tensor([tokens[-dataset.context_size :]])  # (1, T)，T 不超过上下文尺寸
            probabilities = self.model(window).data[0]  # (1, V) -> (V,)
            probabilities = probabilities / probabilities.sum()
            tokens.append(int(np.random.choice(dataset.vocab_size, p=probabilities)))
        return dataset.decode(tokens)

    # --8<-- [end:trainer]


# --8<-- [start:main]
def main(filename, embedding_size=16, lr=0.01, epochs=10):
    np.random.seed(42)

    dataset = CharDataset(filename, batch_size=4, context_size=32)
    hidden_size = 2 * embedding_size

    layers = [
        Embedding(dataset.vocab_size, embedding_size),  # (B, T) -> (B, T, E)
        MeanPool(),  # (B, T, E) -> (B, E)
        Linear(embedding_size, hidden_size),  # (B, E) -> (B, 2E)
        ReLU(),
        Linear(hidden_size, dataset.vocab_size),  # (B, 2E) -> (B, V)
        Softmax(),
    ]
    model = Sequential(layers)
    trainer = Trainer(model, MSELoss(), SGDOptimizer(model.parameters, lr))

    trainer.train(dataset, epochs)
    prediction, loss = trainer.test(dataset)
    print(f"prediction:\t{prediction.data.shape}")
    print(f"loss:\t{loss}")
    print(trainer.generate(dataset, "ROMEO:"))
    # --8<-- [end:main]


def corpus_path():
    """语料的路径：命令行的第一个参数，或者 GPTCORE_DATA 文件夹里的 tinyshakespeare.txt"""
    if len(sys.argv) > 1:
        path = Path(sys.argv[1])
    elif folder := os.environ.get("GPTCORE_DATA"):
        path = Path(folder) / "tinyshakespeare.txt"
    else:
        sys.exit("请在命令行给出语料的路径，或者设置环境变量 GPTCORE_DATA")
    if not path.is_file():
        sys.exit(f"找不到语料文件 {path}，请检查路径")
    return path


if __name__ == "__main__":
    main(corpus_path())
