r"""
# 逐字流式生成与采样

温度、top-k、top-p 与 min-p 各留下哪些词元，怎样一边生成一边给出完整的字，键值缓存省下多少计算。

模型给出的是下一个词元的分数。从分数到屏幕上的字还有两步：挑一个词元，再把词元变成字。这两步都有讲究：
分布的尾巴里有几百个不该选的词元，每个都不大可能，合起来却不少；而一个汉字可能分在两三个词元里。
"""

# %%
# ## 一个几秒钟训练好的模型
#
# 词表 768 的 BPE，在自带的小故事上训练。词表故意小，许多汉字要两三个词元；训练也短，还常常写错，正好看采样的作用。

import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.font_manager import FontProperties, findSystemFonts

from gptcore import (
    GPT,
    AdamWOptimizer,
    GPTLoss,
    GPTTrainer,
    Sampler,
    TextDataset,
    WarmupCosineScheduler,
    generate_text,
    load_corpus,
)
from gptcore.data import BPETokenizer
from gptcore.data.stories import check_text

CONTEXT, STEPS = 64, 400
text = load_corpus("stories")
tokenizer = BPETokenizer.train(text, vocab_size=768)
dataset = TextDataset([text], tokenizer, batch_size=8, context_size=CONTEXT)
rng = np.random.default_rng(0)
model = GPT(
    tokenizer.vocab_size, CONTEXT, embedding_size=64, heads=4, blocks=2,
    tied=True, head_bias=False, init="gpt2", rng=rng,
)  # fmt: skip
optimizer = AdamWOptimizer(model.parameter_groups(0.1), betas=(0.9, 0.99))
schedule = WarmupCosineScheduler(1e-2, STEPS, warmup_steps=30, min_lr=1e-3)
trainer = GPTTrainer(model, GPTLoss(), optimizer, rng=rng)
for _ in trainer.steps(dataset, STEPS, schedule, shuffle=True):
    pass
loss = trainer.evaluate(dataset, 100).loss
print(f"{model.num_parameters:,} 个参数，训练 {STEPS} 步，测试损失 {loss:.2f} 奈特/词元")

# %%
# ## 三种截断
#
# [`Sampler`][gptcore.models.generation.sampling.Sampler] 由分数得到概率：先除以温度，再去掉一部分词元，
# 余下的按比例放大到和为 1。
#
# - **top-k** 留下概率最高的 $k$ 个，不论它们有多大；
# - **top-p**（核采样）留下概率之和刚达到 $p$ 的最短一段；
# - **min-p** 留下概率不小于最大概率的 $m$ 倍的。
#
# 看两个位置：开头的“小雨，”之后是故事里的一个人，有十二个可选；“他们练了很”之后只该是“久”。
# 图里按概率从大到小排，竖线是各种截断留下的最后一个。


def next_scores(prompt):
    """下一个词元的分数"""
    return model.next_scores([tokenizer.encode(prompt)])[0]


def show(i):
    """一个词元；不成字的写成一点"""
    written = tokenizer.decode([i])
    return "·" if "\ufffd" in written else written.replace("\n", "↵")


RULES = {
    "top_k 10": Sampler(top_k=10),
    "top_p 0.9": Sampler(top_p=0.9),
    "min_p 0.1": Sampler(min_p=0.1),
}
COLORS = dict(zip(RULES, ("tab:orange", "tab:green", "tab:red"), strict=True))
LINES = dict(zip(RULES, ("-", "--", ":"), strict=True))
prompts = {
    "many ways to go on": "早上，下着小雨，",
    "only one": "早上，下着小雨，小明来学下象棋。他们练了很",
}


def kept(scores):
    """各种截断留下几个"""
    return {name: np.count_nonzero(rule.probabilities(scores)) for name, rule in RULES.items()}


fig, axes = plt.subplots(2, 1, figsize=(5, 5.2), sharex=True, sharey=True, layout="constrained")
for ax, (name, prompt) in zip(axes, prompts.items(), strict=True):
    scores = next_scores(prompt)
    p = Sampler().probabilities(scores)
    order = np.argsort(-p)
    print(f"“{prompt}”之后：" + " ".join(show(i) for i in order[:15]))
    print(f"    最高的概率 {p.max():.2f}，第 10 名以后合起来 {p[order[10:]].sum():.3f}")
    p = p[order]
    ax.plot(np.arange(1, len(p) + 1), p, color="tab:blue", linewidth=2)
    for rule, count in kept(scores).items():
        ax.axvline(count, color=COLORS[rule], linestyle=LINES[rule], label=f"{rule}: {count}")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(1e-7, 2)
    ax.set_ylabel("probability")
    ax.set_title(name)
    ax.legend(loc="lower left", fontsize=9)
