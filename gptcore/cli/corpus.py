"""命令行的语料：按名称或路径找到，只读一遍，切成训练与测试两部分，认得出是不是原来的那一份

语料是一份或几份文本，或者一个词元文件（`gptcore tokenize` 写成的）。
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from gptcore.cli.usage import UsageError, suggestion
from gptcore.data import END_OF_TEXT, TokenFile, corpus_names, corpus_path, read_text

SPLIT = 0.9
"""训练部分所占的比例，其余是测试部分"""
TEST_TOKENS = 1_000_000
"""词元文件的测试部分至多多少个词元：它可以有几亿个，评估不能用上几个小时"""
SEARCHED = 1 << 20
"""在词元文件的前多少个词元里找文本结束词元"""
UNITS = {"text": "字符", "tokens": "词元"}


@dataclass(frozen=True)
class CorpusRecord:
    """语料的记录，和训练的设置放在一起；接着训练与评估时用来核对。

    Attributes:
        names: 命令行上的写法，一份或几份。
        paths: 各是语料的名称，或文件的完整路径；从管道读的没有。
        count: 多少个字符；词元文件是多少个词元。
        sha256: 全文（UTF-8）或全部词元的 SHA-256；几份文本的，由各份的再算一遍。
        split: 训练部分所占的比例。
        kind: `text` 或 `tokens`。
        separated: 其中有没有文本结束词元（分词器有它的话），例如有几份文本时用来隔开。
    """

    names: tuple[str, ...]
    paths: tuple[str | None, ...]
    count: int
    sha256: str
    split: float = SPLIT
    kind: str = "text"
    separated: bool = False

    @property
    def name(self) -> str:
        """怎样称呼它。"""
        return "、".join(self.names)

    @property
    def amount(self) -> str:
        """有多长，例如 `500,057 个字符`。"""
        return f"{self.count:,} 个{UNITS[self.kind]}"

    def change(self, now: "CorpusRecord") -> str:
        """怎样变了：长度不同就写长度，否则说内容不同。"""
        if self.amount == now.amount:
            return f"同样是 {now.amount}，内容不同"
        return f"原来 {self.amount}，现在 {now.amount}"

    def to_dict(self) -> dict[str, Any]:
        """可以写成 JSON 的字典。"""
        return asdict(self)

    @classmethod
    def of(cls, names: Sequence[str], texts: Sequence[str], split: float = SPLIT) -> "CorpusRecord":
        """由刚读到的几份文本得到记录。"""
        digests = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
        several = hashlib.sha256("\n".join(digests).encode()).hexdigest()
        return cls(
            tuple(names),
            tuple(map(_location, names)),
            sum(map(len, texts)),
            digests[0] if len(digests) == 1 else several,
            split,
            separated=len(texts) > 1,
        )

    @classmethod
    def parse(cls, values: Any) -> "CorpusRecord | None":
        """由 `to_dict` 的结果重建；缺少或不合要求时是 `None`。"""
        given: dict[str, Any] = dict(cast("Any", values)) if isinstance(values, dict) else {}
        if "name" in given:  # 早先的写法：只有一份文本
            given = {"kind": "text", "separated": False, **given}
            for new, old in (("names", "name"), ("paths", "path")):
                given[new] = [given.pop(old, None)]
            given["count"] = given.pop("characters", None)
        kinds = {"count": int, "sha256": str, "split": float, "kind": str, "separated": bool}
        names, paths = given.pop("names", None), given.pop("paths", None)
        if set(given) != set(kinds) or not all(isinstance(given[k], t) for k, t in kinds.items()):
            return None
        if not (_strings(names, str) and _strings(paths, str | None) and len(names) == len(paths)):
            return None
        if not 0 < given["split"] <= 1 or given["kind"] not in UNITS:
            return None
        return cls(tuple(names), tuple(paths), **given)


@dataclass(frozen=True)
class Corpus:
    """读到的语料。

    Attributes:
        record: 它的记录。
        texts: 各份文本；词元文件没有。
        file: 打开的词元文件；文本没有。
    """

    record: CorpusRecord
    texts: tuple[str, ...] = ()
    file: TokenFile | None = None

    def split(self) -> tuple[list[str], list[str]]:
        """按字符切成训练与测试两部分；与分词器无关，所以不同的分词器在同样的文字上评估。"""
        cut = int(self.record.count * self.record.split)
        train, test = list[str](), list[str]()
        for text in self.texts:
            here = min(max(cut, 0), len(text))
            train += [text[:here]] if here else []
            test += [text[here:]] if here < len(text) else []
            cut -= len(text)
        return train, test


def read_corpus(names: Sequence[str]) -> Corpus:
    """找到语料，读进来；词元文件只打开。

    Args:
        names: 语料的名称，或文本文件的路径，一份或几份；管道与 `/dev/stdin` 也可以；或者一个词元文件。

    Raises:
        UsageError: 没有这个语料或文件，或者把词元文件和别的放在一起。
        DataError: 文件读不了。
    """
    places = [find_corpus(name) for name in names]
    for name, path in zip(names, places, strict=True):
        if is_token_file(path):
            if len(names) > 1:
                raise UsageError(
                    f"--corpus {name!r} 是词元文件，只能单独用；请去掉别的 --corpus，"
                    "或者用 gptcore tokenize 把各份文本写成一个词元文件"
                )
            return _token_corpus(name, path)
    texts = tuple(map(read_text, places))
    return Corpus(CorpusRecord.of(names, texts), texts)


def find_corpus(name: str, option: str = "--corpus") -> Path:
    """语料的文件在哪里。

    Raises:
        UsageError: 没有这个语料或文件。
    """
    path = Path(name)
    if not name:
        raise UsageError(
            f"{option} 是空的；请写语料的名称（{'、'.join(corpus_names())}）或文本文件的路径"
        )
    if name in corpus_names():
        return corpus_path(name)
    if not path.exists():
        raise UsageError(
            f"{option} {name!r} 既不是语料的名称，也不是文件{suggestion(name, corpus_names())}；"
            f"语料有 {'、'.join(corpus_names())}，文件请检查路径"
        )
    if path.is_dir():
        raise UsageError(f"{option} {name!r} 是文件夹，不是文件；请给出里面某个文本文件的路径")
    return path


def recorded_corpus(record: CorpusRecord) -> list[str]:
    """训练时的语料现在怎样称呼：名称，或者路径。

    Raises:
        UsageError: 它是从管道读的，或者文件不在了。
    """
    return [_recorded(*place) for place in zip(record.names, record.paths, strict=True)]


def is_token_file(path: Path) -> bool:
    """是不是 `.npy` 开头的文件；文本不会以它的魔数开头。"""
    if not can_be_read_again(path):
        return False
    with path.open("rb") as file:
        return file.read(6) == b"\x93NUMPY"


def can_be_read_again(path: Path) -> bool:
    """管道与 `/dev` 里的只能读一遍。"""
    return path.is_file() and Path(os.sep, "dev") not in path.absolute().parents


def _token_corpus(name: str, path: Path) -> Corpus:
    file = TokenFile(path)
    split = max(SPLIT, 1 - TEST_TOKENS / file.count)
    end = file.tokenizer.special_tokens.get(END_OF_TEXT)
    separated = end is not None and (
        file.documents > 1 or end in file.read(0, min(file.count, SEARCHED))
    )
    record = CorpusRecord(
        (name,), (_location(name),), file.count, file.sha256, split, "tokens", separated
    )
    return Corpus(record, file=file)


def _recorded(name: str, path: str | None) -> str:
    known = corpus_names()
    for place in (path, name):
        if place is not None and (place in known or can_be_read_again(Path(place))):
            return place
    gone = f"{path} 不在了" if path else "没有留下（例如是从管道读的）"
    raise UsageError(f"训练用的语料 {name} {gone}；请用 --corpus 给出它现在的位置")


def _location(name: str) -> str | None:
    """下次到哪里找它。"""
    if name in corpus_names():
        return name
    path = Path(name)
    return str(path.resolve()) if can_be_read_again(path) else None


def _strings(values: Any, kind: Any) -> bool:
    """是不空的列表，每一项都是 `kind`。"""
    given = cast("list[Any]", values) if isinstance(values, list) else []
    return bool(given) and all(isinstance(value, kind) for value in given)
