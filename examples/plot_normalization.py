r"""
# 归一化有没有用

同一个 GPT，归一化换成 LayerNorm、RMSNorm 或者干脆拿掉，在 2 块和 6 块时各训练几次，看差别有多大。

GPT 的每个子层先把输入归一化，再计算，结果加回残差流。常听说“没有归一化就训练不了”。
真的吗？这里在小模型上量一量，看答案与深度、与学习率有什么关系。
"""

# %%
# ## 换掉归一化
#
# 一行 $C$ 个数 $x$，层归一化（layer normalization）减去均值、除以标准差；均方根归一化（RMSNorm）只除以均方根：
#
# $$\text{LayerNorm}(x)_i = w_i\,\frac{x_i - \mu}{\sqrt{\sigma^2 + \varepsilon}} + b_i,\qquad
# \text{RMSNorm}(x)_i = w_i\,\frac{x_i}{\sqrt{\frac1C\sum_j x_j^2 + \varepsilon}}$$
#
# 库里的每个子层都有属性 `normalize`，换成别的层就行。什么也不做的层只需要两行。

import matplotlib.pyplot as plt
import numpy as np

from gptcore import (
    GPT,
    AdamWOptimizer,
    CharDataset,
    GPTLoss,
    GPTTrainer,
    Layer,
    LayerNorm,
    NonFiniteError,
    RMSNorm,
    WarmupCosineScheduler,
    corpus_path,
    no_grad,
)


class Nothing(Layer):
    def forward(self, x):
        return x


SIZE, CONTEXT = 32, 32
KINDS = {
    "LayerNorm": lambda: LayerNorm(SIZE),
    "RMSNorm": lambda: RMSNorm(SIZE),
    "none": Nothing,
}
dataset = CharDataset(corpus_path("stories"), batch_size=8, context_size=CONTEXT)


def build(kind, blocks, seed):
    """同一个种子得到同样的初值，只有归一化不同"""
    rng = np.random.default_rng(seed)
    model = GPT(dataset.vocab_size, CONTEXT, SIZE, heads=4, blocks=blocks, rng=rng)
    for part in [model.output, *model.transformers]:
        for layer in (part, getattr(part, "attention", None), getattr(part, "feed_forward", None)):
            if hasattr(layer, "normalize"):
                layer.normalize = KINDS[kind]()
    return model


# %%
# ## 训练之前：残差流越来越大
#
# 残差流是一路加上去的，所以一块比一块大。有归一化时，每个子层看到的输入大小固定，加回去的也大小固定，残差流慢慢变大；
# 没有归一化时，子层的输入变大，加回去的也变大，成倍地增长。图里是残差流的均方根，纵轴是对数。

ids = dataset[0][0]
fig, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
for kind, marker in zip(KINDS, "os^", strict=True):
    model, sizes = build(kind, blocks=6, seed=0), []
    with no_grad():
        x = model.embedding(ids)
        sizes.append(float(np.sqrt((x.data**2).mean())))
        for transformer in model.transformers:
            x = transformer(x)
            sizes.append(float(np.sqrt((x.data**2).mean())))
    print(f"{kind:9} " + "  ".join(f"{size:8.2f}" for size in sizes))
    ax.semilogy(sizes, marker=marker, label=kind)
ax.set_title("size of the residual stream before training")
ax.set_xlabel("after block (0: embedding)")
ax.set_ylabel("root mean square")
ax.legend()
plt.show()

# %%
# ## 训练
#
# 每种训练 300 步，三个种子，设置完全相同：AdamW，最高学习率 0.01，升温 30 步再按余弦下降，梯度裁剪到 1。
# 记下第一步的损失，和最后在测试集前 40 批上的损失。

STEPS, SEEDS, LR = 300, (0, 1, 2), 0.01


def train(kind, blocks, seed, lr):
    """每一步的训练损失，与最后的测试损失；发散到溢出时，损失是无穷"""
    model = build(kind, blocks, seed)
    optimizer = AdamWOptimizer(model.parameter_groups(0.1), lr=lr)
    schedule = WarmupCosineScheduler(lr, STEPS, warmup_steps=30, min_lr=lr / 10)
    trainer = GPTTrainer(model, GPTLoss(), optimizer)
    losses = np.full(STEPS, np.inf)
    with np.errstate(over="ignore", invalid="ignore"):  # 训练发散时，数会大得溢出
        try:
            for report in trainer.steps(dataset, STEPS, schedule):
                losses[report.step] = report.loss
        except NonFiniteError:  # 训练器遇到 NaN 或无穷就停下
            return losses, np.inf
        dataset.eval()
        with model.evaluating(), no_grad():
            batches = [dataset[i] for i in range(40)]
            test = np.mean([float(GPTLoss()(model(x), y)) for x, y in batches])
    return losses, float(test)


