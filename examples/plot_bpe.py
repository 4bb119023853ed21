r"""
# 训练自己的 BPE

从 256 个字节开始，反复合并最常见的一对：看它学到了什么，词表多大时一个词元顶几个字，换一种文字又怎样。

字节对编码（byte pair encoding，BPE）是一种分词的办法，GPT-2 用的就是它。每个字符当一个词元，遇到没见过的字就没有办法；
每个字节当一个词元，什么都能写，可是一个汉字要三个。BPE 在两者之间：从字节出发，所以没有不认识的字；
常见的字节串合并成一个词元，所以序列短。
"""

# %%
# ## 训练
#
# 语料是自带的小故事，末尾十分之一留着不训练。`vocab_size` 是 256 个字节与各次合并之和，4,096 就是合并 3,840 次。
# 同样的文字总是得到同样的合并：次数相同的对，取编号小的。

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from gptcore import load_corpus
from gptcore.data import BPETokenizer, ByteTokenizer, CharTokenizer, load_tokenizer

text = load_corpus("stories")
cut = text.index("\n", len(text) * 9 // 10) + 1
train, held_out = text[:cut], text[cut:]
tokenizer = BPETokenizer.train(train, vocab_size=4096)
print(f"训练用 {len(train):,} 个字符，{len(train.encode()):,} 个字节")
print(f"{tokenizer.vocab_size:,} 个词元，{len(tokenizer.merges):,} 次合并")

# %%
# ## 学到了什么
#
# 头几次合并连一个字都凑不成：`，` 的三个字节是 `EF BC 8C`，合并两次才成为一个词元。“的”“到”“了”也是这样来的。
# 后来才有词，再后来是整个分句。下面按次序挑几次，凑不成字的字节写成十六进制。


def show(token):
    """一串字节：成字的写出字，不成字的写成十六进制"""
    return token.decode("utf-8", "backslashreplace").replace("\\x", "·").replace("\n", "↵")


for i in (0, 1, 6, 30, 100, 300, 600, 1000, 2000, 3800):
    left, right = tokenizer.merges[i]
    print(f"第 {i + 1:4} 次：{show(left)} + {show(right)} → {show(left + right)}")

# %%
# 合并有先后，所以只留前面的一部分，就是词表小一些的分词器，不必重新训练。同一句话，词表越大，切得越长：


def smaller(vocab_size):
    """只用前面的合并"""
    return BPETokenizer(tokenizer.merges[: vocab_size - 256])


def pieces(sentence, size=4096):
    """切成的各段"""
    ids = smaller(size).encode(sentence)
    return [show(tokenizer.decode_bytes([i])) for i in ids]


for size in (512, 1024, 2048, 4096):
    found = pieces("静怡来到公园里的时候，天气晴朗。", size)
    print(f"{size:4}：{len(found):2} 个词元  {' '.join(found)}")
print(f"另一句：{' '.join(pieces('静怡在公园里。'))}")

# %%
# 词元不一定在字的边界上断开。最后那句里，“公”的末一个字节与“园里”成了一个词元：BPE 只看次数，不知道什么是字。
# 这份语料里“公”后面总是“园里”，先凑成“公”，还是先并进“园里”，次数一样多，编号小的那一对先合并。
# 解码时先把字节连起来再变成文字，所以没有妨碍；一个词元一个词元地显示就要当心，
# 见示例[逐字流式生成与采样](plot_streaming.md)。
#
# 词元也可以跨过词：中文没有空格，切分规则只在标点处断开，所以整个分句都能合并成一个词元。英语的词元不会跨过空格。
#
# ## 一个词元顶几个字
#
# 词表从 256 增大到 4,096，平均一个词元等于几个字符？除了留着的故事，再试两段语料之外的文字。
# 横线是字符分词器（1）与字节分词器（汉字大约是 1/3）。

others = {
    "other Chinese": "傍晚的时候，外婆端着一碗热汤走出厨房。窗外的雪越下越大，屋檐下的麻雀挤在一起，谁也不肯先飞走。",
    "English": "The old fisherman mended his net by the window, and said nothing until the rain had stopped.",
}
texts = {"stories, held out": held_out, **others}
sizes = [256, 300, 384, 512, 768, 1024, 1536, 2048, 3072, 4096]
lengths = {
    name: [len(sample) / len(smaller(size).encode_array(sample)) for size in sizes]
    for name, sample in texts.items()
}

fig, ax = plt.subplots(figsize=(5, 3.6), layout="constrained")
for (name, values), style in zip(lengths.items(), ("o-", "s--", "^:"), strict=True):
    ax.plot(sizes, values, style, markersize=4, label=name)
ax.axhline(1, color="0.6", linewidth=0.8)
ax.text(4096, 1.05, "characters", ha="right", va="bottom", fontsize=9, color="0.35")
ax.axhline(1 / 3, color="0.6", linewidth=0.8)
ax.text(4096, 0.30, "bytes of Chinese", ha="right", va="top", fontsize=9, color="0.35")
ax.set_xscale("log", base=2)
ax.set_xticks([256, 512, 1024, 2048, 4096], ["256", "512", "1024", "2048", "4096"])
ax.minorticks_off()
ax.set_ylim(0, 4)
ax.set_title("characters per token")
ax.set_xlabel("vocabulary size")
ax.legend(loc="upper left")
plt.show()

characters = CharTokenizer.from_text(text)
print(f"字符分词器：词表 {characters.vocab_size}，留着的故事 {len(held_out):,} 个词元")
print(f"字节分词器：词表 {ByteTokenizer().vocab_size}，{len(held_out.encode()):,} 个词元")
for size in (512, 1024, 4096):
    count = len(smaller(size).encode_array(held_out))
    print(f"BPE：词表 {size:5,}，{count:6,} 个词元，一个顶 {len(held_out) / count:.2f} 个字符")

# %%
# 要留意三件事：
#
# - 词表只有 512 时，BPE 还不如一个字一个词元：前面的合并都用来凑字了。汉字多的语料，几千的词表只是起点。
# - 故事上一个词元顶三个多字，换一段普通的中文还不到一个。这份语料句式少，它记住的是这些句式；
#   分词器要在与将来的用途相近的文字上训练。
# - 英语一点好处也没有，一个字母一个词元，因为语料里没有英语。但是没有一种文字编码不了。
#
# ## 词元里装着什么
#
# 编码留着的故事，用到的词元各有多长？含有不成字的字节的算“半个字”。


def contents(size):
    """各种长度的词元在留着的故事里占多少"""
    counts = np.zeros(5)
    used, times = np.unique(smaller(size).encode_array(held_out), return_counts=True)
    for i, count in zip(used, times, strict=True):
        token = tokenizer.decode_bytes([i])
        whole = "\ufffd" not in token.decode("utf-8", "replace")
        length = len(token.decode()) if whole else 0
        counts[np.searchsorted([0, 1, 2, 4], length)] += count
    return counts / counts.sum()


labels = ("part of a character", "1", "2", "3 to 4", "5 or more")
colors = ("0.75", "#9ecae1", "#4292c6", "#08519c", "#fd8d3c")
columns = [256, 512, 1024, 2048, 4096]
shares = np.array([contents(size) for size in columns])
fig, ax = plt.subplots(figsize=(5, 3.6), layout="constrained")
bottom = np.zeros(len(columns))
for label, color, share in zip(labels, colors, shares.T, strict=True):
    ax.bar([str(size) for size in columns], share, bottom=bottom, color=color, label=label)
    bottom += share
ax.set_title("how many characters a token holds")
ax.set_xlabel("vocabulary size")
ax.set_ylabel("share of the tokens used")
ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncol=3, fontsize=9)
plt.show()

