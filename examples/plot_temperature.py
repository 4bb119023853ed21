r"""
# 温度与采样

温度从 0 调到 2，看下一个字的分布怎样由尖变平，写出的故事怎样从千篇一律变成胡言乱语。

模型给出的是下一个字的分数，从分数到文字还要挑一个字。温度（temperature）$\tau$ 决定挑得多大胆：

$$p_i = \frac{e^{x_i/\tau}}{\sum_j e^{x_j/\tau}}$$
"""

# %%
# ## 一个小模型
#
# 先训练一个写故事的小 GPT。每个窗口从一篇故事的开头开始，只训练几秒钟，所以它还常常写错，正好看温度的作用。

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.font_manager import FontProperties, findSystemFonts

from gptcore import (
    GPT,
    AdamWOptimizer,
    CharTokenizer,
    Dataset,
    GPTLoss,
    GPTTrainer,
    Tensor,
    WarmupCosineScheduler,
    load_corpus,
    no_grad,
)
from gptcore.data.stories import check_text

CONTEXT, STEPS = 80, 700


class Stories(Dataset):
    """从每篇故事的开头取一个窗口"""

    def load(self):
        text = load_corpus("stories")
        self.tokenizer = CharTokenizer.from_text(text)
        tokens = self.tokenizer.encode_array(text)
        ends = np.flatnonzero(tokens == self.tokenizer.stoi["\n"])
        starts = np.append(0, ends[:-1] + 1)
        starts = starts[starts + CONTEXT < len(tokens)]
        rows = tokens[starts[:, None] + np.arange(CONTEXT + 1)]
        self.train_data = rows[:-256, :-1], rows[:-256, 1:]
        self.test_data = rows[-256:, :-1], rows[-256:, 1:]


np.random.seed(42)
dataset = Stories(batch_size=8)
tokenizer = dataset.tokenizer
model = GPT(tokenizer.vocab_size, CONTEXT, embedding_size=64, heads=4, blocks=2, head_bias=False)
optimizer = AdamWOptimizer(model.parameter_groups(0.1), lr=6e-3, betas=(0.9, 0.99))
schedule = WarmupCosineScheduler(6e-3, STEPS, warmup_steps=70, min_lr=6e-4)
trainer = GPTTrainer(model, GPTLoss(), optimizer)
for _ in trainer.steps(dataset, STEPS, schedule):
    pass
print(f"训练 {STEPS} 步，测试损失 {trainer.test(dataset)[1]:.3f}")

# %%
# ## 一个位置上的分布
#
# 给出开头“早上，下着小雨，小明来到河边。”，下一句可以有好几种写法。温度小于 1，高的更高；大于 1，分布变平。
# 次序不变：分数除以同一个正数，大的还是大的。
#
# 一个分布有多分散，用熵衡量：$H = -\sum_i p_i \ln p_i$。$\tau \to 0$ 时概率全在分数最高的字上，$H \to 0$；
# $\tau \to \infty$ 时所有字一样可能，$H \to \ln V$，$V$ 是词表大小。


def softmax(scores, temperature):
    shifted = (scores - scores.max(axis=-1, keepdims=True)) / temperature
    p = np.exp(shifted)
    return p / p.sum(axis=-1, keepdims=True)


def next_scores(ids):
    """每一行的下一个字的分数，用 float64"""
    with model.evaluating(), no_grad():
        return model(Tensor(ids)).data[:, -1].astype(np.float64)


def chinese_font():
    """一种有汉字的字体，找不到就是 None"""
    known = (
        "notosanscjk-regular", "notosanscjksc-regular", "sourcehansanssc-regular", "pingfang",
        "hiragino sans gb", "msyh", "simhei", "wqy-microhei", "wqy-zenhei",
    )  # fmt: skip
    files = {Path(path).stem.lower(): path for path in findSystemFonts()}
    found = [files[name] for name in known if name in files]
    return FontProperties(fname=found[0]) if found else None


prompt = "早上，下着小雨，小明来到河边。"
scores = next_scores(np.array([tokenizer.encode(prompt)]))[0]
top = np.argsort(-scores)[:10]
characters, font = tokenizer.decode(top), chinese_font()
print(
    "分数最高的十个字："
    + " ".join(f"{c} {scores[i]:.1f}" for c, i in zip(characters, top, strict=True))
)