axes[-1].set_xlabel("rank of the token")
plt.show()

# %%
# 曲线在第 12 名之后陡然落下，那就是十二个人与别的词元的分界。top-k 不知道分界在哪里，两处都留 10 个：
# 一处截掉了两个人，另一处留下许多不该有的。top-p 与 min-p 跟着分布变。
#
# ## 一路写下去
#
# 写一篇，每一步记下模型给选中的词元的概率，以及 top-p 与 min-p 会留下几个。`return_logprobs=True`
# 连同对数概率一起给出，它由模型原来的分数算出，不含温度与截断。


def chinese_font():
    """一种有汉字的字体，找不到就是 None"""
    known = (
        "notosanscjk-regular", "notosanscjksc-regular", "sourcehansanssc-regular", "pingfang",
        "hiragino sans gb", "msyh", "simhei", "wqy-microhei", "wqy-zenhei",
    )  # fmt: skip
    files = {Path(path).stem.lower(): path for path in findSystemFonts()}
    found = [files[name] for name in known if name in files]
    return FontProperties(fname=found[0]) if found else None


ids = tokenizer.encode("早上，下着小雨，")
start, options = len(ids), {"top_p": 0.9, "rng": np.random.default_rng(3)}
written = list(model.generate(ids, 20, return_logprobs=True, **options))
ids += [token.id for token in written]
probabilities = np.exp([token.logprob for token in written])
counts = [kept(model.next_scores([ids[:i]])[0]) for i in range(start, len(ids))]
print(tokenizer.decode(ids))

fig, (left, right) = plt.subplots(1, 2, figsize=(5, 6), sharey=True, layout="constrained")
rows = range(len(written))
left.barh(rows, probabilities, color="tab:blue")
left.set_title("probability", fontsize=11)
for rule in ("top_p 0.9", "min_p 0.1"):
    values = [count[rule] for count in counts]
    right.plot(values, rows, LINES[rule], marker="o", color=COLORS[rule], markersize=4, label=rule)
right.set_xscale("log")
right.set_title("tokens kept", fontsize=11)
right.legend(fontsize=9)
font = chinese_font()
labels = [show(token.id) if font else str(i + 1) for i, token in enumerate(written)]
left.set_yticks(rows, labels, font=font)
left.invert_yaxis()
plt.show()

# %%
# 大多数时候模型没有选择的余地，比如一个字写到一半（图里的点），或者一个词的后半截；真正的岔路只有几处。截断在岔路上
# 才起作用，在别处只是不让它出错。
#
# ## 哪一种写得好
#
# 同样的模型，每种设置写 32 篇，从“早上，”写到换行。`check_text` 用文法检查每一句是否合格；
# “不重复”是所有相连的四个字里不同的占多少。


def judge(**options):
    """合格句子的比例，不重复的比例"""
    prompt, end = tokenizer.encode("早上，"), tokenizer.encode("\n")
    batch = model.generate_batch(
        [prompt] * 32, 58, end_of_text=end, rng=np.random.default_rng(0), **options
    )
    stories = ["早上，" + tokenizer.decode(ids) for ids in batch]
    pieces = [story[i : i + 4] for story in stories for i in range(len(story) - 3)]
    return check_text("\n".join(stories) + "\n").sentence_rate, len(set(pieces)) / len(pieces)


settings = {
    "plain": {},
    "temperature 0.7": {"temperature": 0.7},
    "top_k 10": {"top_k": 10},
    "top_p 0.9": {"top_p": 0.9},
    "min_p 0.1": {"min_p": 0.1},
    "temperature 0": {"temperature": 0},
}
for name, options in settings.items():
    valid, distinct = judge(**options)
    print(f"{name:16} 合格句子 {valid:4.0%}，不重复 {distinct:4.0%}")

