"""第 15 章的长时间实验：训练、消融、残差流与基线

每个子命令把结果写进 docs/book/results/，一行写一次；已经有的行跳过，中断之后接着运行即可。

    python docs/book/code/chapter15_runs.py train          正文的那次训练
    python docs/book/code/chapter15_runs.py ablation 2     消融，2 块，每行一轮
    python docs/book/code/chapter15_runs.py ablation 6     消融，6 块，每行一轮
    python docs/book/code/chapter15_runs.py baselines      均匀、一元与二元模型
    python docs/book/code/chapter15_runs.py stream         初始时残差流的方差
    python docs/book/code/chapter15_runs.py speed          一步训练要多少处理器时间
    python docs/book/code/chapter15_runs.py summary        由以上结果算出页面上的表与差值

语料取 `corpus_path("tinyshakespeare")`：环境变量 GPTCORE_DATA 可以指定它所在的文件夹。
"""

import argparse
import json
import math
import os
import platform
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import gptcore
from gptcore import (
    GPT,
    AdamWOptimizer,
    CharDataset,
    GPTLoss,
    GPTTrainer,
    Layer,
    RMSNorm,
    Tensor,
    WarmupCosineScheduler,
    corpus_path,
    no_grad,
)

RESULTS = Path(__file__).resolve().parents[1] / "results"
MACHINE = f"{os.cpu_count()} 核 {platform.machine().replace('_', '-')} 云主机，BLAS 用 1 个线程"
BATCH, CONTEXT, EMBEDDING, HEADS = 4, 32, 64, 2
LR, WARMUP = 1e-3, 100
SEEDS = (0, 1, 2)
EXPERIMENTS = ["train", "ablation", "baselines", "stream", "speed", "summary"]
SHORT = 300  # 缩短的运行走这么多步，取最后 100 步的平均训练损失


# ---------------------------------------------------------------- 模型


# --8<-- [start:swap]
class Identity(Layer):
    """什么也不做，用来拿掉归一化"""

    def forward(self, x):
        return x


def swap_normalization(model, make):
    """把模型里每一个归一化换成 `make()`"""
    for transformer in model.transformers:
        transformer.attention.normalize = make()
        transformer.feed_forward.normalize = make()
    model.output.normalize = make()
    return model


# --8<-- [end:swap]


# --8<-- [start:shrink]
def shrink_branches(model):
    """每条残差支路最后的权重乘以 1/√(支路数)，GPT-2 初始化的做法"""
    scale = 1 / math.sqrt(2 * len(model.transformers))
    for transformer in model.transformers:
        transformer.attention.output.weight.data *= scale
        transformer.feed_forward.output.weight.data *= scale
    return model


# --8<-- [end:shrink]


def build(norm, blocks, seed, vocab_size=65):
    """一个模型；同一个种子的各种归一化从同样的权重出发"""
    rng = np.random.default_rng(seed)
    model = GPT(vocab_size, CONTEXT, EMBEDDING, HEADS, blocks, rng=rng)
    if norm == "rms":
        swap_normalization(model, lambda: RMSNorm(EMBEDDING))
    elif norm.startswith("none"):
        swap_normalization(model, Identity)
    if norm.endswith("-shrunk"):
        shrink_branches(model)
    return model


# --8<-- [start:stream]
def stream_variances(model, ids):
    """残差流的方差：嵌入之后、每个子层之后，各行方差的平均"""
    variances = []
    with no_grad():
        x = model.embedding(ids)
        variances.append(float(x.data.var(axis=-1).mean()))
        for transformer in model.transformers:
            for layer in (transformer.attention, transformer.feed_forward):
                x = layer(x)
                variances.append(float(x.data.var(axis=-1).mean()))
    return variances


# --8<-- [end:stream]


# ---------------------------------------------------------------- 训练


def train_row(dataset, model, epochs, steps=None, every=500):
    """训练一行，给出它的全部数字；`steps` 不为空时走这么多步就停，不测试"""
    dataset.train()
    total = epochs * len(dataset)
    probe = Tensor(np.concatenate([dataset[i][0].data for i in range(16)]))  # (64, T)
    row = {"parameters": model.num_parameters, "stream_initial": stream_variances(model, probe)}
    trainer = GPTTrainer(model, GPTLoss(), AdamWOptimizer(model.parameters, lr=LR))
    scheduler = WarmupCosineScheduler(LR, total, WARMUP, LR / 10)

    losses, norms, begin = [], [], time.perf_counter()
    for report in trainer.steps(dataset, steps or total, scheduler):
        losses.append(report.loss)
        norms.append(report.grad_norm)
        done = report.step + 1
        if not steps and done % len(dataset) == 0:
            epoch = done // len(dataset)
            row[f"train_{epoch}"] = mean(losses[-len(dataset) :])
            row[f"test_{epoch}"] = trainer.test(dataset)[1]
    row["seconds"] = round(time.perf_counter() - begin, 1)
    row["first_loss"] = losses[0]
    row["short_loss"] = mean(losses[SHORT - 100 : SHORT])
    row["first_grad_norm"] = norms[0]
    row["short_grad_norm"] = mean(norms[:100])
    row["clipped"] = mean([float(norm > 1) for norm in norms])
    row["stream_final"] = stream_variances(model, probe)
    row["curve"] = [
        [i + every, round(mean(losses[i : i + every]), 4)] for i in range(0, len(losses), every)
    ]
    return row


