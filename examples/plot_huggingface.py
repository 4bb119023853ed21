r"""
# 与 Hugging Face 互通

把自己的模型连同分词器存成 transformers 能读的文件夹，再读回来：文件里有什么，名字怎样对应，数值差多少。

GPT-2 的结构与这里的 [`GPT`][gptcore.GPT] 是同一个，差别只在参数的名字与矩阵的方向。
所以训练好的模型可以带到 transformers 里去用，Hugging Face 上 GPT-2 的模型也可以读进来。
这个示例不用网络，也不用 PyTorch；两边算出的数是否相同，由测试拿真正的 transformers 核对。
"""

# %%
# ## 一个小模型
#
# 与 GPT-2 相同的几项选项：输出头没有偏置（`head_bias=False`），与词元嵌入共用一个矩阵（`tied=True`），
# GPT-2 的初始化。后两项不是必需的，输出头的偏置不行：GPT-2 没有地方放它，有偏置的模型不能导出。

import json
import shutil
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from safetensors.numpy import load_file, save_file

from gptcore import GPT, DataError, load_corpus, load_pretrained
from gptcore.data import BPETokenizer

tokenizer = BPETokenizer.train(
    load_corpus("stories"), vocab_size=1000, special_tokens=["<|endoftext|>"]
)
model = GPT(
    tokenizer.vocab_size, context_size=64, embedding_size=48, heads=4, blocks=2,
    head_bias=False, tied=True, init="gpt2", rng=np.random.default_rng(0),
)  # fmt: skip
print(f"{model.num_parameters:,} 个参数")

# %%
# ## 存成文件夹
#
# `save_pretrained` 写出模型、设置与分词器。参数是 safetensors 格式，不用 pickle；`manifest.json` 是 gptcore
# 另加的清单，transformers 不看它。

temporary = tempfile.TemporaryDirectory()
folder = model.save_pretrained(Path(temporary.name) / "my-gpt2", tokenizer)
for path in sorted(folder.iterdir()):
    print(f"{path.name:24} {path.stat().st_size:9,} 字节")

config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
shown = ("model_type", "vocab_size", "n_positions", "n_embd", "n_head", "n_layer", "eos_token_id")
print("config.json：" + "，".join(f"{name} {config[name]}" for name in shown))

# %%
# 有 transformers 的地方，下面这几行就能用它。同样的程序在对照测试里真的运行，贪心地写出的词元与这里逐个相同：
#
# ```python
# from transformers import AutoTokenizer, GPT2LMHeadModel
#
# tokenizer = AutoTokenizer.from_pretrained("my-gpt2")
# model = GPT2LMHeadModel.from_pretrained("my-gpt2")
# inputs = tokenizer("早上，下着小雨，", return_tensors="pt")
# output = model.generate(**inputs, max_new_tokens=20, do_sample=False)
# print(tokenizer.decode(output[0]))
# ```
#
# ## 名字与形状
#
# 直接读出文件里的参数，与我们的放在一起。名字之外只有一个差别：Hugging Face 的 GPT-2 用 `Conv1D`，
# 算的是 $xW+b$，矩阵的形状是（输入，输出）；我们的线性层算 $xW^\top+b$，形状是（输出，输入）。所以矩阵要转置。

tensors = load_file(folder / "model.safetensors")
ours = dict(model.named_parameters())
pairs = {
    "embedding.embedding.weight": "transformer.wte.weight",
    "embedding.positional_embedding.weight": "transformer.wpe.weight",
    "transformers.0.attention.c_attn.weight": "transformer.h.0.attn.c_attn.weight",
    "transformers.0.attention.output.weight": "transformer.h.0.attn.c_proj.weight",
    "transformers.0.feed_forward.input.weight": "transformer.h.0.mlp.c_fc.weight",
    "transformers.0.feed_forward.output.bias": "transformer.h.0.mlp.c_proj.bias",
    "output.normalize.weight": "transformer.ln_f.weight",
}
for name, theirs in pairs.items():
    a, b = ours[name].data, tensors[theirs]
    turned = ".h." in theirs and b.ndim == 2
    same = np.array_equal(a.T if turned else a, b)
    print(f"{name} {a.shape}")
    print(f"    {theirs} {b.shape}{'，转置' if turned else ''}，数值相同：{same}")
print(f"文件里有 {len(tensors)} 个张量，其中有没有 lm_head.weight：{'lm_head.weight' in tensors}")

# %%
# `attention.output` 是方阵，转置之后形状不变：忘了转置不会报错，只会得到另一个模型。
# 所以光比形状不够，两边算出的分数也要相同。
#
# 输出头与词元嵌入共用，文件里只有一份，读的时候再接上。`c_attn` 把查询、键、值的三个矩阵并排放在一起，
# 两边都是这个次序。完整的对照见[接口](../api/models.md#gptcore.models.huggingface)。
#
# 画出同一个矩阵的两种放法，虚线隔开查询、键、值：

name = "transformers.0.attention.c_attn.weight"
fig, (left, right) = plt.subplots(
    1, 2, figsize=(5, 3.6), layout="constrained", width_ratios=(1, 2.4)
)
width = model.config["embedding_size"]
for ax, matrix, title in (
    (left, ours[name].data, "gptcore (3E, E)"),
    (right, tensors[pairs[name]], "Hugging Face (E, 3E)"),
):
    ax.imshow(np.abs(matrix), cmap="Blues", vmax=0.06)
    ax.set_title(title, fontsize=10)
    ax.set_xticks([])
    ax.set_yticks([])
