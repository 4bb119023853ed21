"""Hugging Face 的文件夹：不是 GPT-2 的一律拒绝，写出字段与值；坏的文件只报 DataError，又快又省"""

import json
import random
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hf_folders import CONFIG, draw_state, safetensors, write_folder, write_shards

from gptcore import GPT, ArgumentError, CharTokenizer, DataError, DtypeError, save_model
from gptcore.models.huggingface import load_pretrained, save_pretrained

MIB = 1 << 20
SECONDS = 10
INDEX = "model.safetensors.index.json"
from_pretrained = GPT.from_pretrained


def refused(folder: Path) -> str:
    """被拒绝，只能是 DataError，又快又省；返回消息。"""
    start = time.perf_counter()
    tracemalloc.start()
    try:
        with pytest.raises(DataError) as caught:
            from_pretrained(folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - start < SECONDS
    assert peak < 64 * MIB, f"{peak / MIB:.0f} MiB"
    message = str(caught.value)
    assert str(folder) in message
    assert len(message) < 5000
    return message


def read_or_refused(folder: Path) -> None:
    """要么读入，要么 DataError，消息不长。"""
    message = ""
    try:
        from_pretrained(folder)
    except DataError as error:
        message = str(error)
    assert len(message) < 5000


# 不同的结构


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("model_type", "llama", r'只读 "gpt2"'),
        ("model_type", "gpt_bigcode", r'只读 "gpt2"'),
        ("model_type", ["gpt2"], r'只读 "gpt2"'),
        ("architectures", ["LlamaForCausalLM"], "GPT2LMHeadModel"),
        ("architectures", ["GPT2ForSequenceClassification"], "GPT2LMHeadModel"),
        ("architectures", ["GPT2DoubleHeadsModel"], "GPT2LMHeadModel"),
        ("architectures", "GPT2LMHeadModel", "GPT2LMHeadModel"),
        ("activation_function", "gelu", "gelu_new、gelu_pytorch_tanh"),
        ("activation_function", "relu", "gelu_new"),
        ("activation_function", None, "gelu_new"),
        ("scale_attn_weights", False, "总是 True"),
        ("scale_attn_weights", 1, "总是 True"),
        ("scale_attn_weights", None, "总是 True"),
        ("scale_attn_by_inverse_layer_idx", True, "总是 False"),
        ("add_cross_attention", True, "没有交叉注意力"),
        ("is_encoder_decoder", True, "只有解码器"),
        ("position_embedding_type", "rotary", "总是 absolute"),
        ("multi_query", True, "总是 False"),
        ("alibi", True, "总是 False"),
        ("n_inner", 23, "4 × n_embd = 24"),
        ("n_inner", 24.0, "4 × n_embd = 24"),
        ("n_head", 4, "整除 n_embd=6"),
        ("num_attention_heads", 2, "n_head=3"),
        ("layer_norm_epsilon", 1.0, "0 与 1 之间"),
        ("layer_norm_epsilon", -1e-5, "0 与 1 之间"),
        ("layer_norm_epsilon", "1e-5", "有限的数"),
        ("tie_word_embeddings", None, "true 或 false"),
        ("tie_word_embeddings", 1, "true 或 false"),
        ("quantization_config", {"bits": 4}, "不能是量化的"),
        ("auto_map", {"AutoModel": "x.Y"}, "不运行模型自带的代码"),
        ("rope_theta", 10000.0, "没有旋转位置编码"),
        ("rope_scaling", {"type": "linear"}, "没有旋转位置编码"),
        ("rope_parameters", {}, "没有旋转位置编码"),
        ("sliding_window", 128, "看得见前面的全部位置"),
        ("num_key_value_heads", 1, "每个头各有自己的键与值"),
    ],
)
def test_other_architectures_are_named(tmp_path: Path, field: str, value: Any, words: str) -> None:
    message = refused(write_folder(tmp_path, {**CONFIG, field: value}, draw_state()))
    assert f" {field} " in message
    assert f"是 {value!r}"[:40] in message
    assert words in message


def test_all_rates_must_be_possible(tmp_path: Path) -> None:
    config = {**CONFIG, **dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), 1.0)}
    message = refused(write_folder(tmp_path, config))
    assert "embd_pdrop 是 1.0" in message
    assert "dropout=0.0" in message
    assert from_pretrained(tmp_path, dropout=0.0).config["dropout"] == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("activation_function", "gelu_pytorch_tanh"),
        ("reorder_and_upcast_attn", True),
        ("n_inner", 24),
        ("position_embedding_type", None),
        ("quantization_config", None),
        ("rope_scaling", None),
        ("architectures", None),
        ("architectures", ["GPT2Model"]),
        ("architectures", []),
        ("n_ctx", 5),
        ("something_new", {"a": 1}),
        ("layer_norm_epsilon", 0),
    ],
)
def test_what_does_not_matter_is_accepted(tmp_path: Path, field: str, value: Any) -> None:
    plain = from_pretrained(write_folder(tmp_path / "a"))
    model = from_pretrained(write_folder(tmp_path / "b", {**CONFIG, field: value}, draw_state()))
    expected = plain.config | ({"norm_eps": 0.0} if field == "layer_norm_epsilon" else {})
    assert model.config == expected


