r"""
# 嵌入空间

没有人告诉模型哪些字是颜色、哪些是人名、哪些是量词，它学到的词向量却按用法聚在一起。

嵌入（embedding）给每个字一个向量。这个示例用最小的网络学 32 维的词向量：只看一个字，猜下一个字。
两个字后面跟的字相似，它们的向量就会被推到相似的位置上，因为同一个线性层要由它们给出相似的预测。
"""

# %%
# ## 学习
#
# 网络是一层嵌入和一个线性层，$\text{logits} = W\,e(x_t)$。语料是内置的 `stories`。
# 只看前一个字，损失最低是数出来的二元模型的损失；向量只有 32 维，要靠字与字之间的相似才能接近它。

import math
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.font_manager import FontProperties, findSystemFonts

from gptcore import (
    AdamWOptimizer,
    CharDataset,
    Embedding,
    GPTLoss,
    GPTTrainer,
    Linear,
    Sequential,
    corpus_path,
)

np.random.seed(42)
dataset = CharDataset(corpus_path("stories"), batch_size=32, context_size=64, stride=64)
vocab_size = dataset.vocab_size
embedding = Embedding(vocab_size, 32)
model = Sequential([embedding, Linear(32, vocab_size, bias=False)])
before = embedding.weight.data.copy()
trainer = GPTTrainer(model, GPTLoss(), AdamWOptimizer(model.parameters, lr=0.01))
losses = [report.loss for report in trainer.steps(dataset, 600)]
after = embedding.weight.data

x, y = dataset.train().all()
counts = np.zeros((vocab_size, vocab_size))
np.add.at(counts, (x.data.ravel(), y.data.ravel()), 1)
first, second = np.nonzero(counts)
p = counts[first, second] / counts.sum(axis=1)[first]
counted = -float(np.sum(counts[first, second] * np.log(p))) / x.size
print(f"词表 {vocab_size} 个字，均匀猜测的损失 {math.log(vocab_size):.3f}")
print(f"最后 50 步的平均损失 {np.mean(losses[-50:]):.3f}，数出来的二元模型 {counted:.3f}")

# %%
# ## 最近的邻居
#
# 两个向量有多像，用余弦相似度衡量：
#
# $$\cos(u, v) = \frac{u \cdot v}{\lVert u \rVert\, \lVert v \rVert}$$
#
# 训练之前的向量是随机的，邻居没有意义；训练之后，颜色的邻居是颜色，量词的邻居是量词。
# 名字取最后一个字，因为名字后面跟什么由它来预测。“晴”没有用法相同的字，它最近的邻居也离得远。

GROUPS = {
    "colours": "红蓝黄绿紫粉金",
    "names (last character)": "明福勇远博涛燕雨琪怡梅兰",
    "measure words": "把顶条只个双支盏件",
    "verbs of coming": "来走跑赶",
}


def cosines(table):
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    return unit @ unit.T


def neighbours(table, character, count=5):
    scores = cosines(table)[dataset.stoi[character]]
    nearest = np.argsort(-scores)[1 : count + 1]
    return " ".join(f"{dataset.itos[int(i)]} {scores[i]:.2f}" for i in nearest)


for character in "红涛把晴":
    print(f"{character}  训练前：{neighbours(before, character)}")
    print(f"    训练后：{neighbours(after, character)}")

# %%
# 只挑几个字看容易挑到好看的。把每一组的字两两比较，取平均，再与所有字两两的平均相比：

for title, table in (("训练前", before), ("训练后", after)):
    similarity = cosines(table)
    different = ~np.eye(vocab_size, dtype=bool)
    print(f"{title}：所有的字两两平均 {similarity[different].mean():+.3f}")
    for group in GROUPS.values():
        ids = dataset.encode(group)
        inside = similarity[np.ix_(ids, ids)][~np.eye(len(ids), dtype=bool)]
        print(f"    {inside.mean():+.3f}  {group}")

