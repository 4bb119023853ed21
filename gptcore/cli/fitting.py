"""`gptcore train` 的训练：由设置建立模型与训练器，评估、保存、显示进度"""

import warnings

import numpy as np

from gptcore.cli.progress import open_display
from gptcore.cli.runs import Run, RunFolder
from gptcore.cli.settings import NORMS, TrainSettings
from gptcore.cli.streams import complain
from gptcore.cli.terminal import Terminal
from gptcore.cli.usage import UsageError
from gptcore.data import CharTokenizer, WindowDataset
from gptcore.distributed import DataParallel
from gptcore.errors import NonFiniteError
from gptcore.losses import GPTLoss
from gptcore.models import GPT
from gptcore.optim import AdamWOptimizer, ConstantScheduler, LinearScheduler, WarmupCosineScheduler
from gptcore.progress import ProgressDisplay
from gptcore.training import (
    Callback,
    Checkpoints,
    EarlyStopping,
    Evaluate,
    GPTTrainer,
    MetricsFile,
    Scheduler,
    StepReport,
    Trainer,
)

EVALUATED = 32
"""训练途中一次评估的窗口数，是一步的多少倍：每 500 步评估一次，约占百分之二的时间"""
FEWEST = 64
"""训练途中一次评估至少多少个窗口"""

OPTIONS = "相应的选项是 --lr、--warmup-steps、--weight-decay 与 --clip"
"""训练发散时改什么；学习率太大、升温太短、衰减太强、没有裁剪都会这样"""

WAIT = "正在保存，再按一次 Ctrl-C 立即退出"


def build_trainer(
    settings: TrainSettings, dataset: WindowDataset, ranks: DataParallel | None = None
) -> tuple[GPT, GPTTrainer]:
    """由设置建立模型、优化器与训练器。

    一个种子，两个互不相干的生成器：初始参数与随机失活用一个，打乱次序用另一个。

    Args:
        settings: 设置。
        dataset: 数据集，由它得到词表大小。
        ranks: 几个进程；不给时就是这一个。

    Returns:
        模型与训练器。
    """
    seeds = np.random.SeedSequence(settings.seed)
    model = GPT(
        dataset.vocab_size,
        settings.context_size,
        settings.embedding_size,
        settings.heads,
        settings.blocks,
        head_bias=False,
        tied=settings.tied,
        bias=not settings.no_bias,
        dropout=settings.dropout,
        norm=NORMS[settings.norm],
        norm_position="post" if settings.post_norm else "pre",
        init="gpt2" if settings.init == "gpt2" else "he",
        rng=np.random.default_rng(seeds),
    )
    optimizer = AdamWOptimizer(
        model.parameter_groups(settings.weight_decay), settings.lr, betas=(0.9, settings.beta2)
    )
    trainer = GPTTrainer(
        model,
        GPTLoss(),
        optimizer,
        accumulation_steps=settings.accumulate,
        max_norm=settings.clip or None,
        skip_nonfinite=settings.skip_nonfinite,
        rng=np.random.default_rng(seeds.spawn(1)[0]),
        distributed=ranks,
    )
    return model, trainer


def unit_of(dataset: WindowDataset) -> str:
    """一个词元叫什么。"""
    return "字符" if isinstance(dataset.tokenizer, CharTokenizer) else "词元"


def build_scheduler(settings: TrainSettings, steps: int) -> Scheduler:
    """由设置建立学习率调度。"""
    lr, warmup = settings.lr, settings.warmup_steps
    if settings.schedule == "constant":
        return ConstantScheduler(lr, warmup)
    kind = WarmupCosineScheduler if settings.schedule == "cosine" else LinearScheduler
    return kind(lr, steps, warmup, settings.final_lr)


