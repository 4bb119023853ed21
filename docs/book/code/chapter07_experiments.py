"""第 7 章的实验：生成的文字为什么像乱码

把 chapter07.py 的零件换几种用法训练，结果写进 docs/book/results/chapter07.json，章节里的数字都从那里来。

用法：

    python chapter07_experiments.py 语料路径/tinyshakespeare.txt            全部，做过的不再做
    python chapter07_experiments.py 语料路径/tinyshakespeare.txt loss/mse   只做点名的几行

每一行都记下命令、种子、数据类型、版本、机器、时间；另记“短跑”的结果，供 CI 缩小规模复查。
"""

import json
import os
import platform
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import chapter07
import numpy as np
from chapter07 import (
    CharDataset,
    Embedding,
    Layer,
    Linear,
    Loss,
    MeanPool,
    MSELoss,
    ReLU,
    Sequential,
    SGDOptimizer,
    Softmax,
    Tensor,
)

from gptcore.files import atomic_write

RESULTS = Path(__file__).resolve().parents[1] / "results" / "chapter07.json"
MACHINE = "2 核 x86-64 云主机"
SHORT_STEPS = 500
"""短跑的步数，从同样的起点出发。"""


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


@dataclass(frozen=True)
class Run:
    """一次训练的全部设置；默认值就是 chapter07.py 的设置。"""

    loss: str = "mse"  # mse 或 cross_entropy
    lr: float = 0.01
    epochs: int = 10
    seed: int = 42
    embedding_size: int = 16
    hidden_size: int = 32
    batch_size: int = 4
    optimizer: str = "sgd"  # sgd 或 adam
    pooling: str = "mean"  # mean 或 concatenate
    last: int = 32  # 只看窗口里最后几个字符
    shuffled: bool = False  # 把每个窗口里的字符打乱
    reshuffle: bool = False  # 每一轮换一个样本次序


def order(pooling, last, seed=42, shuffled=False):
    """比较次序用的一组：充分训练。"""
    return Run(
        loss="cross_entropy",
        lr=0.003,
        epochs=8,
        seed=seed,
        embedding_size=32,
        hidden_size=128,
        batch_size=32,
        optimizer="adam",
        pooling=pooling,
        last=last,
        shuffled=shuffled,
        reshuffle=True,
    )


RUNS = {
    # 书里的程序，以及换掉损失或学习率之后；21.125 = 0.01 × 65² / 2
    "loss/mse": Run(),
    "loss/mse_scaled": Run(lr=21.125),
    "loss/cross_entropy": Run(loss="cross_entropy"),
    # 学习率
    "lr/0.01": Run(epochs=2),
    "lr/0.1": Run(lr=0.1, epochs=2),
    "lr/1": Run(lr=1.0, epochs=2),
    "lr/10": Run(lr=10.0, epochs=2),
    "lr/100": Run(lr=100.0, epochs=2),
    # 练习：嵌入尺寸
    "size/8": Run(embedding_size=8, hidden_size=16),
    "size/16": Run(embedding_size=16, hidden_size=32),
    "size/128": Run(embedding_size=128, hidden_size=256),
    "size_cross_entropy/8": Run(loss="cross_entropy", embedding_size=8, hidden_size=16),
    "size_cross_entropy/16": Run(loss="cross_entropy", embedding_size=16, hidden_size=32),
    "size_cross_entropy/128": Run(loss="cross_entropy", embedding_size=128, hidden_size=256),
    # 次序：看几个字符，平均还是拼接
    **{f"mean/{last}": order("mean", last) for last in (1, 2, 4, 8, 16, 32)},
    **{f"concatenate/{last}": order("concatenate", last) for last in (1, 2, 4, 8, 16, 32)},
    # 次序：打乱之后再训练，三个种子
    **{
        f"shuffle/{pooling}_{'shuffled' if shuffled else 'kept'}_{seed}": order(
            pooling, 8, seed, shuffled
        )
        for pooling in ("mean", "concatenate")
        for shuffled in (False, True)
        for seed in (1, 2, 3)
    },
}


