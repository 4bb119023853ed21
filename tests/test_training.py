"""训练器：逐位可重复，模式总能恢复，学习率、裁剪与报告"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptcore import (
    GPT,
    AdamWOptimizer,
    CharDataset,
    Dataset,
    Dropout,
    Embedding,
    GPTLoss,
    GPTTrainer,
    Linear,
    MeanPool,
    MSELoss,
    NextCharDataset,
    ReLU,
    Sequential,
    SGDOptimizer,
    Softmax,
    Tensor,
    Trainer,
    WarmupCosineScheduler,
    is_grad_enabled,
)
from gptcore.models.generation import generate_ids, sample

TEXT = "春眠不觉晓，处处闻啼鸟。夜来风雨声，花落知多少。" * 12


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "poem.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def chars(text_file: Path) -> CharDataset:
    return CharDataset(text_file, batch_size=4, context_size=8)


def gpt_trainer(dataset: CharDataset, seed: int = 0) -> Any:
    np.random.seed(seed)
    model = GPT(dataset.vocab_size, 8, 12, 3, 2)
    return GPTTrainer(model, GPTLoss(), AdamWOptimizer(model.parameters, lr=3e-3))


def simple_trainer(text_file: Path) -> Any:
    np.random.seed(0)
    dataset = NextCharDataset(text_file, batch_size=4, context_size=8)
    size = dataset.vocab_size
    layers = [Embedding(size, 4), MeanPool(), Linear(4, 8), ReLU(), Linear(8, size), Softmax()]
    model = Sequential([*layers[:4], Dropout(0.1), *layers[4:]])
    return Trainer(model, MSELoss(), SGDOptimizer(model.parameters, lr=0.5)), dataset


def weights(trainer: Any) -> list[np.ndarray]:
    return [p.data.copy() for p in trainer.model.parameters]


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


# 逐位可重复


def test_one_seed_one_result(chars: CharDataset, text_file: Path) -> None:
    runs = []
    for _ in range(2):
        trainer = gpt_trainer(chars)
        losses = trainer.train(chars, 2)
        runs.append((losses, weights(trainer), trainer.generate(chars, "春", 30)))
    assert runs[0][0] == runs[1][0]
    assert same(runs[0][1], runs[1][1])
    assert runs[0][2] == runs[1][2]
    first, second = (simple_trainer(text_file) for _ in range(2))
    results = []
    for trainer, dataset in (first, second):
        np.random.seed(7)  # 随机失活也跟随种子
        results.append((trainer.train(dataset, 2), weights(trainer)))
    assert results[0][0] == results[1][0]
    assert same(results[0][1], results[1][1])
    assert not same(weights(gpt_trainer(chars, 1)), weights(gpt_trainer(chars, 2)))


def test_generating_follows_the_seed(chars: CharDataset) -> None:
    trainer = gpt_trainer(chars)
    texts = []
    for seed in (1, 1, 2):
        np.random.seed(seed)
        texts.append(trainer.generate(chars, "春眠", 40))
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("春眠")
    assert len(texts[0]) == 42
    assert trainer.generate(chars, "春", 0) == "春"


# 训练确实有用


def test_losses_fall(text_file: Path) -> None:
    chars = CharDataset(text_file, batch_size=4, context_size=8, stride=1)
    trainer = gpt_trainer(chars)
    losses = trainer.train(chars, 3)
    assert len(losses) == 3
    assert losses[-1] < 0.5 * losses[0]
    predictions, loss = trainer.test(chars)
    assert isinstance(loss, float)
    assert loss < losses[0]
    assert predictions[0].shape == (4, 8, chars.vocab_size)
    simple, dataset = simple_trainer(text_file)
    losses = simple.train(dataset, 3)
    assert losses[-1] < losses[0]
    prediction, value = simple.test(dataset)
    assert prediction.shape == (len(dataset.test_data[0]), dataset.vocab_size)
    assert isinstance(value, Tensor)
    assert not value.requires_grad
    assert simple.generate(dataset, "夜", 5).startswith("夜")


def test_test_loss_is_the_mean_over_batches(chars: CharDataset) -> None:
    trainer = gpt_trainer(chars)
    predictions, loss = trainer.test(chars)
    chars.eval()
    expected = [GPTLoss()(p, y).item() for p, (_, y) in zip(predictions, chars, strict=True)]
    assert loss == pytest.approx(np.mean(expected), rel=1e-6)


def test_fit_reports_every_step(chars: CharDataset) -> None:
    trainer = gpt_trainer(chars)
    batches = len(chars)
    scheduler = WarmupCosineScheduler(0.01, batches + 3, 5, 0.001)
    reports = list(trainer.steps(chars, batches + 3, scheduler))
    assert [r.step for r in reports] == list(range(batches + 3))  # 数据用完从头再来
    assert [r.lr for r in reports] == [scheduler.step(i) for i in range(batches + 3)]
    assert all(r.tokens == 4 * 8 and r.grad_norm > 0 and r.loss > 0 for r in reports)
    assert list(trainer.steps(chars, 0)) == []


def test_fit_and_train_take_the_same_steps(chars: CharDataset) -> None:
    a, b = gpt_trainer(chars), gpt_trainer(chars)
    losses = [r.loss for r in a.steps(chars, 2 * len(chars))]
    epochs = b.train(chars, 2)
    assert same(weights(a), weights(b))
    assert epochs == pytest.approx([np.mean(losses[: len(chars)]), np.mean(losses[len(chars) :])])


def test_each_step_is_clipped(chars: CharDataset) -> None:
    np.random.seed(0)
    model = GPT(chars.vocab_size, 8, 12, 3, 1)
    for p in model.output.parameters:
        p.data *= 30  # 很大的梯度
    trainer = GPTTrainer(model, GPTLoss(), SGDOptimizer(model.parameters, lr=1.0))
    before = weights(trainer)
    (report,) = trainer.steps(chars, 1)
    moved = np.concatenate([(a - b).ravel() for a, b in zip(weights(trainer), before, strict=True)])
    assert report.grad_norm > 1
    assert np.linalg.norm(moved) == pytest.approx(1, rel=1e-3)


# 模式总能恢复


class BrokenError(Exception):
    pass


def test_modes_are_restored(chars: CharDataset, text_file: Path) -> None:
    simple, dataset = simple_trainer(text_file)
    for trainer, data in ((gpt_trainer(chars), chars), (simple, dataset)):
        for training in (True, False):
            data.train() if training else data.eval()
            trainer.model.train()
            if not training:
                trainer.model.eval()
            before = [layer.training for layer in trainer.model.sublayers()]
            trainer.test(data)
            trainer.generate(data, "春", 3)
            assert [layer.training for layer in trainer.model.sublayers()] == before
            assert data.training is training
            assert is_grad_enabled()
        state = weights(trainer)
        trainer.test(data)
        assert same(state, weights(trainer))


def test_modes_are_restored_after_an_error(chars: CharDataset, text_file: Path) -> None:
    simple, dataset = simple_trainer(text_file)
    for trainer, data in ((gpt_trainer(chars), chars), (simple, dataset)):

        def fail(*_: Any) -> Any:
            raise BrokenError

        trainer.model.forward = fail
        for call in (lambda t, d: t.test(d), lambda t, d: t.generate(d, "春", 3)):
            with pytest.raises(BrokenError):
                call(trainer, data)
            assert trainer.model.training
            assert data.training
            assert is_grad_enabled()


def test_stopping_generation_early(chars: CharDataset) -> None:
    model = gpt_trainer(chars).model
    inner = model.transformers[0]
    inner.eval()
    for _ in generate_ids(model, [1, 2], 10, 8):
        assert model.training  # 使用者的代码照常训练、照常记录计算图
        assert is_grad_enabled()
        break
    assert model.training
    assert not inner.training  # 各层恢复各自的模式
    stream = generate_ids(model, [1], 5, 8)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert model.training


def test_greedy_generation_ignores_the_seed(chars: CharDataset) -> None:
    model = gpt_trainer(chars).model
    results = []
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        results.append(list(generate_ids(model, [3], 12, 8, temperature=0, rng=rng)))
    assert results[0] == results[1]
    scores = model(Tensor([[3]])).data[0, -1]
    assert results[0][0] == int(scores.argmax())
    # 温度极低时除法会溢出，结果仍与温度 0 相同
    rng = np.random.default_rng(3)
    assert list(generate_ids(model, [3], 12, 8, temperature=5e-324, rng=rng)) == results[0]


def test_sampling_follows_the_probabilities() -> None:
    rng = np.random.default_rng(0)
    p = np.array([0.0, 0.5, 0.0, 1.5], np.float32)  # 和不是 1
    counts = np.bincount([sample(p, rng) for _ in range(4000)], minlength=4)
    assert counts[[0, 2]].tolist() == [0, 0]
    assert counts[1] / 4000 == pytest.approx(0.25, abs=0.03)


def test_a_model_with_an_odd_dataset_of_ones_own() -> None:
    class Line(Dataset):
        def load(self) -> None:
            x = np.linspace(-1, 1, 40, dtype=np.float32).reshape(-1, 1)
            self.train_data, self.test_data = (x, 3 * x + 1), (x[:5], 3 * x[:5] + 1)

    np.random.seed(0)
    model = Linear(1, 1)
    trainer = Trainer(model, MSELoss(), SGDOptimizer(model.parameters, 0.3))
    trainer.train(Line(7), 30)
    assert model.weight.item() == pytest.approx(3, abs=1e-3)
    assert model.bias.item() == pytest.approx(1, abs=1e-3)  # type: ignore[union-attr]
