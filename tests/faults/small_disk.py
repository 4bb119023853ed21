"""在一个很小的磁盘上运行程序：tmpfs 挂载在自己的命名空间里，进程一结束就没有了"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PAGE = 4096
MOUNT = 'mount -t tmpfs -o "size=$1k,nr_inodes=200" tmpfs "$0" && shift && exec "$@"'


def run_on_small_disk(program: Path, folder: Path, kilobytes: int) -> Any:
    """在 `folder` 处挂载 tmpfs，运行 `program folder`，返回它写出的 JSON。"""
    problems: list[str] = []
    for prefix in (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"]):
        command = [*prefix, "sh", "-c", MOUNT, str(folder), str(kilobytes)]
        try:
            subprocess.run([*command, "true"], check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            problems.append(f"{prefix}：{getattr(error, 'stderr', '') or error}")
            continue
        full = [*command, sys.executable, str(program), str(folder)]
        done = subprocess.run(full, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    return pytest.fail(
        "不能挂载 tmpfs，这个测试不能跳过；请以 root 运行，或者允许用户命名空间：\n"
        + "\n".join(problems)
    )


def free_pages(disk: Path) -> int:
    """磁盘还剩多少页。"""
    return os.statvfs(disk).f_bavail


def fill(filler: Path, pages: int) -> None:
    """写一个文件，使磁盘恰好剩下 `pages` 页。"""
    filler.unlink(missing_ok=True)
    with filler.open("wb", buffering=0) as file:
        while (free := free_pages(filler) - pages) > 0:
            file.write(bytes(free * PAGE))
    assert free_pages(filler) == pages
