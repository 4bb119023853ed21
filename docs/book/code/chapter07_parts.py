"""第 7 章的实验另外要用的零件：交叉熵、拼接、独热、Adam"""

import numpy as np
from chapter07 import Layer, Loss, Tensor


# --8<-- [start:cross_entropy]
class CrossEntropy(Loss):
    """交叉熵：正确字符的概率取对数，再取负；输入是 Softmax 之前的分数"""

    def loss(self, p, y):
        shifted = p.data - p.data.max(axis=-1, keepdims=True)
        log_sum = np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        log_probabilities = shifted - log_sum  # (B, V)
        result = Tensor(-(log_probabilities * y.data).sum(axis=-1).mean())

        def gradient_fn():
            p.grad += (np.exp(log_probabilities) - y.data) / len(y.data) * result.grad

        return result.attach(gradient_fn, [p])

    # --8<-- [end:cross_entropy]


# --8<-- [start:concatenate]
class Concatenate(Layer):
    """拼接：把一段文字的各个向量首尾相接，谁在前谁在后因此保留下来"""

    def forward(self, x):
        batch, length, size = x.data.shape
        p = Tensor(x.data.reshape(batch, length * size))  # (B, T, E) -> (B, T·E)

        def gradient_fn():
            x.grad += p.grad.reshape(batch, length, size)  # (B, T·E) -> (B, T, E)

        return p.attach(gradient_fn, [x])

    # --8<-- [end:concatenate]


class OneHot(Layer):
    """独热：没有参数，后面接平均池化就是词袋"""

    def __init__(self, vocab_size):
        self.rows = np.eye(vocab_size)

    def forward(self, x):
        return Tensor(self.rows[x.data])  # (B, T) -> (B, T, V)


class Adam:
    """按梯度的平均大小调节每个参数的步子；第 9 章细讲，这里只求训练充分"""

    def __init__(self, parameters, lr):
        self.parameters, self.lr, self.steps = parameters, lr, 0
        self.first = [np.zeros_like(p.data) for p in parameters]
        self.second = [np.zeros_like(p.data) for p in parameters]

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad.fill(0)

    def step(self):
        self.steps += 1
        for p, m, v in zip(self.parameters, self.first, self.second, strict=True):
            m += 0.1 * (p.grad - m)
            v += 0.001 * (p.grad**2 - v)
            mean, square = m / (1 - 0.9**self.steps), v / (1 - 0.999**self.steps)
            p.data -= self.lr * mean / (np.sqrt(square) + 1e-8)
