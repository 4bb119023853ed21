r"""训练 BPE：反复合并出现次数最多的一对相邻词元

算法（Sennrich 等 2016，https://arxiv.org/abs/1508.07909，算法 1；字节级的做法见 Radford 等 2019）：

1. 把文字切成片段，统计每种片段出现的次数；相同的片段只处理一次。
2. 每个片段写成一串字节，每个字节是一个词元。
3. 数出每一对相邻词元的次数，把最多的一对合并成一个新词元；重复，直到词表够大。

次数相同时，取左边词元编号最小的一对，再相同取右边编号最小的；结果因此只取决于文字本身，与次序、机器无关。
Hugging Face tokenizers 也是这样取，所以同样的文字得到同样的合并（tests/data/test_bpe_training.py 逐个比较）。

每次合并只改动用到这一对的地方。全部片段首尾相接，放在一个数组里：

- `where[对]` 是这一对出现的位置。一对词元只会在其中较新的一个刚造出来时出现，之后只会减少，
  所以位置一次记齐，用到时再去掉已经失效的；
- 次数也只会减少，所以堆里放着旧的次数，取出时若已经变了，就换成新的再放回去。

设各种片段共有 $n$ 个字节，每个字节最多被合并一次，所以全部改动是 $O(n)$，另有排序与堆的对数因子；
内存大约是 $60n$ 字节。英语的 $n$ 比全文小得多；汉语的片段是整个分句，很少重复，$n$ 与全文差不多。
"""

import heapq
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gptcore.data.tokenizers.byte_alphabet import BYTE_ORDER
from gptcore.data.tokenizers.ids import Ids

_END, _GONE = -1, -2
"""片段之间的隔断；已经并入左边的位置"""
Places = npt.NDArray[np.integer[Any]]
_BYTE_IDS = np.argsort(np.frombuffer(BYTE_ORDER, np.uint8)).astype(np.int32)


def learn_merges(
    pieces: Mapping[str, int], merges: int, min_frequency: int
) -> list[tuple[bytes, bytes]]:
    """从片段的次数学出合并。

    Args:
        pieces: 各种片段与次数。
        merges: 最多多少次合并。
        min_frequency: 一对词元至少出现多少次才合并。

    Returns:
        各次合并的两串字节；没有可以合并的了，就比 `merges` 少。
    """
    trainer = _Trainer(pieces, min_frequency)
    tokens = [bytes([byte]) for byte in BYTE_ORDER]
    learned: list[tuple[bytes, bytes]] = []
    while len(learned) < merges and (pair := trainer.most_frequent()):
        left, right = tokens[pair[0]], tokens[pair[1]]
        trainer.merge(*pair, len(tokens))
        tokens.append(left + right)
        learned.append((left, right))
    return learned


