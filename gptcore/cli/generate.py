"""`gptcore generate`：一边生成一边显示；几条提示一起写，按次序显示"""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gptcore.cli.models import open_model
from gptcore.cli.prompts import Prompt, as_utf8, read_prompts
from gptcore.cli.streams import complain, visible
from gptcore.cli.usage import UsageError
from gptcore.data import END_OF_TEXT, Tokenizer
from gptcore.data.tokenizers import ByteLevelTokenizer
from gptcore.models import GPT, Sampler
from gptcore.models.generation import GeneratedToken
from gptcore.models.generation.checks import row_generators
from gptcore.models.generation.ids import Run
from gptcore.models.generation.text import StopStrings
from gptcore.threads import blas_threads


@dataclass(frozen=True)
class GenerateSettings:
    """怎样生成。

    Attributes:
        max_tokens: 每条至多多少个词元。
        sampler: 怎样选下一个词元。
        stop: 停止字符串。
        seed: 种子；不给时每次都不同。
        logprobs: 是否逐个写出词元与它的对数概率，而不是文字。
        threads: BLAS 的线程数；不给时由模型的大小决定。
    """

    max_tokens: int = 256
    sampler: Sampler = field(default_factory=Sampler)
    stop: tuple[str, ...] = ()
    seed: int | None = None
    logprobs: bool = False
    threads: int | None = None


def run_generate(
    folder: Path, prompts: Sequence[str] | None = None, settings: GenerateSettings | None = None
) -> None:
    """读模型，写出各条提示与续写；每个字符一生成就显示。

    Args:
        folder: 模型文件夹，一次训练，它的一个检查点，或者 Hugging Face 的 GPT-2 文件夹。
        prompts: 各条提示，`-` 是标准输入；不给时从头开始写。
        settings: 怎样生成。

    Raises:
        UsageError: 文件夹不是模型，提示或停止字符串为空，或者提示里有模型不认识的字符。
    """
    settings = settings or GenerateSettings()
    stops = [_stop_string(stop) for stop in settings.stop]
    place, model, tokenizer = open_model(folder)
    if place != folder:
        complain(f"{folder} 里的训练还没有做完，用的是最新的检查点 {place}", prefix="提醒：")
    rows = [
        _Row(prompt, tokenizer, StopStrings(stops), settings.logprobs)
        for prompt in read_prompts(prompts, tokenizer, place)
    ]
    screen = _Screen(rows, settings.logprobs)
    limit = blas_threads(settings.threads) if settings.threads else nullcontext()
    try:
        # 权重里有无穷或 NaN 时，由采样报错，不另打印警告
        with limit, np.errstate(all="ignore"):
            _generate(model, tokenizer, rows, screen, settings)
    except (KeyboardInterrupt, SystemExit):
        screen.interrupt()
        raise


def _generate(
    model: GPT,
    tokenizer: Tokenizer,
    rows: Sequence["_Row"],
    screen: "_Screen",
    settings: GenerateSettings,
) -> None:
    """一步给还没有写完的每一条选一个词元，写得出的立即显示。"""
    rng = np.random.default_rng(settings.seed)
    run = Run(
        model,
        [list(row.prompt.ids) for row in rows],
        settings.max_tokens,
        model.context_size,
        settings.sampler,
        [rng] if len(rows) == 1 else row_generators(rng, len(rows)),
        logprobs=settings.logprobs,
    )
    end = tokenizer.special_tokens.get(END_OF_TEXT)
    screen.show()
    for _ in range(settings.max_tokens):
        active = [i for i, row in enumerate(rows) if not row.done]
        if not active:
            break
        for i, token in zip(active, run.step(active), strict=True):
            if token.id == end:
                rows[i].finish()
            else:
                rows[i].take(token)
        screen.show()
    for row in rows:
        row.finish()
    screen.show()


class _Row:
    """一条文字：写到哪里了，有哪些还没有显示。"""

    def __init__(
        self, prompt: Prompt, tokenizer: Tokenizer, stops: StopStrings, logprobs: bool
    ) -> None:
        self.prompt, self.ready, self.done = prompt, "", False
        self._tokenizer, self._stops, self._logprobs = tokenizer, stops, logprobs
        self._decoder = tokenizer.incremental_decoder()

    def take(self, token: GeneratedToken) -> None:
        """收下一个词元；一个字的几个字节可能分在几个词元里，到齐了才写。

        别处的模型，词表可能补齐到 64 的倍数，多出的词元没有文字。
        """
        known = token.id < self._tokenizer.vocab_size
        text = self._stops.push(self._decoder.push(token.id) if known else "")
        self.ready += self._line(token) if self._logprobs else text
        if self._stops.stopped:
            self.finish()

    def finish(self) -> None:
        """写完了；末尾残缺的字节、可能是停止字符串开头的文字，也在这时写出。"""
        if not self.done:
            self.done = True
            rest = self._stops.push(self._decoder.flush()) + self._stops.flush()
            self.ready += "" if self._logprobs else rest

    def _line(self, token: GeneratedToken) -> str:
        return f"{token.logprob:9.4f} {token.id:6d}  {_shown(self._tokenizer, token.id)}\n"


class _Screen:
    """按次序显示各条文字：前一条写完了，才显示后一条已经写好的。"""

    def __init__(self, rows: Sequence[_Row], logprobs: bool) -> None:
        self._rows, self._logprobs = rows, logprobs
        self._at = 0
        self._opened = False
        self._inside = False
        self._terminal = sys.stdout.isatty()

    def show(self) -> None:
        """显示到现在为止写得出的。"""
        text = ""
        while self._at < len(self._rows):
            row = self._rows[self._at]
            if not self._opened:
                self._opened = True
                text += self._title() + ("" if self._logprobs else row.prompt.text)
            text, row.ready = text + row.ready, ""
            if not row.done:
                break
            text += "" if self._logprobs else "\n"
            self._at, self._opened = self._at + 1, False
        if text:
            self._inside = not text.endswith("\n")
            # 显示在终端上的，控制字符写成转义；写进文件与管道的不变
            sys.stdout.write(visible(text) if self._terminal else text)
            sys.stdout.flush()

    def interrupt(self) -> None:
        """中断在一行的中间：在终端上另起一行，消息不接在文字后面。"""
        if self._terminal and self._inside:
            sys.stdout.write("\n")

    def _title(self) -> str:
        """有几条时，每一条的上面写它是第几条，以及提示。"""
        if len(self._rows) == 1:
            return ""
        gap = "\n" if self._at else ""
        prompt = f" {self._rows[self._at].prompt.text!r}" if self._logprobs else ""
        return f"{gap}[{self._at + 1}/{len(self._rows)}]{prompt}\n"


def _shown(tokenizer: Tokenizer, i: int) -> str:
    """一个词元，加上引号；不是完整的字符时写出字节，没有文字时是空的。"""
    if i >= tokenizer.vocab_size:
        return repr("")
    if isinstance(tokenizer, ByteLevelTokenizer):
        content = tokenizer.decode_bytes([i])
        try:
            return repr(content.decode())
        except UnicodeDecodeError:
            return repr(content)
    return repr(tokenizer.decode([i]))


def _stop_string(given: str) -> str:
    r"""停止字符串；命令行上不便写换行，所以 `\n`、`\t` 与 `\\` 是转义。"""
    text = as_utf8(given)
    if not text:
        raise UsageError("--stop 是空的；请至少给一个字符，不需要时去掉 --stop")
    parts = text.split("\\\\")
    return "\\".join(part.replace("\\n", "\n").replace("\\t", "\t") for part in parts)
