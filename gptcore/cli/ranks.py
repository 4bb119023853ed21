"""`gptcore train --distributed`：几个进程里，只有第 0 个说话、写文件，其余的跟着训练"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gptcore.cli import signals
from gptcore.cli.failures import describe
from gptcore.cli.streams import complain
from gptcore.cli.terminal import Terminal, open_terminal
from gptcore.cli.usage import UsageError
from gptcore.distributed import DataParallel
from gptcore.distributed.exits import report_early
from gptcore.distributed.launch import is_started
from gptcore.errors import DistributedError
from gptcore.mpiexec import launched_rank, launched_size, launched_together

FLAG = "--distributed"
EXAMPLE = f"mpiexec -n 2 gptcore train {FLAG}"


def open_ranks(threads: int) -> DataParallel:
    """与别的进程连上。

    Args:
        threads: 每个进程用几个 BLAS 线程。

    Raises:
        UsageError: 不是由 `mpiexec` 启动的。
        DistributedError: 没有安装 mpi4py，或者找不到 MPI 的运行库。
    """
    if launched_rank() is None:
        raise UsageError(
            f"{FLAG} 要由 mpiexec 启动几个进程，例如 {EXAMPLE}；只用一个进程时请去掉它"
        )
    ranks = DataParallel(threads=threads)
    signals.install()
    return ranks


def abandon(args: Sequence[str], error: Exception) -> None:
    """出了错，而别的进程还在等着连上：告诉它们。

    MPI 启动不了，就没有办法告诉它们，至少把原因写出来；只由第 0 个说话的规矩这时不算。

    Args:
        args: 命令行的参数。
        error: 已经由第 0 个进程写出来的错误。
    """
    if list(args[:1]) != ["train"] or not launched_together() or is_started():
        return
    try:
        report_early(error)
    except DistributedError as trouble:
        if is_quiet(args):
            complain(f"第 {launched_rank()} 个进程：{describe(trouble, args[0])}")


def is_quiet(args: Sequence[str]) -> bool:
    """这是不是几个进程里不说话的那些：同样的话第 0 个已经说了。

    Args:
        args: 命令行的参数。
    """
    return list(args[:1]) == ["train"] and (launched_rank() or 0) > 0


def require_flag() -> None:
    """`mpiexec` 启动了几个进程，却没有 `--distributed`：它们会各自训练同一个模型，写同一个文件夹。

    Raises:
        UsageError: 是这样。
    """
    if launched_together():
        raise UsageError(
            f"mpiexec 启动了 {launched_size()} 个进程，却没有 {FLAG}，它们会各自训练，写同一个文件夹；"
            f"请加上 {FLAG}"
        )


def quiet_terminal() -> Terminal:
    """什么也不显示的终端。"""
    return open_terminal(Path(os.devnull).open("w", encoding="utf-8"))


def share(ranks: DataParallel, value: Any) -> Any:
    """第 0 个进程的一个值传给大家。

    Args:
        ranks: 各个进程。
        value: 可以写成 JSON 的值；别的进程给出的不看。
    """
    return json.loads(ranks.share_text(json.dumps(value)))
