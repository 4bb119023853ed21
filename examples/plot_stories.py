r"""
# 训练一个会讲故事的 GPT

语料是一部文法写的，每个字有多难猜可以精确地算出来，于是能知道模型离最好还差多少。

训练语言模型时，损失降到多少才算好？一般的语料没有答案：我们不知道人写的文字的熵（entropy）是多少。
内置的 `stories` 由一部概率文法写成，文法的解析器给出每个字真正的概率，它的平均就是损失的下限，任何模型都越不过去。
"""

# %%
# ## 数据：一篇故事一行
#
# 先看几篇故事。它们前后呼应：丢了的东西就是后来找到的那件，他还是她与人物一致。要写好，就得记住前文。
#
# 这里不用现成的 `CharDataset`，自己写一个数据集：每个窗口都从一篇故事的开头开始，80 个字符，
# 够读完一篇、再读下一篇的开头。
# 这样模型看到的前文与文法看到的一样多，两边的损失可以逐字比较。最后 256 篇留作测试。

import math
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
from gptcore.data.stories import check_text, entropy_rate, surprisals

CONTEXT, HELD_OUT = 80, 256


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
        self.train_data = rows[:-HELD_OUT, :-1], rows[:-HELD_OUT, 1:]
        self.test_data = rows[-HELD_OUT:, :-1], rows[-HELD_OUT:, 1:]


dataset = Stories(batch_size=8)
tokenizer = dataset.tokenizer
print("\n".join(load_corpus("stories").splitlines()[:3]))
print(f"{len(dataset.train_data[0])} 个训练窗口，词表 {tokenizer.vocab_size} 个字符")

# %%
# ## 下限与几种简单的猜法
#
# `surprisals` 给出文本每个字符的 $-\ln p(x_t \mid x_{<t})$，单位奈特。在测试的窗口上取平均，就是这段文字的下限。
# 均匀、一元、二元是三种不用网络的猜法，概率由训练集数出来（各加 0.1，免得出现零）。

x, y = (tensor.data for tensor in dataset.eval().all())
test_texts = [tokenizer.decode(np.append(row, last)) for row, last in zip(x, y[:, -1], strict=True)]
truth = np.array([surprisals(text)[1:] for text in test_texts])  # (256, 80)

train_x, train_y = (tensor.data for tensor in dataset.train().all())
counts = np.full((tokenizer.vocab_size, tokenizer.vocab_size), 0.1)
np.add.at(counts, (train_x.ravel(), train_y.ravel()), 1)
unigram = counts.sum(axis=0) / counts.sum()
bigram = counts / counts.sum(axis=1, keepdims=True)
baselines = {
    "uniform": math.log(tokenizer.vocab_size),
    "unigram": -float(np.log(unigram[y]).mean()),
    "bigram": -float(np.log(bigram[x, y]).mean()),
    "floor": float(truth.mean()),
}
for name, loss in baselines.items():
    print(f"{name:8} {loss:.3f}")
print(f"整个语料的熵率 {entropy_rate():.3f}（平均到每篇故事的每个字符）")

# %%
# ## 训练
#
# 两块、每块四个头、嵌入尺寸 64 的 GPT，训练 1600 步。每 100 步在测试的窗口上算一次损失。

STEPS = 1600
np.random.seed(42)
model = GPT(tokenizer.vocab_size, CONTEXT, embedding_size=64, heads=4, blocks=2, head_bias=False)
optimizer = AdamWOptimizer(model.parameter_groups(0.1), lr=6e-3, betas=(0.9, 0.99))
schedule = WarmupCosineScheduler(6e-3, STEPS, warmup_steps=160, min_lr=6e-4)
trainer = GPTTrainer(model, GPTLoss(), optimizer)
print(f"{model.num_parameters:,} 个参数")

train_losses, test_steps, test_losses = [], [], []
for report in trainer.steps(dataset, STEPS, schedule):
    train_losses.append(report.loss)
    if (report.step + 1) % 100 == 0:
        test_steps.append(report.step + 1)
        test_losses.append(trainer.test(dataset)[1])
        if test_steps[-1] in (100, 400, 800, STEPS):
            print(f"第 {test_steps[-1]:4d} 步，测试损失 {test_losses[-1]:.3f}")
print(f"下限 {baselines['floor']:.3f}，还差 {test_losses[-1] - baselines['floor']:.3f}")

# %%
# 灰线是每一步的训练损失，圆点是测试损失，横线是下限和二元模型。

