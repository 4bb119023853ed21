"""命令行的语料：按名称或路径找到，只读一遍，切成窗口，认得出是不是原来的那一份"""

import hashlib
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from gptcore.cli.usage import UsageError, suggestion
from gptcore.data import CharDataset, corpus_names, corpus_path, read_text

SPLIT = 0.9
"""训练部分所占的比例，其余是测试部分"""


@dataclass(frozen=True)
class CorpusRecord:
    """语料的记录，和训练的设置放在一起；接着训练与评估时用来核对。

    Attributes:
        name: 命令行上的写法。
        path: 语料的名称，或文件的完整路径；从管道读的没有。
        characters: 多少个字符。
        sha256: 全文（UTF-8）的 SHA-256。
        split: 训练部分所占的比例。
    """

    name: str
    path: str | None
    characters: int
    sha256: str
    split: float = SPLIT

    def to_dict(self) -> dict[str, Any]:
        """可以写成 JSON 的字典。"""
        return asdict(self)

    @classmethod
    def of(cls, name: str, text: str, split: float = SPLIT) -> "CorpusRecord":
        """由一份刚读到的语料得到记录。"""
        digest = hashlib.sha256(text.encode()).hexdigest()
        return cls(name, _location(name), len(text), digest, split)

    @classmethod
    def parse(cls, values: Any) -> "CorpusRecord | None":
        """由 `to_dict` 的结果重建；缺少或不合要求时是 `None`。"""
        given: dict[str, Any] = cast("Any", values) if isinstance(values, dict) else {}
        kinds = {"name": str, "path": str | None, "characters": int, "sha256": str, "split": float}
        if set(given) != set(kinds) or not all(isinstance(given[k], t) for k, t in kinds.items()):
            return None
        return cls(**given) if 0 < given["split"] <= 1 else None


def open_corpus(name: str, batch_size: int, context_size: int) -> tuple[CharDataset, CorpusRecord]:
    """找到语料，切成窗口；太短时说明至少要多长。

    Args:
        name: 语料的名称，或文本文件的路径；管道与 `/dev/stdin` 也可以。
        batch_size: 每步几个窗口。
        context_size: 上下文尺寸。

    Returns:
        数据集，与语料的记录。

    Raises:
        UsageError: 没有这个语料或文件，或者文本太短。
        DataError: 文件读不了。
    """
    path = find_corpus(name)
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
    return dataset, CorpusRecord.of(name, text)


def find_corpus(name: str) -> Path:
    """语料的文件在哪里。

    Raises:
        UsageError: 没有这个语料或文件。
    """
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


def recorded_corpus(record: CorpusRecord) -> str:
    """训练时的语料现在怎样称呼：名称，或者路径。

    Raises:
        UsageError: 它是从管道读的，或者文件不在了。
    """
    known = corpus_names()
    for name in (record.path, record.name):
        if name is not None and (name in known or _can_be_read_again(Path(name))):
            return name
    gone = f"{record.path} 不在了" if record.path else "没有留下（例如是从管道读的）"
    raise UsageError(f"训练用的语料 {record.name} {gone}；请用 --corpus 给出它现在的位置")


def _location(name: str) -> str | None:
    """下次到哪里找它；管道与 `/dev` 里的只能读一遍。"""
    if name in corpus_names():
        return name
    path = Path(name)
    return str(path.resolve()) if _can_be_read_again(path) else None


def _can_be_read_again(path: Path) -> bool:
    return path.is_file() and Path(os.sep, "dev") not in path.absolute().parents


def _dataset(path: Path, text: str, batch_size: int, context_size: int) -> CharDataset:
    """数据集自己会再读一遍文件；管道只能读一遍，所以先抄进临时文件。"""
    if _can_be_read_again(path):
        return CharDataset(path, batch_size, context_size, split=SPLIT)
    with tempfile.TemporaryDirectory(prefix="gptcore-") as folder:
        copy = Path(folder) / "corpus.txt"
        copy.write_bytes(text.encode())
        return CharDataset(copy, batch_size, context_size, split=SPLIT)