def test_no_model_type(tmp_path: Path) -> None:
    config = {k: v for k, v in CONFIG.items() if k != "model_type"}
    assert '请在文件里写上 "model_type": "gpt2"' in refused(write_folder(tmp_path, config))


# 参数对不上


def test_every_wrong_parameter_is_listed(tmp_path: Path) -> None:
    state = draw_state()
    state["transformer.wpe.weight"] = np.zeros((8, 6), np.float32)
    del state["transformer.h.1.ln_2.bias"]
    state["score.weight"] = np.zeros((2, 6), np.float32)
    state["transformer.h.0.mlp.c_fc.weight"] = np.zeros((24, 6), np.float32)
    state["transformer.h.0.ln_1.weight"] = np.ones(6, np.int64)
    message = refused(write_folder(tmp_path, CONFIG, state))
    for line in (
        "transformer.wpe.weight：按设置形状是 (7, 6)，文件里是 (8, 6)",
        "缺少 transformer.h.1.ln_2.bias，形状 (6,)",
        "多出 score.weight，形状 (2, 6)",
        "transformer.h.0.mlp.c_fc.weight：按设置形状是 (6, 24)，文件里是 (24, 6)",
        "transformer.h.0.ln_1.weight 的类型是 I64，可以是 F32、F16、BF16、F64",
    ):
        assert f"\n  {line}" in message


def test_the_same_parameter_twice(tmp_path: Path) -> None:
    state = draw_state()
    state["ln_f.bias"] = state["transformer.ln_f.bias"]
    assert "有两个 ln_f.bias" in refused(write_folder(tmp_path, CONFIG, state))


def test_cross_attention_in_the_weights(tmp_path: Path) -> None:
    state = draw_state()
    state["transformer.h.0.crossattention.c_attn.weight"] = np.zeros((6, 12), np.float32)
    message = refused(write_folder(tmp_path, CONFIG, state))
    assert "多出 h.0.crossattention.c_attn.weight" in message


HOSTILE: list[Any] = [
    *(10**9, 10**9 + 1, 10**12, 2**63, 10**400, 0, -1, 1.0, 2.5, 1e300),
    *("3", "", None, True, False, [], [3], {}, {"a": [1]}),
]


@pytest.mark.parametrize("field", ["vocab_size", "n_positions", "n_embd", "n_head", "n_layer"])
def test_hostile_sizes(tmp_path: Path, field: str) -> None:
    for value in HOSTILE:
        if field == "n_head" and value in (1, 2):  # 参数的形状看不出头数
            continue
        message = refused(write_folder(tmp_path, {**CONFIG, field: value}, draw_state()))
        assert "\n" in message or field in message


@pytest.mark.parametrize("field", list(CONFIG))
def test_hostile_fields(tmp_path: Path, field: str) -> None:
    """任何字段换成任何值：要么读入，要么 DataError。"""
    for value in HOSTILE:
        write_folder(tmp_path, {**CONFIG, field: value}, draw_state())
        read_or_refused(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"null",
        b'"gpt2"',
        b"{",
        b'{"model_type": "gpt2", "model_type": "gpt2"}',
        b'{"model_type": "gpt2", "n_embd": NaN}',
        b"\xff\xfe",
        b"[" * 100_000,
        b"{}" + b" " * (2 << 20),
    ],
)
def test_bad_settings_files(tmp_path: Path, content: bytes) -> None:
    write_folder(tmp_path)
    (tmp_path / "config.json").write_bytes(content)
    refused(tmp_path)


# 坏的参数文件与索引