def mean(values):
    return float(np.mean(np.asarray(values, dtype=np.float64)))


def load_dataset():
    return CharDataset(corpus_path("tinyshakespeare"), batch_size=BATCH, context_size=CONTEXT)


def train_main(steps=None):
    """正文的那次训练：层归一化，2 块，2 轮，种子 42；给出 `steps` 就只走这么多步"""
    np.random.seed(42)
    dataset = load_dataset()
    model = GPT(dataset.vocab_size, CONTEXT, EMBEDDING, HEADS, blocks=2)
    row = train_row(dataset, model, epochs=2, steps=steps, every=200)
    if steps:
        return row
    trainer = GPTTrainer(model, GPTLoss(), AdamWOptimizer(model.parameters, lr=LR))
    np.random.seed(42)
    row["sample"] = trainer.generate(dataset, "ROMEO:", steps=400)
    return row


def ablation_rows(blocks):
    """消融的各行，先做最要紧的对比"""
    rows = [(norm, seed) for seed in SEEDS for norm in ("layer", "none")]
    rows += [("rms", seed) for seed in SEEDS]
    return rows + [("none-shrunk", seed) for seed in SEEDS if blocks > 2]


def ablation_row(dataset, norm, blocks, seed, steps=None):
    model = build(norm, blocks, seed, dataset.vocab_size)
    row = train_row(dataset, model, epochs=1, steps=steps)
    return {"norm": norm, "blocks": blocks, "epochs": 1, **row}


# ---------------------------------------------------------------- 基线


def baselines(dataset):
    """均匀、一元、二元模型在测试段上的交叉熵，字符由训练段计数"""
    tokens = np.asarray(dataset.tokens)
    cut = int(len(tokens) * dataset.split)
    train, test = tokens[:cut], tokens[cut:]
    size = dataset.vocab_size

    unigram = np.bincount(train, minlength=size) + 1.0  # 加一平滑
    unigram /= unigram.sum()
    bigram = np.ones((size, size))  # 同样加一
    np.add.at(bigram, (train[:-1], train[1:]), 1)
    bigram /= bigram.sum(axis=1, keepdims=True)
    return {
        "uniform": math.log(size),
        "unigram": float(-np.log(unigram[test[1:]]).mean()),
        "bigram": float(-np.log(bigram[test[:-1], test[1:]]).mean()),
        "predictions": len(test) - 1,
        "train_characters": len(train),
    }


# ---------------------------------------------------------------- 初始时的残差流


def stream_rows():
    """1 到 12 块的模型在初始时残差流的方差与第一步的损失"""
    dataset = load_dataset()
    x = Tensor(np.concatenate([dataset[i][0].data for i in range(16)]))
    y = Tensor(np.concatenate([dataset[i][1].data for i in range(16)]))
    row = {}
    for norm in ("layer", "rms", "none", "none-shrunk"):
        model = build(norm, 12, seed=0)
        row[norm.replace("-", "_")] = stream_variances(model, x)
    row["first_loss"] = {}
    for norm in ("layer", "none"):
        values = []
        for blocks in (0, 1, 2, 4, 6, 8, 12):
            with no_grad():
                values.append([blocks, float(GPTLoss()(build(norm, blocks, seed=0)(x), y))])
        row["first_loss"][norm] = values
    return row


def speed_row(steps=200):
    """一步训练的处理器时间；不受别的程序影响，重复三次取最小"""
    dataset, row = load_dataset(), {}
    for blocks in (2, 6):
        model = build("layer", blocks, seed=0)
        trainer = GPTTrainer(model, GPTLoss(), AdamWOptimizer(model.parameters, lr=LR))
        times = []
        for _ in range(3):
            begin = time.process_time()
            for _ in trainer.steps(dataset, steps):
                pass
            times.append((time.process_time() - begin) / steps)
        row[f"milliseconds_{blocks}"] = 1000 * min(times)
    row["minutes_main"] = row["milliseconds_2"] * 2 * len(dataset) / 60_000
    return row


# ---------------------------------------------------------------- 页面上的表

