"""分词器的各方：gptcore、tiktoken、tokenizers；词表都由同一个 gpt2 文件夹造出"""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tokenizer_texts as texts
from worker import Jobs, Once, timed

from gptcore.data import BPETokenizer
from gptcore.data.tokenizers.byte_alphabet import to_bytes
from gptcore.data.tokenizers.gpt2_pattern import GPT2_PATTERN

MERGES = 2000
WORDS = {"英文": texts.english, "几十万种词": texts.various_english, "中文": texts.chinese}


def make_text(kind: str, megabytes: int) -> str:
    """一种文字。"""
    if kind in WORDS:
        return WORDS[kind](megabytes * texts.MEGABYTE)
    return texts.strange(kind)


def gpt2_folder() -> Path:
    """放有 vocab.bpe 与 encoder.json 的文件夹。"""
    return Path(os.environ["GPTCORE_DATA"]) / "gpt2"


def _jobs(makers: dict[str, Callable[[str], Callable[[], Any] | Once]], megabytes: int) -> Jobs:
    """每种文字、每件事一项；名字写作“事，文字”。"""

    def prepare(make: Callable[[str], Any], kind: str) -> Once:
        return make(make_text(kind, megabytes))

    return {
        f"{work}，{kind}": partial(prepare, make, kind)
        for work, make in makers.items()
        for kind in (*WORDS, *texts.STRANGE)
    }


def gptcore(megabytes: int) -> Jobs:
    """gptcore：冷的一次从空的缓存开始，热的再编码一次同样的文字。"""

    def train(text: str) -> Once:
        return timed(lambda: BPETokenizer.train(text, 256 + MERGES))

    def cold(text: str) -> Once:
        merges = BPETokenizer.load(gpt2_folder()).merges

        def once() -> Any:
            fresh = BPETokenizer(merges)
            return timed(lambda: fresh.encode_array(text))()

        return once

    def hot(text: str) -> Once:
        tokenizer = BPETokenizer.load(gpt2_folder())
        return timed(lambda: tokenizer.encode_array(text))

    def decode(text: str) -> Once:
        tokenizer = BPETokenizer.load(gpt2_folder())
        ids = tokenizer.encode_array(text)
        return timed(lambda: tokenizer.decode(ids))

    return _jobs({"训练": train, "编码（冷）": cold, "编码（热）": hot, "解码": decode}, megabytes)


def tiktoken(megabytes: int) -> Jobs:
    """tiktoken 不会训练。"""
    import tiktoken as package

    vocab = json.loads((gpt2_folder() / "encoder.json").read_text(encoding="utf-8"))
    special = {"<|endoftext|>": vocab.pop("<|endoftext|>")}
    ranks = {to_bytes(token, "encoder.json"): number for token, number in vocab.items()}
    encoding = package.Encoding(
        "gpt2", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens=special
    )

    def encode(text: str) -> Once:
        return timed(lambda: encoding.encode_ordinary(text))

    def decode(text: str) -> Once:
        ids = encoding.encode_ordinary(text)
        return timed(lambda: encoding.decode(ids))

    return _jobs({"编码（冷）": encode, "编码（热）": encode, "解码": decode}, megabytes)


def tokenizers(megabytes: int) -> Jobs:
    """Hugging Face 的 tokenizers。"""
    import tokenizers as package

    def byte_level(model: Any) -> Any:
        tokenizer = package.Tokenizer(model)
        tokenizer.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = package.decoders.ByteLevel()
        return tokenizer

    def gpt2() -> Any:
        vocab = json.loads((gpt2_folder() / "encoder.json").read_text(encoding="utf-8"))
        lines = (gpt2_folder() / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:-1]
        merges = [tuple(line.split(" ")) for line in lines]
        return byte_level(package.models.BPE(vocab=vocab, merges=merges))

    def train(text: str) -> Once:
        alphabet = package.pre_tokenizers.ByteLevel.alphabet()
        lines = text.splitlines(keepends=True)  # 它按给出的各段切分，一整段会慢得多

        def work() -> None:
            trainer = package.trainers.BpeTrainer(
                vocab_size=256 + MERGES, initial_alphabet=alphabet, show_progress=False
            )
            byte_level(package.models.BPE()).train_from_iterator(lines, trainer)

        return timed(work)

    def encode(text: str) -> Once:
        tokenizer = gpt2()
        return timed(lambda: tokenizer.encode(text).ids)

    def decode(text: str) -> Once:
        tokenizer = gpt2()
        ids = tokenizer.encode(text).ids
        return timed(lambda: tokenizer.decode(ids, skip_special_tokens=False))

    makers = {"训练": train, "编码（冷）": encode, "编码（热）": encode, "解码": decode}
    return _jobs(makers, megabytes)
