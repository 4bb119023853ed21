r"""
# 注意力在看什么

训练一个两块、每块四个头的小 GPT，画出每个头的注意力权重，找到抄写前文时回头看的那个头，再把它关掉试试。

数据是现场写出来的：每行两句话，第一句说谁丢了什么，第二句里同样的颜色和物件再出现一次。
第二次出现的颜色没有别的线索，只能从前文抄来，所以模型必须学会回头看。
"""

# %%
# ## 数据与训练
#
# 三种开头、三种结尾随意组合，要抄的字不在固定的位置上，只按位置数过去是抄不到的。

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.font_manager import FontProperties, findSystemFonts

from gptcore import (
    GPT,
    AdamWOptimizer,
    CharDataset,
    GPTLoss,
    GPTTrainer,
    Tensor,
    WarmupCosineScheduler,
    no_grad,
)

rng = np.random.default_rng(0)
NAMES = "小明 阿福 春燕 思雨 志远 玉梅".split()
COLORS = "红蓝黄绿紫金"
THINGS = "帽子 雨伞 书包 风筝 皮球 围巾".split()
PLACES = "公园里 河边 操场上 大树下".split()


def pick(choices):
    return choices[rng.integers(len(choices))]


def write_line():
    """一行两句话"""
    name, color, thing = pick(NAMES), pick(COLORS), pick(THINGS)
    friend = pick([other for other in NAMES if other != name])
    here, there = pick(PLACES), pick(PLACES)
    lost = (
        f"{name}在{here}丢了{color}{thing}。",
        f"{name}的{color}{thing}不见了。",
        f"{here}，{name}丢了{color}{thing}。",
    )
    found = (
        f"{friend}在{there}找到了{color}{thing}。",
        f"{name}和{friend}在{there}找到{color}{thing}。",
        f"{friend}来帮忙，找到了{color}{thing}。",
    )
    return pick(lost) + pick(found) + "\n"


with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "lost.txt"
    path.write_text("".join(write_line() for _ in range(6000)), encoding="utf-8", newline="\n")
    dataset = CharDataset(path, batch_size=16, context_size=32)

np.random.seed(42)
HEADS, BLOCKS, STEPS = 4, 2, 900
model = GPT(dataset.vocab_size, 32, embedding_size=48, heads=HEADS, blocks=BLOCKS)
optimizer = AdamWOptimizer(model.parameters, lr=5e-3)
schedule = WarmupCosineScheduler(5e-3, STEPS, warmup_steps=90, min_lr=5e-4)
reports = list(GPTTrainer(model, GPTLoss(), optimizer).steps(dataset, STEPS, schedule))
for report in reports[::300] + reports[-1:]:
    print(f"第 {report.step:3d} 步，损失 {report.loss:.3f}")

# %%
# ## 抄对了多少
#
# 拿 200 行新写的来考：从每行的开头读到第二个颜色之前，看分数最高的字是不是那个颜色。
# 六种颜色，乱猜能对 1/6。

exam = [write_line().rstrip("\n") for _ in range(200)]


def second_color(line):
    """第二个颜色的位置，第一个颜色的位置"""
    spots = [i for i, character in enumerate(line) if character in COLORS]
    return spots[1], spots[0]


def accuracy():
    right = 0
    with no_grad():
        for line in exam:
            target, _ = second_color(line)
            scores = model(Tensor([dataset.encode(line[:target])])).data[0, -1]
            right += dataset.itos[int(scores.argmax())] == line[target]
    return right / len(exam)


whole = accuracy()
print(f"颜色抄对 {whole:.1%}，乱猜 {1 / len(COLORS):.1%}")

# %%
# ## 每个头的注意力
#
# `GPTAttention.weights(x)` 给出注意力权重，形状 `(批大小, 头数, 查询位置, 键位置)`。
# 图里每一格是一个头：纵轴是正在写的位置，横轴是它看的位置，颜色越深看得越多。对角线以上全白，因为不能看后面的字。
# 横竖两条虚线标出写第二个颜色之前的那个位置，和第一个颜色的位置：抄写要看的就是它们的交点。


def chinese_font():
    """一种有汉字的字体，找不到就是 None"""
    known = (
        "notosanscjk-regular", "notosanscjksc-regular", "sourcehansanssc-regular", "pingfang",
        "hiragino sans gb", "msyh", "simhei", "wqy-microhei", "wqy-zenhei",
    )  # fmt: skip
    files = {Path(path).stem.lower(): path for path in findSystemFonts()}
    found = [files[name] for name in known if name in files]
    return FontProperties(fname=found[0]) if found else None