curves, tests = {}, {}
for blocks in (2, 6):
    print(f"{blocks} 块      第一步的损失            测试损失（三个种子）    平均")
    for kind in KINDS:
        runs = [train(kind, blocks, seed, LR) for seed in SEEDS]
        curves[kind, blocks] = np.array([losses for losses, _ in runs])
        tests[kind, blocks] = np.array([test for _, test in runs])
        first = "  ".join(f"{loss:6.2f}" for loss in curves[kind, blocks][:, 0])
        last = "  ".join(f"{test:.3f}" for test in tests[kind, blocks])
        print(f"{kind:9} {first}    {last}    {tests[kind, blocks].mean():.3f}")

# %%
# 曲线是三个种子的平均，每 10 步取一次平均；带子是三个种子之间最小到最大。
# 6 块、没有归一化时，开头的损失太大，画不进图里。

fig, axes = plt.subplots(2, 1, figsize=(5, 6), sharex=True, layout="constrained")
fig.suptitle("training loss, three seeds")
for ax, blocks in zip(axes, (2, 6), strict=True):
    for kind, style in zip(KINDS, ("-", "--", ":"), strict=True):
        smooth = curves[kind, blocks].reshape(len(SEEDS), -1, 10).mean(axis=2)
        steps = np.arange(smooth.shape[1]) * 10 + 5
        ax.plot(steps, smooth.mean(axis=0), style, label=kind)
        ax.fill_between(steps, smooth.min(axis=0), smooth.max(axis=0), alpha=0.2)
    ax.set_title(f"{blocks} blocks, learning rate {LR:g}")
    ax.set_ylabel("nats per character")
    ax.set_ylim(1, 7.5)
axes[0].legend()
axes[1].set_xlabel("step")
plt.show()

# %%
# 三个种子的平均之差，要与同一种设置下种子之间的差距比一比：后者更大时，前者说明不了什么。

for blocks in (2, 6):
    for kind in ("RMSNorm", "none"):
        gap = tests[kind, blocks].mean() - tests["LayerNorm", blocks].mean()
        spread = max(float(np.ptp(tests[k, blocks])) for k in (kind, "LayerNorm"))
        verdict = "大于" if abs(gap) > spread else "不大于"
        print(f"{blocks} 块，{kind} 减 LayerNorm：{gap:+.3f}，{verdict}种子之间的差距 {spread:.3f}")

# %%
# ## 换几个学习率
#
# 只在一个学习率上比较不公平：各种设置最合适的学习率可能不同。下面用第一个种子，
# 学习率小到三分之一、大到三倍再各训练一次。
# 损失超过均匀猜测的，画在图的上沿，那是训练发散了。

RATES = (LR / 3, LR, LR * 3)
ceiling = float(np.log(dataset.vocab_size))
fig, axes = plt.subplots(2, 1, figsize=(5, 5.8), sharex=True, sharey=True, layout="constrained")
fig.suptitle("test loss at three learning rates")
for ax, blocks in zip(axes, (2, 6), strict=True):
    print(f"{blocks} 块      " + "  ".join(f"lr {rate:.4f}" for rate in RATES))
    for kind, style in zip(KINDS, ("o-", "s--", "^:"), strict=True):
        results = [
            tests[kind, blocks][0] if rate == LR else train(kind, blocks, SEEDS[0], rate)[1]
            for rate in RATES
        ]
        words = [f"{result:9.3f}" if result < ceiling else "     发散" for result in results]
        print(f"{kind:9} " + "  ".join(words))
        shown = np.minimum(np.nan_to_num(results, nan=np.inf), ceiling)
        ax.semilogx(RATES, shown, style, label=kind)
    ax.axhline(ceiling, color="gray", linewidth=0.8)
    ax.set_title(f"{blocks} blocks, {STEPS} steps")
    ax.set_ylabel("test loss")
axes[0].legend(loc="center right")
axes[1].set_xticks(RATES, [f"{rate:.4f}" for rate in RATES])
axes[1].minorticks_off()
axes[1].set_xlabel("learning rate")
plt.show()

# %%
# ## 怎样读这些结果
#
# 浅的网络没有归一化照样训练，在这么短的训练里还学得更快，所以“没有归一化就训练不了”并不对。
# 一个可能的缘故在第一幅图里：嵌入的初值很小，有归一化的子层一开始就往残差流里加上大得多的随机的东西，
# 要先花时间学会不去理它。
#
# 归一化的用处随深度显出来：它让残差流不随深度成倍地增长，第一步的损失不再与深度有关，也经得起更大的学习率。
# 减不减均值（LayerNorm 还是 RMSNorm），差别没有超出种子之间的差距。
#
# 这些只是三百步的小实验。教程第 15 章在更大的模型上训练得更久，也是三个种子。
