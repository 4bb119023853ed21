r"""
# 优化器与学习率调度

SGD 与 AdamW 在狭长的山谷里怎样走，在一个小 GPT 上差多少，学习率先升温再下降又换来什么。

同样的梯度，怎样走一步，由优化器决定；每一步走多远，由学习率决定。这个示例先在看得见的二维平面上比较，
再在真正的网络上，把学习率各试几档。
"""

# %%
# ## 狭长的山谷
#
# $f(x, y) = \tfrac12 (x^2 + 50 y^2)$ 在 $y$ 方向比 $x$ 方向陡五十倍。随机梯度下降（SGD）每一步都沿着梯度：
#
# $$\theta \leftarrow \theta - \eta g$$
#
# 学习率 $\eta$ 受最陡的方向限制，超过 $2/50$ 就会越荡越高，于是平缓的方向只能慢慢走。
# AdamW 把每个坐标的步子除以这个坐标的梯度最近的均方根，陡的方向不会走得太大，平的方向也不会太小：
#
# $$\theta \leftarrow (1 - \eta\lambda)\,\theta - \eta\,\frac{\hat m}{\sqrt{\hat v} + \varepsilon}$$
#
# $\theta$ 是参数，$g$ 是梯度，$\hat m$、$\hat v$ 是 $g$ 与 $g^2$ 的滑动平均，
# $\lambda$ 是权重衰减，$\varepsilon$ 防止除以零。

import matplotlib.pyplot as plt
import numpy as np

from gptcore import (
    GPT,
    AdamWOptimizer,
    CharDataset,
    GPTLoss,
    GPTTrainer,
    SGDOptimizer,
    Tensor,
    WarmupCosineScheduler,
    corpus_path,
    no_grad,
)

steepness = Tensor([1.0, 50.0], requires_grad=False)


def walk(make_optimizer, steps=40):
    """从 (-4, 1) 出发走过的点"""
    point = Tensor([-4.0, 1.0])
    optimizer = make_optimizer([point])
    path = [point.data.copy()]
    for _ in range(steps):
        optimizer.zero_grad()
        (0.5 * (steepness * point * point).sum()).backward()
        optimizer.step()
        path.append(point.data.copy())
    return np.array(path)


paths = {
    "SGD, lr 0.036": walk(lambda p: SGDOptimizer(p, lr=0.036)),
    "AdamW, lr 0.3": walk(lambda p: AdamWOptimizer(p, lr=0.3, betas=(0.8, 0.99), weight_decay=0)),
}
horizontal, vertical = np.meshgrid(np.linspace(-4.5, 1.5, 200), np.linspace(-1.5, 1.5, 200))
fig, axes = plt.subplots(2, 1, figsize=(5, 5.2), sharex=True, layout="constrained")
fig.suptitle("40 steps in a narrow valley")
for ax, (name, path) in zip(axes, paths.items(), strict=True):
    heights = 0.5 * (horizontal**2 + 50 * vertical**2)
    ax.contour(horizontal, vertical, heights, levels=np.geomspace(0.1, 60, 9), colors="0.8")
    ax.plot(*path.T, ".-", linewidth=1, markersize=5)
    ax.plot(0, 0, "k+", markersize=10)
    ax.set_title(name)
    distance = np.linalg.norm(path, axis=1)
    print(f"{name}：10 步之后离最低点 {distance[10]:.3f}，40 步之后 {distance[40]:.3f}")
plt.show()

# %%
# ## 学习率各试几档
#
# 在一个两块的小 GPT 上，从同样的初值出发，看到同样的数据，各训练 300 步。
# 公平的比较要让每种优化器用上自己合适的学习率，所以各试五档。`GPTTrainer` 每一步都把梯度裁剪到范数 1。
# 得分是测试集前 40 批上的损失。

STEPS = 300
dataset = CharDataset(corpus_path("stories"), batch_size=8, context_size=32)


def train(make_optimizer, lr, schedule=None):
    """每一步的训练损失，与最后的测试损失；不给 schedule 时学习率不变"""
    rng = np.random.default_rng(0)
    model = GPT(dataset.vocab_size, 32, embedding_size=32, heads=4, blocks=2, rng=rng)
    trainer = GPTTrainer(model, GPTLoss(), make_optimizer(model.parameters, lr))
    losses = [report.loss for report in trainer.steps(dataset, STEPS, schedule)]
    dataset.eval()
    with no_grad():
        batches = [dataset[i] for i in range(40)]
        test = float(np.mean([GPTLoss()(model(x), y).item() for x, y in batches]))
    return losses, test


