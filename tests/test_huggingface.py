"""Hugging Face 的 GPT-2 文件夹：名字与形状、类型、分片、映射、接着训练、存回去"""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hf_folders import CONFIG, draw_state, safetensors, to_bfloat16, write_folder, write_shards

from gptcore import (
    GPT,
    AdamWOptimizer,
    CharTokenizer,
    DataError,
    GPTLoss,
    Tensor,
    load_model,
    load_pretrained,
    save_model,
    save_pretrained,
)
from gptcore.layers import Dropout
from gptcore.models.huggingface import saving
from gptcore.models.huggingface.saving import is_mapped
from gptcore.serialization import MANIFEST, folders, parse_arrays

from_pretrained = GPT.from_pretrained
IDS = [[0, 10, 3, 3, 9, 1, 2], [5, 6, 7, 8, 0, 1, 10]]
TIED, BIG = "transformer.wte.weight", "transformer.h.1.mlp.c_fc.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "gpt2")


def logits(model: GPT) -> np.ndarray:
    with model.evaluating():
        return model(Tensor(IDS)).data


def stored(folder: Path) -> dict[str, np.ndarray]:
    path = folder / "model.safetensors"
    return parse_arrays(path.read_bytes(), path)


# 读入


@pytest.mark.parametrize("memory_map", [True, False])
def test_names_and_shapes(folder: Path, memory_map: bool) -> None:
    before = np.random.get_state()[1].copy()  # type: ignore[union-attr]
    model = GPT.from_pretrained(folder, memory_map=memory_map)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # 不抽随机数
    assert model.config == {
        "vocab_size": 11,
        "context_size": 7,
        "embedding_size": 6,
        "heads": 3,
        "blocks": 2,
        "head_bias": False,
        "tied": True,
        "bias": True,
        "dropout": 0.25,
        "norm": "LayerNorm",
        "norm_position": "pre",
        "norm_eps": 1e-5,
        "init": "gpt2",
    }
    assert not any(layer.training for layer in model.sublayers())  # 与 transformers 相同
    state, mine = draw_state(), model.state_dict()
    assert len(mine) == len(state)
    block, theirs = "transformers.1.", "transformer.h.1."
    for ours, name, turned in [
        ("embedding.embedding.weight", "transformer.wte.weight", False),
        ("embedding.positional_embedding.weight", "transformer.wpe.weight", False),
        (block + "attention.normalize.weight", theirs + "ln_1.weight", False),
        (block + "attention.normalize.bias", theirs + "ln_1.bias", False),
        (block + "attention.c_attn.weight", theirs + "attn.c_attn.weight", True),
        (block + "attention.c_attn.bias", theirs + "attn.c_attn.bias", False),
        (block + "attention.output.weight", theirs + "attn.c_proj.weight", True),
        (block + "attention.output.bias", theirs + "attn.c_proj.bias", False),
        (block + "feed_forward.normalize.weight", theirs + "ln_2.weight", False),
        (block + "feed_forward.input.weight", theirs + "mlp.c_fc.weight", True),
        (block + "feed_forward.input.bias", theirs + "mlp.c_fc.bias", False),
        (block + "feed_forward.output.weight", theirs + "mlp.c_proj.weight", True),
        (block + "feed_forward.output.bias", theirs + "mlp.c_proj.bias", False),
        ("output.normalize.weight", "transformer.ln_f.weight", False),
        ("output.normalize.bias", "transformer.ln_f.bias", False),
    ]:
        expected = state[name].T if turned else state[name]
        np.testing.assert_array_equal(mine[ours], expected, err_msg=ours)
        assert mine[ours].dtype == np.float32
        assert mine[ours].flags.writeable
        assert is_mapped(mine[ours]) == memory_map, ours
        assert memory_map or mine[ours].flags.c_contiguous, ours


