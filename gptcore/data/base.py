"""数据集的基类：把数据切成一批一批的 `(x, y)`"""

import hashlib
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Self, SupportsIndex, cast

import numpy as np
import numpy.typing as npt

from gptcore.data.checks import positive_integer
from gptcore.data.windows import LazyRows, spread
from gptcore.errors import DataError, DtypeError, RangeError, ShapeError
from gptcore.kernels.convert import brief
from gptcore.tensor import DTYPE, Tensor

SPLITS = {True: ("train_data", "训练集"), False: ("test_data", "测试集")}
"""`training` 的取值对应的属性名和中文名。"""
BLOCK = 1 << 10
"""算内容的 SHA-256 时，一次取多少个样本"""


class Dataset(ABC):
    """数据集的基类：分训练集和测试集两份，按批取用。

    子类只需定义 `load()`，在里面给 `train_data` 和 `test_data` 赋值，各是一对 `(x, y)`，
    第 0 轴是样本。列表会变成数组：整数保持整数（可以当词元编号），小数变成 `DTYPE`；
    数组保持原来的类型。子类的构造函数可以先设自己的属性，再调用 `super().__init__(batch_size)`，
    因为其中会调用 `load()`。

    `len(dataset)` 是当前那一份里完整的批数，凑不满一批的尾巴丢弃；`dataset[i]` 取第 `i` 批，
    `for x, y in dataset` 取遍每一批。批比整份数据还大时，`len` 和取批都会报错，
    不会悄悄地一步也不训练；构造时不检查，因为 `all()` 不受批大小限制，仍然可用。

    Args:
        batch_size: 每批的样本数。

    Attributes:
        batch_size: 每批的样本数。
        training: 现在取的是训练集（真）还是测试集（假）；用 `train()` 和 `eval()` 切换。
        train_data: 训练集 `(x, y)`。
        test_data: 测试集 `(x, y)`。

    Raises:
        ArgumentError: `batch_size` 不是正整数。
        DataError: `load()` 没有给出数据，或 x 与 y 的样本数不同。

    Examples:
        >>> class Doubles(Dataset):
        ...     def load(self):
        ...         self.train_data = [[1.0], [2.0], [3.0]], [[2.0], [4.0], [6.0]]
        ...         self.test_data = [[4.0]], [[8.0]]
        >>> dataset = Doubles(batch_size=2)
        >>> len(dataset)
        1
        >>> x, y = dataset[0]
        >>> y
        Tensor([[2.], [4.]])

    教程：第 5 章 数据集与训练器。
    """

    batch_size: int = 1
    training: bool = True
    train_data: tuple[Any, Any]
    test_data: tuple[Any, Any]

    def __init__(self, batch_size: int = 1) -> None:
        self.batch_size = positive_integer(type(self).__name__, "batch_size", batch_size)
        self.training = True
        self.load()
        self._split(True)
        self._split(False)

    @abstractmethod
    def load(self) -> None:
        """准备数据：给 `self.train_data` 和 `self.test_data` 各赋一对 `(x, y)`。"""

    def train(self) -> Self:
        """切换到训练集。

        Returns:
            数据集自己，便于连写。
        """
        self.training = True
        return self

    def eval(self) -> Self:
        """切换到测试集。

        Returns:
            数据集自己，便于连写，例如 `dataset.eval().all()`。
        """
        self.training = False
        return self

    def all(self) -> tuple[Tensor, Tensor]:
        """取出当前那一份的全部样本，不分批。

        Returns:
            一对张量 `(x, y)`，都不需要梯度。

        Raises:
            DataError: 当前那一份没有样本。
        """
        x, y = self._nonempty()
        return _tensor(x, slice(None)), _tensor(y, slice(None))

    def take(self, rows: npt.NDArray[np.integer[Any]]) -> tuple[Tensor, Tensor]:
        """按编号取出当前那一份里的几个样本；打乱次序的训练用它。

        Args:
            rows: 样本的编号，一维整数数组。

        Returns:
            一对张量 `(x, y)`，都不需要梯度。
        """
        x, y = self._nonempty()
        return _tensor(x, rows), _tensor(y, rows)

    def evaluation_batches(self, limit: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """逐批取出测试集，每个样本恰好一次，凑不满一批的尾巴也在内；不改变 `training`。

        Args:
            limit: 最多取多少个样本；它们均匀地散布在整份测试集里，每次都是同样的几个。不给时取全部。

        Yields:
            一对张量 `(x, y)`。
        """
        x, y = self._split(False)
        if not len(x):
            raise DataError(
                f"{type(self).__name__}：测试集的样本数是 0，不能评估；"
                "请增加数据或调整划分（split=1.0 不留测试集）"
            )
        for chosen in spread(len(x), limit, self.batch_size):
            yield _tensor(x, chosen), _tensor(y, chosen)

    def fingerprint(self) -> dict[str, Any]:
        """认出这份数据的几个数，可以写成 JSON；接着训练时用来核对还是不是同一份。

        这里是样本数、批大小与两份数据全部内容的 SHA-256；数据太大、内容又有别的办法认出时，可以改写。
        """
        digest = hashlib.sha256()
        for training in SPLITS:
            for rows in self._split(training):
                _add_content(digest, rows)
        return {**self._sizes(), "content": digest.hexdigest()}

    def _sizes(self) -> dict[str, Any]:
        x, _ = self._split(True)
        return {"samples": len(x), "batch_size": self.batch_size}

    def __len__(self) -> int:
        x, _ = self._nonempty()
        title = SPLITS[self.training][1]
        batch_size = positive_integer(type(self).__name__, "batch_size", self.batch_size)
        if batch_size > len(x):
            raise DataError(
                f"{type(self).__name__}：batch_size={brief(batch_size)} 大于{title}的"
                f"样本数 {len(x)}，一批也凑不满；请减小 batch_size 或增加数据，"
                "要一次取出全部样本请用 all()"
            )
        return len(x) // batch_size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        # 没有它，Python 会把取批时的 IndexError 当作结束，子类里的错误就悄悄丢了
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: SupportsIndex) -> tuple[Tensor, Tensor]:
        batches = len(self)
        title = SPLITS[self.training][1]
        try:
            i = operator.index(index)
        except TypeError:
            raise DtypeError(
                f"{type(self).__name__}：下标得到 {index!r}，它必须是整数，表示第几批；"
                "请写 dataset[0] 这样的形式，全部样本用 all()"
            ) from None
        if not -batches <= i < batches:
            raise RangeError(
                f"{type(self).__name__}：下标 {i} 越界，{title}共有 {batches} 批；"
                f"请用 {-batches} 到 {batches - 1} 之间的下标"
            )
        start = (i % batches) * self.batch_size
        rows = slice(start, start + self.batch_size)
        x, y = self._split(self.training)
        return _tensor(x, rows), _tensor(y, rows)

    def _nonempty(self) -> tuple[Any, Any]:
        x, y = self._split(self.training)
        if not len(x):
            raise DataError(
                f"{type(self).__name__}：{SPLITS[self.training][1]}的样本数是 0；"
                "请增加数据或调整划分（split=1.0 不留测试集），或用 train() / eval() 换到另一份"
            )
        return x, y

    def _split(self, training: bool) -> tuple[Any, Any]:
        """取出一份数据；还不是数组的先变成数组，并检查样本数。"""
        attribute, title = SPLITS[training]
        where = f"{type(self).__name__}：{title} {attribute} "
        pair: Any = getattr(self, attribute, None)
        if pair is None:
            raise DataError(
                f"{where}没有赋值；请在 load() 里写 self.{attribute} = (x, y)，"
                "并在自己的 __init__ 里调用 super().__init__(batch_size)"
            )
        if not isinstance(pair, tuple | list) or len(cast("list[Any]", pair)) != 2:
            raise DataError(
                f"{where}得到 {str(cast(object, pair))[:40]}，它必须是一对 (x, y)；"
                f"请写 self.{attribute} = (x, y)"
            )
        pair = cast("tuple[Any, Any]", pair)
        x, y = _rows(pair[0], where + "的 x "), _rows(pair[1], where + "的 y ")
        if len(x) != len(y):
            raise DataError(
                f"{where}的 x 有 {len(x)} 个样本，y 有 {len(y)} 个；"
                "每个样本要有一个标签，请检查 load()"
            )
        if x is not pair[0] or y is not pair[1]:
            setattr(self, attribute, (x, y))
        return x, y


