"""一个改坏的文件夹：各个文件的内容，写到磁盘上，伪造清单"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from faults.trees import to_json

from gptcore.serialization import MANIFEST

Files = dict[str, bytes]


@dataclass
class Mutation:
    """改坏之后的文件夹。

    Attributes:
        number: 编号，也是种子。
        kind: 怎样改的。
        sealed: 清单里的大小与 SHA-256 有没有跟着重算。
        files: 各个文件的内容。
        places: 不是普通文件的：名字与怎样放上去。
    """

    number: int
    kind: str
    sealed: bool
    files: Files
    places: dict[str, Callable[[Path], Any]] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """写成文件夹；原有的先删去。"""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        for name, put_there in self.places.items():
            (folder / name).unlink(missing_ok=True)
            put_there(folder / name)


def sparse(path: Path) -> None:
    """1 TiB 的稀疏文件，不占磁盘。"""
    with path.open("wb") as file:
        file.truncate(1 << 40)


def seal(files: Files) -> None:
    """像有心的人那样，重算清单里的大小与 SHA-256；内容的检查才会用到。"""
    manifest = json.loads(files[MANIFEST])
    for name in list(manifest["files"]):
        if name not in files:
            del manifest["files"][name]
            continue
        digest = sha256(files[name]).hexdigest()
        manifest["files"][name].update(size=len(files[name]), sha256=digest)
    files[MANIFEST] = to_json(manifest)