class _Trainer:
    def __init__(self, pieces: Mapping[str, int], min_frequency: int) -> None:
        self._least = min_frequency
        words = [piece.encode("utf-8") for piece in pieces]
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        starts = np.cumsum(lengths + 1) - lengths  # 每个片段前面有一个隔断，末尾再有一个
        size = int(lengths.sum()) + len(words) + 1
        index = np.int32 if size < 2**31 else np.int64
        self._symbols = np.full(size, _END, dtype=np.int32)
        inside = np.ones(size, dtype=np.bool_)
        inside[np.append(starts - 1, size - 1)] = False
        self._symbols[inside] = _BYTE_IDS[np.frombuffer(b"".join(words), np.uint8)]
        self._weights = np.zeros(size, dtype=np.int64)
        counts = np.fromiter(pieces.values(), np.int64, len(words))
        self._weights[inside] = np.repeat(counts, lengths)
        self._before = np.arange(-1, size - 1, dtype=index)
        self._after = np.arange(1, size + 1, dtype=index)
        self._counts: dict[int, int] = {}
        self._where: dict[int, Places] = {}
        self._heap: list[tuple[int, int]] = []
        pairs = np.flatnonzero((self._symbols[:-1] >= 0) & (self._symbols[1:] >= 0))
        self._add(pairs.astype(index))

    def most_frequent(self) -> tuple[int, int] | None:
        """次数最多的一对；都不够 `min_frequency` 次时没有。"""
        while self._heap:
            negative, key = heapq.heappop(self._heap)
            count = self._counts.get(key)
            if count == -negative:
                return key >> 32, key & 0xFFFFFFFF
            if count is not None:
                heapq.heappush(self._heap, (-count, key))
        return None

    def merge(self, a: int, b: int, new: int) -> None:
        """把每一处相邻的 a、b 换成 new。"""
        symbols, before, after = self._symbols, self._before, self._after
        key = a << 32 | b
        del self._counts[key]
        at = self._where.pop(key)
        at = at[(symbols[at] == a) & (symbols[after[at]] == b)]
        if a == b:
            at = at[_every_other(at, after[at])]
        gone = after[at]
        left, right = before[at], after[gone]
        # 消失的邻接：左边一对与右边一对；前一处的右边就是后一处的左边时只算一次
        lefts = symbols[left] >= 0
        lefts[1:] &= left[1:] != gone[:-1]
        rights = symbols[right] >= 0
        keys = np.concatenate(
            (
                symbols[left[lefts]].astype(np.int64) << 32 | a,
                b << 32 | symbols[right[rights]].astype(np.int64),
            )
        )
        self._remove(keys, self._weights[np.concatenate((left[lefts], gone[rights]))])
        symbols[at], symbols[gone] = new, _GONE
        after[at], before[right] = right, at
        # 新出现的邻接：左边一对与右边一对；左边也刚合并过时，它的右边就是这一对
        left = before[at]
        lefts = symbols[left] >= 0
        lefts[1:] &= left[1:] != at[:-1]
        self._add(np.sort(np.concatenate((left[lefts], at[symbols[right] >= 0])), kind="stable"))

    def _add(self, at: Places) -> None:
        """记下新出现的邻接，`at` 是各处左边的位置，从小到大。"""
        keys = self._symbols[at].astype(np.int64) << 32 | self._symbols[self._after[at]]
        for key, count, places in _grouped(keys, self._weights[at], at, self._least):
            self._counts[key] = count
            self._where[key] = places
            heapq.heappush(self._heap, (-count, key))

    def _remove(self, keys: Ids, weights: Ids) -> None:
        """减去消失的邻接；不够 `min_frequency` 次的不必再记。"""
        counts = self._counts
        for key, lost, _ in _grouped(keys, weights, keys, 1):
            count = counts.get(key)
            if count is None:
                continue
            if count - lost >= self._least:
                counts[key] = count - lost
            else:
                del counts[key], self._where[key]


def _grouped(
    keys: Ids, weights: Ids, values: Places, least: int
) -> Iterator[tuple[int, int, Places]]:
    """按键归类：键、权重之和、各个值（次序不变）；和小于 `least` 的不要。"""
    if not len(keys):
        return
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    sums = np.add.reduceat(weights[order], starts)
    lengths = np.diff(starts, append=len(keys))
    kept = sums >= least
    values = values[order[np.repeat(kept, lengths)]]
    ends = np.cumsum(lengths[kept]).tolist()
    begin = 0
    for key, total, end in zip(keys[starts[kept]].tolist(), sums[kept].tolist(), ends, strict=True):
        yield key, total, values[begin:end]
        begin = end


def _every_other(at: Places, after: Places) -> npt.NDArray[np.bool_]:
    """一连串相同的词元从左起两个两个地合并：`aaaaa` 变成 `aa`、`aa`、`a`。"""
    starts = np.concatenate(([True], at[1:] != after[:-1]))[: len(at)]
    index = np.arange(len(at))
    return (index - np.maximum.accumulate(np.where(starts, index, 0))) % 2 == 0
