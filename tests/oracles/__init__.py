"""书里的代码，当作库的标准答案：最直白的写法，同样的输入应得到同样的输出和梯度"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

CODE = Path(__file__).resolve().parents[2] / "docs" / "book" / "code"


def load(name: str) -> ModuleType:
    """按文件载入书里的一段程序，只定义，不运行。"""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, CODE / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


chapter07 = load("chapter07")
chapter15 = load("chapter15")
