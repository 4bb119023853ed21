r"""
# 一层嵌入就是二元模型

只看前一个字符来猜下一个字符，可以数一数每对相邻的字符，也可以训练一层嵌入，两条路走到同一个地方。

这样的模型叫二元模型（bigram model）。它不需要网络：数一数每对相邻的字符各出现几次就行。
也可以让一层嵌入去学：`Embedding(词表大小, 词表大小)` 给每个字符一行，这一行直接当作下一个字符的 logits。
用交叉熵训练，损失应当从上方接近计数得到的答案。
"""

# %%
# ## 数出来的答案
#
# 对训练集里的每一对相邻字符 $(a, b)$ 计数，$p(b \mid a) = n_{ab} / n_a$，
# 平均损失是 $-\frac1n\sum_{ab} n_{ab} \ln p(b \mid a)$。

import math

import matplotlib.pyplot as plt
import numpy as np

from gptcore import AdamWOptimizer, CharDataset, Embedding, GPTLoss, GPTTrainer, corpus_path

np.random.seed(42)
dataset = CharDataset(corpus_path("stories"), batch_size=16, context_size=64)
x, y = dataset.all()
counts = np.zeros((dataset.vocab_size, dataset.vocab_size))
np.add.at(counts, (x.data.ravel(), y.data.ravel()), 1)

a, b = np.nonzero(counts)
p = counts[a, b] / counts.sum(axis=1)[a]
counted = -float(np.sum(counts[a, b] * np.log(p))) / x.size
print(f"词表 {dataset.vocab_size} 个字符，均匀猜测的损失 {math.log(dataset.vocab_size):.3f}")
print(f"数出来的二元模型 {counted:.3f}")

# %%
# ## 学出来的答案

model = Embedding(dataset.vocab_size, dataset.vocab_size)
trainer = GPTTrainer(model, GPTLoss(), AdamWOptimizer(model.parameters, lr=0.1, weight_decay=0.0))
losses = [report.loss for report in trainer.steps(dataset, 400)]
print(f"学了 {len(losses)} 步，最后 50 步的平均损失 {sum(losses[-50:]) / 50:.3f}")

# %%
# 两条横线是均匀猜测和数出来的答案，曲线是每一步的损失。

fig, ax = plt.subplots(figsize=(5, 3.4), layout="constrained")
ax.plot(losses, linewidth=1, label="embedding")
ax.axhline(math.log(dataset.vocab_size), color="gray", linestyle=":", label="uniform")
ax.axhline(counted, color="black", linestyle="--", label="counted")
ax.set_title("an embedding learns the bigram table")
ax.set_xlabel("step")
ax.set_ylabel("nats per character")
ax.legend()
plt.show()
