"""命令与选项；一切错误都变成一行消息和退出码"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from gptcore.cli.failures import FAILURES, describe
from gptcore.cli.help import Command, Group
from gptcore.cli.streams import complain, prepare_streams, silence
from gptcore.cli.terminal import open_terminal
from gptcore.cli.usage import integer, path, real

COMMANDS = ("demo", "train", "generate", "info")
SEED = 10**18
"""种子的上限"""

app = typer.Typer(
    cls=Group,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

CORPUS, MODEL, OPTIMIZER, OUTPUT = "语料", "模型", "训练", "输出"


@app.callback(
    invoke_without_command=True,
    help="用 NumPy 从零写成的 GPT：训练、生成、查看模型。\n\n"
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


def _out(default: str) -> Any:
    return typer.Option(
        "--out",
        metavar="文件夹",
        parser=path("--out", default),
        rich_help_panel=OUTPUT,
        help=f"模型存在哪里；里面有别的文件时不覆盖（默认 {default}）",
    )


def _folder() -> Any:
    return typer.Argument(
        metavar="文件夹", parser=path("文件夹", "gptcore-demo"), help="模型文件夹"
    )


def _threads() -> Any:
    return typer.Option(
        "--threads",
        metavar="个数",
        parser=integer("--threads", 1, 1024, 1),
        help="BLAS 的线程数；小模型用 1 个往往最快",
    )


def _count(
    option: str,
    help_text: str,
    example: int,
    *,
    minimum: int = 1,
    maximum: int = 10**9,
    panel: str = MODEL,
) -> Any:
    return typer.Option(
        option,
        metavar="个数",
        parser=integer(option, minimum, maximum, example),
        rich_help_panel=panel,
        help=help_text,
    )


def _rate(option: str, example: str, help_text: str, *, positive: bool = False) -> Any:
    return typer.Option(
        option,
        metavar="数",
        parser=real(option, example, positive=positive),
        rich_help_panel=OPTIMIZER,
        help=help_text,
    )


@app.command(
    cls=Command,
    help="演示：一分钟左右，看一个小 GPT 学会写故事。\n\n"
    "语料是自带的，不需要网络。训练前、中途、训练后各写一段，最后与几种简单的猜法、与语料的熵相比。",
)
def demo(out: Annotated[Path | None, _out("gptcore-demo")] = None) -> None:
    """命令 `demo`"""
    from gptcore.cli.demo import run_demo

    run_demo(out or Path("gptcore-demo"), open_terminal())


@app.command(
    cls=Command,
    help="训练：在一份语料或一个文本文件上训练，并保存模型。\n\n"
    "前九成的文本用来训练，其余用来测试。默认值是教程“层归一化与 GPT”一章的。",
)
def train(
    corpus: Annotated[
        str,
        typer.Option(
            "--corpus",
            metavar="名称|文件",
            rich_help_panel=CORPUS,
            help="stories（自带）、tinyshakespeare（会下载），或 UTF-8 文本文件",
        ),
    ] = "stories",
    context_size: Annotated[int, _count("--context-size", "上下文尺寸：最多看多少个字符", 32)] = 32,
    embedding_size: Annotated[int, _count("--embedding-size", "嵌入尺寸", 64)] = 64,
    heads: Annotated[int, _count("--heads", "头数，要能整除嵌入尺寸", 2)] = 2,
    blocks: Annotated[int, _count("--blocks", "Transformer 块数", 2, maximum=10_000)] = 2,
    batch_size: Annotated[int, _count("--batch-size", "每步几个窗口", 4, panel=OPTIMIZER)] = 4,
    lr: Annotated[float, _rate("--lr", "0.001", "最高的学习率", positive=True)] = 1e-3,
    min_lr: Annotated[
        float | None, _rate("--min-lr", "0.0001", "最后的学习率（默认是最高的十分之一）")
    ] = None,
    warmup_steps: Annotated[
        int, _count("--warmup-steps", "学习率升温的步数", 100, minimum=0, panel=OPTIMIZER)
    ] = 100,
    weight_decay: Annotated[
        float, _rate("--weight-decay", "0.01", "权重衰减；偏置、归一化与嵌入不衰减")
    ] = 0.01,
    steps: Annotated[
        int | None, _count("--steps", "步数，与 --epochs 二选一", 1000, panel=OPTIMIZER)
    ] = None,
    epochs: Annotated[
        int | None, _count("--epochs", "轮数（都不给时是 2）", 2, panel=OPTIMIZER)
    ] = None,
    seed: Annotated[
        int, _count("--seed", "种子，决定初始参数", 42, minimum=0, maximum=SEED, panel=OPTIMIZER)
    ] = 42,
    threads: Annotated[int, _threads()] = 1,
    out: Annotated[Path | None, _out("gptcore-model")] = None,
) -> None:
    """命令 `train`"""
    from gptcore.cli.train import TrainSettings, run_train

    settings = TrainSettings(
        corpus=corpus,
        context_size=context_size,
        embedding_size=embedding_size,
        heads=heads,
        blocks=blocks,
        batch_size=batch_size,
        lr=lr,
        min_lr=min_lr,
        warmup_steps=warmup_steps,
        weight_decay=weight_decay,
        steps=steps,
        epochs=epochs,
        seed=seed,
        threads=threads,
    )
    run_train(settings, out or Path("gptcore-model"), open_terminal())


@app.command(cls=Command, help="生成：读一个训练好的模型，一个字一个字地往下写。")
def generate(
    folder: Annotated[Path, _folder()],
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", metavar="文字", help="接着它往下写；不给时从新的一行开始"),
    ] = None,
    length: Annotated[
        int,
        typer.Option(
            "--length",
            "--steps",
            metavar="个数",
            parser=integer("--length", 0, 10**9, 256),
            help="续写多少个字符",
        ),
    ] = 256,
    temperature: Annotated[
        float,
        typer.Option(
            "--temperature",
            metavar="数",
            parser=real("--temperature", "0.8"),
            help="温度：越小越保守，0 表示总取最可能的",
        ),
    ] = 1.0,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="整数",
            parser=integer("--seed", 0, SEED, 42),
            help="种子；不给时每次写的都不同",
        ),
    ] = None,
    threads: Annotated[int, _threads()] = 1,
) -> None:
    """命令 `generate`"""
    from gptcore.cli.generate import run_generate

    run_generate(folder, prompt, length, temperature, seed, threads)


@app.command(cls=Command, help="查看：模型的设置、参数个数、文件大小与训练记录。")
def info(
    folder: Annotated[Path, _folder()],
) -> None:
    """命令 `info`"""
    from gptcore.cli.info import run_info

    run_info(folder, open_terminal())


def run(args: Sequence[str] | None = None) -> int:
    """运行一次命令。

    Args:
        args: 参数；默认取自命令行。

    Returns:
        退出码：0 成功，2 用户的错误，130 被 Ctrl-C 中断，141 输出的管道被关闭。
    """
    prepare_streams()
    args = sys.argv[1:] if args is None else list(args)
    try:
        code = _invoke(args)
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)
        return 141
    except KeyboardInterrupt as error:
        complain("，".join(["已中断（Ctrl-C）", *getattr(error, "__notes__", [])]), prefix="")
        return 130
    except FAILURES as error:
        named = args[0] if args and args[0] in COMMANDS else ""
        complain(describe(error, named))
        return 2
    return code


def _invoke(args: list[str]) -> int:
    """解析参数，运行命令；不用 typer 的 `main`，它会改动 Ctrl-C 与管道的错误。"""
    try:
        with get_command(app).make_context("gptcore", args) as context:
            context.command.invoke(context)
    except typer.Exit as request:
        return request.exit_code
    return 0
