"""读者自己的文件：以 `from gptcore import *` 开头，把第二章的 GPT 从层归一化到训练器都写在库的基类之上"""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles import CODE, chapter15
from oracles.pairs import copy_weights, pairs

import gptcore

CONFIG = {"context_size": 9, "embedding_size": 12, "heads": 3, "blocks": 2}
NAMES = (
    "Tensor Layer Composite Sequential Loss Dataset Trainer Linear Embedding Softmax "
    "SGDOptimizer AdamWOptimizer WarmupCosineScheduler DTYPE corpus_path"
).split()


@pytest.fixture(scope="module")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """一篇几千个字符的小文章，每次都一样。"""
    choose = random.Random(7).choice
    sentences = [
        f"{choose(['小猫', '小狗', '小鸟'])}在{choose(['河边', '山上', '院子里'])}"
        f"{choose(['唱歌', '睡觉', '吃饭'])}。"
        for _ in range(400)
    ]
    path = tmp_path_factory.mktemp("reader") / "text.txt"
    path.write_text("".join(sentences), encoding="utf-8")
    return path


@pytest.fixture
def dataset(text_file: Path) -> Any:
    return chapter15.CharDataset(text_file, batch_size=4, context_size=CONFIG["context_size"])


def build(dataset: Any, lr: float = 0.003) -> tuple[Any, Any]:
    np.random.seed(42)
    model = chapter15.GPT(dataset.vocab_size, **CONFIG)
    optimizer = gptcore.AdamWOptimizer(model.parameters, lr=lr)
    return model, chapter15.GPTTrainer(model, chapter15.GPTLoss(), optimizer)


def test_star_import_brings_the_names_a_reader_needs() -> None:
    namespace: dict[str, Any] = {}
    exec("from gptcore import *", namespace)
    assert [name for name in NAMES if name not in namespace] == []


def test_the_file_really_defines_its_own() -> None:
    source = (CODE / "chapter15.py").read_text(encoding="utf-8")
    assert "\nfrom gptcore import *\n" in source
    for name in ("CharDataset", "Tril", "LayerNorm", "GELU", "GPTLoss", "GPT", "GPTTrainer"):
        assert getattr(chapter15, name).__module__ == "chapter15"


def test_reader_trains_tests_and_generates(dataset: Any) -> None:
    model, trainer = build(dataset)
    steps = len(dataset)
    _, before = trainer.test(dataset)
    trainer.train(dataset, 3, gptcore.WarmupCosineScheduler(0.003, 3 * steps, 20, 0.0003))
    predictions, after = trainer.test(dataset)

    assert before > np.log(dataset.vocab_size) - 0.2
    assert after < 1.0
    assert len(dataset) == steps  # 测试之后回到训练集
    assert model.training
    assert predictions[0].shape == (4, CONFIG["context_size"], dataset.vocab_size)
    assert not predictions[0].requires_grad

    np.random.seed(1)
    text = trainer.generate(dataset, "小猫在", steps=40)
    assert text.startswith("小猫在")
    assert len(text) == 43
    assert any(word in text[3:] for word in ("小猫在", "小狗在", "小鸟在"))
    np.random.seed(1)
    assert trainer.generate(dataset, "小猫在", steps=40) == text


