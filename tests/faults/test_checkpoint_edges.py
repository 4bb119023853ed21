"""检查点的边角：刚提交就被杀，设置、数据与位置对不上，出错之后改正了再来"""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.runs import SIZE, assert_same, chars, gpt_trainer, scheduler, weights

from gptcore import (
    GPT,
    AdamWOptimizer,
    ArgumentError,
    Checkpoints,
    DataError,
    EarlyStopping,
    Evaluate,
    GPTLoss,
    GPTTrainer,
    MetricsFile,
    Optimizer,
)
from gptcore.errors import GptcoreError
from gptcore.serialization import load_folder, save_folder

STATE = "training_state.json"


def run(trainer: GPTTrainer, dataset: Any, steps: int, *callbacks: Any) -> None:
    for _ in trainer.steps(dataset, steps, scheduler(60), shuffle=True, callbacks=callbacks):
        pass


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Any]:
    """第 6 步的检查点与数据集。"""
    dataset = chars(tmp_path)
    run(gpt_trainer(dataset), dataset, 6, Checkpoints(tmp_path / "run", 6))
    return tmp_path / "run" / "step-00000006", dataset


def rewrite(folder: Path, name: str, change: Callable[[Any], object]) -> None:
    """改动一个 JSON，清单也跟着改。"""
    listed = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["files"]
    files = load_folder(folder, listed)
    value = json.loads(files[name])
    change(value)
    save_folder(folder, files | {name: json.dumps(value).encode()})


# 刚提交


def test_committed_but_not_yet_renamed(saved: tuple[Path, Any]) -> None:
    """换上清单之后、改名之前被杀：直接给出这个检查点也读得回来。"""
    folder, dataset = saved
    expected = gpt_trainer(dataset, seed=1)
    expected.resume(folder)
    entries = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["files"]
    for name, entry in entries.items():
        (folder / name).rename(folder / entry["new"])
    again = gpt_trainer(dataset, seed=2)
    again.resume(folder)
    assert_same(expected, again)


def test_a_model_folder_is_not_a_checkpoint(saved: tuple[Path, Any]) -> None:
    folder, dataset = saved
    files = load_folder(folder, ("model.safetensors", "config.json"))
    save_folder(folder.parent / "model", files)
    with pytest.raises(DataError, match="没有检查点"):
        gpt_trainer(dataset).resume(folder.parent / "model")


def test_deletion_goes_on_after_a_kill(tmp_path: Path) -> None:
    """删旧的检查点删到一半被杀：下一次保存接着删。"""
    dataset, folder = chars(tmp_path), tmp_path / "run"
    half = folder / f".step-00000002.{'0' * 16}.old"
    half.mkdir(parents=True)
    (half / "model.safetensors").write_bytes(b"x")
    (folder / ".mine.old").mkdir()
    run(gpt_trainer(dataset), dataset, 6, Checkpoints(folder, 2, keep=1))
    assert sorted(p.name for p in folder.iterdir()) == [".mine.old", "step-00000006"]


# 对不上


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_every_file_of_the_manifest_is_checked(saved: tuple[Path, Any], name: str) -> None:
    folder, dataset = saved
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content.replace(b"2", b"3", 1) + b" ")
    with pytest.raises(DataError, match=f"{name}.*SHA-256"):
        gpt_trainer(dataset).resume(folder)
    (folder / name).unlink()
    with pytest.raises(DataError, match=f"缺少 {name}"):
        gpt_trainer(dataset).resume(folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"heads": 2}, "heads 原来是 3，现在是 2"), ({"dropout": 0.2}, "dropout 原来是 0.1，现在是 0.2")],
)  # fmt: skip
def test_settings_that_shapes_do_not_show(
    saved: tuple[Path, Any], options: dict[str, Any], message: str
) -> None:
    folder, dataset = saved
    model = GPT(dataset.vocab_size, **(SIZE | {"dropout": 0.1} | options))
    optimizer = AdamWOptimizer(model.parameter_groups(0.1), lr=1e-3)
    trainer = GPTTrainer(model, GPTLoss(), optimizer, rng=np.random.default_rng(0))
    with pytest.raises(ArgumentError, match=message):
        trainer.resume(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state["run"].update(position=15),
        lambda state: state["run"].update(position=2**62),
        lambda state: state["run"].update(order_seed=None),
    ],
)
def test_a_place_that_cannot_be(saved: tuple[Path, Any], change: Any) -> None:
    folder, dataset = saved
    assert len(dataset) == 15
    rewrite(folder, STATE, change)
    trainer = gpt_trainer(dataset)
    trainer.resume(folder)
    with pytest.raises(DataError, match="对不上"):
        run(trainer, dataset, 9)


def test_a_record_of_the_data_that_is_not_one(saved: tuple[Path, Any]) -> None:
    folder, dataset = saved
    rewrite(folder, STATE, lambda state: state.update(data=[]))
    with pytest.raises(DataError, match="data"):
        gpt_trainer(dataset).resume(folder)


