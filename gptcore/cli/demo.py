"""`gptcore demo`：一分钟左右，看一个小 GPT 学会写故事

语料 `stories` 由本库的文法生成，不需要网络。前 95% 训练，其余从一篇故事的开头起留作测试：模型没有见过，
但文法的解析器能给出它每个字符的真实概率，于是表里最后一行是这段文本本身的下限，不是估计。

步数是固定的：在安静的双核机器上校准过一次，慢的机器多等一会儿，结果相同。
检查时间、合格句子的比例和与下限的距离：`python tests/benchmarks/demo.py`。
"""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from gptcore.cli.corpus import CorpusRecord
from gptcore.cli.folders import OutputFolder, next_command
from gptcore.cli.progress import fit
from gptcore.cli.records import record
from gptcore.cli.scoring import bigram_loss, held_out_loss, uniform_loss, unigram_loss
from gptcore.cli.terminal import Terminal
from gptcore.data import CharDataset, corpus_path
from gptcore.data.stories import StoryReport, check_text, negative_log_likelihood
from gptcore.losses import GPTLoss
from gptcore.models import GPT
from gptcore.models.generation import generate_ids
from gptcore.optim import AdamWOptimizer, WarmupCosineScheduler
from gptcore.threads import blas_threads
from gptcore.training import GPTTrainer


@dataclass(frozen=True)
class DemoSettings:
    """演示的全部设置。

    Attributes:
        context_size: 上下文尺寸；一篇故事七十来个字符，所以看得到开头。
        embedding_size: 嵌入尺寸。
        heads: 头数。
        blocks: 块数；照抄前文里的名字至少要两块。
        batch_size: 每步几个窗口。
        steps: 步数。
        lr: 最高的学习率。
        min_lr: 最后的学习率。
        warmup_steps: 升温的步数。
        weight_decay: 权重衰减。
        seed: 种子，决定初始参数和样本。
        held_out: 打分的字符数。
        samples: 训练前、中途、训练后的样本各多长。
        temperature: 样本的温度。
        threads: BLAS 的线程数。
    """

    context_size: int = 96
    embedding_size: int = 128
    heads: int = 4
    blocks: int = 2
    batch_size: int = 12
    steps: int = 1300
    lr: float = 3e-3
    min_lr: float = 3e-4
    warmup_steps: int = 100
    weight_decay: float = 0.1
    seed: int = 42
    held_out: int = 20_000
    samples: tuple[int, int, int] = (60, 120, 500)
    temperature: float = 0.8
    threads: int = 1


@dataclass(frozen=True)
class DemoResult:
    """演示的结果；损失都在同一段留出的文本上，单位奈特每字符。

    Attributes:
        losses: 猜法的名字与损失，从差到好，最后一个是语料的熵。
        story: 最后一段样本的检查结果。
        sample: 最后一段样本。
        training_seconds: 训练的时间。
        seconds: 全部时间。
        steps_per_second: 每秒多少步。
    """

    losses: dict[str, float]
    story: StoryReport
    sample: str
    training_seconds: float
    seconds: float
    steps_per_second: float

    @property
    def gap(self) -> float:
        """模型与下限的距离。"""
        return self.losses[MODEL] - self.losses[FLOOR]


SPLIT = 0.95
"""训练部分所占的比例，其余留作测试"""
UNIFORM, UNIGRAM, BIGRAM = "均匀：每个字符一样可能", "一元：只看字符频率", "二元：只看前一个字符"
MODEL, FLOOR = "这个模型", "语料的熵：任何模型的下限"


def run_demo(out: Path, terminal: Terminal, settings: DemoSettings | None = None) -> DemoResult:
    """训练、展示、评估、保存。

    Args:
        out: 模型存进哪个文件夹。
        terminal: 终端。
        settings: 设置；默认就是 `gptcore demo` 所用的。

    Returns:
        结果。

    Raises:
        UsageError: `out` 不能写。
    """
    settings = settings or DemoSettings()
    start = time.perf_counter()
    with OutputFolder(out) as output, blas_threads(settings.threads):
        if output.replaces:
            terminal.say(f"{out} 里已有一个模型，训练完会替换它")
        result = _run(output, terminal, settings, start)
    report(terminal, out, settings, result)
    return result


