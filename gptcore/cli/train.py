"""`gptcore train`：在一份语料或一个文本文件上训练"""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from gptcore.cli.corpus import open_corpus
from gptcore.cli.demo import introduce
from gptcore.cli.folders import OutputFolder, next_command
from gptcore.cli.progress import DIVERGED, fit
from gptcore.cli.records import record
from gptcore.cli.terminal import Terminal
from gptcore.cli.usage import UsageError
from gptcore.data import CharDataset
from gptcore.losses import GPTLoss
from gptcore.models import GPT
from gptcore.optim import AdamWOptimizer, WarmupCosineScheduler
from gptcore.tensor import Tensor, no_grad
from gptcore.threads import blas_threads
from gptcore.training import GPTTrainer

MEMORY = 16 * 2**30
"""模型与一步的计算最多要占多少字节；再大的模型，NumPy 也训练不动"""


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
        UsageError: 设置不合要求，语料找不到，`out` 不能写，或者训练发散。
        DataError: 语料读不了。
    """
    _check(settings)
    dataset = open_corpus(settings.corpus, settings.batch_size, settings.context_size)
    _check_memory(settings, dataset.vocab_size)
    with OutputFolder(out) as output, blas_threads(settings.threads):
        loss, seconds = _train(settings, dataset, output, terminal)
    terminal.say(
        f"测试损失 {loss:.4f} 奈特/字符（每个字符一样可能时是 {np.log(dataset.vocab_size):.4f}）；"
        f"训练 {seconds:.0f} 秒"
    )
    terminal.say(f"模型存在 {out}，接着写：")
    terminal.command(next_command(out, dataset.decode(dataset.tokens[:200])))
    return loss


def _train(
    settings: TrainSettings, dataset: CharDataset, output: OutputFolder, terminal: Terminal
) -> tuple[float, float]:
    """训练、评估、保存，返回测试损失与训练的秒数。"""
    steps = settings.steps or (settings.epochs or 2) * len(dataset)
    min_lr = settings.lr / 10 if settings.min_lr is None else settings.min_lr
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
    if output.replaces:
        terminal.say(f"{output.folder} 里已有一个模型，训练完会替换它")
    optimizer = AdamWOptimizer(model.parameter_groups(settings.weight_decay), settings.lr)
    scheduler = WarmupCosineScheduler(settings.lr, steps, settings.warmup_steps, min_lr)
    seconds = fit(GPTTrainer(model, GPTLoss(), optimizer), dataset, steps, scheduler, terminal)
    terminal.say("正在测试部分上评估……")
    terminal.console.file.flush()
    loss = test_loss(model, dataset)
    if not np.isfinite(loss):
        raise UsageError(f"训练后的测试损失是 {loss}，没有保存；{DIVERGED}")
    result = {"test_loss": loss, "steps": steps, "seconds": round(seconds, 2)}
    output.save(model, dataset.tokenizer, record("train", asdict(settings), result))
    return loss, seconds


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
    with model.evaluating(), no_grad(), np.errstate(all="ignore"):
        for i in range(0, len(x), dataset.batch_size):
            rows = slice(i, i + dataset.batch_size)
            inputs, labels = np.array(x[rows]), np.array(y[rows])
            total += float(GPTLoss()(model(Tensor(inputs)), Tensor(labels))) * len(inputs)
    return total / len(x)


def _check(settings: TrainSettings) -> None:
    """命令行上看得见的矛盾，用选项的名字说出来。"""
    size, heads = settings.embedding_size, settings.heads
    if size % heads:
        fits = "、".join(str(n) for n in range(1, min(size, 16) + 1) if size % n == 0)
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


def _check_memory(settings: TrainSettings, vocab_size: int) -> None:
    """建立模型之前估计内存：每个参数连同梯度与两个矩是 16 字节，另有一步的分数。"""
    size, context, blocks = settings.embedding_size, settings.context_size, settings.blocks
    parameters = (2 * vocab_size + context) * size + 12 * blocks * size**2
    scores = settings.batch_size * context * (context * settings.heads * blocks + vocab_size)
    needed = 16 * parameters + 4 * scores
    if needed > MEMORY:
        raise UsageError(
            f"模型约有 {parameters:.2g} 个参数，训练至少要 {needed / 2**30:,.0f} GiB 内存，"
            f"超过上限 {MEMORY // 2**30} GiB；请减小 --embedding-size、--blocks、--context-size 或 --batch-size"
        )
