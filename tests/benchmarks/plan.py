"""一次测速的打算：哪些尺寸，几轮，几个线程，各方放在哪里"""

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

from rows import Row
from worker import Local, Worker

ROUNDS = {"S": 40, "M": 24, "L": 8, "G": 8}
SESSIONS = {"S": 8, "M": 4, "L": 2, "G": 2}
"""这些轮分几次测，每次各方的进程都重新开始"""
QUICK = 3


@dataclass(frozen=True)
class Plan:
    """设置；各项的意思见 `add_options`。"""

    sizes: tuple[str, ...] | None = None
    rounds: int | None = None
    quick: bool = False
    threads: int | None = None
    same_process: bool = False
    without: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None

    def sizes_or(self, default: Sequence[str]) -> Sequence[str]:
        return default if self.sizes is None else self.sizes

    def rounds_for(self, size: str = "M") -> int:
        """几轮：小的尺寸快，多测几轮。"""
        return self.rounds or (QUICK if self.quick else ROUNDS[size])

    def sessions_for(self, size: str) -> list[int]:
        """分几次测，每次几轮。"""
        rounds, count = self.rounds_for(size), 1 if self.quick else SESSIONS[size]
        return [n for i in range(count) if (n := (rounds + i) // count)]

    @property
    def torch_threads(self) -> int:
        """PyTorch 的线程数：不限定时是全部的核。"""
        return self.threads or cpu_count()

    def start(self, factory: str, *args: Any) -> Local | Worker:
        """开始一方。"""
        return (Local if self.same_process else Worker)(factory, *args)


Measure = Callable[[Plan], Iterator[Row]]


def cpu_count() -> int:
    """这个进程可以用几个核。"""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def our_threads(parameters: int, threads: int | None) -> AbstractContextManager[Any]:
    """gptcore 一方的线程数：不限定时就是 `GPTTrainer` 训练这么大的模型时的做法。"""
    from gptcore.threads import blas_threads, model_threads

    return model_threads(parameters) if threads is None else blas_threads(threads)


def use_our_threads(parameters: int, threads: int | None) -> dict[str, Any]:
    """在这个进程余下的时间里照此设置，直到下一次；给出要记录的 BLAS 与线程数。"""
    from gptcore.threads import blas_info

    _setting.close()
    _setting.enter_context(our_threads(parameters, threads))
    return blas_info()


_setting = ExitStack()
"""线程数的设置在它关上时还原"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", nargs="+", choices=list(ROUNDS), help="哪些尺寸")
    parser.add_argument("--rounds", type=int, help="几轮；默认随尺寸而定")
    parser.add_argument("--quick", action="store_true", help=f"只测 {QUICK} 轮，看看能不能运行")
    parser.add_argument("--threads", type=int, help="限定两边的线程数；默认各用各的默认设置")
    parser.add_argument("--same-process", action="store_true", help="两边放在同一个进程里")
    parser.add_argument("--check", action="store_true", help="有比值没有达到要求时，退出码是 1")
    parser.add_argument("--without", nargs="+", default=[], metavar="名字", help="不测哪几方")


def plan_from(options: argparse.Namespace, only: Sequence[str] | None = None) -> Plan:
    return Plan(
        sizes=tuple(options.sizes) if options.sizes else None,
        rounds=options.rounds,
        quick=options.quick,
        threads=options.threads,
        same_process=options.same_process,
        without=tuple(options.without),
        only=tuple(only) if only else None,
    )