counts = np.bincount(tokenizer.encode_array(train), minlength=tokenizer.vocab_size)
print(f"词表 4,096 里，训练的文字用到不足 10 次的词元有 {np.count_nonzero(counts < 10):,} 个")

# %%
# 词表到 2,048 时，凑不成字的词元几乎用不上了；剩下的一个字，绝大多数是标点，因为切分规则把标点与字分开。
#
# 词表不是越大越好。每个词元在模型里有一个向量，词表大一倍，嵌入就大一倍；后面的合并越来越少见，
# 有些只是半路上的一步，合成更长的词元之后自己就很少用到，它们的向量几乎得不到训练。
#
# 词元变长之后，每个词元也更难猜，所以两种词表的损失不能直接比较，要换算成每字节比特，
# 见[训练指南](../guides/training.md#bits)。
#
# ## 特殊词元，保存
#
# 文本结束词元 `<|endoftext|>` 不来自文字，训练时另外给出。文字里恰好有这几个字符，默认只当作普通文字；点了名才算数：

end = "<|endoftext|>"
special = BPETokenizer.train(train, vocab_size=512, special_tokens=[end])
plain = special.encode(f"完。{end}")
real = special.encode(f"完。{end}", allowed_special={end})
print(f"当作普通文字 {len(plain)} 个词元，点名之后 {len(real)} 个，最后一个是 {real[-1]}")

with tempfile.TemporaryDirectory() as folder:
    path = special.save(Path(folder))
    print(f"存成 {path.name}，读回来相同：{load_tokenizer(folder) == special}")

# %%
# `tokenizer.json` 就是 Hugging Face tokenizers 的格式，它读到的编号与这里相同；反过来，GPT-2 与别的字节级 BPE 的文件，
# `load_tokenizer` 也读得。接下来怎样在任何分词器上训练，见[文本进，文本出](../guides/text.md)。
