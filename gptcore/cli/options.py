"""各命令的选项：名字、怎样解析、说明，分成几栏"""

from pathlib import Path
from typing import Annotated, Any

import typer

from gptcore.cli.settings import CHOICES, FORMATS
from gptcore.cli.usage import choice, integer, path, real

SEED = 10**18
"""种子的上限"""

CORPUS, MODEL, OPTIMIZER, COURSE, SAVING = "语料", "模型", "优化", "过程", "评估与保存"
TEXT, SAMPLING = "文字", "采样"


def out(default: str) -> Any:
    """`--out`：模型存在哪里。"""
    return typer.Option(
        "--out",
        metavar="文件夹",
        parser=path("--out", default),
        rich_help_panel=SAVING,
        help=f"存在哪里；里面有别的文件时不覆盖（默认 {default}）",
    )


def _option(option: str, parser: Any, metavar: str, help_text: str, panel: str | None) -> Any:
    return typer.Option(
        option, metavar=metavar, parser=parser, help=help_text, rich_help_panel=panel
    )


def _count(
    option: str,
    help_text: str,
    example: int,
    panel: str | None,
    *,
    minimum: int = 1,
    maximum: int = 10**9,
) -> Any:
    return _option(option, integer(option, minimum, maximum, example), "个数", help_text, panel)


def _rate(
    option: str, help_text: str, example: str, panel: str | None = OPTIMIZER, **limits: Any
) -> Any:
    return _option(option, real(option, example, **limits), "数", help_text, panel)


def _choice(name: str, help_text: str, panel: str) -> Any:
    option, known = f"--{name}", CHOICES[name]
    return _option(option, choice(option, known), "种类", help_text, panel)


def _flag(option: str, help_text: str, panel: str) -> Any:
    return typer.Option(option, help=help_text, rich_help_panel=panel)


Folder = Annotated[
    Path,
    typer.Argument(
        metavar="文件夹",
        parser=path("文件夹", "gptcore-demo"),
        help="模型文件夹，训练的文件夹，它的一个检查点，或者 Hugging Face 的 GPT-2 文件夹",
    ),
]
OwnFolder = Annotated[
    Path,
    typer.Argument(
        metavar="文件夹",
        parser=path("文件夹", "gptcore-demo"),
        help="模型文件夹，训练的文件夹，或者它的一个检查点",
    ),
]

# ---------------------------------------------------------------- train

Corpus = Annotated[
    list[str],
    typer.Option(
        "--corpus",
        metavar="名称|文件",
        rich_help_panel=CORPUS,
        help="stories（自带）、tinyshakespeare（会下载），或 UTF-8 文本文件，可以给几次；"
        "或 gptcore tokenize 写成的词元文件",
    ),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        metavar="种类|路径",
        rich_help_panel=CORPUS,
        help="分词器：char、bytes，bpe（由训练部分学出），或存好的，"
        "例如别的模型的文件夹、tokenizer.json（默认 char）",
    ),
]
VocabSize = Annotated[
    int | None,
    _count(
        "--vocab-size", "BPE 的词表大小（默认 1000，文字少的更小）", 2000, CORPUS, maximum=10**6
    ),
]
Texts = Annotated[
    list[str],
    typer.Argument(metavar="文本…", help="语料的名称，或 UTF-8 文本文件，可以有几个"),
]
TokenizeTokenizer = Annotated[
    str,
    typer.Option(
        "--tokenizer",
        metavar="种类|路径",
        help="分词器：char、bytes，bpe（由全部文本学出），或存好的，"
        "例如别的模型的文件夹、tokenizer.json",
    ),
]
TokenizeVocabSize = Annotated[
    int | None,
    _count("--vocab-size", "BPE 的词表大小（默认 1000）", 2000, None, maximum=10**6),
]
SplitDocuments = Annotated[
    bool,
    typer.Option(
        "--split-documents", help="文本里的 <|endoftext|> 算作文本结束词元；默认只是普通的文字"
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="文件",
        parser=path("--out", "tokens.npy"),
        help="写到哪个文件；已有的词元文件会被替换（默认 tokens.npy）",
    ),
]
ContextSize = Annotated[int, _count("--context-size", "上下文尺寸：最多看多少个词元", 32, MODEL)]
EmbeddingSize = Annotated[int, _count("--embedding-size", "嵌入尺寸", 64, MODEL)]
Heads = Annotated[int, _count("--heads", "头数，要能整除嵌入尺寸", 2, MODEL)]
Blocks = Annotated[int, _count("--blocks", "Transformer 块数", 2, MODEL, maximum=10_000)]
DropoutRate = Annotated[
    float, _rate("--dropout", "随机失活的概率；数据少、轮数多时用", "0.1", MODEL, below=1.0)
]
Norm = Annotated[str, _choice("norm", "归一化：layer、rms，或者没有，即 none", MODEL)]
PostNorm = Annotated[bool, _flag("--post-norm", "相加之后归一化；默认在每个分支的入口", MODEL)]
Tied = Annotated[bool, _flag("--tied", "输出头与词元嵌入共用一个矩阵", MODEL)]
NoBias = Annotated[bool, _flag("--no-bias", "线性层与归一化没有偏置", MODEL)]
Init = Annotated[str, _choice("init", "初始化：he 或 gpt2，后者开始的损失接近均匀地猜", MODEL)]

