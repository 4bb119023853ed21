"""诊断里的每一项：正常时通过；弄坏它要查的东西，它就说出来"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gptcore
import gptcore.layers.activation
import gptcore.models.blocks
from gptcore import GPT, AdamWOptimizer, GPTLoss, Tensor
from gptcore.diagnostics import SECTIONS, Status, audit_step, run_checks, speed, training
from gptcore.diagnostics.results import CheckResult, check, ok
from gptcore.errors import DataError


def test_every_check_passes_here() -> None:
    results = [(section, result) for section, result in run_checks()]
    assert [s for s, _ in results] == [s for s, checks in SECTIONS.items() for _ in checks]
    wrong = [r for _, r in results if r.status is Status.FAILURE]
    assert wrong == []
    names = [r.name for _, r in results]
    assert len(set(names)) == len(names)
    for _, r in results:
        assert r.value
        assert "\n" not in r.value
        assert (r.remedy == "") == (r.status is Status.OK)
    assert sum(r.seconds for _, r in results) < 20


# 每一项都是独立的


def test_a_check_that_raises_is_a_result() -> None:
    def broken(error: Exception) -> CheckResult:
        @check("坏的")
        def run() -> CheckResult:
            raise error

        return run()

    for error, expected in (
        (ZeroDivisionError("division\nby zero"), "ZeroDivisionError：division by zero"),
        (DataError("读文件：没有它；请给出文件"), "读文件：没有它；请给出文件"),
        (PermissionError(13, "denied", "某处"), "PermissionError：没有权限（某处）"),
        (MemoryError(), "MemoryError：内存不够"),
        (RecursionError("x" * 1000), "RecursionError：" + "x" * 285),
    ):
        result = broken(error)
        assert result.status is Status.FAILURE
        assert (result.name, result.value) == ("坏的", expected)
        assert result.remedy
    with pytest.raises(KeyboardInterrupt):
        broken(KeyboardInterrupt())  # type: ignore[arg-type]


def test_numpy_warnings_stay_inside() -> None:
    @check("溢出")
    def overflow() -> CheckResult:
        return ok(str(np.float32(1e38) * np.float32(1e38)))

    result = overflow()  # 测试里警告就是错误
    assert (result.status, result.value, result.name) == (Status.OK, "inf", "溢出")
    assert result.seconds >= 0


# 梯度


def test_a_wrong_kernel_fails_the_gradient_check(monkeypatch: pytest.MonkeyPatch) -> None:
    assert training.gradients().status is Status.OK
    right = gptcore.layers.activation.gelu_backward
    monkeypatch.setattr(
        gptcore.layers.activation, "gelu_backward", lambda dy, d: right(dy, d) * 1.001
    )
    result = training.gradients()
    assert result.status is Status.FAILURE
    assert "上限 1e-06" in result.value
    assert "梯度与有限差分不符" in result.explanation
    assert "feed_forward" in result.explanation
    assert "反向传播给出" in result.explanation


def test_a_wrong_attention_kernel_fails_too(monkeypatch: pytest.MonkeyPatch) -> None:
    right = gptcore.models.blocks.attention_backward

    def forgets_the_last_column(*args: Any) -> Any:
        dx = right(*args)
        dx[..., -1] = 0
        return dx

    monkeypatch.setattr(gptcore.models.blocks, "attention_backward", forgets_the_last_column)
    result = training.gradients()
    assert result.status is Status.FAILURE
    assert "c_attn" in result.explanation


def test_the_gradient_error_is_printed_with_its_bound() -> None:
    result = training.gradients()
    error, bound = (float(part.split()[-1]) for part in result.value.split("，上限"))
    assert 0 < error < bound == 1e-6


# 数据类型


def test_dtype_audit_looks_at_everything() -> None:
    model = GPT(19, 8, 12, 3, 2, rng=np.random.default_rng(0))
    optimizer = AdamWOptimizer(model.parameters)
    audit = audit_step(model, GPTLoss(), optimizer, *training.RandomIds(19, 2, 7).all())
    assert audit.leaks == []
    n = len(model.parameters)
    assert audit.counts["参数"] == audit.counts["参数的梯度"] == n
    assert audit.counts["优化器的矩"] == 2 * n
    assert audit.counts["激活值"] > 15
    assert audit.counts["梯度"] > audit.counts["激活值"]
    assert audit.counts["保存的中间结果"] > 15
    assert audit.total == sum(audit.counts.values())


def leak_activation(monkeypatch: pytest.MonkeyPatch) -> None:
    right = gptcore.layers.activation.gelu_forward
    monkeypatch.setattr(
        gptcore.layers.activation,
        "gelu_forward",
        lambda x: tuple(a * np.ones(a.shape) for a in right(x)),
    )


def leak_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    right = gptcore.layers.activation.gelu_backward
    monkeypatch.setattr(
        gptcore.layers.activation,
        "gelu_backward",
        lambda dy, d: right(dy, d) * np.ones(dy.shape),
    )


def leak_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    right = gptcore.layers.activation.gelu_forward

    def forward(x: np.ndarray) -> Any:
        y, derivative = right(x)
        return y, derivative.astype(np.float64)

    monkeypatch.setattr(gptcore.layers.activation, "gelu_forward", forward)


def leak_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    right = AdamWOptimizer.state_dict

    def state_dict(self: AdamWOptimizer) -> dict[str, Any]:
        state = right(self)
        return state | {"v.3": state["v.3"].astype(np.float64)}

    monkeypatch.setattr(AdamWOptimizer, "state_dict", state_dict)


def leak_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    right = AdamWOptimizer.step

    def step(self: AdamWOptimizer) -> None:
        right(self)
        self.parameters[0].data = self.parameters[0].data * np.float64(1) * np.ones(1)

    monkeypatch.setattr(AdamWOptimizer, "step", step)


@pytest.mark.parametrize(
    ("leak", "told"),
    [
        (leak_activation, "激活值 GELU.forward 是 float64"),
        (leak_gradient, "梯度 GELU.forward 是 float64"),
        (leak_saved, "保存的中间结果 GELU.forward 是 float64"),
        (leak_moment, "优化器的矩 v.3 是 float64"),
        (leak_parameter, "参数 embedding.embedding.weight 是 float64"),
    ],
)
def test_a_float64_leak_fails_the_dtype_audit(
    leak: Any, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert training.dtypes().status is Status.OK
    leak(monkeypatch)
    result = training.dtypes()
    assert result.status is Status.FAILURE
    assert "不是 float32" in result.value
    model = GPT(19, 8, 12, 3, 2, rng=np.random.default_rng(0))
    optimizer = AdamWOptimizer(model.parameters)
    audit = audit_step(model, GPTLoss(), optimizer, *training.RandomIds(19, 2, 7).all())
    assert told in audit.leaks


def test_an_attached_closure_is_audited() -> None:
    model = GPT(5, 4, 4, 1, 1, rng=np.random.default_rng(0))

    class Loss(GPTLoss):
        def loss(self, p: Tensor, y: Tensor) -> Tensor:
            inner = super().loss(p, y)
            wide = np.ones(3)
            outer = Tensor(inner.data * np.float32(2))

            def gradient_fn() -> None:
                inner.grad += outer.grad * wide.astype(np.float32)[0] * 2

            return outer.attach(gradient_fn, [inner])

    x, y = training.RandomIds(5, 2, 3).all()
    audit = audit_step(model, Loss(), AdamWOptimizer(model.parameters), x, y)
    assert len(audit.leaks) == 1
    assert "Loss.loss 是 float64" in audit.leaks[0]


# 初始损失


def test_first_loss_is_ln_v_with_gpt2_initialisation() -> None:
    for size in (65, 6400):
        result = training.first_loss(vocab_size=size)
        assert result.status is Status.OK
        assert f"ln {size} = {np.log(size):.3f}" in result.value


def test_a_wrong_initialisation_fails_the_first_loss() -> None:
    result = training.first_loss(init="he")
    assert result.status is Status.FAILURE
    assert "初始化" in result.explanation


def test_a_nan_fails_the_first_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GPTLoss, "loss", lambda self, p, y: Tensor(np.float32(np.nan)))
    result = training.first_loss()
    assert result.status is Status.FAILURE
    assert "nan" in result.value


# 学会一批


def test_overfit_learns_within_a_hundred_steps() -> None:
    result = training.overfit()
    assert result.status is Status.OK
    assert int(result.value.split()[0]) < 100


def still(self: AdamWOptimizer) -> None:
    """一步也不动。"""


def backwards(self: AdamWOptimizer) -> None:
    for p in self.parameters:
        p.data += np.float32(self.lr) * p.grad


def only_the_first(self: AdamWOptimizer) -> None:
    self.parameters[0].data -= np.float32(self.lr) * self.parameters[0].grad


@pytest.mark.parametrize("step", [still, backwards, only_the_first])
def test_a_broken_optimizer_fails_to_overfit(step: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AdamWOptimizer, "step", step)
    result = training.overfit(steps=60)
    assert result.status is Status.FAILURE
    assert result.remedy
    if "→" in result.value:
        assert "优化器" in result.explanation


# 逐位重现


def test_reproducibility() -> None:
    result = training.reproducibility(steps=5)
    assert result.status is Status.OK


def test_an_unseeded_generator_breaks_reproducibility(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dropout(gptcore.Dropout):
        def __init__(self, p: float, rng: Any = None) -> None:
            super().__init__(p, np.random.default_rng())

    monkeypatch.setattr(gptcore.models.blocks, "Dropout", Dropout)
    result = training.reproducibility(steps=3)
    assert result.status is Status.FAILURE
    assert "结果不同" in result.explanation
    assert "损失" in result.explanation


def test_a_last_bit_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    right, calls = AdamWOptimizer.step, []

    def step(self: AdamWOptimizer) -> None:
        right(self)
        calls.append(1)
        if len(calls) == 6:  # 第二次训练的最后一步
            last = self.parameters[-1].data.reshape(-1)
            last[:1] = np.nextafter(last[:1], np.float32(9))

    monkeypatch.setattr(AdamWOptimizer, "step", step)
    result = training.reproducibility(steps=3)
    assert result.status is Status.FAILURE
    assert "有 1 个不同" in result.value


# 速度


def test_speed_figures_are_plausible() -> None:
    product = speed.product_speed(size=64, seconds=0.05)
    assert "GFLOP/s" in product.value
    steps = speed.training_speed(seconds=0.2)
    assert 5 < int(steps.value.split()[1]) < 50_000
    assert "110,529" in steps.explanation


def test_a_slow_product_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "measure", lambda function, seconds: [1.0, 2.0])
    result = speed.product_speed()
    assert result.status is Status.WARNING
    assert "BLAS" in result.explanation


def test_contention_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([[0.001], [0.003]])
    monkeypatch.setattr(speed, "measure", lambda function, seconds: next(times))
    monkeypatch.setattr(speed, "blas_info", lambda: {"threads": 8})
    result = speed.product_speed()
    assert result.status is Status.WARNING
    assert "8 个线程反而" in result.explanation


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPTCORE_CACHE", str(tmp_path / "a" / "b"))
    for checks in (SECTIONS["编码与文件"], SECTIONS["环境"]):
        for function in checks:
            function()
    assert list(tmp_path.iterdir()) == []
