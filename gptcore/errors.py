"""库里所有错误的类型

每个错误都说明：哪个操作、哪个参数、得到的值或形状是什么、该怎么办。
它们同时是 `ValueError` 或 `TypeError`（或 `RuntimeError`）的子类，按标准类型捕获也可以。
"""


class GptcoreError(Exception):
    """gptcore 主动抛出的所有错误的共同基类。"""


class ArgumentError(GptcoreError, ValueError):
    """参数的值不合要求，例如概率大于 1、头数不能整除嵌入尺寸。"""


class ShapeError(ArgumentError):
    """张量的形状与操作的要求不符；消息里写出双方的形状。"""


class DataError(ArgumentError):
    """文本、文件、语料或词表有问题，例如文件不存在、字符不在词表里、文本比一个窗口还短。"""


class DtypeError(GptcoreError, TypeError):
    """参数或数组的类型不对，例如把小数当作词元编号。"""


class GraphError(GptcoreError, RuntimeError):
    """计算图用错了，例如对已经释放的图再次反向传播。"""


class RangeError(ArgumentError, IndexError):
    """编号或下标越界；它也是 `IndexError`，所以 `for` 循环能正常结束。"""
