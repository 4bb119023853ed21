"""MkDocs 钩子：CONTRIBUTING.md 与 CHANGELOG.md 也是站点的页面

两个文件留在仓库的最上层，内容只有一份；指向 docs/ 的链接改成站内的相对链接。
"""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "contributing/index.md": ("CONTRIBUTING.md", "搭建开发环境，运行检查，新增一个运算，写文档。"),
    "contributing/changelog.md": ("CHANGELOG.md", "gptcore 各个版本增加和改变了什么。"),
}


def on_files(files: Files, config: Any) -> Files:
    """加进两个页面。"""
    for uri, (name, description) in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](../")
        content = f"---\ndescription: {description}\n---\n\n{text}"
        files.append(File.generated(config, uri, content=content))
    return files


def on_config(config: Any) -> None:
    """改动这两个文件时，mkdocs serve 也重新构建。"""
    config.watch += [str(ROOT / name) for name, _ in PAGES.values()]
