"""初学者常犯的错：没有取用迭代器，忘了评估，写错时刻的名字，参数的次序，忘了 return"""

import gc
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.runs import assert_same, chars, gpt_trainer

from gptcore import (
    AdamWOptimizer,
    Callback,
    CharDataset,
    Checkpoints,
    DataError,
    DtypeError,
    EarlyStopping,
    Evaluate,
    GPTLoss,
    GPTTrainer,
    Layer,
    Linear,
    Sequential,
    ShapeError,
    StepReport,
    Tensor,
    Trainer,
)


def test_steps_never_taken(tmp_path: Path) -> None:
    dataset = chars(tmp_path)
    steps = gpt_trainer(dataset).steps(dataset, 30)
    assert repr(steps) == "<30 步训练，还没有开始：请写 for report in trainer.steps(…)>"
    with pytest.warns(UserWarning, match=r"steps\(…, 30\)：一步也没有训练.*for report in"):
        del steps  # CPython 立即回收


def test_steps_taken_closed_or_empty(tmp_path: Path) -> None:
    """警告都会变成错误，所以这里一个也没有。"""
    dataset = chars(tmp_path)
    trainer = gpt_trainer(dataset)
    steps: Any = trainer.steps(dataset, 3)
    assert iter(steps) is steps
    assert next(steps).step == 0
    assert repr(steps) == "<3 步训练>"
    assert [report.step for report in steps] == [1, 2]
    closed: Any = trainer.steps(dataset, 3)
    closed.close()
    assert list(closed) == []
    empty = trainer.steps(dataset, 0)
    assert repr(empty) == "<0 步训练>"
    with pytest.raises(DtypeError):
        trainer.steps(dataset, 3, callbacks=3)  # type: ignore[arg-type]
    del steps, closed, empty
    gc.collect()


def test_early_stopping_without_evaluations(tmp_path: Path) -> None:
    dataset = chars(tmp_path)
    for callbacks in ([EarlyStopping(2)], [EarlyStopping(2), Evaluate(9)]):
        with pytest.warns(
            UserWarning, match=r"EarlyStopping：做完了 4 步，一次评估也没有.*Evaluate"
        ):
            list(gpt_trainer(dataset).steps(dataset, 4, callbacks=callbacks))
    list(gpt_trainer(dataset).steps(dataset, 4, callbacks=[EarlyStopping(2), Evaluate(4)]))
    list(gpt_trainer(dataset).steps(dataset, 0, callbacks=[EarlyStopping(2)]))


def test_moments_that_do_not_exist() -> None:
    with pytest.warns(UserWarning, match="Wrong：没有 on_epoch_end 这个时刻.*on_start、on_step"):

        class Wrong(Callback):
            def on_epoch_end(self, trainer: Trainer) -> None: ...

    class Right(Wrong):  # 基类里的已经说过；别的名字随意
        def on_epoch_end(self, trainer: Trainer) -> None: ...
        def on_step(self, trainer: Trainer, report: StepReport) -> None: ...
        def once(self) -> None: ...


def test_arguments_in_the_wrong_order(tmp_path: Path) -> None:
    model = gpt_trainer(chars(tmp_path)).model
    loss, optimizer = GPTLoss(), AdamWOptimizer(model.parameters)
    make: Any = GPTTrainer
    for given, message in (
        ((model, optimizer, loss), "loss_fn 的位置上是 AdamWOptimizer，它是 optimizer"),
        ((loss, model, optimizer), "model 的位置上是 GPTLoss，它是 loss_fn"),
        ((model, loss, model), "optimizer 的位置上是 GPT，它是 model"),
    ):
        with pytest.raises(
            DtypeError, match=f"^GPTTrainer：{message}；次序是 model、loss_fn、optim"
        ):
            make(*given)


def test_forgotten_return() -> None:
    class Forgot(Layer):
        def __init__(self) -> None:
            self.inner = Linear(3, 3)

        def forward(self, x: Tensor) -> Any:
            self.inner(x)

    with pytest.raises(DtypeError, match="这里是 NoneType；前一层的 forward 是不是忘了 return"):
        Sequential([Forgot(), Linear(3, 2)])(Tensor([[1.0, 2.0, 3.0]]))


def test_dataset_with_longer_windows(tmp_path: Path) -> None:
    dataset = chars(tmp_path)
    longer = CharDataset(tmp_path / "poem.txt", batch_size=4, context_size=9)
    with pytest.raises(ShapeError, match="数据集与模型的 context_size 要相同"):
        list(gpt_trainer(dataset).steps(longer, 1))


def test_folder_that_cannot_be_written_is_found_before_the_first_step(tmp_path: Path) -> None:
    dataset, file = chars(tmp_path), tmp_path / "file"
    file.write_text("x")
    trainer = gpt_trainer(dataset)
    with pytest.raises(DataError, match=r"不能写入 .*file"):
        next(trainer.steps(dataset, 900, callbacks=[Checkpoints(file)]))
    assert trainer.state.step == 0


def test_one_program_started_again_and_again(tmp_path: Path) -> None:
    """没有检查点就从头训练，有就接着训练；中断时说明怎样接着训练。"""
    dataset, folder = chars(tmp_path), tmp_path / "run"

    class Interrupt(Callback):
        def on_step(self, trainer: Trainer, report: StepReport) -> None:
            if report.step == 3:
                signal.raise_signal(signal.SIGINT)

    def program(*more: Callback) -> GPTTrainer:
        trainer = gpt_trainer(dataset)
        np.random.seed(7)
        trainer.resume(folder, missing_ok=True)
        for _ in trainer.steps(dataset, 8, shuffle=True, callbacks=[Checkpoints(folder), *more]):
            pass
        return trainer

    with pytest.raises(KeyboardInterrupt) as caught:
        program(Interrupt())
    assert "做完 4 步之后的状态已经保存；接着训练：trainer.resume(" in caught.value.__notes__[0]
    resumed = program()
    straight = gpt_trainer(dataset)
    np.random.seed(7)
    list(straight.steps(dataset, 8, shuffle=True))
    assert_same(resumed, straight)
    assert program().state.step == 8  # 已经做完
    (folder / "step-00000008" / "model.safetensors").write_bytes(b"")
    (folder / "step-00000004" / "model.safetensors").write_bytes(b"")
    with pytest.warns(UserWarning, match="已损坏"), pytest.raises(DataError):
        program()  # 损坏的不算没有
