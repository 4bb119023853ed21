"""`gptcore generate`：一边生成一边显示"""

import sys
from pathlib import Path

import numpy as np

from gptcore.cli.failures import plain
from gptcore.cli.folders import find_model
from gptcore.cli.streams import complain, visible
from gptcore.cli.usage import UsageError
from gptcore.data import Tokenizer
from gptcore.errors import DataError
from gptcore.models import load_model
from gptcore.models.generation import generate_ids
from gptcore.threads import blas_threads


def run_generate(
    folder: Path,
    prompt: str | None,
    length: int,
    temperature: float,
    seed: int | None,
    threads: int = 1,
) -> None:
    """读模型，写出提示与续写；每个字符一生成就显示。

    Args:
        folder: 模型文件夹，一次训练，或者它的一个检查点。
        prompt: 提示；不给时从新的一行开始，提示本身不显示。
        length: 续写多少个字符。
        temperature: 温度；0 表示总取分数最高的。
        seed: 种子；不给时每次都不同。
        threads: BLAS 的线程数。

    Raises:
        UsageError: 文件夹不是模型，提示为空，或者里面有模型不认识的字符。
    """
    place = find_model(folder)
    if place != folder:
        complain(f"{folder} 里的训练还没有做完，用的是最新的检查点 {place}", prefix="提醒：")
    model, tokenizer = load_model(place)
    prompt = None if prompt is None else as_utf8(prompt)
    ids = _encode(tokenizer, prompt)
    rng = np.random.default_rng(seed)
    if prompt is not None:
        _write(prompt)
    # 权重里有无穷或 NaN 时，由 sample 报错，不另打印警告
    with blas_threads(threads), np.errstate(all="ignore"):
        for i in generate_ids(
            model, ids, length, model.context_size, temperature=temperature, rng=rng
        ):
            _write(tokenizer.decode([i]))
    _write("\n")


def _write(text: str) -> None:
    """显示在终端上的，控制字符写成转义；写进文件与管道的不变。"""
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def as_utf8(argument: str) -> str:
    """还原命令行上的文字：区域设置是 C 时，Python 会把它的 UTF-8 字节逐个变成代理码位。"""
    try:
        return argument.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        return argument


def _encode(tokenizer: Tokenizer, prompt: str | None) -> list[int]:
    if prompt is None:
        try:
            return tokenizer.encode("\n")
        except DataError:  # 词表里没有换行
            return [0]
    if not prompt:
        raise UsageError("--prompt 是空的；请至少给一个字符，或去掉 --prompt，从新的一行开始")
    try:
        return tokenizer.encode(prompt)
    except DataError as error:
        reason = plain(str(error))
        raise UsageError(f"--prompt {prompt!r} 里有模型不认识的字符：{reason}") from error
