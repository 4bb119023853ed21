"""库里所有错误的类型

每个错误都说明：哪个操作、哪个参数、得到的值或形状是什么、该怎么办。
它们同时是 `ValueError` 或 `TypeError`（或 `RuntimeError`）的子类，按标准类型捕获也可以。
"""

import errno


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


class NonFiniteError(GptcoreError, ArithmeticError):
    """训练时损失、梯度或参数里出现 NaN 或无穷；消息说明第几步、最早出现在哪里、学习率与办法。"""


class DistributedError(GptcoreError, RuntimeError):
    """几个进程的训练出了问题：MPI 没有装好，各个进程不一致，或者别的进程出了错。"""


_REASONS = {
    "ENOENT": "文件不存在",
    "EISDIR": "它是文件夹",
    "ENOTDIR": "路径中间有一段不是文件夹",
    "EEXIST": "路径中间有一段不是文件夹",
    "EACCES": "没有权限",
    "EPERM": "没有权限",
    "EROFS": "磁盘是只读的",
    "ENOSPC": "磁盘满了",
    "EDQUOT": "超出了磁盘配额",
    "EFBIG": "文件太大",
    "EIO": "读写设备时出错",
    "EBUSY": "它正被占用",
    "ENAMETOOLONG": "名字太长",
    "ELOOP": "符号链接绕成了圈",
    "EMFILE": "打开的文件太多",
    "ENFILE": "打开的文件太多",
    "ENXIO": "没有这个设备",
    "EINVAL": "系统不接受这个操作",
}


def system_reason(error: OSError) -> str:
    """操作系统报告的错误，常见的说成中文。

    Args:
        error: 读写文件时的错误。

    Returns:
        原因，例如“磁盘满了”；不常见的是系统自己的说法。
    """
    name = errno.errorcode.get(error.errno or 0, "")
    return _REASONS.get(name, error.strerror or str(error))
