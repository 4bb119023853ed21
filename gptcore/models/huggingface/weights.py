"""参数：单个文件或几个分片，核对名字与形状，映射或读进模型"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn, Self, cast

import numpy as np

from gptcore.errors import DataError
from gptcore.kernels.array import Array
from gptcore.models.gpt import GPT
from gptcore.models.huggingface.names import BUFFER, HEAD, PREFIX, TOKENS, Pair, pairs
from gptcore.serialization import ArrayFile, is_plain_name, parse_json, read_bytes
from gptcore.serialization.arrays import Entry

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack")
KINDS = ("F32", "F16", "BF16", "F64")
INDEX_LIMIT = 8 << 20
SHARDS = 1000
"""最多几个分片：每个都要打开着"""
LISTED = 20
"""错误消息里最多列出几处"""


class Weights:
    """一个文件夹里的全部参数，文件头都已核对，数值还没有读。用 `with` 打开。

    Args:
        folder: 文件夹，里面有 `model.safetensors`，或者索引 `model.safetensors.index.json` 与它说的各个分片。

    Attributes:
        places: 名字（没有开头的 `transformer.`），与它在哪个文件里、在那里叫什么。

    Raises:
        DataError: 没有参数的文件，文件损坏，或者分片与索引对不上。
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.places: dict[str, tuple[ArrayFile, str]] = {}
        with ExitStack() as stack:
            for file, names in _files(folder, stack):
                for name in names:
                    self._add(file, name)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _add(self, file: ArrayFile, name: str) -> None:
        short = name.removeprefix(PREFIX)
        if BUFFER.fullmatch(short):
            return
        if short in self.places:
            first, again = self.places[short][1], name
            raise DataError(
                f"{self.folder} 里有两个 {short[:200]}，名字是 {first[:200]!r} 与 {again[:200]!r}；请只留一个"
            )
        self.places[short] = file, name

    def entry(self, name: str) -> Entry:
        """一个数组的类型、形状与位置。"""
        file, stored = self.places[name]
        return file.entries[stored]

    def same(self, one: str, other: str) -> bool:
        """两个数组的类型、形状与每一个字节是否相同。"""
        (a, x), (b, y) = self.places[one], self.places[other]
        if self.entry(one)[:2] != self.entry(other)[:2]:
            return False
        return all(p == q for p, q in zip(a.chunks(x), b.chunks(y), strict=True))

    def load(self, pair: Pair, memory_map: bool) -> Array:
        """一个参数的数值，形状是 gptcore 的，类型是 float32。

        Args:
            pair: 哪个参数。
            memory_map: 能映射的就映射；转置的矩阵是映射的视图。
        """
        file, stored = self.places[pair.theirs]
        mapped = file.map(stored) if memory_map and self.entry(pair.theirs).kind == "F32" else None
        if mapped is not None:
            return mapped.T if pair.transposed else mapped
        return file.read(stored, np.float32, transposed=pair.transposed)


def load_weights(model: GPT, weights: Weights, settings: dict[str, Any], memory_map: bool) -> None:
    """把参数交给没有数值的模型；已经由 `require_weights` 核对过。"""
    tensors = dict(model.named_parameters())
    for pair in pairs(settings, model.config["tied"]):
        tensors[pair.ours].data = weights.load(pair, memory_map)


def require_weights(weights: Weights, settings: dict[str, Any], tie: bool) -> bool:
    """参数的名字、形状与类型都符合设置；返回输出头是否与词元嵌入共用权重。

    只看文件头，不占内存；设置说有十亿块，也只比到第一批缺少的为止。

    Raises:
        DataError: 有缺少、多出、形状或类型不符的；或者输出头与 `tie_word_embeddings` 不符。
    """
    missing: list[str] = []
    wrong: list[str] = []
    known: set[str] = set()
    for pair in pairs(settings, tied=HEAD not in weights.places):
        known.add(pair.theirs)
        if pair.theirs not in weights.places:
            missing.append(f"缺少 {pair.full}，形状 {pair.shape}")
        elif weights.entry(pair.theirs).shape != pair.shape:
            found = weights.entry(pair.theirs).shape
            wrong.append(f"{pair.full}：按设置形状是 {pair.shape}，文件里是 {found}")
        elif weights.entry(pair.theirs).kind not in KINDS:
            kind = weights.entry(pair.theirs).kind
            wrong.append(f"{pair.full} 的类型是 {kind}，可以是 {'、'.join(KINDS)}")
        if len(missing) + len(wrong) > LISTED:
            break
    else:
        wrong += [
            f"多出 {name[:200]}，形状 {weights.entry(name).shape}"
            for name in weights.places
            if name not in known
        ]
    if problems := wrong + missing:
        more = "" if len(problems) <= LISTED else "\n  ……"
        raise DataError(
            f"{weights.folder} 里的参数与 config.json 对不上；请检查它是不是完整的 GPT-2：\n  "
            + "\n  ".join(problems[:LISTED])
            + more
        )
    return _is_tied(weights, tie)