def build(run, vocab_size):
    """返回算分数的网络；接上 Softmax 才是概率。参数按 chapter07.py 的次序抽取。"""
    wide = run.last if run.pooling == "concatenate" else 1
    return [
        Embedding(vocab_size, run.embedding_size),
        Concatenate() if run.pooling == "concatenate" else MeanPool(),
        Linear(wide * run.embedding_size, run.hidden_size),
        ReLU(),
        Linear(run.hidden_size, vocab_size),
    ]


def window(x, run, seed):
    """取每个窗口的最后几个字符，需要时把它们打乱。"""
    x = x[:, -run.last :]
    if run.shuffled:
        x = np.random.default_rng(seed).permuted(x, axis=1)
    return x


def measure(layers, x, y):
    """测试集上的成绩。"""
    p = Sequential([*layers, Softmax()])(Tensor(x)).data
    target = (p * y).sum(axis=1)
    return {
        "mse": float(MSELoss().loss(Tensor(p), Tensor(y)).data),
        "cross_entropy": float(-np.log(target).mean()),
        "entropy": float(-(p * np.log(p)).sum(axis=1).mean()),
        "largest": float(p.max(axis=1).mean()),
        "smallest": float(p.min(axis=1).mean()),
        "accuracy": float((p.argmax(axis=1) == y.argmax(axis=1)).mean()),
    }


def gradient_sizes(model, loss_fn, x, y, batch_size):
    """前 100 批：分数的梯度和每组参数的梯度，元素的均方根。"""
    names = ("embedding", "weight1", "bias1", "weight2", "bias2")
    parameters = [parameter for layer in model.layers for parameter in layer.parameters]
    sums = dict.fromkeys(names, 0.0)
    for start in range(0, 100 * batch_size, batch_size):
        for parameter in parameters:
            parameter.grad.fill(0)
        rows = slice(start, start + batch_size)
        loss_fn(model(Tensor(x[rows])), Tensor(y[rows])).backward()
        for name, parameter in zip(names, parameters, strict=True):
            sums[name] += float(np.mean(parameter.grad**2))
    return {name: (total / 100) ** 0.5 for name, total in sums.items()}


def train(run, dataset, steps=None):
    """训练一次；steps 给出时只训练这么多步。"""
    np.random.seed(run.seed)
    layers = build(run, dataset.vocab_size)
    if run.loss == "mse":
        model, loss_fn = Sequential([*layers, Softmax()]), MSELoss()
    else:
        model, loss_fn = Sequential(layers), CrossEntropy()
    optimizer = (Adam if run.optimizer == "adam" else SGDOptimizer)(model.parameters, run.lr)

    x, y = dataset.train_data
    test_x, test_y = dataset.test_data
    x, test_x = window(x, run, run.seed), window(test_x, run, run.seed + 1)
    start = [parameter.data.copy() for parameter in model.parameters]
    result = {"before": measure(layers, test_x, test_y), "curve": []}
    if steps is None:
        result["gradients"] = gradient_sizes(model, loss_fn, x, y, run.batch_size)

    shuffle = np.random.default_rng(run.seed)
    batches, done = len(x) // run.batch_size, 0
    for _ in range(run.epochs):
        samples = shuffle.permutation(len(x)) if run.reshuffle else np.arange(len(x))
        total = 0.0
        for i in range(batches):
            rows = samples[i * run.batch_size : (i + 1) * run.batch_size]
            optimizer.zero_grad()
            loss = loss_fn(model(Tensor(x[rows])), Tensor(y[rows]))
            loss.backward()
            optimizer.step()
            total += float(loss.data)
            done += 1
            if done == steps:
                return measure(layers, test_x, test_y)
        result["curve"].append({"train": total / batches, **measure(layers, test_x, test_y)})

    result["after"] = result["curve"][-1]
    result["moved"] = {
        name: float(np.linalg.norm(parameter.data - before) / max(np.linalg.norm(before), 1e-300))
        for name, parameter, before in zip(
            ("embedding", "weight1", "bias1", "weight2"), model.parameters, start, strict=False
        )
        if name != "bias1"
    }
    trainer = chapter07.Trainer(Sequential([*layers, Softmax()]), None, None)
    if run.pooling == "mean" and run.last == dataset.context_size:
        result["sample"] = trainer.generate(dataset, "ROMEO:")
    result["parameters"] = sum(parameter.data.size for parameter in model.parameters)
    result["steps"] = run.epochs * batches
    return result


