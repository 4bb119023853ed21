"""接着训练：与不中断的那一次逐位相同；数据、设置、环境变了要说出来"""

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.runs import assert_same, chars, gpt_trainer, moments, scheduler, weights

from gptcore import (
    ArgumentError,
    Checkpoints,
    DataError,
    DtypeError,
    EarlyStopping,
    Evaluate,
    GptcoreError,
    load_model,
)
from gptcore.training import GPTTrainer

HALF = 37  # 一轮 54 批，打乱的次序在第二轮中间接上


def run(trainer: GPTTrainer, dataset: Any, steps: int, *callbacks: Any) -> list[float]:
    reports = trainer.steps(dataset, steps, scheduler(2 * HALF), shuffle=True, callbacks=callbacks)
    return [report.loss for report in reports]


@pytest.mark.parametrize("k", [1, 3])
def test_resumed_run_is_bit_identical(tmp_path: Path, k: int) -> None:
    dataset = chars(tmp_path)
    whole = gpt_trainer(dataset, accumulation_steps=k)
    losses = run(whole, dataset, 2 * HALF, Evaluate(10))
    state = np.random.get_state(legacy=False)

    first = gpt_trainer(dataset, accumulation_steps=k)
    before = run(first, dataset, HALF, Evaluate(10), Checkpoints(tmp_path / "run", 10))
    again = gpt_trainer(dataset, seed=99, accumulation_steps=k)  # 别的初值、别的随机状态
    np.random.seed(12345)
    again.resume(tmp_path / "run")
    after = run(again, dataset, 2 * HALF, Evaluate(10))
    assert before + after == losses
    assert_same(whole, again)
    np.testing.assert_equal(np.random.get_state(legacy=False), state)


def test_fresh_process_is_bit_identical(tmp_path: Path) -> None:
    """中断与接着训练各在自己的进程里，最后的参数与一次训练完的逐位相同。"""
    script = Path(__file__).with_name("resume_program.py")
    for arguments in (["whole", "20"], ["half", "10"], ["half", "20"]):
        subprocess.run([sys.executable, script, tmp_path, *arguments], check=True, timeout=120)
    whole, half = (np.load(tmp_path / f"{name}.npz") for name in ("whole", "half"))
    assert sorted(whole) == sorted(half)
    for name in whole:
        np.testing.assert_array_equal(whole[name], half[name], name)


def test_epochs_resume_in_the_middle(tmp_path: Path) -> None:
    dataset = chars(tmp_path)
    whole = gpt_trainer(dataset)
    expected = whole.train(dataset, 3, shuffle=True)
    half = gpt_trainer(dataset)
    steps = half.steps(dataset, 3 * len(dataset), shuffle=True)
    for _ in range(len(dataset) + 5):
        next(steps)
    half.save_checkpoint(tmp_path / "here")
    again = gpt_trainer(dataset)
    again.resume(tmp_path / "here")
    assert again.train(dataset, 3, shuffle=True) == expected
    assert_same(whole, again)


def test_saving_changes_nothing(tmp_path: Path) -> None:
    dataset = chars(tmp_path)
    plain, saving = gpt_trainer(dataset), gpt_trainer(dataset)
    np.random.seed(5)
    a = run(plain, dataset, 12)
    np.random.seed(5)
    b = run(saving, dataset, 12, Checkpoints(tmp_path / "run", every=1))
    assert a == b
    assert_same(plain, saving)


def test_a_checkpoint_is_a_model_folder(tmp_path: Path) -> None:
    dataset = chars(tmp_path)
    trainer = gpt_trainer(dataset)
    run(trainer, dataset, 6, Checkpoints(tmp_path / "run", 3))
    model, tokenizer = load_model(tmp_path / "run" / "step-00000006")
    assert tokenizer.vocab_size == dataset.vocab_size
    for p, q in zip(model.parameters, trainer.model.parameters, strict=True):
        np.testing.assert_array_equal(p.data, q.data)
    names = {p.name for p in (tmp_path / "run" / "step-00000006").iterdir()}
    assert names == {
        "model.safetensors", "config.json", "tokenizer.json",
        "training_state.safetensors", "training_state.json", "manifest.json",
    }  # fmt: skip