BatchSize = Annotated[int, _count("--batch-size", "每批几个窗口", 4, OPTIMIZER)]
Accumulate = Annotated[
    int, _count("--accumulate", "几批更新一次，相当于大几倍的批，不多占内存", 4, OPTIMIZER)
]
Rate = Annotated[float, _rate("--lr", "最高的学习率", "0.001", positive=True)]
MinRate = Annotated[
    float | None, _rate("--min-lr", "最后的学习率（默认是最高的十分之一）", "0.0001")
]
Schedule = Annotated[
    str, _choice("schedule", "升温之后的学习率：cosine、linear，或不变的 constant", OPTIMIZER)
]
WarmupSteps = Annotated[
    int, _count("--warmup-steps", "学习率升温的步数", 100, OPTIMIZER, minimum=0)
]
WeightDecay = Annotated[
    float, _rate("--weight-decay", "权重衰减；偏置、归一化与嵌入不衰减", "0.01")
]
Beta2 = Annotated[
    float, _rate("--beta2", "AdamW 的第二个衰减率；批小时常用 0.99", "0.99", below=1.0)
]
Clip = Annotated[float, _rate("--clip", "梯度范数的上限，0 表示不裁剪", "1.0")]

Steps = Annotated[int | None, _count("--steps", "总步数，与 --epochs 二选一", 1000, COURSE)]
Epochs = Annotated[int | None, _count("--epochs", "轮数（都不给时是 2）", 2, COURSE)]
Shuffle = Annotated[
    bool,
    _flag("--shuffle/--no-shuffle", "每一轮打乱窗口的次序（默认打乱）", COURSE),
]
Distributed = Annotated[
    bool,
    _flag(
        "--distributed",
        "几个进程一起训练，各算一批：mpiexec -n 2 gptcore train --distributed",
        COURSE,
    ),
]
SkipNonfinite = Annotated[
    int,
    _count(
        "--skip-nonfinite", "至多跳过几个出现 NaN 或无穷的步，再多就停下", 10, COURSE, minimum=0
    ),
]
Seed = Annotated[
    int,
    _count(
        "--seed", "种子，决定初始参数、随机失活与打乱的次序", 42, COURSE, minimum=0, maximum=SEED
    ),
]
TrainThreads = Annotated[
    int, _count("--threads", "BLAS 的线程数；小模型用 1 个往往最快", 1, COURSE, maximum=1024)
]

EvalEvery = Annotated[
    int, _count("--eval-every", "每隔多少步评估一次，总用同样的一部分测试文本", 500, SAVING)
]
Patience = Annotated[
    int | None, _count("--patience", "连续几次评估没有进步就停（默认不提前停）", 5, SAVING)
]
SaveEvery = Annotated[int, _count("--save-every", "每隔多少步存一个检查点", 500, SAVING)]
Keep = Annotated[int, _count("--keep", "留最近几个检查点", 3, SAVING)]
Resume = Annotated[
    bool, _flag("--resume", "接着做完文件夹里中断的训练，设置照旧，不必再写", SAVING)
]
Restart = Annotated[bool, _flag("--restart", "从头再来，删去文件夹里原来的检查点", SAVING)]

