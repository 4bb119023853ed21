r"""
# 中断与接着训练

训练到一半被中断，从检查点接着训练，结果与没有中断过的一位不差；只读回参数，就不是这样。

训练的状态不只是参数：还有优化器的矩、做到第几步、数据取到哪一批、随机数生成器的状态。检查点把这些都存下来。
这个示例先不间断地训练一次，再中断一次、接着训练，逐位比较；最后看看少恢复几样会怎样。
"""

# %%
# ## 不间断的一次
#
# 随机失活与打乱都开着，它们都要用随机数；学习率先升温再下降。损失每一步都记下来。

import signal
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from gptcore import (
    GPT,
    AdamWOptimizer,
    CharDataset,
    Checkpoints,
    GPTLoss,
    GPTTrainer,
    WarmupCosineScheduler,
    corpus_path,
    load_model,
)

STEPS, STOP = 240, 100
dataset = CharDataset(corpus_path("stories"), batch_size=8, context_size=32)
schedule = WarmupCosineScheduler(0.01, STEPS, warmup_steps=20, min_lr=0.001)


def make_trainer(seed=0):
    """全新的模型、优化器与训练器；接着训练时也这样建立，再读入检查点"""
    rng = np.random.default_rng(seed)
    model = GPT(
        dataset.vocab_size, 32, embedding_size=32, heads=4, blocks=2,
        tied=True, head_bias=False, dropout=0.1, init="gpt2", rng=rng,
    )  # fmt: skip
    return GPTTrainer(model, GPTLoss(), AdamWOptimizer(model.parameter_groups(0.1)), rng=rng)


def train(trainer, callbacks=()):
    """训练到第 STEPS 步，返回做过的各步与损失"""
    steps = trainer.steps(dataset, STEPS, schedule, shuffle=True, callbacks=callbacks)
    return np.array([(report.step, report.loss) for report in steps])


whole = make_trainer()
undisturbed = train(whole)
last = undisturbed[-20:, 1].mean()
print(f"不间断：{len(undisturbed)} 步，最后 20 步的平均损失 {last:.3f}")

# %%
# ## 中断的一次
#
# 回调 `Checkpoints` 每 50 步存一个检查点。做完 `STOP` 步时，程序给自己发一个 Ctrl-C：
# `Checkpoints` 先做完手里的这一步、保存，再照常抛出 `KeyboardInterrupt`。

signal.signal(signal.SIGINT, signal.default_int_handler)  # 在后台运行时，Ctrl-C 也许被忽略
temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
interrupted, first = make_trainer(), []
callbacks = [Checkpoints(folder, every=50, keep=9)]
steps = interrupted.steps(dataset, STEPS, schedule, shuffle=True, callbacks=callbacks)
try:
    for report in steps:
        first.append((report.step, report.loss))
        if len(first) == STOP:
            signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    saved = interrupted.checkpoint
    print(f"收到 Ctrl-C，做完 {interrupted.state.step} 步，存在 {saved.name}")
print("检查点里有：")
for path in sorted(saved.iterdir()):
    print(f"  {path.name}")

# %%
# ## 接着训练
#
# 好像换了一个进程：模型、优化器、训练器都重新建立，连初值的种子也换一个，然后 `resume`。
# 数据集与调度照原来的给出，总步数也是原来的，训练器只做剩下的。

resumed = make_trainer(seed=999)
resumed.resume(folder)
start = resumed.state.step
print(f"从第 {start} 步接着训练，这一轮已经取了 {resumed.state.position} 批")
second = train(resumed, callbacks)


def identical(a, b):
    """两个训练器的参数与优化器的状态是不是一位不差"""
    ours = {**a.model.state_dict(), **a.optimizer.state_dict()}
    theirs = {**b.model.state_dict(), **b.optimizer.state_dict()}
    return all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


later = undisturbed[start:]
same = np.array_equal(second, later)
print(f"接着做的 {len(second)} 步，损失与不间断的相同：{same}")
print(f"最后的参数与优化器的状态逐位相同：{identical(whole, resumed)}")

# %%
# ## 只读回参数
#
# 检查点也是模型文件夹，可以用 `load_model` 只读出参数。从它开始、优化器从零开始，或者连学习率也重新升温：
# 这是新的一次训练，不是原来那次的继续。


def only_weights():
    """参数取自检查点，其余都是新的"""
    trainer = make_trainer()
    model, _ = load_model(saved)
    trainer.model.load_state_dict(model.state_dict())
    return trainer


restarted = only_weights()
reports = restarted.steps(dataset, STEPS - start, schedule, shuffle=True)
third = np.array([(start + report.step, report.loss) for report in reports])
print(f"只读回参数，损失与不间断的相同：{np.array_equal(third, later)}")


def smooth(curve):
    """最近 8 步的平均"""
    return curve[7:, 0], np.convolve(curve[:, 1], np.ones(8) / 8, mode="valid")


fig, (top, bottom) = plt.subplots(2, 1, figsize=(5, 5.4), sharex=True, layout="constrained")
top.plot(*smooth(undisturbed), color="0.75", linewidth=5, label="undisturbed")
top.plot(*smooth(np.array(first)), color="tab:blue", label="until Ctrl-C")
top.plot(*smooth(second), color="tab:red", label="resumed")
top.plot(*smooth(third), color="tab:green", linestyle="--", label="weights only")
top.set_title("training loss, mean of 8 steps")
top.set_ylabel("nats per character")
top.set_ylim(top=4)
top.legend()
bottom.plot(third[:, 0], third[:, 1] - later[:, 1], color="tab:green", linewidth=0.9)
bottom.plot(second[:, 0], second[:, 1] - later[:, 1], color="tab:red")
bottom.set_title("difference from the undisturbed run, each step")
bottom.set_xlabel("step")
for ax in (top, bottom):
    ax.axvline(start, color="black", linewidth=0.8, linestyle=":")
plt.show()
temporary.cleanup()

# %%
# 红线盖在灰线上，差恒为零。绿线从中断的地方岔开：优化器的矩从零开始，学习率重新升温，数据也从别的批取起；
# 训练得并不坏，但它是另一次训练，两次的结果不能当作一次来比较。
#
# “逐位相同”的条件是同一台机器，BLAS 与线程数也相同，因为浮点加法的次序会影响末位。检查点记着这些，
# 不同时 `resume` 给出警告。模型的设置、数据、批大小不同时，它拒绝接着训练，因为数据的位置已经对不上了。