def _run(
    output: OutputFolder, terminal: Terminal, settings: DemoSettings, start: float
) -> DemoResult:
    rng = np.random.default_rng(settings.seed)
    dataset = CharDataset(
        corpus_path("stories"), settings.batch_size, settings.context_size, split=SPLIT
    )
    model = GPT(
        dataset.vocab_size,
        settings.context_size,
        settings.embedding_size,
        settings.heads,
        settings.blocks,
        head_bias=False,
        rng=rng,
    )
    optimizer = AdamWOptimizer(
        model.parameter_groups(settings.weight_decay), settings.lr, betas=(0.9, 0.99)
    )
    scheduler = WarmupCosineScheduler(
        settings.lr, settings.steps, settings.warmup_steps, settings.min_lr
    )
    corpus = f"语料 stories：{len(dataset.tokens):,} 个字符，{dataset.vocab_size} 种"
    introduce(terminal, corpus, model, settings.threads)

    def write(length: int) -> str:
        ids = generate_ids(
            model,
            dataset.encode("\n"),
            length,
            settings.context_size,
            temperature=settings.temperature,
            rng=rng,
        )
        return dataset.decode(list(ids))

    before, middle, after = settings.samples
    terminal.sample("训练之前写的", write(before))
    terminal.say()
    half = settings.steps // 2

    def pause() -> None:
        terminal.sample(f"练了 {half} 步写的", write(middle))
        terminal.say()

    seconds = fit(
        GPTTrainer(model, GPTLoss(), optimizer),
        dataset,
        settings.steps,
        scheduler,
        terminal,
        {half: pause},
    )
    sample = write(after)
    terminal.sample(f"练完 {settings.steps} 步写的", sample)

    result = DemoResult(
        losses=_losses(model, dataset, settings.held_out),
        story=check_text(sample),
        sample=sample,
        training_seconds=seconds,
        seconds=time.perf_counter() - start,
        steps_per_second=settings.steps / max(seconds, 1e-9),
    )
    output.save(model, dataset.tokenizer, _record(settings, result, dataset))
    return result


def _losses(model: GPT, dataset: CharDataset, held_out: int) -> dict[str, float]:
    """在留出的文本上打分：从测试部分的第一个换行开始，换行只当前文，之后是完整的故事。"""
    cut = int(len(dataset.tokens) * dataset.split)
    text = dataset.decode(dataset.tokens[cut:])
    text = text[text.index("\n") :][: held_out + 1]
    train, size = dataset.tokens[:cut], dataset.vocab_size
    ids = dataset.tokenizer.encode_array(text)
    return {
        UNIFORM: uniform_loss(size),
        UNIGRAM: unigram_loss(train, ids, size),
        BIGRAM: bigram_loss(train, ids, size),
        MODEL: held_out_loss(model, ids),
        FLOOR: negative_log_likelihood(text[1:]) / (len(text) - 1),
    }


def _record(settings: DemoSettings, result: DemoResult, dataset: CharDataset) -> dict[str, Any]:
    return record(
        "demo",
        {"corpus": "stories", **asdict(settings)},
        {
            "loss": result.losses[MODEL],
            "entropy": result.losses[FLOOR],
            "valid_sentences": result.story.sentence_rate,
            "seconds": round(result.training_seconds, 2),
        },
        CorpusRecord.of(["stories"], [dataset.decode(dataset.tokens)], SPLIT),
    )


def report(terminal: Terminal, out: Path, settings: DemoSettings, result: DemoResult) -> None:
    """写出最后的表格与下一步的命令。

    Args:
        terminal: 终端。
        out: 模型所在的文件夹。
        settings: 设置。
        result: 结果。
    """
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("同一段没见过的文本")
    table.add_column("奈特/字符", justify="right", no_wrap=True)
    for name, loss in result.losses.items():
        table.add_row(name, f"{loss:.3f}", style="bold green" if name == MODEL else "")
    terminal.say()
    terminal.say(table)
    story = result.story
    terminal.say(f"离下限 {result.gap:.3f} 奈特/字符")
    terminal.say(
        f"样本（温度 {settings.temperature:g}）里，文法写得出的句子："
        f"{story.valid_sentences}/{story.sentences}（{story.sentence_rate:.0%}）"
    )
    terminal.say(
        f"训练 {result.training_seconds:.0f} 秒（每秒 {result.steps_per_second:.1f} 步），"
        f"共 {result.seconds:.0f} 秒"
    )
    terminal.say(f"模型存在 {out}，接着写：")
    terminal.command(next_command(out, result.sample))


def introduce(terminal: Terminal, corpus: str, model: GPT, threads: int) -> None:
    """训练之前写出语料与模型的大小。

    Args:
        terminal: 终端。
        corpus: 语料的名字与长短，一句话。
        model: 模型。
        threads: BLAS 的线程数。
    """
    c = model.config
    terminal.say(corpus)
    terminal.say(
        f"模型：{c['blocks']} 块，{c['heads']} 头，宽 {c['embedding_size']}，"
        f"上下文 {c['context_size']}"
    )
    terminal.say(f"参数：{model.num_parameters:,} 个；BLAS 线程数 {threads}")