# ---------------------------------------------------------------- generate、eval、plot

Prompt = Annotated[
    list[str] | None,
    typer.Option(
        "--prompt",
        metavar="文字",
        rich_help_panel=TEXT,
        help="接着它往下写；- 是从标准输入读；给几次就写几条；不给时从头开始",
    ),
]
MaxTokens = Annotated[
    int,
    typer.Option(
        "--max-tokens",
        "--length",
        "--steps",
        metavar="个数",
        parser=integer("--max-tokens", 0, 10**9, 256, "--length"),
        rich_help_panel=TEXT,
        help="至多续写多少个词元",
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        "--stop",
        metavar="文字",
        rich_help_panel=TEXT,
        help="写到它就停下，它自己不写；可以给几次，\\n 是换行",
    ),
]
Logprobs = Annotated[
    bool, _flag("--logprobs", "不写文字，一行一个词元：对数概率、编号、词元", TEXT)
]
Temperature = Annotated[
    float, _rate("--temperature", "温度：越小越保守，0 表示总取最可能的", "0.8", SAMPLING)
]
TopK = Annotated[
    int, _count("--top-k", "只在最可能的几个里选，0 就是不限制", 40, SAMPLING, minimum=0)
]
TopP = Annotated[
    float,
    _rate(
        "--top-p",
        "只在概率之和达到它的最可能的几个里选，1 就是不限制",
        "0.9",
        SAMPLING,
        positive=True,
        at_most=1,
    ),
]
MinP = Annotated[
    float,
    _rate("--min-p", "去掉概率不到最大概率这么多倍的，0 就是不限制", "0.05", SAMPLING, at_most=1),
]
RepetitionPenalty = Annotated[
    float,
    _rate(
        "--repetition-penalty",
        "重复惩罚：大于 1 时，写过的不容易再写，1 就是没有",
        "1.1",
        SAMPLING,
        positive=True,
    ),
]
SampleSeed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="整数",
        parser=integer("--seed", 0, SEED, 42),
        rich_help_panel=SAMPLING,
        help="种子；不给时每次写的都不同",
    ),
]
GenerateThreads = Annotated[
    int | None,
    _count("--threads", "BLAS 的线程数；不给时由模型的大小决定", 1, None, maximum=1024),
]
EvalCorpus = Annotated[
    list[str] | None,
    typer.Option(
        "--corpus",
        metavar="名称|文件",
        help="评估别的文本（可以给几次）或词元文件，整份都算；不给时是训练时留作测试的部分",
    ),
]
EvalThreads = Annotated[
    int | None,
    _count("--threads", "BLAS 的线程数；不给时与训练时相同", 1, None, maximum=1024),
]
RunFolder = Annotated[
    Path,
    typer.Argument(
        metavar="文件夹",
        parser=path("文件夹", "gptcore-model"),
        help="训练的文件夹，或者里面的 metrics.jsonl",
    ),
]
Picture = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="文件",
        parser=path("--out", "metrics.svg"),
        help="图存成什么，.png 或 .svg；不给时是文件夹里的 metrics.png",
    ),
]

# ---------------------------------------------------------------- export、import

ExportTo = Annotated[
    str,
    _option("--to", choice("--to", FORMATS), "格式", "导出成什么格式：hf 是 transformers 的", None),
]
Source = Annotated[
    str,
    typer.Argument(metavar="来源", help="本机的 Hugging Face 文件夹，或者网上的名字，例如 gpt2"),
]
ImportDropout = Annotated[
    float | None,
    _rate(
        "--dropout",
        "随机失活的概率，以后接着训练时用；不给时用文件里的",
        "0.1",
        None,
        below=1.0,
    ),
]


def transfer_out(default: str) -> Any:
    """`--out`：导出、导入到哪里。"""
    return typer.Option(
        "--out",
        metavar="文件夹",
        parser=path("--out", default),
        help=f"存在哪里；里面有别的文件时不覆盖（默认 {default}）",
    )