def test_a_second_run_starts_over(tmp_path: Path) -> None:
    """没有 resume 的第二次训练从第 0 步数起，学习率调度也从头。"""
    dataset = chars(tmp_path)
    trainer = gpt_trainer(dataset)
    run(trainer, dataset, 4)
    reports = list(trainer.steps(dataset, 2, scheduler(10)))
    assert [r.step for r in reports] == [0, 1]
    assert reports[0].lr == scheduler(10).step(0)


def test_keeps_the_newest_and_the_best(tmp_path: Path) -> None:
    dataset = chars(tmp_path)
    trainer = gpt_trainer(dataset)
    folder = tmp_path / "run"
    run(trainer, dataset, 23, Evaluate(5, limit=4), Checkpoints(folder, 4, keep=2))
    assert sorted(p.name for p in folder.iterdir()) == ["best", "step-00000020", "step-00000023"]
    assert [step for step, _ in trainer.state.evaluations] == [5, 10, 15, 20]
    best, _ = load_model(folder / "best")
    again = gpt_trainer(dataset)
    assert trainer.state.best is not None
    seen: list[list[np.ndarray]] = [
        weights(again)
        for report in again.steps(dataset, 20, scheduler(2 * HALF), shuffle=True)
        if report.step + 1 == trainer.state.best[0]
    ]
    for p, q in zip(best.parameters, seen[0], strict=True):
        np.testing.assert_array_equal(p.data, q)


def test_old_checkpoints_are_not_mixed_with_a_new_run(tmp_path: Path) -> None:
    dataset, folder = chars(tmp_path), tmp_path / "run"
    run(gpt_trainer(dataset), dataset, 4, Checkpoints(folder, 2))
    with pytest.raises(ArgumentError, match=r"step-00000004.*resume"):
        run(gpt_trainer(dataset), dataset, 4, Checkpoints(folder, 2))
    assert (folder / "step-00000004" / "manifest.json").is_file()


def test_resuming_from_an_older_one_sets_the_newer_aside(tmp_path: Path) -> None:
    dataset, folder = chars(tmp_path), tmp_path / "run"
    run(gpt_trainer(dataset), dataset, 6, Checkpoints(folder, 2))
    again = gpt_trainer(dataset)
    again.resume(folder / "step-00000002")
    run(again, dataset, 5, Checkpoints(folder, 2, keep=1))
    names = sorted(p.name for p in folder.iterdir())
    assert names[-1] == "step-00000005"
    assert sorted(n.split("-", 2)[2] for n in names[:-1]) == ["step-00000004", "step-00000006"]


# 损坏


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Any]:
    dataset = chars(tmp_path)
    run(gpt_trainer(dataset), dataset, 6, Checkpoints(tmp_path / "run", 2))
    return tmp_path / "run", dataset


def test_a_damaged_newest_is_reported_and_the_one_before_used(saved: Any) -> None:
    folder, dataset = saved
    damage(folder / "step-00000006" / "training_state.safetensors")
    trainer = gpt_trainer(dataset)
    with pytest.warns(UserWarning, match=r"step-00000006.*SHA-256"):
        trainer.resume(folder)
    assert trainer.state.step == 4
    with pytest.raises(DataError, match="SHA-256"):
        trainer.resume(folder / "step-00000006")


def test_a_half_written_one_does_not_count(saved: Any) -> None:
    folder, dataset = saved
    (folder / "step-00000006" / "manifest.json").unlink()
    trainer = gpt_trainer(dataset)
    trainer.resume(folder)
    assert trainer.state.step == 4


def test_nothing_to_resume(tmp_path: Path) -> None:
    trainer = gpt_trainer(chars(tmp_path))
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(DataError, match="没有检查点"):
            trainer.resume(folder)


def rewrite(folder: Path, change: Any) -> None:
    """改动训练状态，清单也跟着改，好让检查走到内容。"""
    from gptcore.serialization import load_folder, save_folder

    names = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["files"]
    files = load_folder(folder, names)
    state = json.loads(files["training_state.json"])
    change(state)
    files["training_state.json"] = json.dumps(state).encode()
    save_folder(folder, files)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s["run"].update(step=-1), "step"),
        (lambda s: s["run"].update(step=1.5), "step"),
        (lambda s: s["run"].pop("epoch"), "epoch"),
        (lambda s: s["run"].update(evaluations=[[1]]), "evaluations"),
        (lambda s: s["run"].update(order_seed="1"), "order_seed"),
        (lambda s: s.update(run=[]), "训练状态"),
        (lambda s: s.pop("generators"), "generators"),
        (lambda s: s.update(generators=3), "generators"),
        (lambda s: s["generators"].update(trainer={}), "生成器"),
        (lambda s: s["generators"].update({"trainer.rng": {"bit_generator": "PCG64"}}), "PCG64"),
        (lambda s: s["generators"].update(default=[]), "default"),
    ],
)  # fmt: skip
def test_edited_training_state(saved: Any, change: Any, message: str) -> None:
    folder, dataset = saved
    path = folder / "step-00000006"
    rewrite(path, change)
    with pytest.raises(GptcoreError, match=message) as caught:
        gpt_trainer(dataset).resume(path)
    assert any("step-00000006" in note for note in caught.value.__notes__)


