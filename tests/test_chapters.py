"""两章给出的数字：第 7 章的程序逐位复现，库自己的程序在误差内复现"""

import hashlib
import random
from pathlib import Path

import numpy as np
import pytest
from oracles import chapter07

from gptcore import (
    GPT,
    AdamWOptimizer,
    CharDataset,
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
    Trainer,
    WarmupCosineScheduler,
)

MSE = 0.015120499995513398
SAMPLE_LENGTH = 262
SAMPLE_SHA256 = "c0d5f3bf3d6babe5e3049ed0a4cb4da16031c52550362347c39e58363a6cb63f"


def next_char_model(vocab_size: int, embedding_size: int = 16) -> Sequential:
    layers = [
        Embedding(vocab_size, embedding_size),
        MeanPool(),
        Linear(embedding_size, 2 * embedding_size),
        ReLU(),
        Linear(2 * embedding_size, vocab_size),
        Softmax(),
    ]
    return Sequential(layers)


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    letters = random.Random(3).choices("abcdefgh \n", k=1500)
    path = tmp_path / "text.txt"
    path.write_text("".join(letters), encoding="utf-8", newline="")
    return path


def test_chapter07_and_the_library_compute_the_same(text_file: Path) -> None:
    theirs_data = chapter07.CharDataset(text_file, batch_size=4, context_size=12)
    mine_data = NextCharDataset(text_file, batch_size=4, context_size=12)
    assert mine_data.vocab == theirs_data.vocab
    assert len(mine_data) == len(theirs_data)

    np.random.seed(42)
    size = theirs_data.vocab_size
    theirs = chapter07.Sequential(
        [
            chapter07.Embedding(size, 6),
            chapter07.MeanPool(),
            chapter07.Linear(6, 12),
            chapter07.ReLU(),
            chapter07.Linear(12, size),
            chapter07.Softmax(),
        ]
    )
    mine = next_char_model(size, 6).astype(np.float64)
    for a, b in zip(mine.parameters, theirs.parameters, strict=True):
        a.data[...] = b.data

    theirs_trainer = chapter07.Trainer(
        theirs, chapter07.MSELoss(), chapter07.SGDOptimizer(theirs.parameters, 1.0)
    )
    mine_trainer = Trainer(mine, MSELoss(), SGDOptimizer(mine.parameters, 1.0))
    theirs_trainer.train(theirs_data, 2)
    mine_trainer.train(mine_data, 2)
    expected, expected_loss = theirs_trainer.test(theirs_data)
    prediction, loss = mine_trainer.test(mine_data)

    assert np.ptp(expected.data) > 0.01  # 确实学到了东西
    np.testing.assert_allclose(prediction.data, expected.data, rtol=1e-10, atol=1e-12)
    assert float(loss.data) == pytest.approx(float(expected_loss.data), rel=1e-6)


@pytest.mark.slow
def test_chapter07_program_is_exact(
    tinyshakespeare_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """损失的最后几位取决于 BLAS，比到 1e-12；样本逐字相同。"""
    chapter07.main(tinyshakespeare_path)
    shape, loss, sample = capsys.readouterr().out.split("\n", 2)
    sample = sample.removesuffix("\n")
    assert shape == "prediction:\t(6970, 65)"
    value = loss.removeprefix("loss:\tTensor(").removesuffix(")")
    assert float(value) == pytest.approx(MSE, abs=1e-12)
    assert sample.startswith("ROMEO:tLjtp;xLJ$S,DHnrGqqk3gwfITdU-")
    assert len(sample) == SAMPLE_LENGTH
    assert hashlib.sha256(sample.encode("utf-8")).hexdigest() == SAMPLE_SHA256


@pytest.mark.slow
def test_next_char_program_of_the_library(tinyshakespeare_path: Path) -> None:
    """10 轮，均方误差 0.01512 ± 0.00001。"""
    np.random.seed(42)
    dataset = NextCharDataset(tinyshakespeare_path, batch_size=4, context_size=32)
    model = next_char_model(dataset.vocab_size)
    trainer = Trainer(model, MSELoss(), SGDOptimizer(model.parameters, lr=0.01))
    trainer.train(dataset, epochs=10)
    prediction, loss = trainer.test(dataset)
    assert prediction.shape == (6970, 65)
    assert float(loss.data) == pytest.approx(0.01512, abs=1e-5)
    text = trainer.generate(dataset, "ROMEO:")
    assert text.startswith("ROMEO:")
    assert len(text) == SAMPLE_LENGTH


@pytest.mark.slow
def test_gpt_of_the_library_reaches_the_chapters_figure(tinyshakespeare_path: Path) -> None:
    """2 轮，测试损失约 1.78；一次运行里 0.01 以内的差别只是噪声。"""
    np.random.seed(42)
    epochs, lr = 2, 0.001
    dataset = CharDataset(tinyshakespeare_path, batch_size=4, context_size=32)
    model = GPT(dataset.vocab_size, dataset.context_size, embedding_size=64, heads=2, blocks=2)
    assert model.num_parameters == 110_529
    trainer = GPTTrainer(model, GPTLoss(), AdamWOptimizer(model.parameters, lr=lr))
    scheduler = WarmupCosineScheduler(lr, epochs * len(dataset), 100, lr / 10)
    trainer.train(dataset, epochs, scheduler)
    predictions, loss = trainer.test(dataset)
    assert len(predictions) == 1742
    assert predictions[0].shape == (4, 32, 65)
    assert float(loss) <= 1.80
    text = trainer.generate(dataset, "ROMEO:")
    assert text.startswith("ROMEO:")
    assert len(text) == SAMPLE_LENGTH
