"""命令行测试共用的夹具：在本进程里运行命令，与一个训练好的小模型"""

from pathlib import Path

import pytest
from cli.running import TINY

from gptcore.cli.app import run


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """一份很短的文本，词表很小。"""
    path = tmp_path_factory.mktemp("文本") / "小说.txt"
    path.write_bytes(("春眠不觉晓，处处闻啼鸟。\n夜来风雨声，花落知多少。\n" * 30).encode())
    return path


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory, text_file: Path) -> Path:
    """用 `gptcore train` 训练几步得到的模型。"""
    folder = tmp_path_factory.mktemp("模型") / "小模型"
    assert run(["train", "--corpus", str(text_file), "--out", str(folder), *TINY]) == 0
    return folder
