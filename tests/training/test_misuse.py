"""用错了训练器：说清楚，并且不毁掉已有的东西"""

from pathlib import Path
from typing import Any

import pytest
from training.runs import chars, gpt_trainer

from gptcore import (
    AdamWOptimizer,
    ArgumentError,
    Callback,
    Checkpoints,
    DataError,
    DtypeError,
    Evaluate,
    Evaluation,
    MetricsFile,
    StepReport,
    Tensor,
    Trainer,
    WarmupCosineScheduler,
    load_model,
    save_model,
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"callbacks": None}, "callbacks 必须是一列回调，这里是 None"),
        ({"callbacks": Evaluate(2)}, r"这里是 Evaluate；.*callbacks=\["),
        ({"callbacks": [Evaluate]}, "类 Evaluate 不是回调"),
        ({"callbacks": [3]}, "callbacks 里的 3 不是回调"),
        ({"scheduler": 1e-3}, r"scheduler 必须是学习率调度，这里是 0\.001"),
        ({"scheduler": WarmupCosineScheduler}, "类 WarmupCosineScheduler"),
        ({"scheduler": AdamWOptimizer([Tensor([1.0])])}, "这里是 AdamWOptimizer"),
    ],
)
@pytest.mark.parametrize("method", ["steps", "train"])
def test_wrong_arguments(tmp_path: Path, method: str, options: Any, message: str) -> None:
    dataset = chars(tmp_path)
    trainer: Any = gpt_trainer(dataset)
    with pytest.raises(DtypeError, match=f"^{method}：.*{message}"):
        getattr(trainer, method)(dataset, 2, **options)  # 立即报错，不等到取第一步


@pytest.mark.parametrize("value", [0, 0.0, -1, float("nan"), float("inf"), "1"])
def test_bad_max_norm(tmp_path: Path, value: Any) -> None:
    """0 曾经悄悄地等于不裁剪。"""
    with pytest.raises(ArgumentError, match=r"max_norm 必须是正数.*max_norm=None"):
        gpt_trainer(chars(tmp_path), max_norm=value)


@pytest.mark.parametrize("value", [3, None, b"x", ["x"]])
def test_paths_that_are_not_paths(tmp_path: Path, value: Any) -> None:
    dataset = chars(tmp_path)
    trainer = gpt_trainer(dataset)
    model: Any = trainer.model
    for use in (
        lambda: trainer.resume(value),
        lambda: trainer.save_checkpoint(value),
        lambda: Checkpoints(value),
        lambda: MetricsFile(value),
        lambda: save_model(value, model, dataset.tokenizer),
        lambda: load_model(value),
    ):
        with pytest.raises(DtypeError, match=r"得到 .*，它必须是路径"):
            use()


@pytest.mark.parametrize("name", ["长" * 300, "a\0b"])
def test_paths_the_system_refuses(tmp_path: Path, name: str) -> None:
    dataset, path = chars(tmp_path), tmp_path / name
    trainer = gpt_trainer(dataset)
    for use in (
        lambda: trainer.resume(path),
        lambda: trainer.save_checkpoint(path),
        lambda: list(trainer.steps(dataset, 1, callbacks=[Checkpoints(path)])),
        lambda: list(trainer.steps(dataset, 1, callbacks=[MetricsFile(path)])),
    ):
        with pytest.raises(DataError, match=r"不能|没有检查点"):
            use()


@pytest.mark.parametrize("limit", [0, -1, 1.5, "3", True])
def test_bad_limits(tmp_path: Path, limit: Any) -> None:
    dataset = chars(tmp_path)
    with pytest.raises(ArgumentError, match="limit"):
        gpt_trainer(dataset).evaluate(dataset, limit)


def test_running_the_script_again_keeps_the_metrics(tmp_path: Path) -> None:
    """忘了 resume，再运行一次同样的程序：检查点不让它开始，记录也还在。"""
    dataset, path = chars(tmp_path), tmp_path / "m.jsonl"

    def script() -> None:
        callbacks = [MetricsFile(path), Checkpoints(tmp_path / "run")]
        list(gpt_trainer(dataset).steps(dataset, 3, callbacks=callbacks))

    script()
    before = path.read_bytes()
    with pytest.raises(ArgumentError, match="已有检查点"):
        script()
    assert path.read_bytes() == before


# 一次训练的途中又开始了另一次


def test_an_abandoned_iterator_does_not_go_on(tmp_path: Path) -> None:
    dataset = chars(tmp_path)
    trainer = gpt_trainer(dataset)
    first = trainer.steps(dataset, 9, callbacks=[Checkpoints(tmp_path / "a", 1, keep=9)])
    next(first)
    list(trainer.steps(dataset, 3))
    with pytest.raises(ArgumentError, match="又开始了一次训练"):
        next(first)
    assert len(list((tmp_path / "a").iterdir())) == 1


class Again(Callback):
    """在某个时刻用同一个训练器再训练，或者 resume。"""

    def __init__(self, moment: str, action: Any) -> None:
        setattr(self, moment, lambda trainer, *_: action(trainer))


@pytest.mark.parametrize("moment", ["on_start", "on_step", "on_evaluation", "on_end"])
@pytest.mark.parametrize("action", ["train", "resume"])
def test_the_same_trainer_inside_its_own_callback(tmp_path: Path, moment: str, action: str) -> None:
    dataset, folder = chars(tmp_path), tmp_path / "run"
    other = gpt_trainer(dataset)
    list(other.steps(dataset, 2, callbacks=[Checkpoints(tmp_path / "other")]))
    actions: dict[str, Any] = {
        "train": lambda trainer: list(trainer.steps(dataset, 2)),
        "resume": lambda trainer: trainer.resume(tmp_path / "other"),
    }
    callbacks = [Again(moment, actions[action]), Checkpoints(folder, 1), Evaluate(1)]
    with pytest.raises(ArgumentError, match="又开始了一次训练，或者 resume 过"):
        list(gpt_trainer(dataset).steps(dataset, 3, callbacks=callbacks))
    if moment != "on_end":  # 混在一起的状态没有存下来
        assert not list(folder.glob("*"))


def test_another_trainer_inside_a_callback(tmp_path: Path) -> None:
    dataset = chars(tmp_path)

    class Inner(Callback):
        def on_step(self, trainer: Trainer, report: StepReport) -> None:
            list(gpt_trainer(dataset).steps(dataset, 2))

        def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
            list(gpt_trainer(dataset).steps(dataset, 2))

    trainer = gpt_trainer(dataset)
    assert len(list(trainer.steps(dataset, 3, callbacks=[Inner(), Evaluate(1)]))) == 3
    assert trainer.state.step == 3
