"""`gptcore train` 的语料：按名称或路径找到，只读一遍，切成窗口"""

import os
import tempfile
from pathlib import Path

from gptcore.cli.usage import UsageError, suggestion
from gptcore.data import CharDataset, corpus_names, corpus_path, read_text

SPLIT = 0.9
"""训练部分所占的比例，其余是测试部分"""


def open_corpus(name: str, batch_size: int, context_size: int) -> CharDataset:
    """找到语料，切成窗口；太短时说明至少要多长。

    Args:
        name: 语料的名称，或文本文件的路径；管道与 `/dev/stdin` 也可以。
        batch_size: 每步几个窗口。
        context_size: 上下文尺寸。

    Returns:
        数据集。

    Raises:
        UsageError: 没有这个语料或文件，或者文本太短。
        DataError: 文件读不了。
    """
    path = _find(name)
    text = read_text(path)
    length = len(text)
    test, needed = length - int(length * SPLIT), context_size + 1
    if min(test, length - test) < needed:
        raise UsageError(
            f"--corpus {name!r} 只有 {length} 个字符，其中测试部分 {test} 个；"
            f"--context-size {context_size} 的一个窗口连同标签要 {needed} 个。"
            f"请换一份至少 {needed * 10} 个字符的文本，或减小 --context-size"
        )
    dataset = _dataset(path, text, batch_size, context_size)
    windows = len(dataset.train_data[0])
    if batch_size > windows:
        raise UsageError(
            f"--batch-size {batch_size} 大于训练部分的窗口数 {windows}，一步也凑不满；"
            f"请把 --batch-size 减到 {windows} 以下，或换更长的文本"
        )
    return dataset


def _find(name: str) -> Path:
    path = Path(name)
    if not name:
        raise UsageError(
            f"--corpus 是空的；请写语料的名称（{'、'.join(corpus_names())}）或文本文件的路径"
        )
    if name in corpus_names():
        return corpus_path(name)
    if not path.exists():
        raise UsageError(
            f"--corpus {name!r} 既不是语料的名称，也不是文件{suggestion(name, corpus_names())}；"
            f"语料有 {'、'.join(corpus_names())}，文件请检查路径"
        )
    if path.is_dir():
        raise UsageError(f"--corpus {name!r} 是文件夹，不是文件；请给出里面某个文本文件的路径")
    return path


def _dataset(path: Path, text: str, batch_size: int, context_size: int) -> CharDataset:
    """数据集自己会再读一遍文件；管道只能读一遍，所以先抄进临时文件。"""
    if path.is_file() and Path(os.sep, "dev") not in path.parents:
        return CharDataset(path, batch_size, context_size, split=SPLIT)
    with tempfile.TemporaryDirectory(prefix="gptcore-") as folder:
        copy = Path(folder) / "corpus.txt"
        copy.write_bytes(text.encode())
        return CharDataset(copy, batch_size, context_size, split=SPLIT)
