r"""
# 梯度累积

内存放不下大的批，就分成几个小批依次算，梯度加在一起再更新：结果与一大批相同，内存只要几分之一。

批越大，梯度的估计越准，但一批的中间结果要同时放在内存里。梯度累积（gradient accumulation）把 $k$ 个小批的梯度加起来，
再更新一次，等于用 $k$ 倍大的批。这个示例检验“等于”，指出一个容易写错的地方，再量一量内存。
"""

# %%
# ## 语料：长短不一的故事
#
# 每个样本是一篇故事的前一句到前四句，不够长的在后面补齐。补上的位置不是要学的内容，标签写成 -100，
# `GPTLoss` 不计入它们：损失是其余标签的平均。于是各个小批里，计入损失的标签个数并不相同。

import tracemalloc

import matplotlib.pyplot as plt
import numpy as np

from gptcore import (
    GPT,
    CharDataset,
    CharTokenizer,
    Dataset,
    GPTLoss,
    GPTTrainer,
    SGDOptimizer,
    corpus_path,
    load_corpus,
)

CONTEXT, IGNORED = 96, -100


class Stories(Dataset):
    """每篇故事取前几句，末尾补齐，补上的标签不计入损失"""

    def load(self):
        stories = load_corpus("stories").splitlines()[:64]
        self.tokenizer = CharTokenizer.from_text("\n".join(stories))
        x = np.zeros((len(stories), CONTEXT), np.int64)
        y = np.full((len(stories), CONTEXT), IGNORED)
        for row, story in enumerate(stories):
            sentences = story.split("。")[: 1 + row % 4]
            ids = self.tokenizer.encode_array("。".join(sentences)[: CONTEXT + 1])
            x[row, : len(ids) - 1], y[row, : len(ids) - 1] = ids[:-1], ids[1:]
        self.train_data = self.test_data = x, y


dataset = Stories(batch_size=2)
loss_fn = GPTLoss()  # ignore_index 默认就是 -100
counts = [loss_fn.count(dataset[i][1]) for i in range(4)]
print(f"前四个小批各有 {counts} 个计入损失的标签，共 {sum(counts)} 个")

# %%
# ## 一批 8 篇，与 4 批各 2 篇
#
# `accumulation_steps=4` 时，训练器每 4 批更新一次。第 $i$ 批有 $n_i$ 个标签，平均损失 $L_i$，
# 它乘以 $n_i/\sum_j n_j$ 再反向传播，加起来正是一大批的平均损失。直接取各批损失的平均，则让标签少的小批占了太多份量：


def make_model(vocab_size, context_size=CONTEXT):
    """初值总是相同的小 GPT"""
    rng = np.random.default_rng(0)
    return GPT(vocab_size, context_size, 32, heads=4, blocks=2, rng=rng)


def gradient(model):
    """全部梯度连成一个向量"""
    return np.concatenate([p.grad.ravel() for p in model.parameters])


def one_step(batch_size, accumulation_steps):
    """训练一步之后的梯度与损失"""
    model = make_model(dataset.tokenizer.vocab_size)
    trainer = GPTTrainer(
        model, loss_fn, SGDOptimizer(model.parameters, lr=0.1),
        accumulation_steps=accumulation_steps, max_norm=None,
    )  # fmt: skip
    (report,) = trainer.steps(Stories(batch_size), 1)
    return gradient(model), report.loss


def mean_of_means():
    """写错的累积：各批的平均损失再取平均"""
    model = make_model(dataset.tokenizer.vocab_size)
    losses = []
    for i in range(4):
        x, y = dataset[i]
        loss = loss_fn(model(x), y) / 4
        loss.backward()
        losses.append(loss.item())
    return gradient(model), sum(losses)


