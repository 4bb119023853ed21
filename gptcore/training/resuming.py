"""接着训练：从哪个检查点读，读来的状态怎样交给训练器"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from gptcore.errors import DataError
from gptcore.training.checkpoints import Loaded, load_checkpoint, newest_first

if TYPE_CHECKING:
    from gptcore.training.trainer import Trainer


def read_newest(trainer: Trainer, folder: Path, missing_ok: bool) -> Loaded | None:
    """读入最新的检查点；它损坏时给出警告，读前一个。

    Args:
        trainer: 训练器。
        folder: 一个检查点，或者装着几个检查点的文件夹。
        missing_ok: 一个检查点也没有时不报错。

    Returns:
        读入的状态；没有检查点时是 `None`。

    Raises:
        DataError: 没有检查点，或者全都损坏。
        ArgumentError: 训练器的设置与保存时不同。
    """
    paths = newest_first(folder, missing_ok)
    for path in paths[:-1]:
        try:
            return load_checkpoint(trainer, path)
        except DataError as error:
            warnings.warn(f"检查点 {path} 已损坏，改用前一个：{error}", stacklevel=4)
    return load_checkpoint(trainer, paths[-1]) if paths else None


def adopt(trainer: Trainer, loaded: Loaded) -> None:
    """下一次训练从读入的状态接着做。

    Args:
        trainer: 训练器。
        loaded: 读入的状态。
    """
    trainer.state, trainer.checkpoint, trainer.parts = loaded.run, loaded.path, loaded.parts
    trainer.saved_data = trainer.data_record = loaded.data
    trainer.resuming = True
