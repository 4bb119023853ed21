r"""打乱次序：由种子决定的排列，样本很多时不占内存

样本不多时，次序就是 `np.random.default_rng(seed).permutation(n)`，每个样本 8 字节。
几千万个样本时它要几百 MB，所以改用**算出来**的排列：给出位置 $i$，直接算出那里是第几个样本，不存任何表。

做法是 Feistel 网络，分组密码用它造可逆的变换。把编号写成 $i = l + a\,r$，
$0\le l<a$，$0\le r<b$，其中 $a=\lceil\sqrt n\,\rceil$，$b=\lceil n/a\rceil$；然后交替地改其中一半：

$$l\leftarrow (l + F_k(r)) \bmod a,\qquad r\leftarrow (r + F_{k'}(l)) \bmod b$$

每一步都能倒推（减去同一个 $F$），所以无论 $F$ 是什么，整个变换是 $0$ 到 $ab-1$ 的一个排列；
$F_k$ 是把输入与密钥搅乱的散列，种子决定各轮的密钥。$ab$ 比 $n$ 略大，
结果若落在 $n$ 之外，就再变换一次，直到落在 $n$ 之内（cycle walking）：沿着排列的环走，
从 $n$ 之内出发总会走回来，而且不同的起点走到不同的终点。于是得到 $0$ 到 $n-1$ 的一个排列。

出处：任意大小的定义域见 Black 与 Rogaway 2002（Ciphers with Arbitrary Finite Domains，
https://doi.org/10.1007/3-540-45760-7_9）；散列是 SplitMix64 的收尾步骤，
见 Steele 等 2014（https://doi.org/10.1145/2660193.2660195）。
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

STORED = 2**22
"""样本不超过这个数（次序占 32 MiB）时用 `permutation`，再多就用 `FeistelOrder`。"""
ROUNDS = 8
"""每一半改几次之和；偶数"""

Indices = npt.NDArray[np.int64]


def shuffled_order(seed: int, count: int) -> "Indices | FeistelOrder":
    """由种子决定的次序；切片得到其中一段。

    Args:
        seed: 种子。
        count: 样本数。

    Returns:
        样本不超过 `STORED` 时是数组，否则是 `FeistelOrder`。
    """
    if count <= STORED:
        return np.random.default_rng(seed).permutation(count)
    return FeistelOrder(seed, count)


class FeistelOrder:
    """算出来的排列：占用的内存与样本数无关，切片得到其中一段的样本编号。

    Args:
        seed: 种子。
        count: 样本数。

    Examples:
        >>> order = FeistelOrder(0, 7)
        >>> sorted(order[:].tolist())
        [0, 1, 2, 3, 4, 5, 6]
    """

    def __init__(self, seed: int, count: int) -> None:
        self.count = count
        self._a = math.isqrt(max(count, 1) - 1) + 1
        self._b = -(-count // self._a)
        rng = np.random.default_rng(seed)
        self._keys = rng.integers(2**64, size=ROUNDS, dtype=np.uint64)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: slice) -> Indices:
        chosen = range(self.count)[index]
        places = self._once(np.arange(chosen.start, chosen.stop, chosen.step).astype(np.uint64))
        while (outside := places >= self.count).any():
            places[outside] = self._once(places[outside])
        return places.astype(np.int64)

    def _once(self, places: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """0 到 ab − 1 的排列。"""
        a, b = np.uint64(self._a), np.uint64(self._b)
        left, right = places % a, places // a
        for i in range(0, ROUNDS, 2):
            left = (left + _mixed(right, self._keys[i]) % a) % a
            right = (right + _mixed(left, self._keys[i + 1]) % b) % b
        return left + a * right


def _mixed(x: npt.NDArray[np.uint64], key: Any) -> npt.NDArray[np.uint64]:
    """把 64 位搅乱；乘法按 2⁶⁴ 绕回。"""
    z = x + key
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
