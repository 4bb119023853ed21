"""键值缓存：已经算过的词元，每一块的键与值"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gptcore.errors import ShapeError
from gptcore.kernels.array import Array
from gptcore.kernels.attention import attention_forward
from gptcore.kernels.attention_cached import attention_cached, hidden_positions


class KVCache:
    r"""键值缓存（KV cache）：每一块里，每个词元的键与值。

    由 [`GPT.new_cache`][gptcore.models.inference.GPTInference.new_cache] 建立，交给
    [`GPT.next_scores`][gptcore.models.inference.GPTInference.next_scores]；各条文字可以长短不一。
    大小是 $2\cdot\text{块数}\cdot\text{批大小}\cdot\text{容量}\cdot\text{嵌入尺寸}$ 个数：
    GPT-2 124M 的形状、1024 个位置是 72 MiB。没有用到的部分，操作系统还没有分配内存。

    存着的键与值由当时的参数算出；之后改了参数，请另建一个。

    Args:
        keys: 键，形状 `(块数, 批大小, 头数, 容量, 头尺寸)`，初值 0
        values: 值，形状同 `keys`。
        lengths: 每一条已经存了多少个词元，形状 `(批大小,)`

    教程：第 18 章 KV 缓存。
    """

    def __init__(self, keys: Array, values: Array, lengths: Array) -> None:
        self.keys, self.values, self.lengths = keys, values, lengths
        self._hidden: Array | None = None

    @property
    def capacity(self) -> int:
        """每一条最多存多少个词元。"""
        return self.keys.shape[3]

    @property
    def nbytes(self) -> int:
        """缓存占多少字节。"""
        return self.keys.nbytes + self.values.nbytes

    def row(self, i: int) -> KVCache:
        """第 `i` 条单独的缓存，与这里共用数组：往里写，这里也变。"""
        part = slice(i, i + 1)
        return KVCache(self.keys[:, part], self.values[:, part], self.lengths[part])

    def keep(self, rows: Sequence[int]) -> KVCache:
        """只留下几条，按给出的次序；数组复制一份。"""
        index = list(rows)
        return KVCache(self.keys[:, index], self.values[:, index], self.lengths[index])

    def begin(self, batch: int, n: int) -> Array:
        """开始放进每条 `n` 个新词元。

        Args:
            batch: 有几条。
            n: 每条多少个。

        Returns:
            新词元的位置，形状 `(批大小, n)`

        Raises:
            ShapeError: 条数与缓存不同，或者放不下。
        """
        if batch != len(self.lengths):
            raise ShapeError(
                f"KVCache：缓存里有 {len(self.lengths)} 条文字，输入有 {batch} 条；"
                f"请用 model.new_cache({batch}) 另建一个"
            )
        longest = int(self.lengths.max())
        if longest + n > self.capacity:
            raise ShapeError(
                f"KVCache：已经有 {longest} 个词元，再放 {n} 个就超过了容量 {self.capacity}；"
                "请建大一些的缓存，不能超过上下文尺寸；再往后要移动窗口，缓存要重建"
            )
        self._hidden = hidden_positions(self.lengths, n, self.keys.dtype)
        return self.lengths[:, None] + np.arange(n)

    def attend(self, block: int, qkv: Array) -> Array:
        """第 `block` 块的注意力；在 `begin` 与 `finish` 之间，每一块调用一次。

        Args:
            block: 第几块。
            qkv: 新词元的查询、键、值并排，形状 `(批大小, n, 3 * 嵌入尺寸)`

        Returns:
            各头的结果并排，形状 `(批大小, n, 嵌入尺寸)`
        """
        keys, values = self.keys[block], self.values[block]
        batch, n, _ = qkv.shape
        if n == 1 or self.lengths.any():
            return attention_cached(qkv, keys, values, self.lengths, self._hidden)
        # 从头开始：与没有缓存时逐位相同
        _, heads, _, size = keys.shape
        new = qkv.reshape(batch, n, 3, heads, size).transpose(2, 0, 3, 1, 4)  # (3, B, H, n, d)
        keys[:, :, :n], values[:, :, :n] = new[1], new[2]
        return attention_forward(qkv, heads)[0]

    def finish(self, n: int) -> None:
        """各块都算完了，新词元才算存进来；中途出错时，缓存还是原来的长度。"""
        self.lengths += n
