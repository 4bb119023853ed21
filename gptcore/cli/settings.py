"""`gptcore train` 的全部设置：默认值，彼此矛盾的地方，写成 JSON 再读回来"""

import math
from dataclasses import asdict, dataclass
from typing import Any, cast, get_type_hints

from gptcore.cli.tokenizers import check_tokenizer
from gptcore.cli.usage import UsageError
from gptcore.errors import DataError
from gptcore.models.options import Norm

NORMS: dict[str, Norm] = {"layer": "LayerNorm", "rms": "RMSNorm", "none": None}
INITS = ("he", "gpt2")
SCHEDULES = ("cosine", "linear", "constant")
FORMATS = ("hf",)
"""`gptcore export` 能写的格式"""
CHOICES = {"norm": tuple(NORMS), "init": INITS, "schedule": SCHEDULES}

MEMORY = 16 * 2**30
"""模型与一步的计算最多要占多少字节；再大的模型，NumPy 也训练不动"""


@dataclass(frozen=True)
class TrainSettings:
    """训练的全部设置，默认值是“层归一化与 GPT 模型”一章的，另外打乱数据。

    Attributes:
        corpus: 语料的名称、文本文件的路径（可以有几份），或一个词元文件。
        tokenizer: 分词器的种类，或存好的分词器；不给时是 `char`，词元文件用它自带的。
        vocab_size: BPE 的词表大小；不给时是 1000，文字少的更小。
        context_size: 上下文尺寸。
        embedding_size: 嵌入尺寸。
        heads: 头数。
        blocks: 块数。
        dropout: 随机失活的概率。
        norm: 归一化的种类，`NORMS` 之一。
        post_norm: 归一化是否放在相加之后。
        tied: 输出头是否与词元嵌入共用一个矩阵。
        no_bias: 是否去掉各块的线性层与归一化的偏置。
        init: 初始化，`INITS` 之一。
        batch_size: 每批几个窗口。
        accumulate: 几批更新一次。
        lr: 最高的学习率。
        min_lr: 最后的学习率；不给时是 `lr` 的十分之一。
        schedule: 升温之后学习率怎样变化，`SCHEDULES` 之一。
        warmup_steps: 升温的步数。
        weight_decay: 权重衰减，偏置、归一化与嵌入除外。
        beta2: AdamW 的第二个衰减率。
        clip: 梯度范数的上限；0 表示不裁剪。
        steps: 步数；不给时由 `epochs` 决定。
        epochs: 轮数；与 `steps` 都不给时是 2。
        shuffle: 每一轮是否打乱窗口的次序。
        skip_nonfinite: 至多跳过几个出现 NaN 或无穷的步。
        seed: 种子，决定初始参数、随机失活与打乱的次序。
        threads: BLAS 的线程数。
        eval_every: 每隔多少步评估一次。
        patience: 连续几次评估没有进步就提前停止；不给时不提前停止。
        save_every: 每隔多少步存一个检查点。
        keep: 留最近几个检查点。
        processes: 开始训练时有几个进程；每个进程各算一批，一步的窗口就多几倍。
    """

    corpus: tuple[str, ...] = ("stories",)
    tokenizer: str | None = None
    vocab_size: int | None = None
    context_size: int = 32
    embedding_size: int = 64
    heads: int = 2
    blocks: int = 2
    dropout: float = 0.0
    norm: str = "layer"
    post_norm: bool = False
    tied: bool = False
    no_bias: bool = False
    init: str = "he"
    batch_size: int = 4
    accumulate: int = 1
    lr: float = 1e-3
    min_lr: float | None = None
    schedule: str = "cosine"
    warmup_steps: int = 100
    weight_decay: float = 0.01
    beta2: float = 0.999
    clip: float = 1.0
    steps: int | None = None
    epochs: int | None = None
    shuffle: bool = True
    skip_nonfinite: int = 0
    seed: int = 42
    threads: int = 1
    eval_every: int = 500
    patience: int | None = None
    save_every: int = 500
    keep: int = 3
    processes: int = 1

    @property
    def final_lr(self) -> float:
        """最后的学习率。"""
        return self.lr / 10 if self.min_lr is None else self.min_lr

    @property
    def tokenizer_kind(self) -> str:
        """分词器的种类；没有给就是 `char`。"""
        return "char" if self.tokenizer is None else self.tokenizer

    def to_dict(self) -> dict[str, Any]:
        """可以写成 JSON 的字典。"""
        return asdict(self)


FREE = ("corpus", "skip_nonfinite", "threads", "eval_every", "patience", "save_every", "keep")
"""接着训练时可以另给的设置：不改变已经做完的那些步；语料换了地方可以，内容要相同"""


