"""与 PyTorch 现场对照：整个 GPT 和每一种层；没有安装 PyTorch 时跳过"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.library import assert_agree, library_run

import gptcore
from gptcore import Tensor

torch = pytest.importorskip("torch", reason="没有安装 PyTorch")
functional = torch.nn.functional

from golden.torch_gpt import TorchGPT, draw_weights, reference_run  # noqa: E402

pytestmark = pytest.mark.reference

CHAPTER = {
    "vocab_size": 65,
    "context_size": 32,
    "embedding_size": 64,
    "heads": 2,
    "blocks": 2,
}
ODD = {"vocab_size": 17, "context_size": 10, "embedding_size": 15, "heads": 5, "blocks": 3}
DTYPES = [np.float64, np.float32]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """模型很小，多个线程只会互相等待。"""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def close(actual: np.ndarray, expected: Any, dtype: type, name: str = "") -> None:
    expected = expected.detach().numpy()
    assert actual.dtype == expected.dtype == dtype, name
    if dtype is np.float64:
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12, err_msg=name)
    else:
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5, err_msg=name)


def compare(
    mine: Callable[..., Tensor],
    theirs: Callable[..., Any],
    rng: np.random.Generator,
    dtype: type,
    *arrays: np.ndarray,
) -> None:
    """同样的输入与同一个输出方向：比较输出，以及对每个浮点输入的梯度。"""
    arrays = tuple(a.astype(dtype) if a.dtype.kind == "f" else a for a in arrays)
    ours = [Tensor(a.copy()) for a in arrays]
    others = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    y, expected = mine(*ours), theirs(*others)
    close(y.data, expected, dtype, "输出")
    dy = rng.normal(size=y.shape).astype(dtype)
    y.backward(dy)
    expected.backward(torch.tensor(dy))
    for i, (a, b) in enumerate(zip(ours, others, strict=True)):
        if b.requires_grad:
            close(a.grad, b.grad, dtype, f"第 {i} 个输入的梯度")


def with_parameters(layer: Any, *names: str) -> Callable[..., Tensor]:
    """把层的参数也当作输入，好与 PyTorch 的函数式写法对照。"""

    def call(x: Tensor, *parameters: Tensor) -> Tensor:
        for name, parameter in zip(names, parameters, strict=True):
            setattr(layer, name, parameter)
        return layer(x)

    return call


# ------------------------------------------------------------------ 整个 GPT


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("config", "batch", "length"), [(CHAPTER, 4, 32), (ODD, 3, 7)])
def test_gpt(config: dict[str, int], batch: int, length: int, dtype: type) -> None:
    weights = draw_weights(TorchGPT(**config), seed=5)
    random = np.random.RandomState(6)
    ids = random.randint(0, config["vocab_size"], (10, batch, length), dtype=np.int64)
    labels = random.randint(0, config["vocab_size"], (10, batch, length), dtype=np.int64)
    reference = reference_run(config, weights, ids, labels, dtype)
    mine = library_run(config, weights, ids, labels, dtype)
    assert_agree(mine, reference, dtype)


def test_gpt_of_length_one_and_batch_one() -> None:
    weights = draw_weights(TorchGPT(**ODD), seed=8)
    ids, labels = np.array([[[3]]]), np.array([[[1]]])
    reference = reference_run(ODD, weights, ids, labels, np.float64)
    assert_agree(library_run(ODD, weights, ids, labels, np.float64), reference, np.float64)


def test_golden_file_is_up_to_date() -> None:
    script = Path(__file__).parent / "golden" / "make_golden.py"
    command = [sys.executable, "-X", "utf8", str(script), "--check"]
    result = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
    assert result.returncode == 0, result.stdout + result.stderr


# ------------------------------------------------------------------ 逐层


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm(dtype: type) -> None:
    rng = np.random.default_rng(0)
    compare(
        with_parameters(gptcore.LayerNorm(7), "weight", "bias"),
        lambda x, w, b: functional.layer_norm(x, (7,), w, b, eps=1e-5),
        rng,
        dtype,
        rng.normal(1, 2, (3, 5, 7)),
        rng.normal(size=7),
        rng.normal(size=7),
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm(dtype: type) -> None:
    rng = np.random.default_rng(1)
    compare(
        with_parameters(gptcore.RMSNorm(7), "weight"),
        lambda x, w: functional.rms_norm(x, (7,), w, eps=1e-5),
        rng,
        dtype,
        rng.normal(1, 2, (3, 5, 7)),
        rng.normal(size=7),
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_linear(dtype: type) -> None:
    rng = np.random.default_rng(2)
    compare(
        with_parameters(gptcore.Linear(4, 6), "weight", "bias"),
        functional.linear,
        rng,
        dtype,
        rng.normal(size=(2, 3, 4)),
        rng.normal(size=(6, 4)),
        rng.normal(size=6),
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_embedding(dtype: type) -> None:
    rng = np.random.default_rng(3)
    compare(
        with_parameters(gptcore.Embedding(6, 4), "weight"),
        functional.embedding,
        rng,
        dtype,
        rng.integers(0, 6, (5, 7)),
        rng.normal(size=(6, 4)),
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_gelu(dtype: type) -> None:
    rng = np.random.default_rng(4)
    x = np.concatenate([rng.normal(0, 3, 60), [0.0, -50.0, 50.0]])
    compare(gptcore.GELU(), lambda x: functional.gelu(x, approximate="tanh"), rng, dtype, x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax(axis: int, dtype: type) -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(0, 5, (3, 4, 6))
    compare(gptcore.Softmax(axis), lambda x: functional.softmax(x, dim=axis), rng, dtype, x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_cross_entropy(scale: float, dtype: type) -> None:
    rng = np.random.default_rng(6)
    labels = rng.integers(0, 9, (4, 5))
    compare(
        lambda x: gptcore.GPTLoss()(x, Tensor(labels)),
        lambda x: functional.cross_entropy(x.flatten(0, 1), torch.tensor(labels).flatten()),
        rng,
        dtype,
        scale * rng.normal(size=(4, 5, 9)),
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_mse(dtype: type) -> None:
    rng = np.random.default_rng(7)
    p, y = rng.normal(size=(4, 6)), rng.normal(size=(4, 6))
    compare(gptcore.MSELoss(), functional.mse_loss, rng, dtype, p, y)


# ------------------------------------------------------------------ 优化器


@pytest.mark.parametrize("dtype", DTYPES)
def test_adamw_with_parameter_groups(dtype: type) -> None:
    """一组衰减，一组不衰减；梯度忽大忽小，裁剪有时起作用，有时不起。"""
    rng = np.random.default_rng(8)
    shapes = [(3, 5), (4,), (2, 2)]
    arrays = [rng.normal(size=shape).astype(dtype) for shape in shapes]
    ours = [Tensor(a.copy()) for a in arrays]
    others = [torch.tensor(a, requires_grad=True) for a in arrays]
    settings = {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6}
    mine = gptcore.AdamWOptimizer(
        [
            {"parameters": ours[:1], "weight_decay": 0.1},
            {"parameters": ours[1:], "weight_decay": 0.0},
        ],
        **settings,
    )
    theirs = torch.optim.AdamW(
        [
            {"params": others[:1], "weight_decay": 0.1},
            {"params": others[1:], "weight_decay": 0.0},
        ],
        **settings,
    )
    clipped = []
    for step in range(130):  # 走过一阶矩归零的那几步
        mine.lr = 0.01 / (1 + step)
        for group in theirs.param_groups:
            group["lr"] = mine.lr
        for a, b in zip(ours, others, strict=True):
            gradient = (10 ** rng.uniform(-2, 1) * rng.normal(size=a.shape)).astype(dtype)
            a.grad, b.grad = gradient, torch.tensor(gradient)
        norm = mine.clip_grad_norm(1.0)
        expected = torch.nn.utils.clip_grad_norm_(others, 1.0)
        assert float(norm) == pytest.approx(expected.item(), rel=1e-5)
        clipped.append(norm > 1)
        mine.step()
        theirs.step()
        for a, b in zip(ours, others, strict=True):
            close(a.data, b, dtype, f"第 {step} 步")
    assert any(clipped)
    assert not all(clipped)


def test_zero_gradients_only_decay() -> None:
    values = np.arange(1.0, 5.0)
    ours, other = Tensor(values.copy()), torch.tensor(values, requires_grad=True)
    mine = gptcore.AdamWOptimizer([ours], lr=0.01)
    theirs = torch.optim.AdamW([other], lr=0.01)
    ours.grad, other.grad = np.zeros(4), torch.zeros(4, dtype=torch.float64)
    for _ in range(3):
        mine.step()
        theirs.step()
    close(ours.data, other, np.float64)
    np.testing.assert_allclose(ours.data, values * (1 - 0.01 * 0.01) ** 3, rtol=1e-12)