# %%
# ## 画在平面上
#
# 32 维画不出来，先用主成分分析（principal component analysis）找出变化最大的两个方向。
# 把向量减去均值排成矩阵 $X$，奇异值分解 $X = U S V^\top$，前两个主成分上的坐标就是 $U S$ 的前两列。
# 投影会丢掉许多东西，丢了多少也打印出来：在图上挨着的字，在 32 维里不一定挨着。
#
# 小点是投影的位置；挤在一起的字推开一点再写，用细线连着。
# 机器上有中文字体时画字，没有时画编号，编号对应的字打印在图的上面。


def chinese_font():
    """一种有汉字的字体，找不到就是 None"""
    known = (
        "notosanscjk-regular", "notosanscjksc-regular", "sourcehansanssc-regular", "pingfang",
        "hiragino sans gb", "msyh", "simhei", "wqy-microhei", "wqy-zenhei",
    )  # fmt: skip
    files = {Path(path).stem.lower(): path for path in findSystemFonts()}
    found = [files[name] for name in known if name in files]
    return FontProperties(fname=found[0]) if found else None


def project(table):
    """前两个主成分上的坐标，与它们占全部方差的比例"""
    centred = table - table.mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    return u[:, :2] * s[:2], float((s[:2] ** 2).sum() / (s**2).sum())


def spread(points, gap=0.065):
    """写字的位置：太近的互相推开，免得叠在一起"""
    places = points.copy()
    for _ in range(300):
        offset = places[:, None] - places[None, :]
        distance = np.linalg.norm(offset, axis=-1, keepdims=True) + 1e-9
        push = offset / distance * np.clip(gap - distance, 0, None) / 4
        places += push.sum(axis=1)
    return places


font = chinese_font()
chosen = dataset.encode("".join(GROUPS.values()))
if font is None:
    print("  ".join(f"{i} {dataset.itos[i]}" for i in chosen))
shares = []
fig, axes = plt.subplots(2, 1, figsize=(5, 8.2), layout="constrained")
fig.suptitle("character vectors in two dimensions")
for ax, title, table in zip(
    axes, ("before training", "after training"), (before, after), strict=True
):
    points, share = project(table[chosen])
    shares.append(share)
    points = (points - points.min(axis=0)) / np.ptp(points, axis=0)
    places, start = spread(points), 0
    for color, (name, group) in zip(("C3", "C0", "C2", "C1"), GROUPS.items(), strict=True):
        rows = range(start, start + len(group))
        ax.plot(*points[rows].T, ".", color=color, markersize=3, label=name)
        for row in rows:
            ax.plot(*np.stack([points[row], places[row]]).T, color=color, linewidth=0.4)
            label = dataset.itos[chosen[row]] if font else str(chosen[row])
            ax.text(*places[row], label, color=color, font=font, size=12, ha="center", va="center")
        start += len(group)
    ax.set_title(title)
    ax.set(xticks=[], yticks=[])
    ax.margins(0.12)
axes[1].legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), ncol=2, markerscale=4)
plt.show()
print(f"两个主成分占这些字的方差：训练前 {shares[0]:.0%}，训练后 {shares[1]:.0%}")

# %%
# 有的字离开了自己的组，多半是因为它还有别的用法：“雨”既是“思雨”的末字，也在“下雨”“雨伞”里；“明”也在“明天”里；
# “红”除了“红色”，还有“冻得通红”。一个字只有一个向量，几种用法只好折中。在 GPT 里，可以由注意力按上下文把它们分开。
#
# 下面是这几个字后面最常跟的字，可以核对：

for character in "雨明红绿":
    following = counts[dataset.stoi[character]]
    most = np.argsort(-following)[: min(6, np.count_nonzero(following))]
    shares = following[most] / following.sum()
    pairs = [f"{dataset.itos[int(i)]} {share:.2f}" for i, share in zip(most, shares, strict=True)]
    print(f"{character} → {'  '.join(pairs)}")