def test_tied_is_one_tensor(folder: Path) -> None:
    """共用的矩阵读入之后仍是同一个：只算一次，更新一次。"""
    model = from_pretrained(folder)
    assert model.output.linear.weight is model.embedding.embedding.weight
    assert model.num_parameters == sum(array.size for array in draw_state().values())
    optimizer = AdamWOptimizer(model.parameters, lr=0.1, weight_decay=0)
    GPTLoss()(model.train()(Tensor(IDS)), Tensor(IDS)).backward()
    before = model.embedding.embedding.weight.data.copy()
    optimizer.step()
    moved = np.abs(model.embedding.embedding.weight.data - before)
    assert moved.max() == pytest.approx(0.1, rel=1e-3)  # 更新两次会是 0.2
    assert model.output.linear.weight is model.embedding.embedding.weight


def test_mapped_and_read_models_agree(folder: Path) -> None:
    mapped, read = (
        logits(from_pretrained(folder)),
        logits(GPT.from_pretrained(folder, memory_map=False)),
    )
    np.testing.assert_allclose(mapped, read, rtol=1e-5, atol=1e-6)
    assert mapped.dtype == np.float32


@pytest.mark.parametrize("pad", [0, 3])
@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "F64"])
def test_every_float_becomes_float32(tmp_path: Path, kind: str, pad: int) -> None:
    state = draw_state()
    model = from_pretrained(write_folder(tmp_path, state=state, kind=kind, pad=pad))
    expected = {
        "F16": lambda a: a.astype(np.float16).astype(np.float32),
        "BF16": lambda a: (to_bfloat16(a).astype(np.uint32) << 16).view(np.float32),
    }.get(kind, lambda a: a)
    assert all(p.dtype == np.float32 for p in model.parameters)
    mine = model.state_dict()
    np.testing.assert_array_equal(mine["embedding.embedding.weight"], expected(state[TIED]))
    np.testing.assert_array_equal(
        mine["transformers.1.feed_forward.input.weight"], expected(state[BIG]).T
    )
    assert is_mapped(mine["embedding.embedding.weight"]) == (kind == "F32" and pad == 0)


def test_without_prefix_and_with_old_buffers(tmp_path: Path, folder: Path) -> None:
    """GPT2Model 存的没有 transformer.；以前的版本还存着因果掩码。"""
    state = {name.removeprefix("transformer."): a for name, a in draw_state().items()}
    for i in range(2):
        state[f"h.{i}.attn.bias"] = np.tril(np.ones((1, 1, 7, 7), np.uint8))
        state[f"h.{i}.attn.masked_bias"] = np.array(-1e4, np.float32)
    bare = from_pretrained(write_folder(tmp_path / "bare", state=state))
    np.testing.assert_array_equal(logits(bare), logits(from_pretrained(folder)))


def test_shards(tmp_path: Path, folder: Path) -> None:
    state = draw_state()
    sharded = from_pretrained(write_shards(tmp_path / "shards", state, [1, 9, 20]))
    np.testing.assert_array_equal(logits(sharded), logits(from_pretrained(folder)))


def test_lm_head(tmp_path: Path, folder: Path) -> None:
    state = draw_state(untied=True)
    config = {**CONFIG, "tie_word_embeddings": False}
    untied = from_pretrained(write_folder(tmp_path / "a", config, state))
    assert not untied.config["tied"]
    np.testing.assert_array_equal(untied.output.linear.weight.data, state["lm_head.weight"])
    same = {**state, "lm_head.weight": state[TIED]}
    tied = from_pretrained(write_folder(tmp_path / "b", CONFIG, same))  # 有，而且相同：共用
    assert tied.output.linear.weight is tied.embedding.embedding.weight
    np.testing.assert_array_equal(logits(tied), logits(from_pretrained(folder)))
    with pytest.raises(DataError, match=r"tie_word_embeddings 是 True.*内容却不同"):
        from_pretrained(write_folder(tmp_path / "c", CONFIG, state))
    with pytest.raises(DataError, match=r"tie_word_embeddings 是 False.*没有 lm_head\.weight"):
        from_pretrained(write_folder(tmp_path / "d", config, draw_state()))