def _tensor(rows: Any, index: Any) -> Tensor:
    """复制一段样本，成为不需要梯度的连续张量。"""
    return Tensor(np.array(rows[index], order="C"), requires_grad=False)


def _add_content(digest: Any, rows: Any) -> None:
    """形状、类型与内容；一段一段地取，取用时才生成的也不会同时都在内存里。"""
    digest.update(f"{tuple(rows.shape)}{rows[:0].dtype.str}".encode())
    for start in range(0, len(rows), BLOCK):
        digest.update(np.ascontiguousarray(rows[start : start + BLOCK]).data)


def _rows(data: Any, where: str) -> Any:
    """数组和取用时才生成的行原样返回，张量取其数值，列表变成数组。"""
    if isinstance(data, Tensor):
        data = data.data.astype(np.int64) if data.integral else data.data
    elif not isinstance(data, LazyRows):
        data = _numbers(data, where)
    if not data.ndim:
        raise ShapeError(f"{where}只有一个数，没有样本这一轴；请写成列表，例如 [样本]")
    return cast(Any, data)


def _numbers(data: Any, where: str) -> npt.NDArray[Any]:
    try:
        array = np.asarray(data)
    except ValueError:
        raise ShapeError(f"{where}各个样本的形状不同，不能成为数组；请补齐或截断成一样长") from None
    if array.dtype.kind not in "biuf":
        raise DtypeError(
            f"{where}的类型是 {array.dtype}（{str(data)[:40]}），它必须是数；文本请先用分词器编码"
        )
    if isinstance(data, np.ndarray):
        return Tensor(array, requires_grad=False).data  # 不支持的浮点类型在这里报错
    if array.dtype.kind == "i":
        return array.astype(np.int64, copy=False)
    return array.astype(DTYPE, copy=False) if array.dtype.kind == "f" else array