# 设置变了


def test_other_data_is_refused(saved: Any, tmp_path: Path) -> None:
    folder, dataset = saved
    trainer = gpt_trainer(dataset)
    trainer.resume(folder)
    with pytest.raises(ArgumentError, match=r"shuffle 原来是 True，现在是 False"):
        next(iter(trainer.steps(dataset, 8)))
    dataset.batch_size = 2
    trainer.resume(folder)
    with pytest.raises(ArgumentError, match=r"batch_size 原来是 4，现在是 2"):
        run(trainer, dataset, 8)


def test_other_settings_are_refused(saved: Any) -> None:
    folder, dataset = saved
    with pytest.raises(ArgumentError, match=r"accumulation_steps 是 1，现在是 2"):
        gpt_trainer(dataset, accumulation_steps=2).resume(folder)
    other = gpt_trainer(dataset)
    other.rng = None
    with pytest.raises(ArgumentError, match="生成器"):
        other.resume(folder)
    with pytest.raises(DtypeError, match="float64"):
        gpt_trainer(dataset, dtype=np.float64).resume(folder)


def test_changed_environment_is_reported(saved: Any) -> None:
    folder, dataset = saved
    rewrite(folder / "step-00000006", lambda s: s["environment"].update(threads=64, numpy="1.0"))
    with pytest.warns(UserWarning, match=r"NumPy 的版本由 1\.0 变成.*线程数由 64 变成"):
        gpt_trainer(dataset).resume(folder)
    rewrite(folder / "step-00000004", lambda _: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gpt_trainer(dataset).resume(folder / "step-00000004")


def test_changed_settings_are_reported(saved: Any) -> None:
    folder, dataset = saved
    trainer = gpt_trainer(dataset, max_norm=0.5)
    trainer.optimizer.groups[0].weight_decay = 0.2
    with pytest.warns(
        UserWarning, match=r"max_norm 由 1\.0 变成 0\.5；weight_decay 由 \[0\.1, 0\.0\]"
    ):
        trainer.resume(folder)


def test_frozen_parameters_that_changed_are_reported(saved: Any) -> None:
    folder, dataset = saved
    trainer = gpt_trainer(dataset)
    dict(trainer.model.named_parameters())["output.linear.bias"].requires_grad = False
    with pytest.warns(UserWarning, match=r"frozen 由 \[\] 变成 \['output\.linear\.bias'\]"):
        trainer.resume(folder)


def test_early_stopping_counts_across_a_resume(tmp_path: Path) -> None:
    dataset = chars(tmp_path)
    trainer = gpt_trainer(dataset, lr=0.0)  # 学习率 0：损失不变，永远没有进步
    losses = list(trainer.steps(dataset, 30, callbacks=[Evaluate(2, limit=3), EarlyStopping(3)]))
    assert len(losses) == 8
    assert trainer.stop_reason is not None
    assert "没有进步" in trainer.stop_reason
    first = gpt_trainer(dataset, lr=0.0)
    folder = tmp_path / "run"
    list(first.steps(dataset, 5, callbacks=[Evaluate(2, limit=3), Checkpoints(folder, 5)]))
    again = gpt_trainer(dataset, lr=0.0)
    again.resume(folder)
    rest = list(again.steps(dataset, 30, callbacks=[Evaluate(2, limit=3), EarlyStopping(3)]))
    assert len(rest) == 3


def test_state_of_the_optimizer_comes_back(saved: Any) -> None:
    folder, dataset = saved
    trainer = gpt_trainer(dataset, seed=7)
    before = moments(trainer)
    trainer.resume(folder)
    after = moments(trainer)
    assert int(after["steps"]) == 6
    assert any(not np.array_equal(before[n], after[n]) for n in before)
