"""NaN 与无穷：停下来，说清楚第几步、最早出现在哪里；跳过；检查点不被弄坏"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.runs import chars, gpt_trainer, weights

from gptcore import (
    Callback,
    Checkpoints,
    Evaluate,
    NonFiniteError,
    SGDOptimizer,
    Trainer,
    load_model,
)
from gptcore.training import StepReport


class Poison(Callback):
    """做完第几步之后，把一个参数改坏。"""

    def __init__(self, after: int, name: str, value: float = float("nan")) -> None:
        self.after, self.name, self.value = after, name, value

    def on_step(self, trainer: Trainer, report: StepReport) -> None:
        if trainer.state.step == self.after:
            dict(trainer.model.named_parameters())[self.name].data.reshape(-1)[0] = self.value


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [("output.linear.weight", np.nan, "NaN"), ("embedding.embedding.weight", np.inf, "无穷")],
)
def test_names_the_first_broken_parameter(
    tmp_path: Path, name: str, value: float, kind: str
) -> None:
    dataset = chars(tmp_path)
    trainer = gpt_trainer(dataset)
    with pytest.raises(NonFiniteError) as caught:
        list(trainer.steps(dataset, 10, callbacks=[Poison(3, name, value)]))
    message = str(caught.value)
    assert "第 3 步" in message
    assert f"参数 {name}" in message
    assert kind in message
    assert "学习率是 0.003" in message
    assert "没有检查点" in message


def test_names_the_first_activation_when_parameters_are_finite(tmp_path: Path) -> None:
    """参数有限但很大：某一层的输出先溢出。"""
    dataset = chars(tmp_path)
    trainer = gpt_trainer(dataset)
    name = "transformers.0.feed_forward.output.weight"
    with pytest.raises(
        NonFiniteError, match=r"transformers\.0\.feed_forward.*）的输出.*都是有限的"
    ):
        list(trainer.steps(dataset, 10, callbacks=[Poison(2, name, 3e38)]))
    assert all("forward" not in vars(layer) for layer in trainer.model.sublayers())


def test_names_the_gradient_when_the_loss_is_finite(tmp_path: Path) -> None:
    dataset = chars(tmp_path)
    trainer = gpt_trainer(dataset, dropout=0.0)
    loss_fn: Any = trainer.loss_fn

    class Overflowing(type(loss_fn)):
        def loss(self, p: Any, y: Any) -> Any:
            return super().loss(p, y) * _infinite_gradient(p)

    trainer.loss_fn = Overflowing()
    before = weights(trainer)
    with pytest.raises(NonFiniteError, match=r"参数 .*的梯度里有"):
        list(trainer.steps(dataset, 3))
    for a, b in zip(before, weights(trainer), strict=True):
        np.testing.assert_array_equal(a, b)


def _infinite_gradient(p: Any) -> Any:
    from gptcore import Tensor

    one = Tensor(np.asarray(1, p.dtype))
    return one.record((p,), lambda _: (np.full(p.shape, np.inf, p.dtype),))


def test_the_broken_step_does_not_update(tmp_path: Path) -> None:
    dataset = chars(tmp_path)
    trainer = gpt_trainer(dataset)
    seen: list[list[np.ndarray]] = []

    class Remember(Callback):
        def on_step(self, trainer: Trainer, report: StepReport) -> None:
            seen.append(weights(trainer))

    with pytest.raises(NonFiniteError):
        list(trainer.steps(dataset, 9, callbacks=[Poison(4, "output.linear.bias"), Remember()]))
    for a, b in zip(seen[-1], weights(trainer), strict=True):
        np.testing.assert_array_equal(a, b)


def test_skipping_goes_on_and_counts(tmp_path: Path) -> None:
    dataset = chars(tmp_path)

    def broken_at(steps: set[int], skip: int) -> tuple[Any, list[StepReport]]:
        trainer = gpt_trainer(dataset, skip_nonfinite=skip)
        loss_fn: Any = trainer.loss_fn

        class Sometimes(type(loss_fn)):
            def loss(self, p: Any, y: Any) -> Any:
                factor = np.nan if trainer.state.step in steps else 1.0
                return super().loss(p, y) * factor

        trainer.loss_fn = Sometimes()
        return trainer, list(trainer.steps(dataset, 8))

    trainer, reports = broken_at({2, 5}, 2)
    assert [r.step for r in reports if r.skipped] == [2, 5]
    assert trainer.state.skipped == 2
    assert int(trainer.optimizer.state_dict()["steps"]) == 6
    with pytest.raises(NonFiniteError, match="已跳过 2 步"):
        broken_at({2, 5, 6}, 2)


def test_skipped_steps_do_not_enter_the_mean(tmp_path: Path) -> None:
    dataset = chars(tmp_path)
    trainer = gpt_trainer(dataset, skip_nonfinite=1)
    loss_fn: Any = trainer.loss_fn

    class Once(type(loss_fn)):
        def loss(self, p: Any, y: Any) -> Any:
            return super().loss(p, y) * (np.nan if trainer.state.step == 1 else 1.0)

    trainer.loss_fn = Once()
    assert np.isfinite(trainer.train(dataset, 1)).all()


def test_the_last_good_checkpoint_is_kept(tmp_path: Path) -> None:
    dataset, folder = chars(tmp_path), tmp_path / "run"
    trainer = gpt_trainer(dataset)
    callbacks = [Poison(5, "output.linear.weight"), Checkpoints(folder, 1)]
    with pytest.raises(NonFiniteError, match=r"output\.linear\.weight"):
        list(trainer.steps(dataset, 9, callbacks=callbacks))
    assert max(p.name for p in folder.iterdir()) == "step-00000004"
    model, _ = load_model(folder / "step-00000004")
    assert all(np.isfinite(p.data).all() for p in model.parameters)
    fresh = gpt_trainer(dataset)
    fresh.resume(folder)
    assert len(list(fresh.steps(dataset, 9))) == 5


def test_the_message_names_the_checkpoint(tmp_path: Path) -> None:
    dataset, folder = chars(tmp_path), tmp_path / "run"
    trainer = gpt_trainer(dataset)
    callbacks = [Checkpoints(folder, 2), Poison(5, "output.linear.weight")]
    with pytest.raises(NonFiniteError, match=r"step-00000004 完好"):
        list(trainer.steps(dataset, 9, callbacks=callbacks))


def test_parameters_broken_by_the_last_step(tmp_path: Path) -> None:
    """最后一步的更新自己溢出：没有下一步来发现它。"""
    dataset = chars(tmp_path)
    trainer = gpt_trainer(dataset)
    optimizer = SGDOptimizer(trainer.model.parameters, lr=3e38)
    trainer = Trainer(trainer.model, trainer.loss_fn, optimizer)
    with pytest.raises(NonFiniteError, match="最后一步之后参数"):
        list(trainer.steps(dataset, 1))


def test_a_broken_evaluation_stops(tmp_path: Path) -> None:
    dataset = chars(tmp_path)
    trainer = gpt_trainer(dataset)
    callbacks = [Poison(3, "output.linear.weight"), Evaluate(3)]
    with pytest.raises(
        NonFiniteError, match=r"第 3 步之后，测试集上的损失.*output\.linear\.weight"
    ):
        list(trainer.steps(dataset, 9, callbacks=callbacks))


def test_a_working_run_says_nothing(tmp_path: Path) -> None:
    dataset = chars(tmp_path)
    with np.errstate(all="raise"):
        list(gpt_trainer(dataset).steps(dataset, 3))