def test_defaults_and_other_names(tmp_path: Path) -> None:
    """没有写出的字段取 GPT2Config 的默认值；几个尺寸有另一个写法。"""
    small = {"vocab_size": 11, "n_positions": 7, "n_embd": 12, "n_layer": 0}
    config = {
        "model_type": "gpt2",
        "vocab_size": 11,
        "max_position_embeddings": 7,
        "hidden_size": 12,
        "num_hidden_layers": 0,
    }
    model = from_pretrained(write_folder(tmp_path, config, draw_state(small)))
    assert (model.config["heads"], model.config["dropout"]) == (12, 0.1)
    assert (model.config["tied"], model.config["norm_eps"]) == (True, 1e-5)


def test_dropout(tmp_path: Path) -> None:
    config = {**CONFIG, "embd_pdrop": 0.0, "attn_pdrop": 0.5}
    folder = write_folder(tmp_path, config)
    with pytest.raises(
        DataError, match=r"embd_pdrop=0、attn_pdrop=0\.5、resid_pdrop=0\.25.*dropout=0\.0"
    ):
        from_pretrained(folder)
    rng = np.random.default_rng(0)
    model = from_pretrained(folder, dropout=0.125, rng=rng)
    layers = [layer for layer in model.sublayers() if isinstance(layer, Dropout)]
    assert len(layers) == 7
    assert {layer.p for layer in layers} == {0.125}
    assert all(layer.rng is rng for layer in layers)


# 修改与训练：写时复制


