"""与真正的 transformers 对照：两个方向，分数、贪心的续写、分词器；没有安装时跳过"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers", reason="没有安装 transformers")

from hf_reference import (
    ODD,
    SMALL,
    agree,
    load_theirs,
    make_theirs,
    our_logits,
    torch,
    transformers,
)

from gptcore import GPT, AdamWOptimizer, CharTokenizer, GPTLoss, Tensor, load_pretrained
from gptcore.data.tokenizers import BPETokenizer, ByteTokenizer, load_tokenizer

pytestmark = pytest.mark.reference

CONFIGS = pytest.mark.parametrize("config", [SMALL, ODD], ids=["tied", "untied"])
TEXT = "春眠不觉晓，\nThe quick brown fox\tjumps. 处处闻啼鸟 😀e\u0301\u2028\r\n  x"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@CONFIGS
def test_theirs_to_ours(tmp_path: Path, config: dict[str, Any]) -> None:
    theirs = make_theirs(config)
    theirs.save_pretrained(tmp_path)
    for memory_map in (True, False):
        ours = GPT.from_pretrained(tmp_path, memory_map=memory_map)
        assert ours.num_parameters == sum(p.numel() for p in theirs.parameters())
        agree(theirs, ours)


@CONFIGS
def test_ours_to_theirs(tmp_path: Path, config: dict[str, Any]) -> None:
    ours = GPT(
        config["vocab_size"],
        config["n_positions"],
        config["n_embd"],
        config["n_head"],
        config["n_layer"],
        head_bias=False,
        tied=config.get("tie_word_embeddings", True),
        norm_eps=1e-3,
        dropout=0.1,
        rng=np.random.default_rng(0),
    )
    for p in ours.parameters:  # 层归一化与偏置也要各不相同
        p.data += np.random.default_rng(p.size).standard_normal(p.shape).astype(np.float32) * 0.1
    theirs = load_theirs(ours.save_pretrained(tmp_path))
    tied = theirs.lm_head.weight is theirs.transformer.wte.weight
    assert tied == ours.config["tied"]
    assert theirs.config.layer_norm_epsilon == 1e-3
    assert theirs.dtype == torch.float32
    agree(theirs, ours)


@CONFIGS
def test_there_and_back_is_exact(tmp_path: Path, config: dict[str, Any]) -> None:
    """HF → gptcore → HF：参数一位不差，共用的仍共用。"""
    theirs = make_theirs(config)
    theirs.save_pretrained(tmp_path / "a")
    again = load_theirs(GPT.from_pretrained(tmp_path / "a").save_pretrained(tmp_path / "b"))
    expected = theirs.state_dict()
    for name, value in again.state_dict().items():
        assert torch.equal(value, expected[name]), name
    assert again.state_dict().keys() == expected.keys()


def test_a_trained_model_goes_back(tmp_path: Path) -> None:
    """读入（映射），训练几步，存回同一个文件夹，transformers 再读。"""
    make_theirs(SMALL).save_pretrained(tmp_path)
    ours = GPT.from_pretrained(tmp_path).train()
    optimizer = AdamWOptimizer(ours.parameter_groups(0.1), lr=1e-3)
    ids = Tensor(np.random.default_rng(0).integers(0, 101, (4, 20)))
    for _ in range(3):
        optimizer.zero_grad()
        GPTLoss()(ours(ids), ids).backward()
        optimizer.step()
    theirs = load_theirs(ours.save_pretrained(tmp_path))
    assert theirs.lm_head.weight is theirs.transformer.wte.weight
    agree(theirs, ours)


def test_shards_by_transformers(tmp_path: Path) -> None:
    theirs = make_theirs(SMALL)
    theirs.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert not (tmp_path / "model.safetensors").exists()
    agree(theirs, GPT.from_pretrained(tmp_path))


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64"])
def test_other_dtypes(tmp_path: Path, kind: str) -> None:
    """半精度的模型：与 transformers 先把参数变成 float32 再算相同。"""
    make_theirs(SMALL).to(getattr(torch, kind)).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert kind in (config.get("dtype"), config.get("torch_dtype"))
    theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path, dtype=torch.float32).eval()
    agree(theirs, GPT.from_pretrained(tmp_path))


def test_without_the_prefix(tmp_path: Path) -> None:
    theirs = make_theirs(SMALL)
    theirs.transformer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["GPT2Model"]
    agree(theirs, GPT.from_pretrained(tmp_path))


def test_reorder_and_upcast_makes_no_difference(tmp_path: Path) -> None:
    """float32 里，reorder_and_upcast_attn 的两种取值算出同样的分数。"""
    theirs = make_theirs({**SMALL, "reorder_and_upcast_attn": True})
    theirs.set_attn_implementation("eager")
    theirs.save_pretrained(tmp_path)
    assert theirs.transformer.h[0].attn.reorder_and_upcast_attn
    agree(theirs, GPT.from_pretrained(tmp_path))


def test_the_two_names_of_gelu() -> None:
    x = torch.linspace(-12, 12, 4001)
    names = transformers.activations.ACT2FN
    torch.testing.assert_close(names["gelu_new"](x), names["gelu_pytorch_tanh"](x))


def test_a_float64_model(tmp_path: Path) -> None:
    ours = GPT(31, 20, 12, 3, 2, head_bias=False, init="gpt2").astype(np.float64)
    theirs = load_theirs(ours.save_pretrained(tmp_path), dtype="auto")
    assert theirs.dtype == torch.float64
    ids = np.random.default_rng(0).integers(0, 31, (2, 20))
    with torch.no_grad():
        expected = theirs(torch.from_numpy(ids)).logits.numpy()
    np.testing.assert_allclose(our_logits(ours, ids), expected, rtol=1e-9, atol=1e-12)


def test_generation_config(tmp_path: Path) -> None:
    model = GPT(258, 20, 12, 3, 1, head_bias=False)
    model.save_pretrained(tmp_path, ByteTokenizer(["<|endoftext|>"]))
    theirs = load_theirs(tmp_path)
    for config in (theirs.config, theirs.generation_config):
        assert (config.bos_token_id, config.eos_token_id) == (256, 256)
    GPT(65, 20, 12, 3, 1, head_bias=False).save_pretrained(tmp_path / "b")
    theirs = load_theirs(tmp_path / "b")
    for config in (theirs.config, theirs.generation_config):
        assert (config.bos_token_id, config.eos_token_id) == (None, None)


# 分词器


def auto(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


def test_character_tokenizer(tmp_path: Path) -> None:
    """每一个字符都一样，包括换行、组合字符与不可见的字符；不认识的两边都报错。"""
    every = [chr(c) for c in range(0x250) if not 0xD800 <= c < 0xE000] + list(
        "\u2028\ufeff\U0010ffff"
    )
    tokenizer = CharTokenizer(sorted(set(TEXT) | set(every)))
    model = GPT(tokenizer.vocab_size, 8, 6, 2, 1, head_bias=False)
    theirs = auto(model.save_pretrained(tmp_path, tokenizer))
    assert len(theirs) == tokenizer.vocab_size
    for text in (TEXT, "".join(every), TEXT[::-1] * 3, " ", "  \n ", ""):
        assert theirs(text)["input_ids"] == tokenizer.encode(text)
        assert theirs.decode(tokenizer.encode(text)) == text
    with pytest.raises(Exception, match="UNK"):
        theirs("龙")
    assert load_pretrained(tmp_path)[1] == tokenizer
    theirs.save_pretrained(tmp_path)  # transformers 重写的也读得
    assert load_pretrained(tmp_path)[1] == tokenizer


@pytest.mark.parametrize("special", [(), ("<|endoftext|>", "<|user|>")])
def test_byte_level_tokenizers(tmp_path: Path, special: tuple[str, ...]) -> None:
    bpe = BPETokenizer.train(TEXT * 20, 256 + len(special) + 30, special_tokens=special)
    for i, tokenizer in enumerate((bpe, ByteTokenizer(special))):
        folder = tmp_path / str(i)
        model = GPT(tokenizer.vocab_size, 8, 6, 2, 1, head_bias=False)
        theirs = auto(model.save_pretrained(folder, tokenizer))
        assert len(theirs) == tokenizer.vocab_size
        assert theirs.eos_token_id == tokenizer.special_tokens.get("<|endoftext|>")
        for text in (TEXT, TEXT[::-1], " ", ""):
            assert theirs(text)["input_ids"] == tokenizer.encode(text)
            assert theirs.decode(tokenizer.encode(text)) == text
        marked = "a".join(special)
        ids = tokenizer.encode(marked, allowed_special="all")
        assert theirs(marked)["input_ids"] == ids
        _, again = load_pretrained(folder)
        assert again.encode(TEXT) == tokenizer.encode(TEXT)
        assert again.special_tokens == tokenizer.special_tokens
        theirs.save_pretrained(folder)
        again = load_tokenizer(folder)
        assert again.encode(marked, allowed_special="all") == ids


def test_the_tokenizer_of_gpt2(tmp_path: Path, tinyshakespeare_path: Path) -> None:
    """GPT-2 自己的词表：OpenAI 的文件读入，存成 Hugging Face 的，编号都是 GPT-2 的。"""
    folder = Path(os.environ.get("GPTCORE_DATA", "没有设置")) / "gpt2"
    if not folder.is_dir():
        pytest.skip("GPTCORE_DATA 指定的文件夹里没有 gpt2")
    tokenizer = load_tokenizer(folder)
    model = GPT(50257, 8, 4, 2, 1, head_bias=False, tied=True, init="gpt2")
    theirs = auto(model.save_pretrained(tmp_path, tokenizer))
    assert (len(theirs), theirs.eos_token_id) == (50257, 50256)
    assert theirs("Hello world")["input_ids"] == [15496, 995]
    text = tinyshakespeare_path.read_text(encoding="utf-8")[:20_000] + TEXT
    assert theirs(text)["input_ids"] == tokenizer.encode(text)
    assert load_theirs(tmp_path).generation_config.eos_token_id == 50256
    _, again = load_pretrained(tmp_path)
    assert again == tokenizer


def test_their_tokenizer_files(tmp_path: Path) -> None:
    """transformers 自己写的 GPT-2 分词器：tokenizer.json，以及 vocab.json 与 merges.txt。"""
    bpe = BPETokenizer.train(TEXT * 20, 300, special_tokens=["<|endoftext|>"])
    model = GPT(300, 8, 6, 2, 1, head_bias=False)
    model.save_pretrained(tmp_path, bpe)
    theirs = transformers.GPT2TokenizerFast.from_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path)
    assert load_pretrained(tmp_path)[1].encode(TEXT) == theirs(TEXT)["input_ids"]
    (tmp_path / "tokenizer.json").unlink()
    _, tokenizer = load_pretrained(tmp_path)
    assert tokenizer.encode(TEXT) == theirs(TEXT)["input_ids"]
    assert tokenizer.special_tokens == {"<|endoftext|>": 299}
