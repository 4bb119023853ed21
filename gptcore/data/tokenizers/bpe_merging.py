"""BPE 编码的核心：在一个片段里按次序合并，并记住见过的片段"""

import heapq
from array import array
from collections.abc import Sequence
from itertools import pairwise, repeat

import numpy as np

from gptcore.data.tokenizers.ids import Ids

CACHE = 1 << 24
"""缓存的上限，大约是字节数；超过就清空重来"""
ENTRY = 64
"""缓存里每个片段除了文字之外的开销，粗略估计"""

Pair = tuple[int, int]


class Merges:
    """合并的规则：哪两个词元可以合并，先后次序，合并成哪一个。

    Args:
        pairs: 各次合并的两个词元，越靠前越优先。
        results: 各次合并的结果。
    """

    def __init__(self, pairs: Sequence[Pair], results: Sequence[int]) -> None:
        self.ranks = {pair: i for i, pair in enumerate(pairs)}
        self.results = results
        self.none = len(results)
        """没有规则的一对，次序排在最后"""

    def apply(self, ids: list[int]) -> list[int]:
        """反复合并次序最靠前的一对（有几处时最靠左的），直到没有可以合并的。

        `places` 按次序归类各对的位置，堆里是有哪些次序；双向链表跳过已经并入左边的位置。
        一对词元变了，旧的位置留在 `places` 里，轮到时认出来跳过。n 个字节是 O(n log n)，很长的片段也不怕。

        Args:
            ids: 各个字节的编号，会被改动。

        Returns:
            词元的编号。
        """
        get, none = self.ranks.get, self.none
        ids.append(-1)  # 末尾的哨兵，也是第一个的左边：与谁都不能合并
        n = len(ids)
        ranks = [*map(get, pairwise(ids), repeat(none)), none]
        before, after = list(range(-1, n - 1)), [*range(1, n), n - 1]
        places: dict[int, list[int]] = {}
        order: list[int] = []
        for i, rank in enumerate(ranks):
            if rank < none:
                _note(places, order, rank, i)
        while order:
            rank = heapq.heappop(order)
            todo = sorted(places.pop(rank))
            for k, i in enumerate(todo):
                if ranks[i] != rank:
                    continue
                gone = after[i]
                left, right = before[i], after[gone]
                ids[i], ids[gone], ranks[gone] = self.results[rank], -1, none
                after[i], before[right] = right, i
                for at in (left, i):
                    ranks[at] = get((ids[at], ids[after[at]]), none)
                    if ranks[at] < none:
                        _note(places, order, ranks[at], at)
                if ranks[left] < rank or ranks[i] < rank:
                    # 训练出来的词表不会这样：新词元的合并总在它自己之后；手写的可能
                    places[rank] = todo[k + 1 :]
                    heapq.heappush(order, rank)
                    break
        return [i for i in ids if i >= 0]


def _note(places: dict[int, list[int]], order: list[int], rank: int, i: int) -> None:
    """记下次序为 `rank` 的一处。"""
    if rank in places:
        places[rank].append(i)
    else:
        places[rank] = [i]
        heapq.heappush(order, rank)


class PieceCache(dict[str, int]):
    """片段 → 词元，见过的片段不再合并；一批片段用 NumPy 一次展开。

    大多数常见的片段只是一个词元，字典里就是它的编号；几个词元的片段记在 `_flat` 里，
    字典里是 −1 减去它的序号。

    Args:
        merges: 合并的规则。
        bytes_to_ids: 各个字节的编号。
    """

    def __init__(self, merges: Merges, bytes_to_ids: Sequence[int]) -> None:
        super().__init__()
        self._merges, self._table = merges, bytes_to_ids
        self._forget()

    def __missing__(self, piece: str) -> int:
        ids = self._merges.apply([self._table[byte] for byte in piece.encode("utf-8")])
        if len(ids) == 1:
            value = ids[0]
        else:
            value = -len(self._bounds)  # 第 k 段的起止是 _bounds[k] 与 _bounds[k + 1]
            self._flat.extend(ids)
            self._bounds.append(len(self._flat))
        self[piece] = value
        self._used += ENTRY + len(piece)
        return value

    def encode(self, pieces: list[str]) -> Ids:
        """编码一批片段。

        Args:
            pieces: 片段，都不为空。

        Returns:
            各个片段的词元，首尾相接。
        """
        try:
            values = np.fromiter(map(self.__getitem__, pieces), np.int64, len(pieces))
            ids = self._expand(values)
        except BaseException:  # 在任何一步被 Ctrl-C 打断，都不留下只记了一半的片段
            self._forget()
            raise
        if self._used > CACHE:
            self._forget()
        return ids

    def _expand(self, values: Ids) -> Ids:
        """负数换成它代表的几个词元。"""
        several = values < 0
        if not several.any():
            return values
        bounds, flat = np.frombuffer(self._bounds, np.int64), np.frombuffer(self._flat, np.int32)
        k = -1 - values[several]
        lengths = np.ones(len(values), dtype=np.int64)
        lengths[several] = bounds[k + 1] - bounds[k]
        starts = np.cumsum(lengths) - lengths  # 各个片段在结果里的起点
        ids = np.repeat(values, lengths)
        at = np.flatnonzero(np.repeat(several, lengths))
        ids[at] = flat[at + np.repeat(bounds[k] - starts[several], lengths[several])]
        return ids

    def _forget(self) -> None:
        self.clear()
        self._flat, self._bounds, self._used = array("i"), array("q", [0]), 0