def option_of(name: str) -> str:
    """设置的名字对应的选项，例如 `batch_size` → `--batch-size`。"""
    return "--shuffle" if name == "shuffle" else "--" + name.replace("_", "-")


def parse_settings(values: Any, where: object) -> TrainSettings:
    """由 `to_dict` 的结果重建。

    Args:
        values: 读到的值。
        where: 它来自哪个文件，写进消息。

    Raises:
        DataError: 有不认识的项目，或者值不合要求。
    """
    hints = get_type_hints(TrainSettings)
    given: dict[str, Any] = dict(cast("Any", values)) if isinstance(values, dict) else {}
    unknown = [name for name in given if name not in hints]
    if unknown or not given:
        what = f"有不认识的设置 {'、'.join(unknown)[:200]}" if unknown else "没有训练的设置"
        raise DataError(f"{where} 里{what}；如果由更新的 gptcore 写成，请升级")
    if "corpus" in given:
        given["corpus"] = _names(given["corpus"])
    wrong = [name for name, value in given.items() if not _valid(name, value, hints[name])]
    if wrong:
        raise DataError(f"{where} 里的 {'、'.join(wrong)} 不合要求；文件可能被改动过")
    return TrainSettings(**given)


def _names(value: Any) -> Any:
    """语料的名字；早先只能有一份，存成一个字符串。"""
    if isinstance(value, str):
        return (value,)
    given = cast("list[Any]", value) if isinstance(value, list | tuple) else []
    return tuple(given) if given and all(isinstance(v, str) for v in given) else None


def _valid(name: str, value: Any, kind: Any) -> bool:
    if name == "corpus":
        return value is not None
    if name in CHOICES:
        return value in CHOICES[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return isinstance(value, kind)
    smallest = 0 if name in ("seed", "warmup_steps", "skip_nonfinite") else 1
    if isinstance(value, int) and isinstance(value, kind):
        return smallest <= value < 2**63
    return isinstance(0.5, kind) and 0 <= float(value) < math.inf


def check(settings: TrainSettings) -> None:
    """命令行上看得见的矛盾，用选项的名字说出来。

    Raises:
        UsageError: 有矛盾。
    """
    check_tokenizer(settings.tokenizer, settings.vocab_size)
    size, heads = settings.embedding_size, settings.heads
    if size % heads:
        fits = "、".join(str(n) for n in range(1, min(size, 16) + 1) if size % n == 0)
        raise UsageError(
            f"--heads {heads} 不能整除 --embedding-size {size}；--heads 可以是 {fits}，"
            f"或者把 --embedding-size 改成 {heads} 的倍数"
        )
    if settings.steps is not None and settings.epochs is not None:
        raise UsageError("--steps 与 --epochs 只能给一个；请去掉其中一个")
    if settings.min_lr is not None and settings.schedule == "constant":
        raise UsageError("--schedule constant 的学习率不下降，用不上 --min-lr；请去掉其中一个")
    if settings.min_lr is not None and settings.min_lr > settings.lr:
        raise UsageError(
            f"--min-lr {settings.min_lr:g} 大于 --lr {settings.lr:g}；"
            "最后的学习率不能超过最高的，请减小 --min-lr"
        )
    if settings.post_norm and settings.norm == "none":
        raise UsageError(
            "--post-norm 与 --norm none 矛盾：没有归一化，也就没有位置；请去掉其中一个"
        )


def check_memory(settings: TrainSettings, vocab_size: int, processes: int) -> None:
    """建立模型之前估计内存：每个参数连同梯度与两个矩是 16 字节，另有一步的分数。

    几个进程训练时，每个进程另有一份求和用的梯度，每个参数 4 字节。

    Args:
        settings: 训练的设置。
        vocab_size: 词表大小。
        processes: 这台机器上有几个进程。

    Raises:
        UsageError: 太大。
    """
    size, context, blocks = settings.embedding_size, settings.context_size, settings.blocks
    parameters = (2 * vocab_size + context) * size + 12 * blocks * size**2
    scores = settings.batch_size * context * (context * settings.heads * blocks + vocab_size)
    each = 16 if processes == 1 else 20
    needed = processes * (each * parameters + 4 * scores)
    if needed > MEMORY:
        who = f"这台机器上的 {processes} 个进程" if processes > 1 else ""
        raise UsageError(
            f"模型约有 {parameters:.2g} 个参数，{who}训练至少要 {needed / 2**30:,.0f} GiB 内存，"
            f"超过上限 {MEMORY // 2**30} GiB；请减小 --embedding-size、--blocks、--context-size 或 --batch-size"
        )