NAMES = {
    "layer": "层归一化",
    "rms": "RMSNorm",
    "none": "没有",
    "none_shrunk": "没有，缩小支路",
}


def summary():
    """各行的平均与差值；差值是对同一个种子（同样的初始权重）相减，再对种子平均"""
    base, main = load("chapter15_baselines")["baselines"], load("chapter15_train")["main"]
    models = [
        ("均匀：每个字符的概率相同", base["uniform"]),
        ("一元：只看字符的频率", base["unigram"]),
        ("二元：只看前一个字符", base["bigram"]),
        ("GPT，一轮之后（学习率还没有降下来）", main["test_1"]),
        ("**GPT，两轮之后**", main["test_2"]),
    ]
    page = {
        "results": {
            "head": ["模型", "测试损失", "困惑度"],
            "align": "lrr",
            "rows": [[name, f"{loss:.4f}", f"{math.exp(loss):.1f}"] for name, loss in models],
        }
    }
    page["crossed"] = {  # 训练损失（每 200 步的平均）在多少步之内降到基线以下
        name: next(step for step, loss in main["curve"] if loss < base[name])
        for name in ("unigram", "bigram")
    }
    page["stream"] = {"none_12_yi": load("chapter15_stream")["initial"]["none"][24] / 1e8}
    for blocks in (2, 6):
        rows = load(f"chapter15_ablation{blocks}")
        norms = [name for name in NAMES if all(f"{name}_{seed}" in rows for seed in SEEDS)]
        if "layer" not in norms:
            continue
        tests = {n: [rows[f"{n}_{seed}"]["test_1"] for seed in SEEDS] for n in norms}
        first = {n: [rows[f"{n}_{seed}"]["first_loss"] for seed in SEEDS] for n in norms}
        page[f"ablation{blocks}"] = {
            "head": ["归一化", "第一步的损失", "测试损失：种子 0", "种子 1", "种子 2", "平均"],
            "align": "lrrrrr",
            "rows": [
                [
                    NAMES[n],
                    " / ".join(f"{value:.3g}" for value in first[n]),
                    *(f"{value:.4f}" for value in tests[n]),
                    f"**{mean(tests[n]):.4f}**",
                ]
                for n in norms
            ],
        }
        pairs = {n: np.subtract(tests[n], tests["layer"]) for n in norms if n != "layer"}
        page[f"gap{blocks}"] = {
            n: {"mean": mean(d), "smallest": float(d.min()), "largest": float(d.max())}
            for n, d in pairs.items()
        }
        page[f"spread{blocks}"] = max(tests["layer"]) - min(tests["layer"])
        page[f"short{blocks}"] = {
            n: mean([rows[f"{n}_{seed}"]["short_loss"] for seed in SEEDS]) for n in norms
        }
    return page


# ---------------------------------------------------------------- 结果文件


def load(name):
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write(name, rows):
    path = RESULTS / f"{name}.json"
    temporary = path.with_suffix(".tmp")
    text = json.dumps(rows, ensure_ascii=False, indent=1)
    temporary.write_text(text + "\n", encoding="utf-8", newline="\n")
    temporary.replace(path)


def save(name, key, row, command, seed, dtype="float32"):
    """在结果文件里写一行，连同怎样得到它"""
    facts = {
        "command": f"python docs/book/code/chapter15_runs.py {command}",
        "seed": seed,
        "dtype": dtype,
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "gptcore": gptcore.__version__,
        },
        "machine": MACHINE,
    }
    write(name, {**load(name), key: {**facts, **row}})
    print(key, {k: v for k, v in row.items() if isinstance(v, float | int)}, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("blocks", nargs="?", type=int, default=2)
    parser.add_argument("--norm", help="只做这一种归一化的各行")
    arguments = parser.parse_args()
    if arguments.experiment == "train" and "main" not in load("chapter15_train"):
        save("chapter15_train", "main", train_main(), "train", 42)
    if arguments.experiment == "baselines":
        row = baselines(load_dataset())
        save("chapter15_baselines", "baselines", row, "baselines", None, "float64")
    if arguments.experiment == "stream":
        save("chapter15_stream", "initial", stream_rows(), "stream", 0)
    if arguments.experiment == "speed":
        save("chapter15_speed", "step", speed_row(), "speed", 0)
    if arguments.experiment == "summary":
        write("chapter15", summary())
    if arguments.experiment == "ablation":
        name, dataset = f"chapter15_ablation{arguments.blocks}", load_dataset()
        for norm, seed in ablation_rows(arguments.blocks):
            key = f"{norm}_{seed}".replace("-", "_")
            if key not in load(name) and arguments.norm in (None, norm):
                row = ablation_row(dataset, norm, arguments.blocks, seed)
                save(name, key, row, f"ablation {arguments.blocks}", seed)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
