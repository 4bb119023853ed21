r"""打分：模型与几种简单的猜法在一段留出的文本上的损失，单位奈特每字符

上下文有限的模型，窗口开头的字符看不到多少前文；把它们也算进去，量的就是窗口的切法而不是模型。
这里窗口每次前进 `context_size // 2`，只取后一半的分数：除了文本最前面的半个窗口（前文本来就只有那么多），
每个字符都看得到至少半个窗口的前文；第 2 个到最后一个字符，每个恰好算一次。
模型因此比逐窗口平均的损失略低，也更接近生成时的情形；与语料的熵相比，被比较的是同一批字符。
"""

import math

import numpy as np

from gptcore.data.tokenizers import Ids
from gptcore.errors import DataError
from gptcore.models import GPT
from gptcore.tensor import Tensor, no_grad


def held_out_loss(model: GPT, ids: Ids, batch_size: int = 16) -> float:
    r"""模型在一段文本上的平均损失，每个字符至少看半个窗口的前文。

    Args:
        model: 模型。
        ids: 词元编号；第一个只当前文，不打分。
        batch_size: 一次算几个窗口。

    Returns:
        第 2 个到最后一个词元的平均 $-\ln p$。

    Raises:
        DataError: 词元少于两个。
    """
    if len(ids) < 2:
        raise DataError(f"held_out_loss：至少要两个词元才能打分，这里有 {len(ids)} 个")
    length = min(model.context_size, len(ids) - 1)
    half = max(1, length // 2)
    targets = len(ids) - 1
    starts = list(range(0, targets - length + 1, half))
    counts = [length] + [half] * (len(starts) - 1)  # 每个窗口末尾有多少个位置打分
    rest = targets - (starts[-1] + length)
    if rest:
        starts.append(targets - length)
        counts.append(rest)
    total = 0.0
    with model.evaluating(), no_grad():
        for i in range(0, len(starts), batch_size):
            rows = np.array(starts[i : i + batch_size])[:, None] + np.arange(length)  # (B, T)
            scores = model(Tensor(ids[rows])).data.astype(np.float64)  # (B, T, V)
            scores -= scores.max(axis=-1, keepdims=True)
            right = np.take_along_axis(scores, ids[rows + 1][..., None], axis=-1)[..., 0]
            losses = np.log(np.exp(scores).sum(axis=-1)) - right  # (B, T)
            scored = np.arange(length) >= length - np.array(counts[i : i + batch_size])[:, None]
            total += float(losses[scored].sum())
    return total / targets


def uniform_loss(vocab_size: int) -> float:
    r"""每个字符都一样可能：$\ln V$。"""
    return math.log(vocab_size)


def unigram_loss(train: Ids, ids: Ids, vocab_size: int) -> float:
    """只看字符各自的频率，不看前文；每个字符多计一次，没见过的也有概率。

    Args:
        train: 数频率的文本。
        ids: 打分的文本，从第二个词元开始。
        vocab_size: 词表大小。

    Returns:
        平均损失。
    """
    return float(-np.log(_unigram(train, vocab_size)[ids[1:]]).mean())


def bigram_loss(train: Ids, ids: Ids, vocab_size: int) -> float:
    r"""只看前一个字符：$p(b\mid a) = \dfrac{n(ab) + p(b)}{n(a) + 1}$，没见过的组合退回一元的频率。

    Args:
        train: 数频率的文本。
        ids: 打分的文本，从第二个词元开始。
        vocab_size: 词表大小。

    Returns:
        平均损失。
    """
    pairs = np.bincount(train[:-1] * vocab_size + train[1:], minlength=vocab_size**2)
    pairs = pairs.reshape(vocab_size, vocab_size)
    before, after = ids[:-1], ids[1:]
    prior = _unigram(train, vocab_size)[after]
    probabilities = (pairs[before, after] + prior) / (pairs.sum(axis=1)[before] + 1)
    return float(-np.log(probabilities).mean())


def _unigram(train: Ids, vocab_size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    counts = np.bincount(train, minlength=vocab_size) + 1.0
    return counts / counts.sum()
