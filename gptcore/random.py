"""默认的随机数生成器

所有会用到随机数的地方都接受 `rng: np.random.Generator | None`；不给时用这里的默认生成器。
"""

from typing import Any

import numpy as np

from gptcore.errors import DtypeError


def default_rng() -> np.random.Generator:
    """返回与 `np.random.seed` 共用状态的生成器。

    `np.random.seed(42)` 重置的正是这份状态，因此 NumPy 用户的习惯写法在这里同样有效。
    每次抽取随机数之前都重新取得，不缓存：这样 `np.random.set_bit_generator` 换掉的生成器也会立即生效。

    Returns:
        共享全局状态的生成器。
    """
    random: Any = np.random  # NumPy 的类型声明里没有 get_bit_generator
    return np.random.Generator(random.get_bit_generator())


def resolve_rng(operation: str, rng: Any) -> np.random.Generator:
    """用户给的生成器；没有给时是默认的。

    Args:
        operation: 哪个操作，写进错误消息。
        rng: 生成器或 `None`。

    Returns:
        要用的生成器。

    Raises:
        DtypeError: 给的不是生成器，例如只给了种子。
    """
    if rng is None:
        return default_rng()
    if not isinstance(rng, np.random.Generator):
        seed = rng if isinstance(rng, int) and 0 <= rng < 2**64 else 42
        raise DtypeError(
            f"{operation}：rng 必须是随机数生成器，这里是 {type(rng).__name__}；"
            f"请写 rng=np.random.default_rng({seed})"
        )
    return rng
