"""MkDocs 钩子：没有手写接口页的模块也有一页

`gptcore/` 下每个公开的模块都应当有 `docs/api/名字.md`；还没有的在这里生成，标题是模块 docstring 的第一行。
"""

import ast
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

PACKAGE = Path(__file__).resolve().parents[2] / "gptcore"


def on_files(files: Files, config: Any) -> Files:
    """加进缺少的页面，放在导航里“API”的末尾。"""
    added = []
    for name, path in modules().items():
        uri = f"api/{name}.md"
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, content=page(name, path)))
            added.append(uri)
    for item in config.nav:
        if "API" in item:
            item["API"] = [uri for uri in item["API"] if uri not in added] + added
    return files


def modules() -> dict[str, Path]:
    """公开的模块与子包：名字，以及写着 docstring 的文件；没有公开的名字的不算，例如只有版本号的。"""
    found = {path.stem: path for path in PACKAGE.glob("*.py") if defines_names(path)}
    found |= {path.parent.name: path for path in PACKAGE.glob("*/__init__.py")}
    return {name: path for name, path in sorted(found.items()) if not name.startswith("_")}


def defines_names(path: Path) -> bool:
    """文件里有没有公开的类、函数或变量。"""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node]
        names = [getattr(item, "id", getattr(item, "name", "_")) for item in targets]
        if any(not name.startswith("_") for name in names):
            return True
    return False


def page(name: str, path: Path) -> str:
    """生成的页面。"""
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or name
    title = doc.split("\n", 1)[0].rstrip("。")
    return (
        f"---\ndescription: gptcore.{name}：{title}。\n---\n\n"
        f"# {title} {{ #gptcore.{name} }}\n\n::: gptcore.{name}\n"
    )