def baselines(dataset):
    """不用网络的几种猜法，概率都来自训练文本里的计数，在同样的测试样本上打分。"""
    size = dataset.vocab_size
    boundary = int(len(dataset.tokens) * dataset.split)
    tokens = dataset.tokens[:boundary]
    x, y = dataset.test_data
    labels = y.argmax(axis=1)

    unigram = np.bincount(tokens, minlength=size) / len(tokens)
    pairs = np.zeros((size, size))
    np.add.at(pairs, (tokens[:-1], tokens[1:]), 1)
    # 没有见过的一对也要留一点概率，多少由单字频率决定
    bigram = (pairs + unigram) / (pairs.sum(axis=1, keepdims=True) + 1)

    def score(p):
        entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(axis=1).mean()
        return {
            "mse": float(np.mean((p - y) ** 2)),
            "cross_entropy": float(-np.log(p[np.arange(len(y)), labels]).mean()),
            "entropy": float(entropy),
            "accuracy": float((p.argmax(axis=1) == labels).mean()),
        }

    return {
        "uniform": score(np.full((len(y), size), 1 / size)),
        "unigram": score(np.tile(unigram, (len(y), 1))),
        "bigram": score(bigram[x[:, -1]]),
    }


def provenance(command, wall, cpu):
    """这一行数字的出处。"""
    return {
        "command": command,
        "dtype": "float64",
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "machine": MACHINE,
        "threads": 1,
        "seconds": round(wall, 1),
        "cpu_seconds": round(cpu, 1),
    }


def clock(function, *arguments):
    """返回结果、历时、处理器时间。"""
    wall, cpu = time.perf_counter(), time.process_time()
    result = function(*arguments)
    return result, time.perf_counter() - wall, time.process_time() - cpu


def main():
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        sys.exit("请先设置环境变量 OPENBLAS_NUM_THREADS=1：结果的末位与线程数有关")
    path, names = chapter07.corpus_path(), sys.argv[2:]
    if unknown := [name for name in names if name not in RUNS]:
        sys.exit(f"没有 {'、'.join(unknown)}；可用的是 {'、'.join(RUNS)}")
    dataset = CharDataset(path, batch_size=4, context_size=32)
    script = (
        f"OPENBLAS_NUM_THREADS=1 python docs/book/code/{Path(__file__).name} tinyshakespeare.txt"
    )

    saved = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    runs = saved.get("runs", {})
    scores, wall, cpu = clock(baselines, dataset)
    baseline = {**scores, **provenance(script, wall, cpu)}

    def save():
        ordered = {name: runs[name] for name in RUNS if name in runs}
        text = json.dumps({"baselines": baseline, "runs": ordered}, ensure_ascii=False, indent=1)
        atomic_write(RESULTS, (text + "\n").encode())

    for name, run in RUNS.items():
        config = asdict(run)
        done = runs.get(name, {}).get("config") == config
        if (names and name not in names) or (done and not names):
            continue
        short = train(run, dataset, SHORT_STEPS)
        result, wall, cpu = clock(train, run, dataset)
        runs[name] = {
            "config": config,
            **provenance(f"{script} {name}", wall, cpu),
            **result,
            "short": {"steps": SHORT_STEPS, **short},
        }
        save()
        after = result["after"]
        print(
            f"{name}：均方误差 {after['mse']:.10f}，交叉熵 {after['cross_entropy']:.4f}，"
            f"熵 {after['entropy']:.4f}，{wall:.0f} 秒（处理器 {cpu:.0f} 秒）",
            flush=True,
        )
    save()


if __name__ == "__main__":
    main()
