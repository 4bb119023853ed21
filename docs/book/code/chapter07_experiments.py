"""第 7 章的实验：生成的文字为什么像乱码

把 chapter07.py 的零件换几种用法训练，结果写进 docs/book/results/chapter07.json，章节里的数字都从那里来。

    export OPENBLAS_NUM_THREADS=1
    python docs/book/code/chapter07_experiments.py             全部，做过的不再做
    python docs/book/code/chapter07_experiments.py loss_mse    重做点名的几行
    python docs/book/code/chapter07_experiments.py tables      只重新排表

语料取 `corpus_path("tinyshakespeare")`：环境变量 GPTCORE_DATA 可以指定它所在的文件夹。
每一行都记下命令、种子、数据类型、版本、机器、时间；另记“短跑”的结果，供测试缩小规模复查。
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
    Linear,
    MeanPool,
    MSELoss,
    ReLU,
    Sequential,
    SGDOptimizer,
    Softmax,
    Tensor,
)
from chapter07_parts import Adam, Concatenate, CrossEntropy, OneHot
from chapter07_tables import tables

from gptcore import corpus_path
from gptcore.files import atomic_write

RESULTS = Path(__file__).resolve().parents[1] / "results" / "chapter07.json"
MACHINE = "2 核 x86-64 云主机"
NAMES = ("embedding", "weight1", "bias1", "weight2", "bias2")
SHORT_STEPS = 500
"""短跑的步数，从同样的起点出发。"""


@dataclass(frozen=True)
class Run:
    """一次训练的全部设置；默认值就是 chapter07.py 的设置。"""

    loss: str = "mse"  # mse 或 cross_entropy
    lr: float = 0.01
    epochs: int = 10
    seed: int = 42
    embedding_size: int = 16  # 0 表示不用嵌入，直接用独热向量
    hidden_size: int = 32
    batch_size: int = 4
    optimizer: str = "sgd"  # sgd 或 adam
    pooling: str = "mean"  # mean 或 concatenate
    last: int = 32  # 只看窗口里最后几个字符
    shuffled: bool = False  # 把每个窗口里的字符打乱
    stride: int = 16  # 相邻训练窗口的距离；测试窗口始终是 16
    reshuffle: bool = False  # 每一轮换一个样本次序
    decay: bool = False  # 学习率直线降到 0


def order(pooling, last, seed=42, shuffled=False, embedding_size=32):
    """比较次序用的一组：充分训练。"""
    return Run(
        loss="cross_entropy",
        lr=0.003,
        epochs=1,
        seed=seed,
        embedding_size=embedding_size,
        hidden_size=128,
        batch_size=32,
        optimizer="adam",
        pooling=pooling,
        last=last,
        shuffled=shuffled,
        stride=2,
        reshuffle=True,
        decay=True,
    )


RUNS = {
    # 书里的程序，以及换掉损失或学习率之后；21.125 = 0.01 × 65² / 2
    "loss_mse": Run(),
    "loss_mse_scaled": Run(lr=21.125),
    "loss_cross_entropy": Run(loss="cross_entropy"),
    # 学习率
    "lr_0_01": Run(epochs=2),
    "lr_0_1": Run(lr=0.1, epochs=2),
    "lr_1": Run(lr=1.0, epochs=2),
    "lr_10": Run(lr=10.0, epochs=2),
    "lr_100": Run(lr=100.0, epochs=2),
    # 练习：嵌入尺寸
    "size_8": Run(embedding_size=8, hidden_size=16),
    "size_16": Run(embedding_size=16, hidden_size=32),
    "size_128": Run(embedding_size=128, hidden_size=256),
    "size_cross_entropy_8": Run(loss="cross_entropy", embedding_size=8, hidden_size=16),
    "size_cross_entropy_16": Run(loss="cross_entropy", embedding_size=16, hidden_size=32),
    "size_cross_entropy_128": Run(loss="cross_entropy", embedding_size=128, hidden_size=256),
    # 消融：拿掉嵌入；种子 42 的嵌入就是 loss_cross_entropy
    **{
        f"bag_{seed}": Run(loss="cross_entropy", embedding_size=0, seed=seed) for seed in (42, 1, 2)
    },
    **{f"embedding_{seed}": Run(loss="cross_entropy", seed=seed) for seed in (1, 2)},
    **{
        f"{name}_fast_{seed}": Run(loss="cross_entropy", lr=0.1, embedding_size=size, seed=seed)
        for name, size in (("bag", 0), ("embedding", 16))
        for seed in (42, 1, 2)
    },
    **{
        f"{name}_adam_{seed}": order("mean", 32, seed, embedding_size=size)
        for name, size in (("bag", 0), ("embedding", 32))
        for seed in (1, 2, 3)
    },
    # 次序：看几个字符，平均还是拼接
    **{f"mean_{last}": order("mean", last) for last in (1, 2, 4, 8, 16, 32)},
    **{f"concatenate_{last}": order("concatenate", last) for last in (1, 2, 4, 8, 16, 32)},
    # 次序：打乱之后再训练，三个种子
    **{
        f"shuffle_{pooling}_{'shuffled' if shuffled else 'kept'}_{seed}": order(
            pooling, 8, seed, shuffled
        )
        for pooling in ("mean", "concatenate")
        for shuffled in (False, True)
        for seed in (1, 2, 3)
    },
}


def build(run, vocab_size):
    """返回算分数的网络；接上 Softmax 才是概率。参数按 chapter07.py 的次序抽取。"""
    size = run.embedding_size or vocab_size
    wide = run.last if run.pooling == "concatenate" else 1
    return [
        Embedding(vocab_size, size) if run.embedding_size else OneHot(vocab_size),
        Concatenate() if run.pooling == "concatenate" else MeanPool(),
        Linear(wide * size, run.hidden_size),
        ReLU(),
        Linear(run.hidden_size, vocab_size),
    ]


def windows(dataset, run):
    """训练窗口和标签的编号；步长不是 16 时从全文另取。"""
    if run.stride == dataset.stride:
        x, y = dataset.train_data
        return x, y.argmax(axis=1)
    tokens = dataset.tokens[: int(len(dataset.tokens) * dataset.split)]
    starts = np.arange(0, len(tokens) - dataset.context_size, run.stride)
    return (
        tokens[starts[:, None] + np.arange(dataset.context_size)],
        tokens[starts + dataset.context_size],
    )


def crop(x, run, seed):
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
    """前 100 批里每组参数的梯度：元素的均方根。"""
    parameters = [parameter for layer in model.layers for parameter in layer.parameters]
    names = NAMES[-len(parameters) :]
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

    (x, labels), (test_x, test_y) = windows(dataset, run), dataset.test_data
    x, test_x = crop(x, run, run.seed), crop(test_x, run, run.seed + 1)
    one_hot = np.eye(dataset.vocab_size)
    start = [parameter.data.copy() for parameter in model.parameters]
    result = {"before": measure(layers, test_x, test_y), "curve": []}
    if steps is None:
        result["gradients"] = gradient_sizes(
            model, loss_fn, x, one_hot[labels[: 100 * run.batch_size]], run.batch_size
        )

    shuffle = np.random.default_rng(run.seed)
    batches, done = len(x) // run.batch_size, 0
    for _ in range(run.epochs):
        samples = shuffle.permutation(len(x)) if run.reshuffle else np.arange(len(x))
        total = 0.0
        for i in range(batches):
            rows = samples[i * run.batch_size : (i + 1) * run.batch_size]
            if run.decay:
                optimizer.lr = run.lr * (1 - done / (run.epochs * batches))
            optimizer.zero_grad()
            loss = loss_fn(model(Tensor(x[rows])), Tensor(one_hot[labels[rows]]))
            loss.backward()
            optimizer.step()
            total += float(loss.data)
            done += 1
            if done == steps:
                return measure(layers, test_x, test_y)
        result["curve"].append({"train": total / batches, **measure(layers, test_x, test_y)})

    result["after"] = result["curve"][-1]
    names = NAMES[-len(start) :]  # 不用嵌入时少第一个
    result["moved"] = {
        name: float(np.linalg.norm(parameter.data - before) / np.linalg.norm(before))
        for name, parameter, before in zip(names, model.parameters, start, strict=True)
        if before.any()  # 偏置从零开始，没有相对的大小
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

    samples = np.arange(len(y))

    def score(p):
        best = p == p.max(axis=1, keepdims=True)  # 并列最大的，当作随便猜其中一个
        entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(axis=1).mean()
        return {
            "mse": float(np.mean((p - y) ** 2)),
            "cross_entropy": float(-np.log(p[samples, labels]).mean()),
            "entropy": float(entropy),
            "accuracy": float((best[samples, labels] / best.sum(axis=1)).mean()),
        }

    return {
        "uniform": score(np.full((len(y), size), 1 / size)),
        "unigram": score(np.tile(unigram, (len(y), 1))),
        "bigram": score(bigram[x[:, -1]]),
    }


# -------------------------------------------------------------- 记录与命令


def provenance(name, seed, wall, cpu):
    """这一行数字的出处。"""
    return {
        "command": f"OPENBLAS_NUM_THREADS=1 python docs/book/code/{Path(__file__).name} {name}",
        "seed": seed,
        "dtype": "float64",
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "machine": MACHINE,
        "seconds": round(wall, 1),
        "cpu_seconds": round(cpu, 1),
    }


def clock(function, *arguments):
    """返回结果、历时、处理器时间。"""
    wall, cpu = time.perf_counter(), time.process_time()
    result = function(*arguments)
    return result, time.perf_counter() - wall, time.process_time() - cpu


def load_dataset():
    return CharDataset(corpus_path("tinyshakespeare"), batch_size=4, context_size=32)


def save(baseline, runs):
    runs = {name: runs[name] for name in RUNS if name in runs}
    results = {"baselines": baseline, "runs": runs}
    if len(runs) == len(RUNS):
        results["tables"] = tables(baseline, runs)
    text = json.dumps(results, ensure_ascii=False, indent=1)
    atomic_write(RESULTS, (text + "\n").encode())


def main():
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        sys.exit("请先设置环境变量 OPENBLAS_NUM_THREADS=1：结果的末位与线程数有关")
    saved = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    runs, names = saved.get("runs", {}), sys.argv[1:]
    if names == ["tables"]:
        return save(saved["baselines"], runs)
    if unknown := [name for name in names if name not in RUNS]:
        sys.exit(f"没有 {'、'.join(unknown)}；可用的是 tables、{'、'.join(RUNS)}")

    dataset = load_dataset()
    scores, wall, cpu = clock(baselines, dataset)
    baseline = {**provenance("", None, wall, cpu), **scores}
    for name, run in RUNS.items():
        config = asdict(run)
        done = runs.get(name, {}).get("config") == config
        if (names and name not in names) or (done and not names):
            continue
        short = train(run, dataset, SHORT_STEPS)
        result, wall, cpu = clock(train, run, dataset)
        runs[name] = {
            **provenance(name, run.seed, wall, cpu),
            "config": config,
            **result,
            "short": {"steps": SHORT_STEPS, **short},
        }
        save(baseline, runs)
        after = result["after"]
        print(
            f"{name}：均方误差 {after['mse']:.10f}，交叉熵 {after['cross_entropy']:.4f}，"
            f"熵 {after['entropy']:.4f}，{wall:.0f} 秒（处理器 {cpu:.0f} 秒）",
            flush=True,
        )
    return save(baseline, runs)


if __name__ == "__main__":
    main()
