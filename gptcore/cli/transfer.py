"""`gptcore export` 与 `gptcore import`：与 Hugging Face 互换模型"""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from gptcore.cli.folders import OutputFolder, find_model, is_model_folder, next_command
from gptcore.cli.settings import FORMATS
from gptcore.cli.terminal import Terminal
from gptcore.cli.usage import UsageError
from gptcore.data import CharTokenizer, Tokenizer
from gptcore.errors import DataError
from gptcore.models import GPT, load_model
from gptcore.models.huggingface import download_pretrained, load_pretrained, save_pretrained
from gptcore.models.huggingface.remote import Progress
from gptcore.models.storage import is_pretrained
from gptcore.serialization import MANIFEST
from gptcore.training.environment import environment


class PretrainedOutput(OutputFolder):
    """导出到哪里：空文件夹，或者以前导出的；别的不覆盖。"""

    def _accepts(self) -> bool:
        if self.replaces:
            raise UsageError(
                f"{self.option}：{self.folder} 是 gptcore 自己的模型文件夹，导出会换掉里面的文件；"
                f"请用 {self.option} 换一个新的或空的文件夹"
            )
        self.replaces = is_pretrained(self.folder) and (self.folder / MANIFEST).is_file()
        return super()._accepts()

    def export(self, model: GPT, tokenizer: Tokenizer) -> None:
        """存成 Hugging Face 的文件夹。"""
        self._saving = True
        save_pretrained(model, self.folder, tokenizer)


class ImportedOutput(OutputFolder):
    """导入到哪里：空文件夹，或者 gptcore 自己的模型文件夹。"""

    def _accepts(self) -> bool:
        if is_pretrained(self.folder):
            raise UsageError(
                f"{self.option}：{self.folder} 是 Hugging Face 格式的模型文件夹，导入会换掉里面的文件；"
                f"请用 {self.option} 换一个新的或空的文件夹"
            )
        return super()._accepts()


def run_export(folder: Path, out: Path, to: str, terminal: Terminal) -> None:
    """把模型与分词器导出成 transformers 能读的文件夹。

    Args:
        folder: 模型文件夹，一次训练，或者它的一个检查点。
        out: 导出到哪个文件夹。
        to: 格式，只有 `"hf"`。
        terminal: 终端。

    Raises:
        UsageError: 格式不认识，不是模型，`out` 不能写，或者模型的结构不是 GPT-2 的。
        DataError: 文件损坏，或者分词器写不成这个格式。
    """
    if to not in FORMATS:
        raise UsageError(f"--to 得到 {to!r}，它只能是 {'、'.join(FORMATS)}；请写 --to hf")
    place = find_model(folder)
    model, tokenizer = load_model(place)
    with PretrainedOutput(out) as output:
        try:
            output.export(model, tokenizer)
        except DataError as error:
            if model.config["head_bias"]:
                raise UsageError(
                    f"{place} 的输出头有偏置（head_bias），GPT-2 没有，不能导出；"
                    "请用 gptcore train 训练的模型，它的输出头没有偏置"
                ) from error
            raise
    terminal.say(f"导出到 {out}：{_describe(model, tokenizer)}")
    if isinstance(tokenizer, CharTokenizer):
        terminal.say("分词器是字符的，遇到词表里没有的字符，transformers 与这里一样会报错")
    terminal.say("在装有 transformers 的 Python 里读入：")
    terminal.command("from transformers import AutoModelForCausalLM, AutoTokenizer")
    terminal.command(f"model = AutoModelForCausalLM.from_pretrained({str(out)!r})")
    terminal.command(f"tokenizer = AutoTokenizer.from_pretrained({str(out)!r})")


def run_import(source: str, out: Path, dropout: float | None, terminal: Terminal) -> None:
    """把 Hugging Face 的 GPT-2 存成 gptcore 的模型文件夹；不是本机的文件夹时，按名字下载。

    Args:
        source: 本机的文件夹，或者 Hugging Face 上的名字，例如 `gpt2`。
        out: 存进哪个文件夹。
        dropout: 随机失活的概率，以后接着训练时用；不给时用文件里的。
        terminal: 终端。

    Raises:
        UsageError: 没有这个文件夹，或者 `out` 不能写。
        DataError: 不是 GPT-2，文件损坏，没有分词器，或者下载不成。
    """
    with ImportedOutput(out) as output:
        folder = _find_source(source, terminal)
        if is_model_folder(folder):
            raise UsageError(
                f"{folder} 已经是 gptcore 的模型文件夹，不必导入；"
                f"接着写：{next_command(folder, '')}"
            )
        try:
            model, tokenizer = load_pretrained(folder, dropout=dropout)
        except DataError as error:
            raise DataError(str(error).replace("dropout=0.0", "--dropout 0")) from error
        if tokenizer.vocab_size != model.vocab_size:
            raise UsageError(
                f"{folder}：分词器有 {tokenizer.vocab_size:,} 个词元，模型有 {model.vocab_size:,} 个，"
                "多出的没有对应的文字，gptcore 的模型文件夹里两者要相同；"
                "请在 Python 里用 gptcore.load_pretrained 直接读入"
            )
        # 记录会和模型一起分享，所以不写完整的路径
        name = folder.resolve().name if folder == Path(source) else source
        record = {"command": "import", "settings": {"source": name}, "environment": environment()}
        output.save(model, tokenizer, record)
    terminal.say(f"读入 {source}：{_describe(model, tokenizer)}")
    terminal.say(f"模型存在 {out}，接着写：")
    terminal.command(next_command(out, "") + _prompt(tokenizer))


def _find_source(source: str, terminal: Terminal) -> Path:
    """本机的文件夹；没有时当作名字，下载。"""
    folder = Path(source)
    if folder.exists():
        return folder
    if source.startswith((".", "~", "/", "\\")) or source.count("/") > 1 or "\\" in source:
        raise UsageError(
            f"没有文件夹 {source}；请给出 Hugging Face 的模型文件夹，或者网上的名字，例如 gpt2"
        )
    terminal.say(f"本机没有文件夹 {source}，按名字从网上下载")
    terminal.console.file.flush()
    with _progress(terminal) as progress:
        return download_pretrained(source, progress=progress)


@contextmanager
def _progress(terminal: Terminal) -> Generator[Progress]:
    """下载的进度：终端上原地刷新，别处一个文件一行。"""
    if not terminal.live:
        seen: set[str] = set()

        def report(name: str, have: int, total: int | None) -> None:  # noqa: ARG001
            if name not in seen:
                seen.add(name)
                size = "" if total is None else f"（{total / 2**20:,.1f} MiB）"
                terminal.say(f"下载 {name}{size}")
                terminal.console.file.flush()

        yield report
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(True))
    with Progress(*columns, TransferSpeedColumn(), console=terminal.console) as bars:
        tasks: dict[str, int] = {}

        def advance(name: str, have: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=have)  # pyright: ignore[reportArgumentType]

        yield advance


def _describe(model: GPT, tokenizer: Tokenizer) -> str:
    config = model.config
    return (
        f"{model.num_parameters:,} 个参数，{config['blocks']} 块，嵌入尺寸 {config['embedding_size']}，"
        f"上下文尺寸 {config['context_size']}，词表 {tokenizer.vocab_size:,}"
    )


def _prompt(tokenizer: Tokenizer) -> str:
    """一个提示，分词器认得的；没有时是空的。"""
    for text in ("Hello", "你好"):
        with suppress(DataError):
            tokenizer.encode(text)
            return f" --prompt {text}"
    return ""