def _is_tied(weights: Weights, tie: bool) -> bool:
    if HEAD not in weights.places:
        if not tie:
            raise DataError(
                f"{weights.folder}：config.json 里的 tie_word_embeddings 是 False，参数里却没有 {HEAD}；"
                "请换上完整的文件，共用权重的请把它改成 true"
            )
        return True
    if tie and not weights.same(HEAD, TOKENS):
        raise DataError(
            f"{weights.folder}：config.json 里的 tie_word_embeddings 是 True，"
            f"{HEAD} 与 {PREFIX}{TOKENS} 的内容却不同，不知道用哪一个；"
            "不共用权重的，请把 tie_word_embeddings 改成 false"
        )
    return tie


def _files(folder: Path, stack: ExitStack) -> Iterator[tuple[ArrayFile, list[str]]]:
    """各个文件，以及其中要用的名字。"""
    if (folder / WEIGHTS).exists() or not (folder / INDEX).exists():
        if not (folder / WEIGHTS).exists():
            _no_weights(folder)
        file = stack.enter_context(ArrayFile(folder / WEIGHTS))
        yield file, list(file.entries)
        return
    for shard, names in shards(folder / INDEX).items():
        file = stack.enter_context(ArrayFile(folder / shard))
        absent = [name for name in names if name not in file.entries]
        listed = set(names)
        extra = [name for name in file.entries if name not in listed]
        if absent or extra:
            words = [f"没有 {name[:200]}" for name in absent[:5]]
            words += [f"多出 {name[:200]}" for name in extra[:5]]
            raise DataError(
                f"{folder / shard} 与索引 {INDEX} 对不上：{'，'.join(words)}；"
                "分片可能来自另一个模型，请重新下载"
            )
        yield file, names


def shards(path: Path) -> dict[str, list[str]]:
    """索引说的各个分片，与其中的名字；分片只能是同一个文件夹里的文件。

    Args:
        path: 索引 `model.safetensors.index.json`。

    Raises:
        DataError: 不是索引，或者分片的名字不是普通的文件名。
    """
    index: Any = parse_json(read_bytes(path, INDEX_LIMIT), path)
    mapping: Any = cast("Any", index).get("weight_map") if isinstance(index, dict) else None
    if not isinstance(mapping, dict) or not mapping:
        raise DataError(f"{path} 里没有 weight_map，不是分片的索引；请重新下载")
    found: dict[str, list[str]] = {}
    for name, shard in cast("dict[str, Any]", mapping).items():
        if not is_plain_name(shard) or not shard.endswith(".safetensors"):
            raise DataError(
                f"{path} 说 {name[:60]} 在 {str(shard)[:60]!r} 里；"
                "分片只能是同一个文件夹里的 .safetensors 文件，这个索引不可信"
            )
        found.setdefault(shard, []).append(name)
    if len(found) > SHARDS:
        raise DataError(f"{path} 说有 {len(found)} 个分片，最多 {SHARDS} 个；这个索引不可信")
    return found


def _no_weights(folder: Path) -> NoReturn:
    others = [name for name in PICKLES if (folder / name).exists()]
    hint = (
        f"里面的 {'、'.join(others)} 不能读（pickle 会执行其中的代码，另外几种是别的框架的）；请在 transformers 里"
        "读入，再用 save_pretrained 存成 safetensors"
        if others
        else "请给出 Hugging Face 的模型文件夹"
    )
    raise DataError(f"{folder} 里没有 {WEIGHTS}，也没有 {INDEX}；{hint}")
