"""`gptcore train`：在一份语料或一个文本文件上训练"""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from gptcore.cli.demo import introduce, opening, quoted
from gptcore.cli.folders import prepare_folder, write_model
from gptcore.cli.progress import fit
from gptcore.cli.records import record
from gptcore.cli.terminal import Terminal
from gptcore.cli.usage import UsageError, suggestion
from gptcore.data import CharDataset, corpus_names, corpus_path, read_text
from gptcore.losses import GPTLoss
from gptcore.models import GPT
from gptcore.optim import AdamWOptimizer, WarmupCosineScheduler
from gptcore.tensor import Tensor, no_grad
from gptcore.threads import blas_threads
from gptcore.training import GPTTrainer

SPLIT = 0.9
"""训练部分所占的比例，其余是测试部分"""


@dataclass(frozen=True)
class TrainSettings:
    """训练的全部设置，默认值是“层归一化与 GPT”一章的。

    Attributes:
        corpus: 语料的名称，或文本文件的路径。
        context_size: 上下文尺寸。
        embedding_size: 嵌入尺寸。
        heads: 头数。
        blocks: 块数。
        batch_size: 每步几个窗口。
        lr: 最高的学习率。
        min_lr: 最后的学习率；不给时是 `lr` 的十分之一。
        warmup_steps: 升温的步数。
        weight_decay: 权重衰减，偏置、归一化与嵌入除外。
        steps: 步数；不给时由 `epochs` 决定。
        epochs: 轮数；与 `steps` 都不给时是 2。
        seed: 种子，决定初始参数。
        threads: BLAS 的线程数。
    """

    corpus: str = "stories"
    context_size: int = 32
    embedding_size: int = 64
    heads: int = 2
    blocks: int = 2
    batch_size: int = 4
    lr: float = 1e-3
    min_lr: float | None = None
    warmup_steps: int = 100
    weight_decay: float = 0.01
    steps: int | None = None
    epochs: int | None = None
    seed: int = 42
    threads: int = 1


def run_train(settings: TrainSettings, out: Path, terminal: Terminal) -> float:
    """训练、在测试部分上评估、保存。

    Args:
        settings: 设置。
        out: 模型存进哪个文件夹。
        terminal: 终端。

    Returns:
        测试损失。

    Raises:
        UsageError: 设置不合要求，语料找不到，或 `out` 不能写。
        DataError: 语料读不了。
    """
    _check(settings)
    dataset = open_corpus(settings)
    replaces = prepare_folder(out)
    steps = settings.steps or (settings.epochs or 2) * len(dataset)
    min_lr = settings.lr / 10 if settings.min_lr is None else settings.min_lr
    with blas_threads(settings.threads):
        model = GPT(
            dataset.vocab_size,
            settings.context_size,
            settings.embedding_size,
            settings.heads,
            settings.blocks,
            head_bias=False,
            rng=np.random.default_rng(settings.seed),
        )
        introduce(terminal, settings.corpus, dataset, model, settings.threads)
        terminal.say(f"训练 {steps:,} 步，每步 {settings.batch_size} 个窗口")
        if replaces:
            terminal.say(f"{out} 里已有一个模型，训练完会替换它")
        optimizer = AdamWOptimizer(model.parameter_groups(settings.weight_decay), settings.lr)
        scheduler = WarmupCosineScheduler(settings.lr, steps, settings.warmup_steps, min_lr)
        seconds = fit(GPTTrainer(model, GPTLoss(), optimizer), dataset, steps, scheduler, terminal)
        loss = test_loss(model, dataset)
    result = {"test_loss": loss, "steps": steps, "seconds": round(seconds, 2)}
    write_model(out, model, dataset.tokenizer, record("train", asdict(settings), result))
    terminal.say(
        f"测试损失 {loss:.4f} 奈特/字符（每个字符一样可能时是 {np.log(dataset.vocab_size):.4f}）；"
        f"训练 {seconds:.0f} 秒"
    )
    terminal.say(f"模型存在 {out}，接着写：")
    start = opening(dataset.decode(dataset.tokens[:200]))
    terminal.command(f"gptcore generate {quoted(out)} --prompt {start}")
    return loss


def open_corpus(settings: TrainSettings) -> CharDataset:
    """找到语料，切成窗口；太短时说明至少要多长。

    Args:
        settings: 设置。

    Returns:
        数据集。

    Raises:
        UsageError: 没有这个语料或文件，或者文本太短。
        DataError: 文件读不了。
    """
    name, path = settings.corpus, Path(settings.corpus)
    if name in corpus_names():
        path = corpus_path(name)
    elif not path.exists():
        raise UsageError(
            f"--corpus {name!r} 既不是语料的名称，也不是文件{suggestion(name, corpus_names())}；"
            f"语料有 {'、'.join(corpus_names())}，文件请检查路径"
        )
    elif path.is_dir():
        raise UsageError(f"--corpus {name!r} 是文件夹，不是文件；请给出里面某个文本文件的路径")
    length = len(read_text(path))
    test, needed = length - int(length * SPLIT), settings.context_size + 1
    if min(test, length - test) < needed:
        raise UsageError(
            f"--corpus {name!r} 只有 {length} 个字符，其中测试部分 {test} 个；"
            f"--context-size {settings.context_size} 的一个窗口连同标签要 {needed} 个。"
            f"请换一份至少 {needed * 10} 个字符的文本，或减小 --context-size"
        )
    dataset = CharDataset(path, settings.batch_size, settings.context_size, split=SPLIT)
    windows = len(dataset.train_data[0])
    if settings.batch_size > windows:
        raise UsageError(
            f"--batch-size {settings.batch_size} 大于训练部分的窗口数 {windows}，一步也凑不满；"
            f"请把 --batch-size 减到 {windows} 以下，或换更长的文本"
        )
    return dataset


def test_loss(model: GPT, dataset: CharDataset) -> float:
    """测试部分全部窗口、全部位置的平均损失，与教程里 `GPTTrainer.test` 的算法相同。

    它不留下各批的预测，长的文本也不占内存；不满一批的尾巴也算在内。

    Args:
        model: 模型。
        dataset: 数据集。

    Returns:
        平均损失，单位奈特每字符。
    """
    x, y = dataset.test_data
    total = 0.0
    with model.evaluating(), no_grad():
        for i in range(0, len(x), dataset.batch_size):
            rows = slice(i, i + dataset.batch_size)
            inputs, labels = np.array(x[rows]), np.array(y[rows])
            total += float(GPTLoss()(model(Tensor(inputs)), Tensor(labels))) * len(inputs)
    return total / len(x)


def _check(settings: TrainSettings) -> None:
    """命令行上看得见的矛盾，用选项的名字说出来。"""
    size, heads = settings.embedding_size, settings.heads
    if size % heads:
        fits = "、".join(str(n) for n in range(1, size + 1) if size % n == 0 and n <= 16)
        raise UsageError(
            f"--heads {heads} 不能整除 --embedding-size {size}；--heads 可以是 {fits}，"
            f"或者把 --embedding-size 改成 {heads} 的倍数"
        )
    if settings.steps is not None and settings.epochs is not None:
        raise UsageError("--steps 与 --epochs 只能给一个；请去掉其中一个")
    if settings.min_lr is not None and settings.min_lr > settings.lr:
        raise UsageError(
            f"--min-lr {settings.min_lr:g} 大于 --lr {settings.lr:g}；"
            "最后的学习率不能超过最高的，请减小 --min-lr"
        )
