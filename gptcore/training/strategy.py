"""训练在几个进程上进行：训练器在这几处向它询问；这里是只有一个进程的情形

[`DataParallel`][gptcore.distributed.DataParallel] 改写其中的各个方法。训练器自己不知道有几个进程，也不导入 mpi4py。
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptcore.data import Dataset
from gptcore.tensor import Tensor
from gptcore.threads import model_threads
from gptcore.training.accumulation import backward
from gptcore.training.callbacks import Callback
from gptcore.training.checkpoints import save_checkpoint
from gptcore.training.checks import require_current
from gptcore.training.environment import environment
from gptcore.training.evaluation import evaluate
from gptcore.training.generators import States
from gptcore.training.nonfinite import first_nonfinite
from gptcore.training.resuming import adopt, read_newest

if TYPE_CHECKING:
    from gptcore.training.trainer import Trainer


class SingleProcess:
    """一个进程：什么也不用商量。

    Attributes:
        rank: 第几个进程，从 0 数起。
        size: 一共几个进程。
    """

    rank: int = 0
    size: int = 1

    # ---------------------------------------------------------------- 开始与结束

    def guard(self) -> AbstractContextManager[None]:
        """其中的错误要让别的进程也知道。"""
        return nullcontext()

    def start(self, trainer: Trainer, fresh: bool) -> None:
        """第一步之前。

        Args:
            trainer: 训练器，数据与总步数已经就位。
            fresh: 从头训练，而不是接着训练。
        """

    def stopping(self, trainer: Trainer) -> bool:
        """下一步之前：有没有谁要求停下。"""
        return trainer.stop_reason is not None

    def finish(self, trainer: Trainer) -> None:
        """最后一步之后，`on_end` 之前。"""

    def threads(self, parameters: int) -> Any:
        """计算时用几个 BLAS 线程，一个上下文管理器。

        Args:
            parameters: 模型有多少个参数。
        """
        return model_threads(parameters)

    def environment(self) -> dict[str, Any]:
        """结果在什么环境里得到。"""
        return environment()

    # ---------------------------------------------------------------- 一步

    def agree(self, seed: int) -> int:
        """这一轮打乱次序用的种子；几个进程时以第 0 个的为准。

        Args:
            seed: 自己抽到的种子。
        """
        return seed

    def backward(self, trainer: Trainer, group: list[tuple[Tensor, Tensor]]) -> tuple[float, int]:
        """反向传播，得到全部进程合在一起的梯度。

        Args:
            trainer: 训练器。
            group: 自己的各批 `(x, y)`。

        Returns:
            平均损失与标签的个数，都是全部进程的。
        """
        loss = backward(trainer.model, trainer.loss_fn, group)
        return loss, sum(y.size for _, y in group)

    def first_nonfinite(self, trainer: Trainer, group: list[tuple[Tensor, Tensor]]) -> str:
        """NaN 或无穷最早出现在哪里，一句话。

        Args:
            trainer: 训练器。
            group: 自己的各批 `(x, y)`。
        """
        return first_nonfinite(trainer.model, trainer.loss_fn, group)

    # ---------------------------------------------------------------- 回调

    def own(self, callbacks: list[Callback]) -> list[Callback]:
        """在这个进程上运行的回调。

        Args:
            callbacks: 使用者给出的。
        """
        return callbacks

    def notify(self, trainer: Trainer, moment: str, *given: Any) -> None:
        """通知各个回调。

        Args:
            trainer: 训练器。
            moment: 哪个时刻，例如 `on_step`。
            given: 那个方法的其余参数。
        """
        state = trainer.state
        for callback in trainer.callbacks:
            getattr(callback, moment)(trainer, *given)
            require_current(trainer.state, state)

    # ---------------------------------------------------------------- 评估与检查点

    def evaluate(self, trainer: Trainer, dataset: Dataset, limit: int | None) -> tuple[float, int]:
        """在测试集上评估。

        Args:
            trainer: 训练器。
            dataset: 数据集。
            limit: 至多评估多少个样本。

        Returns:
            平均损失与标签数。
        """
        return evaluate(trainer.model, trainer.loss_fn, dataset, limit)

    def save(self, trainer: Trainer, folder: Path) -> Path:
        """存一个检查点。

        Args:
            trainer: 训练器。
            folder: 检查点的文件夹。

        Returns:
            文件夹。
        """
        return save_checkpoint(trainer, folder)

    def other_states(self, trainer: Trainer) -> list[States]:
        """别的进程上各个生成器的状态，从第 1 个进程起。

        Args:
            trainer: 训练器。
        """
        return []

    def resume(self, trainer: Trainer, folder: Path, missing_ok: bool) -> None:
        """读入检查点。

        Args:
            trainer: 训练器。
            folder: 检查点，或者装着几个检查点的文件夹。
            missing_ok: 没有检查点时不报错。
        """
        if loaded := read_newest(trainer, folder, missing_ok):
            adopt(trainer, loaded)


SINGLE = SingleProcess()
"""没有给出 `distributed` 时用的"""
