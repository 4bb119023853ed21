r"""一步的样本怎样分给各个进程

一步一共 $T$ 个样本（或批），排成一列，第 $r$ 个进程（共 $N$ 个，从 0 数起）取

$$\Big\lfloor\frac{rT}{N}\Big\rfloor,\ \dots,\ \Big\lfloor\frac{(r+1)T}{N}\Big\rfloor-1$$

各份首尾相接，既不重叠也不遗漏，大小至多相差 1；$T<N$ 时有的进程分不到。
"""


def share(start: int, stop: int, rank: int, size: int) -> range:
    """从 `start` 到 `stop`（不含）的编号里，分给一个进程的那一段。

    Args:
        start: 第一个编号。
        stop: 最后一个编号加 1。
        rank: 第几个进程，从 0 数起。
        size: 一共几个进程。

    Returns:
        一段编号，可以是空的。

    Examples:
        >>> [list(share(0, 5, rank, 3)) for rank in range(3)]
        [[0], [1, 2], [3, 4]]
    """
    total = stop - start
    return range(start + total * rank // size, start + total * (rank + 1) // size)