def test_damaged_weights(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    content = (folder / "model.safetensors").read_bytes()
    for size in [*range(0, len(content), 997), len(content) - 1]:
        (folder / "model.safetensors").write_bytes(content[:size])
        refused(folder)
    (folder / "model.safetensors").write_bytes(content + b"\0")
    refused(folder)
    rng, header = random.Random(0), int.from_bytes(content[:8], "little")
    for _ in range(300):  # 文件头里改一个字节：拒绝，或者读入（例如改了名字里不要紧的说明）
        changed = bytearray(content)
        changed[rng.randrange(8 + header)] ^= 1 << rng.randrange(8)
        (folder / "model.safetensors").write_bytes(changed)
        read_or_refused(folder)


@pytest.mark.parametrize(
    "shard",
    [
        "../model.safetensors",
        "/etc/passwd",
        "a/b.safetensors",
        "a\\b.safetensors",
        "C:x.safetensors",
        "..",
        "",
        "x" * 300 + ".safetensors",
        "model.bin",
        "\0.safetensors",
        3,
        None,
        ["a.safetensors"],
    ],
)
def test_shards_stay_in_the_folder(tmp_path: Path, shard: Any) -> None:
    (tmp_path / "model.safetensors").write_bytes(safetensors(draw_state()))
    folder = write_shards(tmp_path / "sub", draw_state(), [4])
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    index["weight_map"]["transformer.wte.weight"] = shard
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")
    message = refused(folder)
    assert "分片只能是同一个文件夹里的 .safetensors 文件" in message


def test_index_and_shards_must_agree(tmp_path: Path) -> None:
    folder = write_shards(tmp_path, draw_state(), [4, 9])
    original = (folder / INDEX).read_text(encoding="utf-8")

    def changed(change: Any) -> str:
        index = json.loads(original)
        change(index["weight_map"])
        (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")
        return refused(folder)

    shards = sorted(set(json.loads(original)["weight_map"].values()))
    assert "没有 extra" in changed(lambda m: m.update(extra=shards[0]))
    assert "多出 transformer.ln_f.bias" in changed(lambda m: m.pop("transformer.ln_f.bias"))
    assert "没有 transformer.wte.weight" in changed(
        lambda m: m.update({"transformer.wte.weight": shards[2]})
    )
    assert "不存在" in changed(lambda m: m.update(x="no.safetensors"))
    many = {f"t{i}": f"s{i}.safetensors" for i in range(2000)}
    assert "最多 1000 个" in changed(lambda m: m.update(many))
    for content in ("[]", "{}", '{"weight_map": []}', '{"weight_map": {}}', "", "{"):
        (folder / INDEX).write_text(content, encoding="utf-8")
        refused(folder)
    (folder / INDEX).write_text(original, encoding="utf-8")
    (folder / shards[1]).unlink()
    assert "不存在" in refused(folder)


# 文件夹


def test_folders_that_are_not_models(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"from_pretrained：.*不存在.*本机的文件夹"):
        from_pretrained("gpt2-small")
    for path in ("x" * 5000, "a\0b", ""):
        with pytest.raises(DataError):
            from_pretrained(path)
    with pytest.raises(DataError, match=r"没有 config\.json"):
        from_pretrained(tmp_path)
    folder = write_folder(tmp_path / "a")
    with pytest.raises(DataError, match="是文件，不是文件夹"):
        from_pretrained(folder / "config.json")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(DataError, match=r"没有 model\.safetensors.*pytorch_model\.bin 不能读"):
        from_pretrained(folder)
    ours = save_model(tmp_path / "ours", GPT(3, 4, 6, 2, 1), CharTokenizer("abc"))
    with pytest.raises(DataError, match=r"gptcore 自己的模型文件夹.*load_model"):
        from_pretrained(ours)


def test_wrong_arguments(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    for rate in (1.0, -0.1, "0.1", True):
        with pytest.raises(ArgumentError, match="from_pretrained：dropout"):
            from_pretrained(folder, dropout=rate)  # type: ignore[arg-type]
    with pytest.raises(DtypeError, match="memory_map"):
        from_pretrained(folder, memory_map=1)  # type: ignore[arg-type]
    with pytest.raises(DtypeError, match="from_pretrained：folder 得到 int"):
        from_pretrained(3)  # type: ignore[arg-type]
    with pytest.raises(DtypeError):
        from_pretrained(folder, rng=3)  # type: ignore[arg-type]
    model: Any = from_pretrained(folder)
    with pytest.raises(DtypeError, match="save_pretrained：folder 得到 NoneType"):
        model.save_pretrained(None)
    with pytest.raises(DtypeError, match="分词器是 str"):
        model.save_pretrained(tmp_path / "x", "gpt2")
    with pytest.raises(DtypeError, match="这里的模型是 str"):
        save_pretrained("gpt2", tmp_path / "x")  # type: ignore[arg-type]


# 存不成 GPT-2 的模型


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, r"head_bias=True.*GPT-2 的输出头没有偏置.*head_bias=False"),
        ({"head_bias": False, "bias": False}, r"bias=False.*bias=True"),
        ({"head_bias": False, "norm": "RMSNorm"}, r"norm='RMSNorm'.*norm='LayerNorm'"),
        ({"head_bias": False, "norm": None}, r"norm=None.*norm='LayerNorm'"),
        (
            {"head_bias": False, "norm_position": "post"},
            r"norm_position='post'.*norm_position='pre'",
        ),
    ],
)
def test_models_that_cannot_be_exported(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    model = GPT(11, 7, 6, 3, 2, **options)
    with pytest.raises(DataError, match=f"save_pretrained：模型的 {words}.*save_model"):
        model.save_pretrained(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_tokenizer_and_model_must_fit(tmp_path: Path) -> None:
    model = GPT(3, 7, 6, 3, 2, head_bias=False)
    with pytest.raises(DataError, match="词表有 4 个词元，模型只有 3 个"):
        model.save_pretrained(tmp_path / "out", CharTokenizer("abcd"))
    model.save_pretrained(tmp_path / "out")
    with pytest.raises(DataError, match="没有分词器"):
        load_pretrained(tmp_path / "out")
    larger = GPT(4, 7, 6, 3, 2, head_bias=False)
    larger.save_pretrained(tmp_path / "larger", CharTokenizer("abcd"))
    (tmp_path / "larger" / "tokenizer.json").rename(tmp_path / "out" / "tokenizer.json")
    with pytest.raises(DataError, match="分词器有 4 个词元，模型只有 3 个"):
        load_pretrained(tmp_path / "out")