def load(trainer: GPTTrainer, run: Run, folder: RunFolder, terminal: Terminal) -> None:
    """读入最新的检查点；环境变了、最新的坏了，各提醒一行。"""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        state = trainer.resume(folder.checkpoints, missing_ok=True)
    for warning in caught:
        complain(str(warning.message), prefix="提醒：")
    if trainer.checkpoint is not None:
        terminal.say(
            f"从 {trainer.checkpoint} 接着训练：做完 {state.step:,} 步，共 {run.steps:,} 步"
        )
        return
    before, now = run.settings.processes, trainer.strategy.size
    if before != now:
        raise UsageError(
            f"--resume：还没有检查点，开始时有 {before} 个进程，现在有 {now} 个，一步的窗口数不同；"
            f"请用同样多的进程，或者用 --restart 从头训练"
        )
    terminal.say(f"还没有检查点，从第一步开始，共 {run.steps:,} 步")


def fit(
    trainer: GPTTrainer, run: Run, dataset: WindowDataset, folder: RunFolder, terminal: Terminal
) -> float:
    """训练到总步数，或者提前停止；途中评估、记录、保存、显示。

    Args:
        trainer: 训练器。
        run: 这次训练。
        dataset: 数据集。
        folder: 这次训练的文件夹。
        terminal: 终端。

    Returns:
        用了多少秒。

    Raises:
        NonFiniteError: 损失、梯度或参数里有 NaN 或无穷。
    """
    settings = run.settings
    windows = settings.batch_size * settings.accumulate * settings.processes
    display = open_display(terminal, unit_of(dataset))
    checkpoints = Checkpoints(
        folder.checkpoints, settings.save_every, settings.keep, lambda: display.notice(WAIT)
    )
    callbacks = [
        display,
        MetricsFile(folder.metrics),
        _Evaluate(settings.eval_every, max(FEWEST, EVALUATED * windows)),
        *([EarlyStopping(settings.patience)] if settings.patience else []),
        checkpoints,
        _SaveWhenUnseen(display, checkpoints),
    ]
    scheduler = build_scheduler(settings, run.steps)
    try:
        for _ in trainer.steps(
            dataset, run.steps, scheduler, shuffle=settings.shuffle, callbacks=callbacks
        ):
            pass
    except NonFiniteError as error:
        raise NonFiniteError(f"{error}；{_advice(trainer, folder)}") from error
    return display.seconds


def follow(trainer: GPTTrainer, run: Run, dataset: WindowDataset) -> None:
    """第 0 个之外的进程：跟着训练，不显示，不写文件。

    Args:
        trainer: 训练器。
        run: 这次训练。
        dataset: 数据集。
    """
    scheduler = build_scheduler(run.settings, run.steps)
    for _ in trainer.steps(dataset, run.steps, scheduler, shuffle=run.settings.shuffle):
        pass


def _advice(trainer: GPTTrainer, folder: RunFolder) -> str:
    """出现 NaN 或无穷时，用选项的名字说出办法。"""
    if trainer.checkpoint is None:
        return OPTIONS
    more = str(max(10, 2 * trainer.skip_nonfinite))
    skip = folder.command("--resume", "--skip-nonfinite", more)
    return f"跳过这样的步接着训练：{skip}；从头再来，{OPTIONS}"


class _Evaluate(Evaluate):
    """最后一步之后也评估一次：`best` 里因此总有模型，也不会漏掉最后的进步。"""

    def on_end(self, trainer: Trainer) -> None:
        done = [step for step, _ in trainer.state.evaluations]
        if trainer.state.step not in done[-1:]:
            trainer.evaluate_now(self.limit)


class _SaveWhenUnseen(Callback):
    """进度写不出去（管道被关闭、磁盘满了）时，先保存再结束；在 `Checkpoints` 之后。"""

    comes_last = True

    def __init__(self, display: ProgressDisplay, checkpoints: Checkpoints) -> None:
        self.display, self.checkpoints = display, checkpoints

    def on_step(self, trainer: Trainer, report: StepReport) -> None:
        del report
        if self.display.error is not None:
            self.checkpoints.save(trainer)
            raise self.display.error
