"""模型文件夹：写之前检查，读的时候说清楚哪里不对"""

import os
import shlex
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, cast

from gptcore.cli.usage import UsageError
from gptcore.data import Tokenizer
from gptcore.errors import DataError, system_reason
from gptcore.models import GPT, save_model
from gptcore.models.storage import is_pretrained
from gptcore.serialization import MANIFEST, is_leftover, load_folder, parse_json
from gptcore.training.checkpoints import find_checkpoints, is_checkpoint

RECORD = "training.json"
"""训练的设置与结果，和模型放在一起；没有它模型也读得出来"""
RUN, METRICS, CHECKPOINTS = "run.json", "metrics.jsonl", "checkpoints"
"""`gptcore train` 的文件夹里，模型之外的东西：开始时的设置，每一步的记录，检查点"""


class OutputFolder:
    """训练的结果存在哪里：`with` 开始时检查，训练完用 `save` 保存。

    只有空文件夹和 gptcore 自己写的模型文件夹可以写，别的东西不覆盖。不存在的文件夹会建立；
    没有保存成，就不留下空的。

    Args:
        folder: 文件夹。
        option: 选项名，写进消息。

    Attributes:
        replaces: 里面是否已有模型，保存时会被替换。

    Raises:
        UsageError: 进入 `with` 时，它是文件，装着别的东西，或者不可写。
    """

    def __init__(self, folder: Path, option: str = "--out") -> None:
        self.folder, self.option = folder, option
        self.replaces = False
        self._created: list[Path] = []
        self._saving = False

    def __enter__(self) -> Self:
        try:
            self._prepare()
        except OSError as error:
            self._remove_empty()
            raise UsageError(
                f"{self.option}：不能写入文件夹 {self.folder}（{system_reason(error)}）；"
                f"请用 {self.option} 换一个可写的位置"
            ) from error
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._remove_empty()
        if isinstance(error, KeyboardInterrupt | SystemExit):
            error.__notes__ = [self._interrupted()]  # 库附记的是 Python 里怎样接着训练

    def _interrupted(self) -> str:
        """被中断时，说明存下了什么。"""
        old = self.replaces
        if self._saving:
            complete = "原来的模型，或者完整的新模型" if old else "完整的模型，或者什么也没有"
            return f"正在保存：{self.folder} 里是{complete}"
        return "没有保存模型" + ("，原来的模型没有改动" if old else "")

    def save(self, model: GPT, tokenizer: Tokenizer, record: dict[str, Any]) -> None:
        """保存模型、分词器和训练记录，作为一个整体。

        Args:
            model: 模型。
            tokenizer: 分词器。
            record: 训练的设置与结果。
        """
        self._saving = True
        save_model(self.folder, model, tokenizer, {RECORD: record})

    def _prepare(self) -> None:
        folder = self.folder
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{self.option}：{folder} 是一个文件；请换一个文件夹的名字")
        self._created = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        self.replaces = is_model_folder(folder)
        self._require_ours()
        with tempfile.TemporaryFile(dir=folder):
            pass

    def _require_ours(self) -> None:
        folder = self.folder
        run = run_around(folder)
        if run and not (run / RUN).exists():
            raise UsageError(f"{self.option}：{folder} 是一个检查点，不能当作输出；请换一个文件夹")
        if run:
            raise UsageError(
                f"{self.option}：{folder} 是 {run} 这次训练的一个检查点，不能当作输出；请给出 {run}，或换一个文件夹"
            )
        if not self._accepts():
            raise UsageError(
                f"{self.option}：{folder} 里有别的文件，又不是 gptcore 的模型文件夹，不会覆盖它；"
                f"请用 {self.option} 换一个新的或空的文件夹"
            )

    def _accepts(self) -> bool:
        """可以写的：空的，或者只有一个模型的；里面有一次训练时不能只换掉模型。"""
        if (self.folder / RUN).exists():
            raise UsageError(
                f"{self.option}：{self.folder} 里是 gptcore train 的一次训练，不会覆盖它；"
                f"请用 {self.option} 换一个文件夹"
            )
        return self.replaces or all(is_leftover(path) for path in self.folder.iterdir())

    def _remove_empty(self) -> None:
        """删去我们建立的空文件夹；不空的删不掉。"""
        for path in self._created:
            with suppress(OSError):
                path.rmdir()


def is_model_folder(folder: Path) -> bool:
    """是不是 `save_model` 写成的文件夹；别的程序也有叫 `manifest.json` 的文件，`gptcore export` 写的不算。"""
    try:
        load_folder(folder, ())
    except DataError:
        return False
    return (folder / MANIFEST).is_file() and not is_pretrained(folder)


def read_record(folder: Path) -> dict[str, Any]:
    """读训练记录；没有或读不出来时是空的。"""
    try:
        record: Any = parse_json(load_folder(folder, [RECORD])[RECORD], RECORD)
    except DataError:
        return {}
    return cast("dict[str, Any]", record) if isinstance(record, dict) else {}


def run_around(folder: Path) -> Path | None:
    """它是哪一次训练的检查点（包括 `best`）；不是检查点时是 `None`。

    单独的检查点（由库写成，或者搬到了别处）返回它所在的文件夹。
    """
    if not is_model_folder(folder):
        return None
    inside = folder.resolve().parent
    if inside.name == CHECKPOINTS and (inside.parent / RUN).is_file():
        near = folder.parent.parent  # 用户写的是相对路径，就照样说相对的
        return near if near.resolve() == inside.parent else inside.parent
    return folder.parent if is_checkpoint(folder) else None


def find_model(folder: Path) -> Path:
    """模型在哪里：文件夹自己；训练还没有做完、没有模型时，是最新的检查点。"""
    if (folder / MANIFEST).is_file() or not (folder / RUN).is_file():
        return folder
    found = find_checkpoints(folder / CHECKPOINTS)
    if not found:
        raise UsageError(
            f"{folder} 里的训练还没有存过检查点，没有模型可用；"
            f"接着训练：{train_command(folder, '--resume')}"
        )
    return found[-1]


def train_command(folder: Path, *options: str) -> str:
    """再训练一次的命令，可以照抄。"""
    return " ".join(["gptcore train --out", _argument(folder), *options])


def next_command(folder: Path, text: str) -> str:
    """从训练好的模型接着写的命令，可以照抄到命令行上运行。

    Args:
        folder: 模型文件夹。
        text: 模型认得的一段文字；提示取自其中，是第一篇的开头两个字。

    Returns:
        命令。
    """
    command = f"gptcore generate {_argument(folder)}"
    lines = [line.strip() for line in text.split("\n")]
    starts = [line[:2] for line in lines if len(line) > 1] or [line for line in lines if line]
    if not starts:
        return command
    return command + ("=" if starts[0].startswith("-") else " ").join(
        (" --prompt", quoted(starts[0]))
    )


def _argument(folder: Path) -> str:
    name = str(folder)
    return quoted("./" + name if name.startswith("-") else name)


def quoted(text: str) -> str:
    """命令里的一个词，需要时加引号；控制字符与解不出的字节写成转义。"""
    if text.isalnum():
        return text
    if os.name == "nt":
        return subprocess.list2cmdline([text])
    if text.isprintable():
        return shlex.quote(text)
    plain = (chr(b) if 32 <= b < 127 and b not in b"'\\" else f"\\x{b:02x}" for b in _bytes(text))
    return f"$'{''.join(plain)}'"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
