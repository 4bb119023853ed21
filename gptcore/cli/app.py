"""命令；一切错误都变成一行消息和退出码"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command

from gptcore.cli import options as o
from gptcore.cli.failures import FAILURES, describe, one_line
from gptcore.cli.help import Command, Group
from gptcore.cli.ranks import abandon, is_quiet, open_ranks, quiet_terminal, require_flag
from gptcore.cli.signals import name_of
from gptcore.cli.streams import complain, prepare_streams, silence
from gptcore.cli.terminal import open_terminal
from gptcore.cli.usage import UsageError

COMMANDS = (
    *("demo", "train", "generate", "eval", "info", "plot"),
    *("tokenize", "export", "import", "doctor"),
)

app = typer.Typer(
    cls=Group,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(
    invoke_without_command=True,
    help="用 NumPy 从零写成的 GPT：训练、生成、评估、查看模型。\n\n"
    "第一次用：gptcore demo，大约一分钟，不需要网络。",
)
def gptcore(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, help="显示版本并退出")
    ] = False,
) -> None:
    """没有命令时显示帮助。"""
    if version:
        from gptcore import __version__

        open_terminal().say(f"gptcore {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        context.get_help()


@app.command(
    cls=Command,
    help="演示：一分钟左右，看一个小 GPT 学会写故事。\n\n"
    "语料是自带的，不需要网络。训练前、中途、训练后各写一段，最后与几种简单的猜法、与语料的熵相比。",
)
def demo(out: Annotated[Path | None, o.out("gptcore-demo")] = None) -> None:
    """命令 `demo`"""
    from gptcore.cli.demo import run_demo

    run_demo(out or Path("gptcore-demo"), open_terminal())


@app.command(
    cls=Command,
    help="训练：在一份或几份文本上训练，并保存模型。\n\n"
    "前九成的文本用来训练，其余用来测试。模型与优化的默认值是教程“层归一化与 GPT 模型”一章的。\n\n"
    "按 Ctrl-C 会先保存再退出；之后同一条命令加上 --resume，接着做完，结果与不中断的一样。",
)
def train(
    context: typer.Context,
    corpus: o.Corpus = ["stories"],  # noqa: B006 typer 每次复制一份
    tokenizer: o.Tokenizer = None,
    vocab_size: o.VocabSize = None,
    context_size: o.ContextSize = 32,
    embedding_size: o.EmbeddingSize = 64,
    heads: o.Heads = 2,
    blocks: o.Blocks = 2,
    dropout: o.DropoutRate = 0.0,
    norm: o.Norm = "layer",
    post_norm: o.PostNorm = False,
    tied: o.Tied = False,
    no_bias: o.NoBias = False,
    init: o.Init = "he",
    batch_size: o.BatchSize = 4,
    accumulate: o.Accumulate = 1,
    lr: o.Rate = 1e-3,
    min_lr: o.MinRate = None,
    schedule: o.Schedule = "cosine",
    warmup_steps: o.WarmupSteps = 100,
    weight_decay: o.WeightDecay = 0.01,
    beta2: o.Beta2 = 0.999,
    clip: o.Clip = 1.0,
    steps: o.Steps = None,
    epochs: o.Epochs = None,
    shuffle: o.Shuffle = True,
    skip_nonfinite: o.SkipNonfinite = 0,
    seed: o.Seed = 42,
    threads: o.TrainThreads = 1,
    distributed: o.Distributed = False,
    eval_every: o.EvalEvery = 500,
    patience: o.Patience = None,
    save_every: o.SaveEvery = 500,
    keep: o.Keep = 3,
    out: Annotated[Path | None, o.out("gptcore-model")] = None,
    resume: o.Resume = False,
    restart: o.Restart = False,
) -> None:
    """命令 `train`"""
    from gptcore.cli.runs import Mode
    from gptcore.cli.settings import TrainSettings
    from gptcore.cli.train import run_train

    settings = TrainSettings(
        corpus=tuple(corpus),
        tokenizer=tokenizer,
        vocab_size=vocab_size,
        context_size=context_size,
        embedding_size=embedding_size,
        heads=heads,
        blocks=blocks,
        dropout=dropout,
        norm=norm,
        post_norm=post_norm,
        tied=tied,
        no_bias=no_bias,
        init=init,
        batch_size=batch_size,
        accumulate=accumulate,
        lr=lr,
        min_lr=min_lr,
        schedule=schedule,
        warmup_steps=warmup_steps,
        weight_decay=weight_decay,
        beta2=beta2,
        clip=clip,
        steps=steps,
        epochs=epochs,
        shuffle=shuffle,
        skip_nonfinite=skip_nonfinite,
        seed=seed,
        threads=threads,
        eval_every=eval_every,
        patience=patience,
        save_every=save_every,
        keep=keep,
    )
    if resume and restart:
        raise UsageError("--resume 接着训练，--restart 从头再来，只能给一个；请去掉其中一个")
    mode = Mode.RESUME if resume else Mode.RESTART if restart else Mode.NEW
    chosen = {name for name in settings.to_dict() if _was_given(context, name)}
    folder = out or Path("gptcore-model")
    if not distributed:
        require_flag()
        run_train(settings, folder, open_terminal(), mode, chosen)
        return
    ranks = open_ranks(settings.threads)
    terminal = open_terminal() if ranks.is_main else quiet_terminal()
    run_train(settings, folder, terminal, mode, chosen, ranks)


def _was_given(context: typer.Context, name: str) -> bool:
    """命令行上写了这个选项，而不是用默认值。"""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


@app.command(
    cls=Command,
    help="生成：读一个训练好的模型，一个字一个字地往下写。\n\n"
    "采样的各个选项可以一起用，次序是重复惩罚、温度、top-k、top-p、min-p。遇到文本结束词元也停下。",
)
def generate(
    folder: o.Folder,
    prompt: o.Prompt = None,
    max_tokens: o.MaxTokens = 256,
    stop: o.Stop = None,
    logprobs: o.Logprobs = False,
    temperature: o.Temperature = 1.0,
    top_k: o.TopK = 0,
    top_p: o.TopP = 1.0,
    min_p: o.MinP = 0.0,
    repetition_penalty: o.RepetitionPenalty = 1.0,
    seed: o.SampleSeed = None,
    threads: o.GenerateThreads = None,
) -> None:
    """命令 `generate`"""
    from gptcore.cli.generate import GenerateSettings, run_generate
    from gptcore.models import Sampler

    sampler = Sampler(temperature, top_k, top_p, min_p, repetition_penalty)
    settings = GenerateSettings(max_tokens, sampler, tuple(stop or ()), seed, logprobs, threads)
    run_generate(folder, prompt, settings)


@app.command(
    "eval",
    cls=Command,
    help="评估：在没有用来训练的文本上打分。\n\n"
    "写出损失、困惑度，每个字符与每个字节的比特数，各有一句定义。不给 --corpus 时与训练结束时的数相同。",
)
def evaluate(folder: o.Folder, corpus: o.EvalCorpus = None, threads: o.EvalThreads = None) -> None:
    """命令 `eval`"""
    from gptcore.cli.evaluate import run_eval

    run_eval(folder, corpus, threads, open_terminal())


@app.command(cls=Command, help="查看：模型的设置、参数个数、文件大小与训练记录。")
def info(folder: o.Folder) -> None:
    """命令 `info`"""
    from gptcore.cli.info import run_info

    run_info(folder, open_terminal())


@app.command(
    cls=Command,
    help="画图：把训练的过程画成一张图。\n\n"
    "损失、学习率、梯度范数与速度，训练途中也可以画。"
    '需要 matplotlib：pip install "gptcore[plot]"',
)
def plot(folder: o.RunFolder, out: o.Picture = None) -> None:
    """命令 `plot`"""
    from gptcore.cli.plot import run_plot

    run_plot(folder, out, open_terminal())


@app.command(
    cls=Command,
    help="编码：把文本写成词元文件，之后的训练不必再编码。\n\n"
    "文本可以比内存大。几份文本之间放一个文本结束词元（字符分词器没有它，直接相连）。",
)
def tokenize(
    texts: o.Texts,
    tokenizer: o.TokenizeTokenizer = "bpe",
    vocab_size: o.TokenizeVocabSize = None,
    split_documents: o.SplitDocuments = False,
    out: o.TokenFile = None,
) -> None:
    """命令 `tokenize`"""
    from gptcore.cli.tokenize import run_tokenize

    target = out or Path("tokens.npy")
    run_tokenize(texts, target, tokenizer, vocab_size, split_documents, open_terminal())


@app.command(
    cls=Command,
    help="导出：写成 transformers 能读的文件夹。\n\n"
    "模型的结构要是 GPT-2 的：不能用 --norm、--post-norm、--no-bias 换成别的。",
)
def export(
    folder: o.OwnFolder,
    to: o.ExportTo = "hf",
    out: Annotated[Path | None, o.transfer_out("gptcore-hf")] = None,
) -> None:
    """命令 `export`"""
    from gptcore.cli.transfer import run_export

    run_export(folder, out or Path("gptcore-hf"), to, open_terminal())


@app.command(
    "import",
    cls=Command,
    help="导入：把 Hugging Face 的 GPT-2 存成 gptcore 的模型。\n\n"
    "本机没有这个文件夹时按名字下载；环境变量 GPTCORE_HF_ENDPOINT 可以换成镜像的网址。",
)
def import_(
    source: o.Source,
    dropout: o.ImportDropout = None,
    out: Annotated[Path | None, o.transfer_out("gptcore-model")] = None,
) -> None:
    """命令 `import`"""
    from gptcore.cli.transfer import run_import

    run_import(source, out or Path("gptcore-model"), dropout, open_terminal())


@app.command(
    cls=Command,
    help="诊断：检查这台机器上的 gptcore 是否正常。\n\n"
    "版本、BLAS、编码与文件、梯度、训练与速度，几秒钟；有要处理的，写出办法，退出码是 1。",
)
def doctor() -> None:
    """命令 `doctor`"""
    from gptcore.cli.doctor import run_doctor

    raise typer.Exit(run_doctor(open_terminal()))


def run(args: Sequence[str] | None = None) -> int:
    """运行一次命令。

    Args:
        args: 参数；默认取自命令行。

    Returns:
        退出码：0 成功，1 诊断有问题，2 用户的错误，129、130、143 被 SIGHUP、Ctrl-C、SIGTERM 中断，
        141 输出的管道被关闭。
    """
    prepare_streams()
    args = sys.argv[1:] if args is None else list(args)
    tell = _silent if is_quiet(args) else complain
    try:
        code = _invoke(args)
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)
        return 141
    except KeyboardInterrupt as error:
        tell(_with_notes("已中断（Ctrl-C）", error, "，"), prefix="")
        return 130
    except SystemExit as error:  # 见 signals
        tell(_with_notes(f"已中断（{name_of(error.code)}）", error, "，"), prefix="")
        return error.code if isinstance(error.code, int) else 1
    except FAILURES as error:
        named = args[0] if args and args[0] in COMMANDS else ""
        tell(_with_notes(describe(error, named), error, "；"))
        abandon(args, error)
        return 2
    except Exception as error:
        abandon(args, error)
        raise
    return code


def _silent(message: str, prefix: str = "") -> None:
    """几个进程里，第 0 个已经说了。"""
    del message, prefix


def _with_notes(message: str, error: BaseException, mark: str) -> str:
    """加上途中附记的，例如检查点存在哪里。"""
    return mark.join([message, *map(one_line, getattr(error, "__notes__", []))])


def _invoke(args: list[str]) -> int:
    """解析参数，运行命令；不用 typer 的 `main`，它会改动 Ctrl-C 与管道的错误。"""
    try:
        with get_command(app).make_context("gptcore", args) as context:
            context.command.invoke(context)
    except typer.Exit as request:
        return request.exit_code
    return 0
