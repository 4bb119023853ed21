"""训练集的批：一轮一轮地取，可以打乱，记得住取到哪里"""

from typing import Any, cast

import numpy as np

from gptcore.data import Dataset
from gptcore.errors import ArgumentError, DataError, DtypeError
from gptcore.kernels.convert import brief
from gptcore.random import resolve_rng
from gptcore.tensor import Tensor
from gptcore.training.orders import shuffled_order
from gptcore.training.sharing import share
from gptcore.training.state import RunState
from gptcore.training.strategy import SINGLE, SingleProcess


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
        parts: 数据集的几批合成训练的一批；几个进程时，是开始训练时的进程数。
        strategy: 自己是几个进程里的第几个。

    几个进程走同样的次序，各取自己的一段，见 `sharing`。位置、批数都按合成的一批来数，
    与一个进程、批有 `parts` 倍大时相同：凑不满的尾巴丢弃。
    """

    def __init__(
        self,
        dataset: Dataset,
        shuffle: bool,
        rng: np.random.Generator | None,
        state: RunState,
        parts: int = 1,
        strategy: SingleProcess = SINGLE,
    ) -> None:
        if shuffle and not hasattr(dataset, "take"):
            raise DtypeError(
                f"shuffle：{type(dataset).__name__} 不能按编号取样本，没有 take；"
                "请继承 Dataset，或者不打乱"
            )
        self.dataset, self.shuffle, self.rng, self.state = dataset, shuffle, rng, state
        self.parts, self.strategy = parts, strategy
        dataset.train()
        self.count = len(dataset) // parts
        if not self.count:
            enough = f"，不够 {parts} 个进程各取一批；请减小 batch_size" if len(dataset) else ""
            raise DataError(
                f"训练：数据集的批数是 {len(dataset)}{enough or '；请检查它的 __len__'}"
            )
        if state.position >= self.count or (
            shuffle and state.position and state.order_seed is None
        ):
            raise DataError(
                f"resume：训练状态说这一轮取到第 {state.position} 批，打乱的种子是 {state.order_seed}；"
                f"一轮有 {self.count} 批，对不上，文件可能被改动过"
            )
        self._order: tuple[int, Any] | None = None

    def take(self, limit: int) -> list[tuple[Tensor, Tensor]]:
        """接下来的至多 `limit` 批里自己的那一份，不跨过一轮的末尾。"""
        state = self.state
        self.dataset.train()  # 两步之间，使用者也许切换到了测试集
        if state.position == 0 and self.shuffle:
            rng = resolve_rng("shuffle", self.rng)
            state.order_seed = self.strategy.agree(int(rng.integers(2**63)))
        elif not self.shuffle:
            state.order_seed = None
        numbers = range(state.position, min(state.position + limit, self.count))
        group = self._own(numbers.start * self.parts, numbers.stop * self.parts)
        state.position = numbers.stop
        if state.position >= self.count:
            state.epoch, state.position = state.epoch + 1, 0
        return group

    def _own(self, start: int, stop: int) -> list[tuple[Tensor, Tensor]]:
        """数据集的第 `start` 到 `stop` 批里，分给自己的那一份。

        能整除时各取几整批；否则按样本来分，仍然分成不超过 `batch_size` 的几批，内存不会变多。
        """
        rank, size = self.strategy.rank, self.strategy.size
        if (stop - start) % size == 0 or not hasattr(self.dataset, "take"):
            return [self._batch(i) for i in share(start, stop, rank, size)]
        width = self.dataset.batch_size
        rows = share(start * width, stop * width, rank, size)
        pieces = [rows[i : i + width] for i in range(0, len(rows), width)]
        return [self._rows(piece.start, piece.stop) for piece in pieces]

    def _batch(self, i: int) -> tuple[Tensor, Tensor]:
        if self.state.order_seed is None:
            return self.dataset[i]
        width = self.dataset.batch_size
        return self._rows(i * width, (i + 1) * width)

    def _rows(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """这一轮的次序里，第 `start` 到 `stop` 个样本。"""
        seed = self.state.order_seed
        if seed is None:
            return self.dataset.take(np.arange(start, stop))
        if self._order is None or self._order[0] != seed:
            x, _ = self.dataset.train_data
            self._order = seed, shuffled_order(seed, len(x))
        return self.dataset.take(self._order[1][start:stop])


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