def attention_maps(line):
    """每一块、每个头的注意力权重：`(块, 头, 查询位置, 键位置)`"""
    with no_grad():
        x = model.embedding(Tensor([dataset.encode(line)]))
        maps = []
        for transformer in model.transformers:
            maps.append(transformer.attention.weights(x).data[0])
            x = transformer(x)
    return np.array(maps)


line = "小明在公园里丢了红帽子。思雨在河边找到了红帽子。"
target, source = second_color(line)
maps = attention_maps(line)
font = chinese_font()

fig, axes = plt.subplots(4, 2, figsize=(5, 9.8), layout="constrained")
fig.suptitle("attention weights of every head")
for head in range(HEADS):
    for block in range(BLOCKS):
        ax = axes[head, block]
        ax.imshow(maps[block, head], cmap="Blues", vmin=0, vmax=1)
        ax.axhline(target - 1, color="tab:red", linestyle=":", linewidth=1)
        ax.axvline(source, color="tab:red", linestyle=":", linewidth=1)
        ax.set_title(f"block {block}, head {head}", fontsize=10)
        ax.set(xticks=[], yticks=[])
plt.show()

# %%
# ## 哪个头回头看
#
# 一行可能是碰巧。对 200 行考题，算出每个头从第二个颜色之前的位置，平均把多少权重放在第一个颜色上；
# 均匀地看每个位置时，这个数是位置数的倒数。

looking_back = np.zeros((BLOCKS, HEADS))
uniform = 0.0
for text in exam:
    later, earlier = second_color(text)
    looking_back += attention_maps(text)[:, :, later - 1, earlier] / len(exam)
    uniform += 1 / later / len(exam)
print("      " + "  ".join(f"头 {head} " for head in range(HEADS)))
for block in range(BLOCKS):
    print(f"块 {block}  " + "  ".join(f"{weight:.3f}" for weight in looking_back[block]))
print(f"均匀地看：{uniform:.3f}")
best_block, best_head = (int(i) for i in np.unravel_index(looking_back.argmax(), (BLOCKS, HEADS)))
print(f"看得最多的是块 {best_block} 的头 {best_head}")

# %%
# 把这个头放大。每一行的字是已经读到的最后一个字，深色的格子是它看的地方。
# 机器上没有中文字体时，轴上是位置的编号，对应的字打印出来。

labels = list(line) if font else [str(i) for i in range(len(line))]
if font is None:
    print("  ".join(f"{i} {character}" for i, character in enumerate(line)))
fig, ax = plt.subplots(figsize=(5, 5.2), layout="constrained")
ax.imshow(maps[best_block, best_head], cmap="Blues", vmin=0, vmax=1)
for axis in (ax.xaxis, ax.yaxis):
    axis.set_ticks(range(len(line)), labels, font=font, fontsize=10 if font else 7)
ax.set_xlabel("key: looked at")
ax.set_ylabel("query: read last")
ax.set_title(f"block {best_block}, head {best_head}")
plt.show()

# %%
# ## 把它关掉
#
# 看着它，不等于用了它。要知道一个头有没有用，就把它拿掉：每个头的结果经过输出层 $W_o$ 里自己的几列加回残差流，
# 把这几列置零，这个头就等于不存在。对八个头各做一次，看颜色还能抄对多少。

size = model.transformers[0].attention.output.weight.shape[0] // HEADS
without = np.zeros((BLOCKS, HEADS))
for block in range(BLOCKS):
    weight = model.transformers[block].attention.output.weight
    for head in range(HEADS):
        saved = weight.data.copy()
        weight.data[:, head * size : (head + 1) * size] = 0
        without[block, head] = accuracy()
        weight.data[:] = saved

print(f"八个头都在：{whole:.1%}")
for block in range(BLOCKS):
    for head in range(HEADS):
        print(
            f"关掉块 {block} 头 {head}：{without[block, head]:6.1%}"
            f"，平时看第一个颜色的权重 {looking_back[block, head]:.3f}"
        )

fig, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
for block, marker in zip(range(BLOCKS), "os", strict=True):
    ax.plot(looking_back[block], without[block], marker, markersize=8, label=f"block {block}")
ax.axhline(whole, color="gray", linestyle="--", linewidth=1)
ax.axhline(1 / len(COLORS), color="gray", linestyle=":", linewidth=1)
ax.set_title("switching off one head")
ax.set_xlabel("attention to the first colour")
ax.set_ylabel("accuracy without the head")
ax.legend()
plt.show()

# %%
# 虚线是八个头都在时，点线是乱猜。点离虚线越远，这个头越不可少。
# 看得多的头未必最要紧：也许另一个头能顶上；看得少的也可能要紧：它为后面的头准备了要找的东西。
# 权重图给出的是猜想，关掉才是检验。
