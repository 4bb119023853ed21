"""缓冲区：大数组的内存用完收回，下一步再用

一步训练要分配几十个大数组，用完就放掉；操作系统把放掉的内存收回，下一步又一页一页地给，每一页都要先清零。
M 尺寸（一批 12 段、每段 64 个词元、嵌入 128、4 块）的一步里，这样的缺页要占两成的时间。这里让内存活得比数组久：

1. [`empty`][gptcore.kernels.buffers.empty] 给出未初始化的数组，内存向上取整到页，取自同样大小的空闲内存；
2. 数组连同它的所有视图都不再有人用时，内存自动回到空闲的一堆；
3. 起点对齐到 64 字节（缓存行，也是最宽的向量寄存器）：NumPy 自己只保证 16 字节。

小数组不值得：一微秒的登记比缺页还贵，仍由 NumPy 分配。空闲的内存不会无限地多：要向系统要新的内存时，
如果连同借出的一共会超过曾经同时借出的 1.25 倍再加 2 MiB，就先放掉空闲里最大的。每个线程各有一池，取的时候不必加锁。
"""

import threading
from collections import deque
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from gptcore.kernels.array import Array

ALIGNMENT = 64
PAGE = 4096
SMALLEST = 1 << 17
"""不到这么多字节的数组由 NumPy 分配。"""
SLACK = 2 << 20
"""上限之外还允许多留的字节数：模型小的时候，前向、反向与更新要的大小各不相同，不必为省一两兆而反复重要。"""
HEAP = 4 << 20

Memory = tuple[int, int, Array]
"""一段内存：字节数、第一个对齐的地址、装着它的数组"""


def empty(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """未初始化的数组，用法同 `np.empty`。

    Args:
        shape: 形状。
        dtype: 元素类型。

    Returns:
        连续的数组；大的数组起点对齐到 64 字节，内存归缓冲池所有。
    """
    size = prod(shape) * dtype.itemsize
    if size < SMALLEST:
        return np.empty(shape, dtype)
    lease = _Lease()
    lease.pool = pool = _local.pool
    lease.memory = memory = pool.take(-(-size // PAGE) * PAGE)
    lease.__array_interface__ = {
        "shape": tuple(shape),
        "typestr": dtype.str,
        "data": (memory[1], False),
        "version": 3,
    }
    return np.asarray(lease)


def empty_like(x: Array) -> Array:
    """形状与类型同 `x` 的未初始化的数组。"""
    return empty(x.shape, x.dtype)


def is_owner(x: Array) -> bool:
    """数组是不是独占它的内存，而不是别的数组的视图。"""
    base: Any = x.base
    return base is None or type(base) is _Lease


def release() -> None:
    """把这个线程里空闲的内存立即还给系统；训练完了，程序还要做别的大事时调用。"""
    _local.pool.release()


class _Pool:
    """按大小分堆的空闲内存；只有它的线程从中取，任何线程都可以归还。

    Attributes:
        returned: 归还了、还没有收拾的；垃圾回收随时可能归还，所以归还时只追加。
        idle: 空闲的字节数。
        leased: 借出的字节数。
        most: 曾经同时借出的字节数的最大值。
    """

    def __init__(self) -> None:
        self.returned: deque[Memory] = deque()
        self.idle = self.leased = self.most = 0
        self._free: dict[int, list[Memory]] = {}

    def take(self, size: int) -> Memory:
        """借出 `size` 字节。"""
        if self.returned:
            self._collect()
        self.leased += size
        stack = self._free.get(size)
        if stack:
            self.idle -= size
            return stack.pop()
        self.most = max(self.most, self.leased)
        self._shrink()
        _keep_heap()
        array = np.empty(size + ALIGNMENT, np.uint8)
        address: int = array.__array_interface__["data"][0]
        return size, address + -address % ALIGNMENT, array

    def release(self) -> None:
        """放掉所有空闲的内存，最大值从现在重新记起。"""
        self._collect()
        self._free.clear()
        self.idle, self.most = 0, self.leased

    def _collect(self) -> None:
        """把归还的放进各堆。"""
        free = self._free
        while self.returned:
            memory = self.returned.popleft()
            size = memory[0]
            self.leased -= size
            self.idle += size
            if size in free:
                free[size].append(memory)
            else:
                free[size] = [memory]

    def _shrink(self) -> None:
        """总占用超过上限时，放掉空闲里最大的。"""
        while self.idle and self.idle + self.leased > self.most * 5 // 4 + SLACK:
            size = max(size for size, stack in self._free.items() if stack)
            self._free[size].pop()
            self.idle -= size


@cache
def _keep_heap() -> None:
    """让 C 库留住小数组用完的内存；只做一次。

    glibc 起初一有 128 KiB 空在堆顶就还给系统，下一步再要，又是缺页：S 尺寸的一步有一百次，占一成的时间。
    放掉一个更大的数组之后，这个界限就提高到它的两倍（`man 3 mallopt` 里的 `M_MMAP_THRESHOLD`）。
    这个数组没有碰过，不占内存；别的 C 库没有这个规矩，什么也不会发生。
    """
    np.empty(HEAP, np.uint8)


class _Lease:
    """借出的一段内存：数组与它的视图都引用它，最后一个消失时归还。"""

    __slots__ = ("__array_interface__", "memory", "pool")

    memory: Memory
    pool: _Pool

    def __del__(self) -> None:
        self.pool.returned.append(self.memory)


class _Local(threading.local):
    def __init__(self) -> None:
        self.pool = _Pool()


_local = _Local()
