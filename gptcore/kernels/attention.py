r"""因果多头自注意力

每个头里，位置 $t$ 的查询 $q_t$ 只看位置 $j\le t$ 的键与值（$d$ 是每个头的尺寸）：

$$s_{tj} = \frac{q_t\cdot k_j}{\sqrt d}\ (j\le t),\qquad
e_{tj} = e^{s_{tj}-m_t},\quad m_t=\max_{j\le t}s_{tj},\quad \ell_t=\sum_j e_{tj},\qquad
p_{tj} = e_{tj}/\ell_t,\qquad c_t = \sum_{j} p_{tj}\,v_j$$

反向，由 softmax 的公式：

$$\mathrm{d}v_j = \sum_t p_{tj}\,\mathrm{d}c_t,\qquad
\mathrm{d}s_{tj} = p_{tj}\,(\mathrm{d}c_t\cdot v_j - D_t),\quad
D_t=\sum_j p_{tj}\,\mathrm{d}c_t\cdot v_j = \mathrm{d}c_t\cdot c_t$$

$$\mathrm{d}q_t = \frac1{\sqrt d}\sum_j \mathrm{d}s_{tj}\,k_j,\qquad
\mathrm{d}k_j = \frac1{\sqrt d}\sum_t \mathrm{d}s_{tj}\,q_t$$

**随机失活**作用在权重上：$k_{tj}$ 以概率 $1-\rho$ 是 1，否则是 0，
用 $\tilde p_{tj}=\frac{k_{tj}}{1-\rho}p_{tj}$ 代替 $p_{tj}$ 去乘值。

$$c_t=\sum_j\tilde p_{tj}\,v_j,\qquad \mathrm{d}v_j=\sum_t\tilde p_{tj}\,\mathrm{d}c_t,\qquad
\mathrm{d}p_{tj} = \frac{k_{tj}}{1-\rho}\,\mathrm{d}c_t\cdot v_j,\qquad
\mathrm{d}s_{tj} = p_{tj}\,(\mathrm{d}p_{tj} - D_t)$$

$D_t=\sum_j p_{tj}\,\mathrm{d}p_{tj}=\sum_j\tilde p_{tj}\,\mathrm{d}c_t\cdot v_j=\mathrm{d}c_t\cdot c_t$，
与没有失活时一样。
$\ell_t$ 是失活之前的和：失活之后各行不再正好加到 1，期望才是。只保存布尔的 $k$，每个权重一个字节。

做法：查询分块，每一块只与它看得见的键相乘，将来的那一半从不计算；只有对角线上的小块需要掩码，
被掩的分数是 $-\infty$，权重恰为 0，所以改动后面的词元，前面的输出一位也不变。
权重不归一化（只存 $e$ 与 $1/\ell$），除法留给小得多的 $c$ 与 $\mathrm{d}c$。

来源：Vaswani 等 2017，<https://arxiv.org/abs/1706.03762>；$D_t=\mathrm{d}c_t\cdot c_t$ 见 Dao 等 2022，
<https://arxiv.org/abs/2205.14135>。
"""

import math
from functools import lru_cache

import numpy as np

from gptcore.kernels.array import Array, constants, row_blocks, row_maxima
from gptcore.kernels.buffers import empty, empty_like
from gptcore.kernels.dropout import Draw

QUERY_BLOCK = 64

Block = tuple[slice, slice, Array, Array, Array | None]
r"""一块的批范围、查询范围、未归一化的权重 $e$ (b, H, q, j)、$1/\ell$ (b, H, q)，以及失活时布尔的 $k$ (b, H, q, j)"""


