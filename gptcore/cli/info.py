"""`gptcore info`：模型文件夹里有什么"""

import time
from pathlib import Path
from typing import Any, cast

from rich.table import Table

from gptcore.cli.folders import CHECKPOINTS, RECORD, read_record, run_around
from gptcore.cli.models import open_model
from gptcore.cli.runs import find_run, read_state
from gptcore.cli.streams import visible
from gptcore.cli.terminal import Terminal
from gptcore.data import Tokenizer
from gptcore.layers import Layer
from gptcore.models import GPT
from gptcore.serialization import MANIFEST
from gptcore.training.checkpoints import MOMENTS, STATE, find_checkpoints, is_checkpoint

LABELS = {
    "vocab_size": "词表大小",
    "context_size": "上下文尺寸",
    "embedding_size": "嵌入尺寸",
    "heads": "头数",
    "blocks": "块数",
    "head_bias": "输出头有偏置",
    "tied": "输出头与嵌入共用权重",
    "bias": "线性层与归一化有偏置",
    "dropout": "随机失活的概率",
    "norm": "归一化",
    "norm_position": "归一化的位置",
    "norm_eps": "归一化的 ε",
    "init": "初始化",
    "corpus": "语料",
    "source": "导入自",
    "batch_size": "批大小",
    "accumulate": "几批更新一次",
    "steps": "步数",
    "stopped": "提前停止",
    "lr": "最高的学习率",
    "schedule": "学习率调度",
    "weight_decay": "权重衰减",
    "clip": "梯度范数的上限",
    "shuffle": "打乱",
    "seed": "种子",
    "threads": "BLAS 线程数",
    "loss": "留出文本上的损失（奈特/字符）",
    "entropy": "同一段文本的熵（奈特/字符）",
    "test_loss": "测试损失（奈特/字符）",
    "seconds": "训练秒数",
}

KINDS = {"char": "字符（char）", "byte": "字节（bytes）", "bpe": "字节级 BPE（bpe）"}


def run_info(folder: Path, terminal: Terminal) -> None:
    """写出设置、参数的个数、文件的大小与训练记录。

    Args:
        folder: 模型文件夹，一次训练，或者它的一个检查点。
        terminal: 终端。

    Raises:
        UsageError: 不是模型文件夹。
        DataError: 文件损坏。
    """
    place, model, tokenizer = open_model(folder)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    _section(table, "模型", {LABELS.get(k, k): _shown(v) for k, v in model.config.items()})
    _section(table, "参数", {name: f"{n:,}" for name, n in _parameters(model).items()})
    files = ("model.safetensors", "config.json", "tokenizer.json", RECORD, MOMENTS, STATE)
    sizes = {n: _size((place / n).stat().st_size) for n in files if (place / n).is_file()}
    _section(table, "文件", sizes)
    _section(table, "分词器", _tokenizer(tokenizer))
    for title, rows in (
        ("训练", _history(place, model.config)),
        ("训练到哪里", _progress(folder, place)),
    ):
        if rows:
            _section(table, title, rows)
    terminal.say(f"{place}")
    if place != folder:
        terminal.say(f"{folder} 里的训练还没有做完，这是最新的检查点")
    terminal.say(table)


def _tokenizer(tokenizer: Tokenizer) -> dict[str, str]:
    """种类、词表与特殊词元。"""
    special = "、".join(f"{name} = {i}" for name, i in tokenizer.special_tokens.items())
    return {
        "种类": KINDS.get(tokenizer.kind, tokenizer.kind),
        "词元": f"{tokenizer.vocab_size:,}",
        "特殊词元": special or "无",
    }


def _parameters(model: GPT) -> dict[str, int]:
    def count(*layers: Layer) -> int:
        return sum(layer.num_parameters for layer in layers)

    return {
        "嵌入": count(model.embedding),
        "Transformer 块": count(*model.transformers),
        "输出头": count(model.output),
        "合计": count(model),
    }


def _history(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """训练的设置与结果里认得的几项；没有记录，或被人改过，就少写几行。"""
    record = read_record(folder)
    run = find_run(folder)
    items: dict[str, Any] = run.settings.to_dict() | {"steps": run.steps} if run else {}
    for part in ("settings", "result"):
        value = record.get(part)
        if isinstance(value, dict):
            items.update(cast("dict[str, Any]", value))
    if not items:
        return {}
    saved = (folder / MANIFEST).stat().st_mtime
    unit = str(items.pop("unit", "字符"))
    shown = {
        label.replace("字符", unit) if key == "test_loss" else label: _shown(items[key])
        for key, label in LABELS.items()
        if items.get(key) is not None and key not in config
    }
    return {**shown, "保存于": time.strftime("%Y-%m-%d %H:%M", time.localtime(saved))}


def _progress(folder: Path, place: Path) -> dict[str, str]:
    """一次训练（或一个检查点）走到哪里：步数、评估；不是训练的文件夹时是空的。"""
    run, around = find_run(folder), run_around(place)
    found = find_checkpoints((around or folder) / CHECKPOINTS)
    checkpoint = place if is_checkpoint(place) else (found or [None])[-1]
    if checkpoint is None:
        return {}
    state = read_state(checkpoint)
    rows = {
        "做完的步数": f"{state.step:,}" + (f" / {run.steps:,}" if run else ""),
        "完整的轮数": f"{state.epoch:,}",
        "跳过的步": f"{state.skipped:,}",
        "评估的次数": f"{len(state.evaluations):,}",
    }
    if state.best:
        rows["最近一次评估"] = "第 {:,} 步，{:.4f}".format(*state.evaluations[-1])
        rows["最低的一次"] = "第 {:,} 步，{:.4f}".format(*state.best)
    for path in () if run_around(folder) else found:
        rows[path.name] = _size(sum(p.stat().st_size for p in path.iterdir()))
    return rows


def _section(table: Table, title: str, rows: dict[str, str]) -> None:
    table.add_row()
    table.add_row(title, style="bold")
    for name, value in rows.items():
        table.add_row("  " + visible(name), visible(value))


def _shown(value: Any) -> str:
    if value is None:
        return "无"
    if isinstance(value, bool):
        return "是" if value else "否"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return "、".join(map(str, cast("list[Any]", value)))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 1024:.1f} KiB"