for i, part in enumerate(("query", "key", "value")):
    left.text(-3, (i + 0.5) * width, part, rotation=90, ha="right", va="center", fontsize=9)
    right.text((i + 0.5) * width, -3, part, ha="center", va="bottom", fontsize=9)
    if i:
        left.axhline(i * width - 0.5, color="tab:red", linestyle="--", linewidth=1)
        right.axvline(i * width - 0.5, color="tab:red", linestyle="--", linewidth=1)
right.set_title("Hugging Face (E, 3E)", fontsize=10, pad=18)
plt.show()

# %%
# ## 读回来
#
# `load_pretrained` 读入任何一个 Hugging Face 格式的 GPT-2 文件夹，连同分词器。float32 的参数直接映射文件，
# 不另占一份内存；读一个 124M 的模型也几乎不用等。

again, its_tokenizer = load_pretrained(folder)
ids = tokenizer.encode("早上，下着小雨，小明来到公园里。")


def difference(one, other):
    """下一个词元的分数最多相差多少，相对于最大的分数"""
    a, b = one.next_scores([ids]), other.next_scores([ids])
    return np.abs(a - b).max() / np.abs(a).max()


same = all(
    np.array_equal(p.data, q.data) for p, q in zip(model.parameters, again.parameters, strict=True)
)
print(f"分词器相同：{its_tokenizer == tokenizer}")
print(f"每个参数逐位相同：{same}")
print(f"分数相差不到百万分之一：{difference(model, again) < 1e-6}")

# %%
# 参数一位不差，分数却可能差一点：转置的矩阵在内存里的次序不同，矩阵乘法相加的次序也就不同。
# 与 transformers 相比也是这样，差别在 float32 的舍入之内。
#
# Hugging Face 上许多文件用半精度，大小减半。它们也读得进来，读的时候变成 float32。这里存一份 float16 的试一试：

half_folder = shutil.copytree(folder, folder.with_name("half"))
halves = {name: array.astype(np.float16) for name, array in tensors.items()}
save_file(halves, half_folder / "model.safetensors", {"format": "pt"})
half, _ = load_pretrained(half_folder)
print(f"文件 {(half_folder / 'model.safetensors').stat().st_size:,} 字节")
print(f"读进来的类型 {half.dtype}，分数相差 {difference(model, half):.4f}")

# %%
# ## 不同的结构
#
# 名字对得上，算法却不同，是最难发现的错误。所以遇到没有实现的选项就拒绝，并说出是哪一项，而不是给出不同的数。
# 例如把激活函数改成 ReLU：

changed = {**config, "activation_function": "relu"}
(folder / "config.json").write_text(json.dumps(changed), encoding="utf-8")
try:
    load_pretrained(folder)
except DataError as error:
    print(str(error).replace(str(folder), "my-gpt2"))
biased = GPT(1000, 64, 48, heads=4, blocks=2)  # 教程里的输出头有偏置
try:
    biased.save_pretrained(folder)
except DataError as error:
    print(error)
temporary.cleanup()

# %%
# ## 参数都在哪里
#
# 设词表 $V$，上下文 $T$，嵌入 $E$，块数 $L$，共用输出头的 GPT-2 有
#
# $$VE + TE + L(12E^2 + 13E) + 2E$$
#
# 个参数：嵌入，每块的注意力（$4E^2+4E$）与前馈网络（$8E^2+5E$），其余是归一化。


def parts(vocab, context, size, blocks):
    """嵌入、注意力、前馈网络、归一化各有多少参数"""
    return np.array([
        (vocab + context) * size,
        blocks * (4 * size**2 + 4 * size),
        blocks * (8 * size**2 + 5 * size),
        (2 * blocks + 1) * 2 * size,
    ])  # fmt: skip


models = {
    "this one": (1000, 64, 48, 2),
    "GPT-2": (50257, 1024, 768, 12),
    "GPT-2 medium": (50257, 1024, 1024, 24),
    "GPT-2 large": (50257, 1024, 1280, 36),
    "GPT-2 XL": (50257, 1024, 1600, 48),
}
counts = {name: parts(*sizes) for name, sizes in models.items()}
print(f"这个模型，公式 {counts['this one'].sum():,}，实际 {model.num_parameters:,}")
for name, count in list(counts.items())[1:]:
    print(f"{name:12} {count.sum():13,} 个，float32 占 {count.sum() * 4 / 2**20:5,.0f} MiB")

fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
left = np.zeros(len(models))
labels = ("embeddings", "attention", "feed-forward", "normalization")
for label, color, share in zip(
    labels, ("0.7", "tab:blue", "tab:orange", "black"),
    np.array([count / count.sum() for count in counts.values()]).T, strict=True,
):  # fmt: skip
    ax.barh(list(models), share, left=left, color=color, label=label)
    left += share
ax.invert_yaxis()
ax.set_title("where the parameters are")
ax.set_xlabel("share of the parameters")
ax.legend(loc="upper center", bbox_to_anchor=(0.4, -0.22), ncol=4, fontsize=8, columnspacing=1)
plt.show()

# %%
# 模型小的时候，参数大半在嵌入里，词表的大小最要紧；大了以后，六成多在前馈网络里。
#
# 有网络的地方，`gptcore import gpt2` 按名字下载；没有网络，把别处下载的文件夹交给 `GPT.from_pretrained`。
# 见[文本进，文本出](../guides/text.md#hugging-face)。