def attention_forward(
    qkv: Array, heads: int, p: float = 0.0, draw: Draw | None = None
) -> tuple[Array, list[Block]]:
    r"""因果多头自注意力。

    Args:
        qkv: 查询、键、值并排，形状 (B, T, 3E)
        heads: 头数 H，整除 E。
        p: 权重失活的概率 $\rho$；只在给出 `draw` 时有用。
        draw: 由一块的形状 (b, H, q, j) 抽出哪些权重留下，布尔；不给时没有失活。

    Returns:
        各头的结果并排，形状 (B, T, E)，以及反向要用的各块。
    """
    batch, length, width = qkv.shape
    q, k, v = _split(qkv, 3, heads)  # 各 (B, H, T, d)
    context = empty((batch, length, width // 3), qkv.dtype)
    (c,) = _split(context, 1, heads)
    scaled = q * (1 / math.sqrt(q.shape[-1]))
    blocks: list[Block] = []
    for b, i in _blocks(batch, heads, length):
        query = scaled[b, :, i]  # (b, H, q, d)
        e = empty((*query.shape[:3], i.stop), qkv.dtype)
        np.matmul(query, k[b, :, : i.stop].swapaxes(2, 3), out=e)  # (b, H, q, j)
        e[..., i] += _future(i.stop - i.start, qkv.dtype.char)
        e -= row_maxima(e)
        np.exp(e, out=e)
        inverse = 1 / (e @ constants(i.stop, 1, qkv.dtype.char))  # (b, H, q)
        keep = None if draw is None else draw(e.shape)
        mixed = _kept(e, keep) @ v[b, :, : i.stop]  # (b, H, q, j) @ (b, H, j, d)
        share = inverse if keep is None else inverse * (1 / (1 - p))
        np.multiply(mixed, share[..., None], out=c[b, :, i])
        blocks.append((b, i, e, inverse, keep))
    return context, blocks


def attention_backward(
    dc: Array, qkv: Array, context: Array, blocks: list[Block], heads: int, p: float = 0.0
) -> Array:
    """因果多头自注意力的反向传播。

    Args:
        dc: 结果的梯度，形状 (B, T, E)
        qkv: 前向的输入，形状 (B, T, 3E)
        context: 前向的结果，形状 (B, T, E)
        blocks: 前向保存的各块。
        heads: 头数。
        p: 前向用的失活概率。

    Returns:
        `qkv` 的梯度，形状 (B, T, 3E)
    """
    q, k, v = _split(qkv, 3, heads)
    dqkv = empty_like(qkv)
    dq, dk, dv = _split(dqkv, 3, heads)
    (dout,), (c,) = _split(dc, 1, heads), _split(context, 1, heads)
    scale = 1 / math.sqrt(q.shape[-1])
    for b, i, e, inverse, keep in reversed(blocks):  # 最后一块看得见所有的键：它写入，其余的累加
        g = dout[b, :, i] * inverse[..., None]  # dc/ℓ：(b, H, q, d)
        h = g * scale  # 先乘 1/√d：比最后去乘 dq 与 dk 少一半
        d = (h[..., None, :] @ c[b, :, i][..., None])[..., 0]  # D/(ℓ√d)：(b, H, q, 1)
        if keep is not None:
            g *= 1 / (1 - p)
            h *= 1 / (1 - p)
        ds = empty_like(e)
        np.matmul(h, v[b, :, : i.stop].swapaxes(2, 3), out=ds)  # (b, H, q, j)
        if keep is not None:
            ds *= keep
        ds -= d
        ds *= e
        np.matmul(ds, k[b, :, : i.stop], out=dq[b, :, i])
        _add_product(_kept(e, keep).swapaxes(2, 3), g, dv[b], i, last=i.stop == q.shape[2])
        _add_product(ds.swapaxes(2, 3), q[b, :, i], dk[b], i, last=i.stop == q.shape[2])
    return dqkv


def _kept(e: Array, keep: Array | None) -> Array:
    """失活之后的权重；没有失活时就是原来的数组。"""
    return e if keep is None else e * keep


def _add_product(a: Array, b: Array, total: Array, i: slice, last: bool) -> None:
    """把 `a @ b` 写入（最后一块）或加进 `total` 的前 `i.stop` 个位置。"""
    if last:
        np.matmul(a, b, out=total)
    else:
        total[:, :, : i.stop] += a @ b


def _split(x: Array, parts: int, heads: int) -> list[Array]:
    """(B, T, 部分·H·d) → 每一部分一个 (B, H, T, d) 的视图。"""
    batch, length, width = x.shape
    x = x.reshape(batch, length, parts, heads, width // (parts * heads))
    return [x[:, :, p].swapaxes(1, 2) for p in range(parts)]


def _blocks(batch: int, heads: int, length: int) -> list[tuple[slice, slice]]:
    """批的一段与查询的一段；一块分数约 `2 * BLOCK` 个元素，留在缓存里。"""
    step = min(QUERY_BLOCK, length)
    return [
        (b, slice(i, min(i + step, length)))
        for b in row_blocks(batch, heads * step * length // 2)
        for i in range(0, length, step)
    ]


@lru_cache(maxsize=8)
def _future(n: int, dtype: str) -> Array:
    r"""对角块的掩码：将来的位置为 $-\infty$，其余为 0，形状 (n, n)"""
    return np.triu(np.full((n, n), -np.inf, dtype), 1)
