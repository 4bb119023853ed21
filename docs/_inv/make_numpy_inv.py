"""生成 numpy.inv：签名里用到的 NumPy 名字指向 NumPy 文档的哪一页

    python docs/_inv/make_numpy_inv.py

格式是 Sphinx 的 objects.inv 第 2 版。只列出用到的名字，构建文档时因此不需要网络。
网址取自 NumPy 的稳定版文档：https://numpy.org/doc/stable/。
"""

import zlib
from pathlib import Path

API = "reference/generated/$.html#$"  # $ 代表名字本身
SCALARS = "reference/arrays.scalars.html#$"
NAMES = {
    "numpy.ndarray": ("py:class", API),
    "numpy.dtype": ("py:class", API),
    "numpy.generic": ("py:class", SCALARS),
    "numpy.floating": ("py:class", SCALARS),
    "numpy.integer": ("py:class", SCALARS),
    "numpy.float32": ("py:class", SCALARS),
    "numpy.float64": ("py:class", SCALARS),
    "numpy.int64": ("py:class", SCALARS),
    "numpy.typing": ("py:module", "reference/typing.html#module-numpy.typing"),
    "numpy.typing.ArrayLike": ("py:data", "reference/typing.html#$"),
    "numpy.typing.DTypeLike": ("py:data", "reference/typing.html#$"),
    "numpy.typing.NDArray": ("py:data", "reference/typing.html#$"),
    "numpy.random.Generator": ("py:class", "reference/random/generator.html#$"),
    "numpy.random.default_rng": ("py:function", "reference/random/generator.html#$"),
    "numpy.random.seed": ("py:function", "reference/random/generated/$.html#$"),
}
HEADER = "# Sphinx inventory version 2\n# Project: NumPy\n# Version: stable\n"
HEADER += "# The remainder of this file is compressed using zlib.\n"


def main() -> None:
    lines = [
        # 网址末尾的 $ 由读取的一方换成名字，其余的在这里换好
        f"{name} {role} 1 {place.replace('$', name)} -\n"
        for name, (role, place) in sorted(NAMES.items())
    ]
    path = Path(__file__).with_name("numpy.inv")
    path.write_bytes(HEADER.encode() + zlib.compress("".join(lines).encode(), 9))
    print(f"{path.name}：{len(lines)} 个名字")


if __name__ == "__main__":
    main()
