r"""带缓存的因果多头自注意力：只算新来的位置，以前的键与值从缓存里取

生成时，前面的词元不变，它们的键 $k_j$ 与值 $v_j$ 也就不变。所以把它们存着，第 $t$ 个词元到来时只算它自己的
$q_t$、$k_t$、$v_t$，再与存着的相乘（$d$ 是每个头的尺寸，$j\le t$）：

$$s_{tj}=\frac{q_t\cdot k_j}{\sqrt d},\qquad e_{tj}=e^{s_{tj}-m_t},\quad m_t=\max_j s_{tj},\qquad
c_t=\frac{\sum_j e_{tj}\,v_j}{\sum_j e_{tj}}$$

一个词元的计算量从 $O(t^2)$ 降到 $O(t)$，矩阵乘法变成矩阵与向量相乘，快慢由读内存的速度决定。
公式与没有缓存时一样，见 [`gptcore.kernels.attention`][gptcore.kernels.attention]，只是求和的次序不同，
结果相差舍入误差。推理专用，没有反向。

缓存的形状是 (B, H, C, d)，C 是容量：一个头的键连成一片，$q\,K^\top$ 与 $e\,V$ 都是 BLAS 的矩阵与向量相乘，不必复制。
GPT-2 124M 的形状、512 个位置时，两个乘积各 0.5 ms 左右（12 块合计），不到整步的一成；换成 (B, H, d, C) 相差无几。

各条文字长短不一时，短的后面空着：掩码把空着的与将来的位置变成 $-\infty$，权重恰为 0；
缓存的初值要是 0，不能是任意的，因为 $0\times\mathrm{NaN}$ 不是 0。

来源：Pope 等 2022，*Efficiently Scaling Transformer Inference*，<https://arxiv.org/abs/2211.05102>，第 2.1 节。
"""

import math

import numpy as np

from gptcore.kernels.array import Array


def attention_cached(
    qkv: Array, keys: Array, values: Array, lengths: Array, hidden: Array | None
) -> Array:
    """新的位置对缓存与自己的注意力；新的键与值写进缓存。

    Args:
        qkv: 新位置的查询、键、值并排，形状 (B, n, 3E)
        keys: 键的缓存，形状 (B, H, C, d)，就地写入。
        values: 值的缓存，同 `keys`。
        lengths: 每一条已经存了多少个位置，形状 (B,)，整数；加上 n 不超过 C，由调用者检查。
        hidden: `hidden_positions` 的结果。

    Returns:
        各头的结果并排，形状 (B, n, E)
    """
    batch, n, width = qkv.shape
    heads, size = keys.shape[1], keys.shape[3]
    new = qkv.reshape(batch, n, 3, heads, size).transpose(2, 0, 3, 1, 4)  # (3, B, H, n, d)
    for b, start in enumerate(lengths.tolist()):
        keys[b, :, start : start + n] = new[1, b]
        values[b, :, start : start + n] = new[2, b]
    stop = int(lengths.max()) + n
    context = np.empty((batch, n, width // 3), qkv.dtype)
    c = context.reshape(batch, n, heads, size).swapaxes(1, 2)  # (B, H, n, d)
    scaled = new[0] * (1 / math.sqrt(size))
    e = np.matmul(scaled, keys[:, :, :stop].swapaxes(2, 3))  # (B, H, n, j)
    if hidden is not None:
        e += hidden
    e -= e.max(-1, keepdims=True)
    np.exp(e, out=e)
    np.matmul(e, values[:, :, :stop], out=c)  # (B, H, n, j) @ (B, H, j, d)
    c /= e.sum(-1, keepdims=True)
    return context


def hidden_positions(lengths: Array, n: int, dtype: np.dtype[np.floating]) -> Array | None:
    r"""掩码：第 b 条的第 i 个新位置在第 $\ell_b+i$ 个，只看 $j\le\ell_b+i$。各块共用，一步只算一次。

    Args:
        lengths: 每一条已经存了多少个位置，形状 (B,)
        n: 每一条新来多少个。
        dtype: 注意力分数的类型。

    Returns:
        形状 (B, 1, n, 最长)：看不见的是 $-\infty$，其余是 0；一样长、各来一个时都看得见，是 `None`。
    """
    longest = int(lengths.max()) + n
    if n == 1 and int(lengths.min()) + 1 == longest:
        return None
    last = lengths[:, None] + np.arange(n)  # (B, n)
    hidden = np.arange(longest) > last[..., None]  # (B, n, j)
    return np.where(hidden, -np.inf, 0).astype(dtype)[:, None]
