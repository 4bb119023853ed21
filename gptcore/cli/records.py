"""训练记录：设置、结果与环境，写进模型文件夹的 `training.json`"""

from dataclasses import replace
from typing import Any

from gptcore.cli.corpus import CorpusRecord
from gptcore.training.environment import environment


def record(
    command: str,
    settings: dict[str, Any],
    result: dict[str, Any],
    corpus: CorpusRecord,
    run: str | None = None,
    where: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """一次训练的记录。

    Args:
        command: 哪个命令。
        settings: 它的全部设置，包括种子与 BLAS 的线程数。
        result: 损失、时间等结果。
        corpus: 语料的记录；记录会和模型一起分享，所以不写完整的路径。
        run: 训练的编号，与 `run.json` 里的相同。
        where: 在什么环境里训练；不给时就是现在的。

    Returns:
        可以写成 JSON 的字典。
    """
    return {
        "command": command,
        "run": run,
        "settings": settings,
        "corpus": replace(corpus, paths=(None,) * len(corpus.paths)).to_dict(),
        "result": result,
        "environment": where or environment(),
    }