fig, axes = plt.subplots(3, 1, figsize=(5, 5.8), sharex=True, sharey=True, layout="constrained")
fig.suptitle("probabilities of the next character")
for ax, temperature in zip(axes, (0.5, 1.0, 2.0), strict=True):
    p = softmax(scores, temperature)
    entropy = -float(np.sum(p * np.log(p + 1e-300)))
    print(
        f"τ = {temperature}：最高的概率 {p.max():.3f}，熵 {entropy:.3f}，十个字以外共 {1 - p[top].sum():.3f}"
    )
    ax.bar(range(10), p[top], color="tab:blue")
    ax.set_title(f"temperature {temperature}, entropy {entropy:.2f} nats")
    ax.set_ylabel("probability")
labels = list(characters) if font else [str(i + 1) for i in range(10)]
axes[-1].set_xticks(range(10), labels, font=font, fontsize=12 if font else 10)
plt.show()

# %%
# ## 熵随温度变化
#
# 横线是 $\ln V$。温度趋于 0 和趋于无穷，两头都与上面说的极限一致。

temperatures = np.geomspace(0.05, 50, 60)
entropies = []
for temperature in temperatures:
    p = softmax(scores, temperature)
    entropies.append(-float(np.sum(p * np.log(p + 1e-300))))
print(
    f"τ = 0.05 时熵 {entropies[0]:.4f}，τ = 50 时 {entropies[-1]:.3f}，ln V = {np.log(scores.size):.3f}"
)
fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
ax.semilogx(temperatures, entropies)
ax.axhline(np.log(scores.size), color="gray", linestyle=":")
ax.axvline(1, color="gray", linewidth=0.8)
ax.set_title("entropy of the next character")
ax.set_xlabel("temperature")
ax.set_ylabel("nats")
plt.show()

# %%
# ## 写故事
#
# 温度为 0 时公式没有意义，取它的极限：总选分数最高的字，不用随机数。同样的开头，写多少遍都一样。
#
# 每种温度从“早上，”写起，一批写 16 篇，各写到第一个换行。好坏用两个数说明：
#
# - 合格句子的比例：`check_text` 用文法检查每一句；
# - 不重复的比例：所有相连的四个字里，不同的占多少。千篇一律时它小，各写各的时它大。


def write(temperature, rng, stories=16):
    """同样的开头，写若干篇"""
    ids = np.array([tokenizer.encode("早上，")] * stories)
    while ids.shape[1] < CONTEXT:
        scores = next_scores(ids)
        if temperature == 0:
            chosen = scores.argmax(axis=1)
        else:
            cumulative = softmax(scores, temperature).cumsum(axis=1)
            chosen = (cumulative < rng.random((stories, 1))).sum(axis=1)
        ids = np.concatenate([ids, np.minimum(chosen, scores.shape[1] - 1)[:, None]], axis=1)
    return [tokenizer.decode(row).split("\n")[0] for row in ids]


rng = np.random.default_rng(0)
settings = (0.0, 0.5, 0.8, 1.0, 1.3, 1.6, 2.0)
valid, distinct = [], []
for temperature in settings:
    texts = write(temperature, rng)
    report = check_text("\n".join(texts) + "\n")
    pieces = [text[i : i + 4] for text in texts for i in range(len(text) - 3)]
    valid.append(report.sentence_rate)
    distinct.append(len(set(pieces)) / len(pieces))
    print(
        f"τ = {temperature}：{len(set(texts))} 篇不同，合格句子 {valid[-1]:.0%}，不重复 {distinct[-1]:.0%}"
    )
    print(f"    {texts[0]}")
    print(f"    {texts[1]}")

# %%
# 温度为 0 时十六篇是同一篇，它写对几句，比例就是多少。往右，写得越来越不一样；过了 1，合格的句子很快变少。
# 取舍在中间：要稳妥就低一些，要变化就高一些。温度改变的只是挑法，模型知道的东西没有变。

fig, ax = plt.subplots(figsize=(5, 3.4), layout="constrained")
ax.plot(settings, valid, "o-", label="valid sentences")
ax.plot(settings, distinct, "s--", label="distinct pieces")
ax.set_ylim(0, 1.3)
ax.set_title("from monotony to nonsense")
ax.set_xlabel("temperature")
ax.set_ylabel("share")
ax.legend(loc="upper center", ncol=2)
plt.show()