# %%
# 什么也不截断，每一步都有一点可能掉进尾巴里，写得越长，出错的越多。温度调低，或者截断，合格的句子都多了一大截；
# 几种办法之间的差别，在这样一百多个句子里分不出高下。温度 0 总取分数最高的，写几遍都是同一篇，
# 它写对几句，比例就是多少。
#
# 各种设置可以一起用，次序是：重复惩罚、温度、top-k、top-p、min-p。重复惩罚（repetition penalty）让已经出现过的词元
# 不容易再出现：正的分数除以它，负的乘以它，所以总是降低。

print(Sampler(repetition_penalty=1.5).penalize([3.0, -3.0, 1.0], seen=[0, 1]))

# %%
# ## 逐字给出
#
# 边生成边显示，读的人不必等它写完。难处是一个字的几个字节可能分在几个词元里：单独解码一个词元，得到的是 `�`。
# [`generate_text`][gptcore.models.generation.text.generate_text] 把不完整的字节留着，凑成字才给出。

start = "早上，下着小雨，"
options = {"temperature": 0.7, "max_tokens": 36}
ids = list(model.generate(tokenizer.encode(start), rng=np.random.default_rng(1), **options))
pieces = list(generate_text(model, tokenizer, start, rng=np.random.default_rng(1), **options))
print("逐个词元解码：" + " ".join(tokenizer.decode([i]) for i in ids))
print("逐字给出：    " + " ".join(pieces))
print(
    f"{len(ids)} 个词元，分 {len(pieces)} 次给出；连起来相同：{''.join(pieces) == tokenizer.decode(ids)}"
)

# %%
# 同一个种子，写出的总是同一篇。怎样知道已经完整？[`incremental_decoder`][gptcore.data.tokenizers.ByteLevelDecoder]
# 记着还没有凑成字的字节，自己写界面时也可以直接用它：

decoder = tokenizer.incremental_decoder()
print([decoder.push(i) for i in tokenizer.encode("玩雪橇")])

# %%
# “玩”分在两个词元里，第二个来了才给出整个字；“橇”不在语料里，三个字节就是三个词元。
#
# 给出 `stop` 时，遇到停止字符串就停下。它也可能分在几个词元里，所以像是它开头的文字先留着，确定不是了再给出：

story = generate_text(
    model, tokenizer, start, stop=["说", "问"], **options, rng=np.random.default_rng(1)
)
print(start + "".join(story))

# %%
# ## 键值缓存
#
# 第 $n$ 个词元要看前面所有词元的键与值。它们不会再变，记下来，每一步就只算新词元的一个位置；
# 不记的话，每一步都从头算 $n$ 个位置，一共 $1+2+\dots+n$ 个。下面用一个大些的、没有训练的模型，
# 从 4 个词元写到上下文的尽头。

large = GPT(
    512, 192, embedding_size=128, heads=4, blocks=4, head_bias=False, rng=np.random.default_rng(0)
)
prompt, seconds, outputs = [1, 2, 3, 4], {}, {}
for use_cache in (True, False):
    begin = time.process_time()
    outputs[use_cache] = list(large.generate(prompt, 188, temperature=0, use_cache=use_cache))
    seconds[use_cache] = time.process_time() - begin
print(f"写出的 188 个词元相同：{outputs[True] == outputs[False]}")
print(f"用缓存快三倍以上：{seconds[False] > 3 * seconds[True]}")

steps = np.arange(4, 192)
fig, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
ax.plot(steps, np.cumsum(steps), label="without cache")
ax.plot(steps, steps, label="with cache")
ax.set_yscale("log")
ax.set_title("positions computed so far")
ax.set_xlabel("tokens in the text")
ax.legend()
plt.show()

# %%
# 位置的个数最后相差近百倍，时间没有差那么多：只算一个位置时，矩阵乘法变成矩阵乘向量，时间花在读参数上。
#
# 缓存只在文字放得进上下文时有用。超过之后窗口每次挪一格，每个词元的位置嵌入都变了，记下的键与值全都作废，
# 只能每次重算整个窗口，写得就慢了。要写得长，就用上下文大的模型。
#
# 怎样从文本一路做到这里，见[文本进，文本出](../guides/text.md)；温度的细节见示例[温度与采样](plot_temperature.md)。