large, large_loss = one_step(8, 1)
cases = {"1 × 8": (large, large_loss), "4 × 2": one_step(2, 4), "平均的平均": mean_of_means()}
for name, (vector, loss) in cases.items():
    error = np.linalg.norm(vector - large) / np.linalg.norm(large)
    shown = "< 1e-6" if error < 1e-6 else f"{error:.3f}"
    print(f"{name}：损失 {loss:.4f}，梯度的相对误差 {shown}")

# %%
# 标签个数都相同时，两种写法没有区别，所以这个错误平时看不出来。
#
# ## 一路训练下去
#
# 数据换成等长的窗口，同样的初值，训练 120 步：一批 16 个窗口，4 批 4 个，以及不累积、一批只有 4 个。
# 每一步的学习率相同。


def curve(batch_size, accumulation_steps, steps=120):
    """每一步的损失"""
    data = CharDataset(corpus_path("stories"), batch_size=batch_size, context_size=32)
    model = make_model(data.vocab_size, 32)
    optimizer = SGDOptimizer(model.parameters, lr=0.1)
    trainer = GPTTrainer(model, loss_fn, optimizer, accumulation_steps=accumulation_steps)
    return np.array([report.loss for report in trainer.steps(data, steps)])


curves = {"1 × 16": curve(16, 1), "4 × 4": curve(4, 4), "1 × 4": curve(4, 1)}
gap = np.abs(curves["1 × 16"] - curves["4 × 4"])
shown = "< 0.0001" if gap.max() < 1e-4 else f"{gap.max():.4f}"
print(f"1 × 16 与 4 × 4，各步的损失相差 {shown}")

fig, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
ax.plot(curves["1 × 4"], color="0.75", linewidth=0.9, label="1 × 4")
ax.plot(curves["1 × 16"], color="tab:blue", linewidth=4, alpha=0.5, label="1 × 16")
ax.plot(curves["4 × 4"], color="black", linewidth=1, label="4 × 4 accumulated")
ax.set_title("training loss, batches × windows")
ax.set_xlabel("step")
ax.set_ylabel("nats per character")
ax.legend()
plt.show()

# %%
# 累积的与一大批的曲线重合，只差浮点的舍入（学习率再大几倍，舍入的差别会一步步放大）。
# 小批的那条抖得厉害，每一步看到的数据也只有四分之一。
#
# ## 省下的是内存
#
# 用 `tracemalloc` 量一步之内 NumPy 新占的内存的峰值，每一步总是 32 个窗口。


def peak(batch_size, accumulation_steps):
    """一步之内新占内存的峰值，单位 MiB"""
    data = CharDataset(corpus_path("stories"), batch_size=batch_size, context_size=64)
    model = make_model(data.vocab_size, 64)
    optimizer = SGDOptimizer(model.parameters, lr=0.1)
    trainer = GPTTrainer(model, loss_fn, optimizer, accumulation_steps=accumulation_steps)
    steps = trainer.steps(data, 2)
    next(steps)  # 第一步之后，梯度的数组已经在了
    tracemalloc.start()
    next(steps)
    _, highest = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return highest / 2**20


sizes = [(32, 1), (16, 2), (8, 4), (4, 8)]
peaks = [peak(*size) for size in sizes]
labels = [f"{k} × {batch}" for batch, k in sizes]
for label, value in zip(labels, peaks, strict=True):
    print(f"{label:6}  {value:.0f} MiB")

fig, ax = plt.subplots(figsize=(5, 2.6), layout="constrained")
ax.bar(labels, peaks, color="tab:blue", width=0.6)
ax.set_title("peak memory of one step, batches × windows")
ax.set_ylabel("MiB")
plt.show()

# %%
# 内存差不多与小批的大小成正比。时间没有省下，计算量是一样的；小批太小时，每次调用的开销还会显出来。
# 所以内存够用时直接用大的批。
#
# 一轮的末尾凑不满 $k$ 批时，剩下的几批也更新一次，按实际的标签数平均。命令行里的写法是 `gptcore train --accumulate 4`。
