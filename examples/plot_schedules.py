r"""
# 学习率调度

三种调度长什么样，升温之后降不降差多少，总步数写错了又会怎样。

学习率调度由步数得到学习率。开头升温，是因为 AdamW 最初的几个梯度估计不可靠；后来下降，是因为在谷底附近步子要小。
这个示例先画出三种调度，再在同一个小 GPT 上各训练一次，最后故意把总步数写错。
"""

# %%
# ## 三种调度
#
# 升温 $w$ 步都是线性的，之后 `ConstantScheduler` 不变，`LinearScheduler` 沿直线、`WarmupCosineScheduler` 沿半个余弦
# 降到 `min_lr`。[`plot_schedule`][gptcore.plotting.schedule.plot_schedule] 把它们画在一起。

import matplotlib.pyplot as plt
import numpy as np

from gptcore import (
    GPT,
    AdamWOptimizer,
    CharDataset,
    ConstantScheduler,
    Evaluate,
    GPTLoss,
    GPTTrainer,
    LinearScheduler,
    WarmupCosineScheduler,
    corpus_path,
)
from gptcore.plotting import plot_schedule

STEPS, WARMUP, LR = 400, 40, 0.02

schedules = {
    "constant": ConstantScheduler(LR, WARMUP),
    "linear": LinearScheduler(LR, STEPS, WARMUP, min_lr=LR / 10),
    "cosine": WarmupCosineScheduler(LR, STEPS, WARMUP, min_lr=LR / 10),
}
fig, ax = plt.subplots(figsize=(5, 2.8), layout="constrained")
plot_schedule(schedules, STEPS, ax, language="en")
ax.set_title(f"warm-up of {WARMUP} steps, then three ways")
plt.show()

# %%
# 第 0 步的学习率已经大于零，升温的最后一步恰好是最高的；余弦开头降得慢，末尾也降得慢，中间比直线陡。
#
# ## 各训练一次
#
# 模型、初值、数据的次序都相同，只有调度不同。最高的学习率 0.02 对这个模型偏大，调度的作用看得更清楚。
# 每 40 步用回调 `Evaluate` 在测试集上评估一次，`trainer.state.evaluations` 记着每次的步数与损失；
# 最后再在整个测试集上评估。

dataset = CharDataset(corpus_path("stories"), batch_size=8, context_size=32)


def train(schedule):
    """途中各次评估的步数与损失，与最后的测试损失"""
    rng = np.random.default_rng(0)
    model = GPT(
        dataset.vocab_size, 32, embedding_size=32, heads=4, blocks=1,
        tied=True, head_bias=False, init="gpt2", rng=rng,
    )  # fmt: skip
    trainer = GPTTrainer(model, GPTLoss(), AdamWOptimizer(model.parameter_groups(0.1)), rng=rng)
    for _ in trainer.steps(
        dataset, STEPS, schedule, shuffle=True, callbacks=[Evaluate(40, limit=100)]
    ):
        pass
    return np.array(trainer.state.evaluations), trainer.evaluate(dataset).loss


results = {name: train(schedule) for name, schedule in schedules.items()}
for name, (curve, end) in results.items():
    middle = curve[curve[:, 0] == STEPS // 2, 1][0]
    print(f"{name:8}  第 {STEPS // 2} 步的评估 {middle:.2f}，最后的测试损失 {end:.2f}")

STYLES = {"constant": "k--", "linear": "s-", "cosine": "o-"}
fig, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
for name, (curve, _) in results.items():
    ax.plot(*curve.T, STYLES[name], markersize=4, label=name)
ax.set_title("loss on the test set")
ax.set_xlabel("step")
ax.set_ylabel("nats per character")
ax.set_ylim(0.9, 2.6)
ax.legend()
plt.show()

# %%
# 走到一半，三条曲线相差还不多，差距是后一半拉开的：学习率降下来，损失才跟着降到底。直线与余弦差别很小，
# 通常不值得为选哪一种费心。学习率小得多的时候结果会反过来：还没有走到谷底，降低学习率只是走得更慢。
#
# ## 总步数写错了
#
# 下降的快慢由 `total_steps` 决定，它应当等于真正训练的步数。写成两倍，训练完的时候学习率还很高；
# 写成一半，后一半的学习率一直停在最低，走不远。

wrong = {
    "planned 800": WarmupCosineScheduler(LR, 2 * STEPS, WARMUP, min_lr=LR / 10),
    "planned 400": schedules["cosine"],
    "planned 200": WarmupCosineScheduler(LR, STEPS // 2, WARMUP, min_lr=LR / 10),
}
ends = {"planned 400": results["cosine"]}
ends |= {name: train(schedule) for name, schedule in wrong.items() if name not in ends}
for name in wrong:
    print(f"{name}，训练 {STEPS} 步，测试损失 {ends[name][1]:.2f}")

fig, axes = plt.subplots(2, 1, figsize=(5, 5), sharex=True, layout="constrained")
plot_schedule(wrong, STEPS, axes[0], language="en")
axes[0].set_title(f"cosine schedules, {STEPS} steps of training")
axes[0].set_xlabel("")
axes[0].get_legend().remove()
for name, line in zip(wrong, axes[0].get_lines(), strict=True):
    axes[1].plot(*ends[name][0].T, "o-", markersize=4, color=line.get_color(), label=name)
axes[1].set_title("loss on the test set")
axes[1].set_xlabel("step")
axes[1].set_ylabel("nats per character")
axes[1].set_ylim(0.9, 2.6)
axes[1].legend()
plt.show()

# %%
# 写成一半的那条前一半领先，后一半落到最后：它的学习率按“第 200 步结束”安排，已经降完了。
# 所以比较两种设置时，总步数要先定好；也不能拿一次长训练中途的损失，当作一次短训练的结果。
# 接着训练时同样要给出原来的 `total_steps`。
#
# 想随时停下、随时加长，用升温之后不变的 `ConstantScheduler`，代价是最后那一段下降。
# 这里只用了一个种子，相差百分之几的两个数说明不了谁好谁坏。
