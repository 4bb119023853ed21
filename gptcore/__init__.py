"""用 NumPy 从零写成的 GPT：张量与自动求导、层、损失、优化器、数据与模型

公开的名字都在 `gptcore/api.py` 里，第一次用到时才加载：命令行因此在导入 NumPy 之前就能处理 Ctrl-C。
"""

from contextlib import suppress
from importlib import import_module

from gptcore.version import __version__ as __version__

TYPE_CHECKING = False  # 类型检查器认得这个名字；不导入 typing，早几毫秒
if TYPE_CHECKING:
    from gptcore.api import *  # noqa: F403 类型检查器看得到全部名字
else:

    def __getattr__(name: str) -> object:
        """第一次用到公开的名字时，全部加载。"""
        if not name.startswith("__") or name == "__all__":
            public = import_module("gptcore.api")
            names = {key: getattr(public, key) for key in public.__all__}
            globals().update(names, __all__=public.__all__)
            if name in globals():  # 也可能是随之加载的子模块，例如 gptcore.layers
                return globals()[name]
            with suppress(ModuleNotFoundError):  # 没有随之加载的子模块，例如 gptcore.plotting
                return import_module(f"gptcore.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