def test_training_a_mapped_model(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    results = []
    for memory_map in (True, False):
        model = from_pretrained(folder, dropout=0.0, memory_map=memory_map).train()
        optimizer = AdamWOptimizer(model.parameter_groups(0.1), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            loss = GPTLoss()(model(Tensor(IDS)), Tensor(IDS))
            loss.backward()
            optimizer.clip_grad_norm()
            optimizer.step()
        results.append((float(loss.data), logits(model)))
    (loss, after), (other, expected) = results
    assert loss == pytest.approx(other, rel=1e-5)
    np.testing.assert_allclose(after, expected, rtol=1e-3, atol=1e-5)
    assert np.abs(after - logits(from_pretrained(folder))).max() > 0.01
    assert (folder / "model.safetensors").read_bytes() == content  # 文件没有变


def test_views_and_copies_of_a_mapped_model(folder: Path) -> None:
    model = from_pretrained(folder)
    attention = model.transformers[0].attention
    query = attention.query.weight
    np.testing.assert_array_equal(query.data, attention.c_attn.weight.data[:6])
    query.data[...] = 0.5
    assert (attention.c_attn.weight.data[:6] == 0.5).all()
    other = copy.deepcopy(model)
    assert not any(is_mapped(p.data) for p in other.parameters)
    np.testing.assert_allclose(logits(other), logits(model), rtol=1e-5, atol=1e-6)
    assert model.astype(np.float64)(Tensor(IDS)).dtype == np.float64


# 存回去


def test_round_trip_is_exact(folder: Path, tmp_path: Path) -> None:
    """读入再存出：每个参数一位不差，不论映射与否、文件夹是不是同一个。"""
    state = stored(folder)
    for model in (from_pretrained(folder), from_pretrained(folder, memory_map=False)):
        for target in (tmp_path / "out", folder):  # 最后一次替换正被映射的文件
            assert model.save_pretrained(target) == target
            found = stored(target)
            assert found.keys() == state.keys()
            for name, array in state.items():
                assert found[name].tobytes() == array.tobytes(), name
        np.testing.assert_array_equal(
            logits(model),
            logits(from_pretrained(folder, memory_map=is_mapped(model.parameters[0].data))),
        )


def test_exported_settings(folder: Path, tmp_path: Path) -> None:
    config = json.loads(
        (from_pretrained(folder).save_pretrained(tmp_path / "a") / "config.json").read_text("utf-8")
    )
    assert {k: config[k] for k in CONFIG if k in config} == {
        **{k: v for k, v in CONFIG.items() if k in config},
        "bos_token_id": None,  # 没有分词器，就没有文本结束词元；默认的 50256 不在词表里
        "eos_token_id": None,
    }
    model = GPT(11, 7, 6, 3, 2, head_bias=False, norm_eps=1e-6, dropout=0.5).astype(np.float64)
    config = json.loads((model.save_pretrained(tmp_path / "b") / "config.json").read_text("utf-8"))
    assert config["tie_word_embeddings"] is False
    assert (config["layer_norm_epsilon"], config["attn_pdrop"]) == (1e-6, 0.5)
    assert config["torch_dtype"] == "float64"
    assert stored(tmp_path / "b")["lm_head.weight"].dtype == np.float64
    again = from_pretrained(tmp_path / "b")
    assert again.config == {**model.config, "init": "gpt2"}
    np.testing.assert_allclose(logits(again), logits(model), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("blocks", [0, 1])
@pytest.mark.parametrize("tied", [True, False])
def test_models_of_ours(tmp_path: Path, tied: bool, blocks: int) -> None:
    model = GPT(11, 7, 6, 2, blocks, head_bias=False, tied=tied)
    again = from_pretrained(save_pretrained(model, str(tmp_path / "新" / "文件夹")))
    np.testing.assert_allclose(logits(again), logits(model), rtol=1e-5, atol=1e-6)
    assert again.config == {**model.config, "init": "gpt2"}


def test_our_own_folder_keeps_the_model(folder: Path, tmp_path: Path) -> None:
    """存成 gptcore 自己的文件夹再读回。"""
    model = from_pretrained(folder)
    again, _ = load_model(save_model(tmp_path / "ours", model, CharTokenizer("abcdefghijk")))
    assert again.config == model.config
    for (name, p), q in zip(model.named_parameters(), again.parameters, strict=True):
        np.testing.assert_array_equal(p.data, q.data, err_msg=name)


def test_where_mapped_files_cannot_be_replaced(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows：存之前先换成内存里的副本，冻结的也一样。"""
    model = from_pretrained(folder)
    model.transformers[0].attention.c_attn.weight.requires_grad = False
    before = logits(model)
    model.save_pretrained(tmp_path / "a")
    assert all(is_mapped(p.data) for p in model.parameters)
    monkeypatch.setattr(saving, "REPLACES_MAPPED", False)
    model.save_pretrained(folder)
    assert not any(is_mapped(array) for array in model.state_dict().values())
    np.testing.assert_allclose(logits(model), before, rtol=1e-5, atol=1e-6)
    assert model.output.linear.weight is model.embedding.embedding.weight


def test_an_interrupted_save_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """提交之后、改名之前被杀：读到的是完整的新模型，不是新旧各半。"""
    old = GPT(3, 7, 6, 2, 1, head_bias=False)
    new = GPT(3, 7, 6, 2, 1, head_bias=False, norm_eps=0.5)
    old.save_pretrained(tmp_path, CharTokenizer("abc"))

    def replace(source: Path, target: Path) -> None:
        if target.name == "model.safetensors":
            raise KeyboardInterrupt
        source.replace(target)

    with monkeypatch.context() as patch:
        patch.setattr(folders, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            new.save_pretrained(tmp_path, CharTokenizer("xyz"))
    model, tokenizer = load_pretrained(tmp_path)
    assert model.config["norm_eps"] == 0.5
    np.testing.assert_array_equal(
        model.embedding.embedding.weight.data, new.embedding.embedding.weight.data
    )
    assert tokenizer == CharTokenizer("xyz")
    names = {"config.json", "generation_config.json", "model.safetensors", MANIFEST}
    assert {p.name for p in tmp_path.iterdir()} == names | {
        "tokenizer.json",
        "tokenizer_config.json",
    }


def test_frozen_parameters_are_saved(folder: Path, tmp_path: Path) -> None:
    model = from_pretrained(folder)
    for p in model.parameters:
        p.requires_grad = False
    expected = stored(folder)
    found = stored(model.save_pretrained(tmp_path / "out"))
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_a_changed_model_is_not_saved(folder: Path, tmp_path: Path) -> None:
    model: Any = from_pretrained(folder)
    model.transformers.append(model.transformers[0])
    with pytest.raises(DataError, match="save_pretrained：模型建立之后改动过"):
        model.save_pretrained(tmp_path / "out")
    assert safetensors(draw_state()) == (folder / "model.safetensors").read_bytes()