fig, ax = plt.subplots(figsize=(5, 3.6), layout="constrained")
ax.plot(train_losses, color="0.75", linewidth=0.8, label="training batch")
ax.plot(test_steps, test_losses, "o-", markersize=4, label="test")
ax.axhline(baselines["bigram"], color="tab:orange", linestyle=":", label="bigram")
ax.axhline(baselines["floor"], color="black", linestyle="--", label="floor")
ax.set_yscale("log")
ax.set_yticks([0.4, 0.5, 1, 2, 4], ["0.4", "0.5", "1", "2", "4"])
ax.minorticks_off()
ax.set_title("loss against the entropy of the corpus")
ax.set_xlabel("step")
ax.set_ylabel("nats per character")
ax.legend()
plt.show()

# %%
# ## 它写的故事
#
# 从换行之后的第一个字开始写十二篇，每篇写到换行为止。第一个字按训练集里故事开头的频率抽取，其余的按模型的概率抽取。
# `check_text` 用文法检查哪些句子、哪些故事是文法写得出的：故事要整篇前后一致才算。

rng = np.random.default_rng(7)
newline = tokenizer.stoi["\n"]
ids = train_x[rng.integers(len(train_x), size=12), :1]
with model.evaluating(), no_grad():
    while ids.shape[1] < CONTEXT:
        scores = model(Tensor(ids)).data[:, -1].astype(np.float64)  # (12, V)
        noise = rng.gumbel(size=scores.shape)  # 加上 Gumbel 噪声再取最大，就是按 softmax 抽取
        ids = np.concatenate([ids, (scores + noise).argmax(axis=1)[:, None]], axis=1)
stories = [tokenizer.decode(row).split("\n")[0] + "\n" for row in ids if newline in row]
report = check_text("".join(stories))
print("".join(stories[:5]), end="")
print(f"写完 {len(stories)} 篇；{report.sentences} 句里合格 {report.valid_sentences} 句，", end="")
print(f"{report.stories} 篇里前后一致 {report.valid_stories} 篇")

# %%
# ## 难猜的是哪些字
#
# 把测试的第一个窗口逐字画出来：柱是模型的 $-\ln p$，横杠是文法给出的真值，斜线是换行。
# 多数字几乎不用猜：词的后半截、标点、前文出现过的名字。难猜的是新定下来的事：人物、地点、颜色、物件。
# 柱高出横杠的地方，是模型还没有学到的；柱比横杠低，是模型碰巧把更多概率给了真正出现的字，平均起来它赢不了。


def chinese_font():
    """一种有汉字的字体，找不到就是 None"""
    known = (
        "notosanscjk-regular", "notosanscjksc-regular", "sourcehansanssc-regular", "pingfang",
        "hiragino sans gb", "msyh", "simhei", "wqy-microhei", "wqy-zenhei",
    )  # fmt: skip
    files = {Path(path).stem.lower(): path for path in findSystemFonts()}
    found = [files[name] for name in known if name in files]
    return FontProperties(fname=found[0]) if found else None


def model_surprisals(x, y):
    """模型在每个位置上的 -ln p"""
    with model.evaluating(), no_grad():
        logits = model(Tensor(x)).data.astype(np.float64)
    log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return -np.take_along_axis(log_p, y[..., None], axis=-1)[..., 0]


guessed = model_surprisals(x, y)
story, font = test_texts[0][1:].replace("\n", "/"), chinese_font()
if font is None:
    print("".join(f"{i} {character}  " for i, character in enumerate(story)))
fig, axes = plt.subplots(4, 1, figsize=(5, 6.4), sharey=True, layout="constrained")
for ax, start in zip(axes, range(0, CONTEXT, CONTEXT // 4), strict=True):
    places = np.arange(start, start + CONTEXT // 4)
    ax.bar(places, guessed[0, places], color="tab:blue", width=0.7, label="model")
    ax.plot(places, truth[0, places], "_", color="black", markersize=13, label="grammar")
    labels = [story[i] if font else str(i) for i in places]
    ax.set_xticks(places, labels, font=font, fontsize=11 if font else 8)
    ax.tick_params(axis="x", length=0)
axes[0].set_title("surprisal of each character")
axes[0].set_ylim(0)
axes[2].legend(ncol=2)
fig.supylabel("nats", fontsize=10)
plt.show()

# %%
# 在全部测试文字上，按真值把字符分成三类，看损失与它超出下限的部分各在哪一类：

print("文法的 -ln p       占字符   模型的损失   下限")
for low, high in ((0.0, 0.01), (0.01, 1.0), (1.0, np.inf)):
    chosen = (truth >= low) & (truth < high)
    share = chosen.mean()
    print(
        f"{low:4.2f} 到 {high:<6.2f}  {share:10.1%} "
        f"{(guessed * chosen).mean():12.3f} {(truth * chosen).mean():9.3f}"
    )
print(f"合计            {1:11.1%} {guessed.mean():12.3f} {truth.mean():9.3f}")
