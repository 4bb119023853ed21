"""读入模型：gptcore 的模型文件夹、训练与检查点，或者 Hugging Face 的 GPT-2 文件夹"""

from pathlib import Path

from gptcore.cli.folders import find_model
from gptcore.data import Tokenizer
from gptcore.models import GPT, load_model, load_pretrained
from gptcore.models.storage import is_pretrained


def open_model(folder: Path) -> tuple[Path, GPT, Tokenizer]:
    """读入模型与分词器。

    Args:
        folder: 模型文件夹，一次训练，它的一个检查点，或者 Hugging Face 的 GPT-2 文件夹。

    Returns:
        模型实际在哪里（没有做完的训练，是最新的检查点），模型，与分词器。

    Raises:
        UsageError: 训练还没有存过检查点。
        DataError: 不是模型文件夹，或者文件损坏。
    """
    place = find_model(folder)
    load = load_pretrained if is_pretrained(place) else load_model
    return place, *load(place)