# 拒绝时什么也不变


class FussyOptimizer(Optimizer):
    """读回时才发现不对的优化器。"""

    def step(self) -> None:
        for p in self.parameters:
            p.data -= np.float32(self.lr) * p.grad

    def load_state_dict(self, state: Any) -> None:
        raise ArgumentError("FussyOptimizer：不要这个")


def test_a_late_refusal_restores_the_default_generator(tmp_path: Path) -> None:
    dataset = chars(tmp_path)
    model = GPT(dataset.vocab_size, **SIZE)
    trainer = GPTTrainer(model, GPTLoss(), FussyOptimizer(model.parameters, lr=0.1))
    np.random.seed(1)
    list(trainer.steps(dataset, 2))
    trainer.save_checkpoint(tmp_path / "here")
    np.random.seed(2)
    expected = np.random.get_state(legacy=False)
    with pytest.raises(ArgumentError, match="不要这个"):
        trainer.resume(tmp_path / "here")
    np.testing.assert_equal(np.random.get_state(legacy=False), expected)


def test_a_warning_made_an_error_changes_nothing(saved: tuple[Path, Any]) -> None:
    folder, dataset = saved
    rewrite(folder, STATE, lambda state: state["environment"].update(threads=64))
    trainer = gpt_trainer(dataset, seed=4)
    before = weights(trainer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="线程数"):
            trainer.resume(folder)
    assert trainer.state.step == 0
    for x, y in zip(before, weights(trainer), strict=True):
        np.testing.assert_array_equal(x, y)


def test_the_warning_points_at_the_caller(saved: tuple[Path, Any]) -> None:
    folder, dataset = saved
    rewrite(folder, STATE, lambda state: state["environment"].update(threads=64))
    with pytest.warns(UserWarning, match="线程数") as caught:
        gpt_trainer(dataset).resume(folder)
    assert caught[0].filename == __file__


# 改正了再来


@pytest.mark.parametrize("wrong", ["callback", "data"])
def test_a_mistake_does_not_use_up_the_resume(saved: tuple[Path, Any], wrong: str) -> None:
    """接着训练的第一次调用出了错，改正之后仍是接着训练，不会悄悄从头开始。"""
    folder, dataset = saved
    whole = gpt_trainer(dataset)
    run(whole, dataset, 9)
    trainer = gpt_trainer(dataset, seed=5)
    trainer.resume(folder)
    callbacks = [MetricsFile(dataset.filename / "under a file")] if wrong == "callback" else []
    steps = trainer.steps(dataset, 9, shuffle=wrong != "data", callbacks=callbacks)
    with pytest.raises(GptcoreError):
        next(steps)
    run(trainer, dataset, 9)
    assert_same(whole, trainer)


def test_saved_again_at_once(saved: tuple[Path, Any], tmp_path: Path) -> None:
    """读回来立即再存，数据的记录还在。"""
    folder, dataset = saved
    trainer = gpt_trainer(dataset)
    trainer.resume(folder)
    trainer.save_checkpoint(tmp_path / "again")
    other = gpt_trainer(dataset)
    other.resume(tmp_path / "again")
    with pytest.raises(ArgumentError, match="shuffle"):
        list(other.steps(dataset, 9, shuffle=False))


# 同一步的评估与记录


@pytest.mark.parametrize("first", [True, False])
def test_the_checkpoint_comes_after_the_evaluation(tmp_path: Path, first: bool) -> None:
    """不论回调的次序，检查点里已有同一步的评估，记录里已有同一步。"""
    dataset, folder = chars(tmp_path), tmp_path / "run"
    others = [Evaluate(3, limit=3), MetricsFile(tmp_path / "metrics.jsonl")]
    checkpoints = [Checkpoints(folder, 3)]
    callbacks = [*checkpoints, *others] if first else [*others, *checkpoints]
    run(gpt_trainer(dataset), dataset, 6, *callbacks)
    again = gpt_trainer(dataset)
    assert [step for step, _ in again.resume(folder / "step-00000003").evaluations] == [3]


def test_stopped_early_stays_stopped(tmp_path: Path) -> None:
    """提前停止之后、退出之前被杀：接着训练不会再多走几步。"""
    dataset, folder = chars(tmp_path), tmp_path / "run"
    callbacks = [Evaluate(2, limit=3), EarlyStopping(3)]
    first = gpt_trainer(dataset, lr=0.0)
    list(first.steps(dataset, 30, callbacks=[*callbacks, Checkpoints(folder, 2)]))
    assert first.state.step == 8
    again = gpt_trainer(dataset, lr=0.0)
    again.resume(folder)
    assert list(again.steps(dataset, 30, callbacks=callbacks)) == []
    assert again.stop_reason == first.stop_reason
