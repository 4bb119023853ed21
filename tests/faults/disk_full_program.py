"""在一个很小的磁盘上反复保存模型，直到写满：由 test_disk_full.py 在刚挂载的 tmpfs 里运行

python disk_full_program.py 文件夹
"""

import json
import os
import sys
from pathlib import Path

import numpy as np

from gptcore import GPT, CharTokenizer, DataError, load_model, save_model
from gptcore.serialization import dump_arrays

PAGE = 4096


def fill(filler: Path, pages: int) -> None:
    """写一个文件，使磁盘恰好剩下 `pages` 页。"""
    filler.unlink(missing_ok=True)
    with filler.open("wb", buffering=0) as file:
        while (free := os.statvfs(filler).f_bavail - pages) > 0:
            file.write(bytes(free * PAGE))
    assert os.statvfs(filler).f_bavail == pages


class Disk:
    """磁盘上的一个模型文件夹，轮流存两个模型。"""

    def __init__(self, disk: Path) -> None:
        self.disk, self.folder, self.filler = disk, disk / "模型", disk / "filler"
        self.models = [GPT(30, 16, 32, 4, 1, rng=np.random.default_rng(seed)) for seed in (1, 2)]
        self.weights = [dump_arrays(model.state_dict()) for model in self.models]
        self.tokenizer = CharTokenizer.from_text("".join(map(chr, range(97, 127))))
        self.counts = {"失败": 0, "成功": 0}

    def save(self, i: int, folder: Path | None = None) -> bool:
        """存第 `i` 个模型；存不了时消息要说磁盘满了。"""
        message = ""
        try:
            save_model(folder or self.folder, self.models[i], self.tokenizer)
        except DataError as error:
            message = str(error)
        assert not message or ("磁盘满了" in message and "检查磁盘空间" in message), message
        self.counts["失败" if message else "成功"] += 1
        return not message

    def require(self, i: int) -> None:
        """里面是完整的第 `i` 个模型，没有别的东西。"""
        names = sorted(path.name for path in self.folder.iterdir())
        assert names == ["config.json", "manifest.json", "model.safetensors", "tokenizer.json"], (
            names
        )
        assert dump_arrays(load_model(self.folder)[0].state_dict()) == self.weights[i]

    def space(self) -> None:
        """剩下的从 0 页起，一页一页地多，直到够存。"""
        assert self.save(0)
        pages = 0
        fill(self.filler, pages)
        while not self.save(1):
            self.require(0)
            assert os.statvfs(self.disk).f_bavail == pages, "失败之后留下了东西"
            pages += 1
            fill(self.filler, pages)
        self.require(1)
        assert pages >= len(self.weights[1]) // PAGE

    def again(self) -> None:
        """一点不剩；新的文件夹也建不了。腾出地方之后，照常保存。"""
        fill(self.filler, 0)
        assert not self.save(0)
        self.require(1)
        assert not self.save(0, self.disk / "新" / "文件夹")
        assert not (self.disk / "新").exists(), "留下了空文件夹"
        self.filler.unlink()
        assert self.save(0)
        self.require(0)

    def leftover(self) -> None:
        """被杀的保存留下的大文件占满了磁盘：下一次保存自己清除它。"""
        fill(self.folder / f".model.safetensors.{'a' * 16}.new", 0)
        assert self.save(1)
        self.require(1)

    def inodes(self) -> None:
        """写满的也可以是文件的个数：三个新文件与清单要 4 个。"""
        empty = []
        while os.statvfs(self.disk).f_favail:
            empty.append(self.disk / f"empty{len(empty)}")
            empty[-1].touch()
        for _ in range(4):
            assert not self.save(0)
            self.require(1)
            empty.pop().unlink()
        assert self.save(0)
        self.require(0)


if __name__ == "__main__":
    small = Disk(Path(sys.argv[1]))
    for step in (small.space, small.again, small.leftover, small.inodes):
        step()
    print(json.dumps(small.counts, ensure_ascii=False))