OPTIMIZERS = {"SGD": SGDOptimizer, "AdamW": AdamWOptimizer}
RATES = {"SGD": (0.1, 0.3, 1.0, 3.0, 10.0), "AdamW": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)}
scores = {}
for name, make_optimizer in OPTIMIZERS.items():
    scores[name] = [train(make_optimizer, rate)[1] for rate in RATES[name]]
    pairs = zip(RATES[name], scores[name], strict=True)
    print(f"{name:6} " + "  ".join(f"{rate:g}: {score:.3f}" for rate, score in pairs))
best = {name: RATES[name][int(np.argmin(scores[name]))] for name in RATES}
print("最好的学习率：" + "，".join(f"{name} {rate:g}" for name, rate in best.items()))

# %%
# 两条曲线都是中间低、两头高：太小走得慢，太大走不稳；比均匀地猜（灰线）还差的，画在灰线上。
# 合适的学习率在两种优化器那里相差很大，因为 AdamW 的步子不随梯度的大小变，SGD 的步子与梯度成正比。
# 换优化器，学习率要重新找。

uniform = float(np.log(dataset.vocab_size))
fig, ax = plt.subplots(figsize=(5, 3.4), layout="constrained")
for name, style in (("SGD", "s--"), ("AdamW", "o-")):
    ax.semilogx(RATES[name], np.minimum(scores[name], uniform), style, label=name)
ax.axhline(uniform, color="gray", linewidth=0.8)
ax.set_title(f"test loss after {STEPS} steps, constant rate")
ax.set_xlabel("learning rate")
ax.set_ylabel("nats per character")
ax.legend(loc="upper left", bbox_to_anchor=(0.02, 0.9))
plt.show()

# %%
# ## 先升温，再按余弦下降
#
# AdamW 开头几步的 $\hat v$ 只由几个梯度估计，不可靠，步子先小一点（升温，warm-up）；末尾要在谷底站稳，步子也要小。
# `WarmupCosineScheduler` 把两头都照顾到：$w$ 步线性升到最高，然后沿半个余弦下降到最低。

schedule = WarmupCosineScheduler(1.0, total_steps=STEPS, warmup_steps=30, min_lr=0.05)
fig, ax = plt.subplots(figsize=(5, 2.8), layout="constrained")
ax.plot([schedule.step(i) for i in range(STEPS)])
ax.set_title("warm-up and cosine decay")
ax.set_xlabel("step")
ax.set_ylabel("share of the highest rate")
plt.show()

# %%
# 同样是 AdamW，学习率一直不变，与先升温再下降，各试三档：

rates = tuple(best["AdamW"] * factor for factor in (1, 2, 4))
curves, ends = {}, {}
for rate in rates:
    warm = WarmupCosineScheduler(rate, total_steps=STEPS, warmup_steps=30, min_lr=rate / 20)
    for name, schedule in (("constant", None), ("schedule", warm)):
        curves[name, rate], ends[name, rate] = train(AdamWOptimizer, rate, schedule)
    print(
        f"最高学习率 {rate:.3g}：不变 {ends['constant', rate]:.3f}，"
        f"升温再下降 {ends['schedule', rate]:.3f}"
    )
for name, title in (("constant", "不变"), ("schedule", "升温再下降")):
    print(f"{title}，最好的一档：{min(ends[name, rate] for rate in rates):.3f}")

fig, axes = plt.subplots(len(rates), 1, figsize=(5, 6.8), sharex=True, layout="constrained")
fig.suptitle("constant rate and schedule")
for ax, rate in zip(axes, rates, strict=True):
    for name, style in (("constant", "--"), ("schedule", "-")):
        smooth = np.convolve(curves[name, rate], np.ones(8) / 8, mode="valid")
        ax.plot(np.arange(len(smooth)) + 7, smooth, style, label=name)
    ax.set_title(f"AdamW, highest rate {rate:.3g}")
    ax.set_ylim(1, 6.5)
    ax.set_ylabel("loss")
axes[0].legend()
axes[-1].set_xlabel("step")
plt.show()

# %%
# 曲线是最近 8 步的平均。最高学习率小的时候，两种办法差不多；越大，不变的那条越差，先升温再下降的还能用。
# 所以调度换来的主要是余地：学习率选得大了一些，也不至于坏事。
#
# 这里只用了一个种子，相差百分之几的两个数说明不了谁好谁坏，要看的是大的差别。
