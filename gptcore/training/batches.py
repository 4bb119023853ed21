"""训练集的批：一轮一轮地取，可以打乱，记得住取到哪里"""

from typing import Any, cast

import numpy as np

from gptcore.data import Dataset
from gptcore.errors import ArgumentError, DataError, DtypeError
from gptcore.kernels.convert import brief
from gptcore.random import resolve_rng
from gptcore.tensor import Tensor
from gptcore.training.orders import shuffled_order
from gptcore.training.state import RunState


class Batches:
    """按 `RunState` 记着的位置，接连取出训练集的批。

    打乱时，每一轮开始从 `rng` 抽一个种子，这一轮的次序由它决定，种子存在状态里：
    中断之后不必保存整个次序，就能从同一批接着取；样本再多，次序也只占很少的内存，见 `orders`。
    打乱的是样本，不是整批；凑不满一批的尾巴丢弃，每一轮丢的是不同的样本。

    Args:
        dataset: 数据集。
        shuffle: 是否打乱。
        rng: 打乱用的生成器；不给时用默认的。
        state: 训练的状态，取批时会更新。
    """

    def __init__(
        self, dataset: Dataset, shuffle: bool, rng: np.random.Generator | None, state: RunState
    ) -> None:
        if shuffle and not hasattr(dataset, "take"):
            raise DtypeError(
                f"shuffle：{type(dataset).__name__} 不能按编号取样本，没有 take；"
                "请继承 Dataset，或者不打乱"
            )
        self.dataset, self.shuffle, self.rng, self.state = dataset, shuffle, rng, state
        dataset.train()
        self.count = len(dataset)
        if not self.count:
            raise DataError("训练：数据集的批数是 0；请检查它的 __len__")
        if state.position >= self.count or (
            shuffle and state.position and state.order_seed is None
        ):
            raise DataError(
                f"resume：训练状态说这一轮取到第 {state.position} 批，打乱的种子是 {state.order_seed}；"
                f"一轮有 {self.count} 批，对不上，文件可能被改动过"
            )
        self._order: tuple[int, Any] | None = None

    def take(self, limit: int) -> list[tuple[Tensor, Tensor]]:
        """接下来的至多 `limit` 批，不跨过一轮的末尾。"""
        state = self.state
        self.dataset.train()  # 两步之间，使用者也许切换到了测试集
        if state.position == 0 and self.shuffle:
            rng = resolve_rng("shuffle", self.rng)
            state.order_seed = int(rng.integers(2**63))
        elif not self.shuffle:
            state.order_seed = None
        numbers = range(state.position, min(state.position + limit, self.count))
        group = [self._batch(i) for i in numbers]
        state.position = numbers.stop
        if state.position >= self.count:
            state.epoch, state.position = state.epoch + 1, 0
        return group

    def _batch(self, i: int) -> tuple[Tensor, Tensor]:
        seed = self.state.order_seed
        if seed is None:
            return self.dataset[i]
        if self._order is None or self._order[0] != seed:
            x, _ = self.dataset.train_data
            self._order = seed, shuffled_order(seed, len(x))
        size = self.dataset.batch_size
        return self.dataset.take(self._order[1][i * size : (i + 1) * size])


def updates_per_epoch(batches: int, accumulation_steps: int) -> int:
    """一轮更新几次；最后一组批数不足时也更新。"""
    return -(-batches // accumulation_steps)


def require_same_data(saved: Any, dataset: Dataset, shuffle: bool) -> None:
    """接着训练时，数据要和原来的相同，否则记着的位置没有意义。

    Args:
        saved: 检查点里 `data_record` 的结果；`None` 表示没有记录。
        dataset: 现在的数据集。
        shuffle: 现在是否打乱。

    Raises:
        ArgumentError: 有几项不同；消息列出各项的前后两个值。
    """
    if not isinstance(saved, dict):
        return
    before = cast("dict[str, Any]", saved)
    changed = [
        f"{key} 原来是 {brief(before.get(key))}，现在是 {value!r}"
        for key, value in data_record(dataset, shuffle).items()
        if before.get(key) != value
    ]
    if changed:
        raise ArgumentError(
            f"resume：数据与检查点里的不同，不能从同一批接着训练：{'；'.join(changed)}；"
            "请用原来的数据与设置，或者从头训练"
        )


def data_record(dataset: Dataset, shuffle: bool) -> dict[str, Any]:
    """检查点里记下的数据：数据集的指纹与是否打乱。"""
    fingerprint: Any = getattr(dataset, "fingerprint", None)
    return {**(fingerprint() if fingerprint else {"batches": len(dataset)}), "shuffle": shuffle}