def test_training_repeats_bit_for_bit(dataset: Any) -> None:
    runs = []
    for _ in range(2):
        model, trainer = build(dataset)
        trainer.train(dataset, 1)
        runs.append([p.data for p in model.parameters])
    for a, b in zip(*runs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_float32_from_end_to_end(dataset: Any) -> None:
    model, trainer = build(dataset)
    x, y = dataset[0]
    logits = model(x)
    loss = trainer.loss_fn(logits, y)
    assert logits.dtype == loss.dtype == np.float32  # 缩放因子是 0 维的 float64，也不例外
    loss.backward()
    assert {p.grad.dtype for p in model.parameters} == {np.dtype(np.float32)}
    trainer.optimizer.clip_grad_norm()
    trainer.optimizer.step()
    assert {p.dtype for p in model.parameters} == {np.dtype(np.float32)}


def test_reader_and_library_take_the_same_step(dataset: Any) -> None:
    theirs, trainer = build(dataset)
    theirs.astype(np.float64)
    mine = gptcore.GPT(dataset.vocab_size, **CONFIG).astype(np.float64)
    copy_weights(mine, theirs)
    optimizer = gptcore.AdamWOptimizer(mine.parameters, lr=0.003)

    for i in range(3):
        x, y = dataset[i]
        results = []
        for model, loss_fn, update in (
            (theirs, trainer.loss_fn, trainer.optimizer),
            (mine, gptcore.GPTLoss(), optimizer),
        ):
            update.zero_grad()
            logits = model(x)
            loss = loss_fn(logits, y)
            loss.backward()
            results.append((logits.data, loss.data))
        for a, b in zip(*results, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
        for name, ours, other in pairs(mine, theirs):
            np.testing.assert_allclose(
                ours.grad, other.grad, rtol=1e-9, atol=1e-12, err_msg=f"{name} 的梯度"
            )
        norms = [optimizer.clip_grad_norm(), trainer.optimizer.clip_grad_norm()]
        assert norms[0] == pytest.approx(norms[1], rel=1e-10)
        optimizer.step()
        trainer.optimizer.step()
        for name, ours, other in pairs(mine, theirs):
            np.testing.assert_allclose(ours.data, other.data, rtol=1e-9, atol=1e-9, err_msg=name)


def test_library_pieces_accept_the_readers_dataset(dataset: Any) -> None:
    np.random.seed(0)
    model = gptcore.GPT(dataset.vocab_size, **CONFIG)
    optimizer = gptcore.AdamWOptimizer(model.parameters, lr=0.003)
    trainer = gptcore.GPTTrainer(model, gptcore.GPTLoss(), optimizer)
    trainer.train(dataset, 1)
    _, loss = trainer.test(dataset)
    assert float(loss) < np.log(dataset.vocab_size)
    assert len(trainer.generate(dataset, "小鸟", steps=5)) == 7


def test_a_dataset_of_python_lists() -> None:
    class Lists(gptcore.Dataset):
        def load(self) -> None:
            ids = [[i % 5, (i + 1) % 5, (i + 2) % 5] for i in range(10)]
            labels = [[(i + 1) % 5, (i + 2) % 5, (i + 3) % 5] for i in range(10)]
            self.train_data, self.test_data = (ids, labels), (ids[:2], labels[:2])

    dataset = Lists(2)
    model = chapter15.GPT(5, context_size=3, embedding_size=8, heads=2, blocks=1)
    x, y = dataset[0]
    loss = chapter15.GPTLoss()(model(x), y)
    loss.backward()
    assert loss.data > 0
    assert all(np.any(p.grad) for p in (model.output.linear.weight, model.parameters[0]))


def test_assigning_gradient_fn_and_parents_directly() -> None:
    class Double(gptcore.Layer):
        def __init__(self) -> None:  # 不调用 super().__init__()
            self.weight = gptcore.Tensor([2.0, 2.0])

        def forward(self, x: Any) -> Any:
            p = gptcore.Tensor(x.data * self.weight.data)

            def gradient_fn() -> None:
                self.weight.grad += p.grad * x.data
                x.grad += p.grad * self.weight.data

            p.gradient_fn = gradient_fn
            p.parents = [x]
            return p

    layer, x = Double(), gptcore.Tensor([3.0, 5.0])
    h = x * 1.0
    y = gptcore.Sequential([layer, gptcore.Softmax()])(h).sum() + layer(h).sum()
    y.backward()
    assert layer.parameters == [layer.weight]
    np.testing.assert_allclose(layer.weight.grad, [3.0, 5.0], atol=1e-6)
    np.testing.assert_allclose(x.grad, [2.0, 2.0], atol=1e-6)


@pytest.mark.slow
def test_reader_reaches_the_chapters_figure(
    tinyshakespeare_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """两轮，测试损失约 1.78；一次运行里 0.01 以内的差别只是噪声。"""
    loss = chapter15.main(tinyshakespeare_path)
    output = capsys.readouterr().out
    assert loss <= 1.80
    assert output.startswith("predictions:\t1742 × (4, 32, 65)\nloss:\t")
    assert "\nROMEO:" in output
