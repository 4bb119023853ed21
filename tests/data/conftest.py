"""分词器的测试共用的夹具：GPT-2 的文件，以及从这些文件造出的对照"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gptcore.data.tokenizers import BPETokenizer
from gptcore.data.tokenizers.byte_alphabet import to_bytes

PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@pytest.fixture(scope="session")
def gpt2_folder() -> Path:
    """GPT-2 的 `vocab.bpe` 与 `encoder.json` 所在的文件夹；从不下载。"""
    folder = Path(os.environ.get("GPTCORE_DATA", "没有设置")) / "gpt2"
    if not (folder / "vocab.bpe").is_file():
        pytest.skip("没有 GPT-2 的词表：请把 GPTCORE_DATA 设为放有 gpt2/vocab.bpe 的文件夹")
    return folder


@pytest.fixture(scope="session")
def gpt2(gpt2_folder: Path) -> BPETokenizer:
    return BPETokenizer.load(gpt2_folder)


@pytest.fixture(scope="session")
def gpt2_tiktoken(gpt2_folder: Path) -> Any:
    """tiktoken 的 GPT-2 编码，由本地的文件造出。"""
    tiktoken = pytest.importorskip("tiktoken", reason="没有安装 tiktoken")
    vocab = json.loads((gpt2_folder / "encoder.json").read_text(encoding="utf-8"))
    special = {"<|endoftext|>": vocab.pop("<|endoftext|>")}
    ranks = {to_bytes(token, "encoder.json"): number for token, number in vocab.items()}
    return tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special)


@pytest.fixture(scope="session")
def gpt2_tokenizers(gpt2_folder: Path) -> Any:
    """tokenizers 的 GPT-2 编码，由本地的文件造出。"""
    tokenizers = pytest.importorskip("tokenizers", reason="没有安装 tokenizers")
    vocab = json.loads((gpt2_folder / "encoder.json").read_text(encoding="utf-8"))
    lines = (gpt2_folder / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:-1]
    merges = [tuple(line.split(" ")) for line in lines]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer
