"""训练：梯度、数据类型、初始损失、能不能学会一批、能不能逐位重现

每一项都用真正的模型、损失、优化器与训练器，只是很小；数据是随机的，不需要语料。
"""

import math
from typing import Any

import numpy as np

from gptcore.data import Dataset
from gptcore.diagnostics.dtypes import audit_step
from gptcore.diagnostics.gradients import check_gradients
from gptcore.diagnostics.results import CheckResult, check, failure, ok
from gptcore.kernels.array import Array
from gptcore.losses import GPTLoss
from gptcore.models import GPT
from gptcore.models.options import Init
from gptcore.optim import AdamWOptimizer
from gptcore.tensor import no_grad
from gptcore.threads import blas_threads
from gptcore.training import GPTTrainer

REINSTALL = (
    "在代码文件夹里重新安装：pip install --force-reinstall --no-deps . "
    "（改过源码的，先运行 pytest 找出哪里不对）"
)
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"tied": True, "norm": "RMSNorm", "norm_position": "post", "bias": False},
)
"""检查用的两种模型，合起来用到每一种层"""
GRADIENT_BOUND = 1e-6
FIRST_LOSS_BOUND = 0.05
LEARNED = 0.02
"""一批学到多少才算会了：标签是随机的，这么小只能是记住了"""


class RandomIds(Dataset):
    """随机的词元编号，全部是一批；每条的第一个词元不同，所以标签总能由前文定下来。

    Args:
        vocab_size: 词表大小。
        batch_size: 有几条。
        length: 每条多长。
        seed: 种子。
    """

    def __init__(self, vocab_size: int, batch_size: int, length: int, seed: int = 0) -> None:
        self.vocab_size, self.length, self.seed = vocab_size, length, seed
        super().__init__(batch_size)

    def load(self) -> None:
        """抽出编号。"""
        shape, vocab_size = (self.batch_size, self.length), self.vocab_size
        rng = np.random.default_rng(self.seed)
        ids = rng.integers(0, vocab_size, shape)
        ids[:, 0] = np.arange(self.batch_size) % vocab_size
        labels = rng.integers(0, vocab_size, shape)
        self.train_data = self.test_data = ids, labels


@check("梯度")
def gradients() -> CheckResult:
    """float64 的有限差分与反向传播对照：两个真正的小 GPT，每个参数都抽查。"""
    errors: list[float] = []
    tensors = places = 0
    for options in VARIANTS:
        rng = np.random.default_rng(0)
        model = GPT(11, 6, 8, 2, 2, rng=rng, **options).astype(np.float64)
        for p in model.parameters:  # 初值是 0 或 1 的偏置与归一化也要有个寻常的值
            p.data += rng.normal(0, 0.3, p.shape)
        ids, labels = RandomIds(11, 2, 5).all()
        with blas_threads(1):
            report = check_gradients(
                lambda model=model, ids=ids, labels=labels: GPTLoss()(model(ids), labels),
                model,
                samples=4,
                tolerance=GRADIENT_BOUND,
            )
        if not report.passed:
            return failure(
                f"相对误差 {report.error:.1e}，上限 {GRADIENT_BOUND:.0e}",
                f"{len(report.wrong)} 个参数的梯度与有限差分不符；错误由输出往回传，"
                f"最靠近输出的是 {report.wrong[-1]}",
                REINSTALL,
            )
        errors.append(report.error)
        tensors += len(report.tensors)
        places += report.checked
    return ok(
        f"相对误差至多 {max(errors):.1e}，上限 {GRADIENT_BOUND:.0e}",
        f"{tensors} 个参数张量，查 {places} 处",
    )


@check("数据类型")
def dtypes() -> CheckResult:
    """一步 float32 训练里的每个数组都是 float32；模型与检查梯度的相同，再加上随机失活。"""
    leaks: list[str] = []
    total = 0
    for options in VARIANTS:
        model = GPT(19, 8, 12, 3, 2, dropout=0.1, rng=np.random.default_rng(0), **options)
        optimizer = AdamWOptimizer(model.parameter_groups(0.1))
        audit = audit_step(model, GPTLoss(), optimizer, *RandomIds(19, 2, 7).all())
        leaks += audit.leaks
        total += audit.total
    if leaks:
        shown = "，".join(leaks[:3]) + ("……" if len(leaks) > 3 else "")
        return failure(
            f"{len(leaks)} 个数组不是 float32",
            f"float32 的训练里混进了别的类型，会慢一半还多：{shown}",
            f"NumPy 的标量会带来 float64，改用 Python 的数与 math.sqrt；没有改过源码的，{REINSTALL}",
        )
    return ok(f"{total} 个数组都是 float32", "参数、激活值、梯度、优化器的矩")


@check("初始损失")
def first_loss(init: Init = "gpt2", vocab_size: int = 65) -> CheckResult:
    """还没有训练的模型应当什么也不偏向：损失接近均匀地猜，即词表大小的对数。

    Args:
        init: 初始化的办法。
        vocab_size: 词表大小。
    """
    model = GPT(vocab_size, 32, 64, 2, 2, head_bias=False, init=init, rng=np.random.default_rng(0))
    x, y = RandomIds(vocab_size, 64, 32).all()
    with no_grad(), blas_threads(1):
        loss = float(GPTLoss()(model(x), y))
    expected = math.log(vocab_size)
    value = f"{loss:.3f}，ln {vocab_size} = {expected:.3f}"
    if not abs(loss - expected) <= FIRST_LOSS_BOUND:
        return failure(
            value,
            f"还没有训练的模型应当接近均匀地猜，这里差了 {loss - expected:+.3f}，"
            f"超过 {FIRST_LOSS_BOUND}：初始化、前向计算或损失有错",
            REINSTALL,
        )
    return ok(value, f"应当相差不到 {FIRST_LOSS_BOUND}")


@check("学会一批")
def overfit(steps: int = 300) -> CheckResult:
    """反复学同一批随机的标签，损失应当接近 0：模型、梯度、优化器都在起作用。

    Args:
        steps: 最多多少步；学会了就停。
    """
    dataset = RandomIds(16, 4, 16)
    model = GPT(16, 16, 32, 2, 2, rng=np.random.default_rng(0))
    optimizer = AdamWOptimizer(model.parameters, lr=3e-3, weight_decay=0.0)
    losses: list[float] = []
    for report in GPTTrainer(model, GPTLoss(), optimizer).steps(dataset, steps):
        losses.append(report.loss)
        if report.loss < LEARNED:
            break
    value = f"{len(losses)} 步，损失 {losses[0]:.2f} → {losses[-1]:.3f}"
    if not losses[-1] < LEARNED:
        return failure(
            value,
            f"一个小 GPT 反复学同一批，{steps} 步之内损失应当降到 {LEARNED} 以下：优化器或梯度没有起作用",
            REINSTALL,
        )
    return ok(value, "小 GPT 能记住一批随机的标签")


@check("逐位重现")
def reproducibility(steps: int = 20) -> CheckResult:
    """同一个种子训练两次，损失与每个参数应当一位不差；随机失活也在内。

    Args:
        steps: 训练几步。
    """
    first, second = (_train(steps, seed=0) for _ in range(2))
    different = [name for name in first if first[name].tobytes() != second[name].tobytes()]
    if different:
        return failure(
            f"{len(first)} 个数组里有 {len(different)} 个不同",
            f"同一个种子训练两次，结果不同，例如 {different[0]}；中断之后接着训练，也不会得到同样的结果",
            "有的 BLAS 要另外设置：MKL 请设环境变量 MKL_CBWR=COMPATIBLE；仍然不同时，" + REINSTALL,
        )
    return ok(f"训练两次各 {steps} 步，一位不差", "同一个种子")


def _train(steps: int, seed: int) -> dict[str, Array]:
    """训练一个带随机失活的小 GPT，返回各步的损失与最后的参数。"""
    rng = np.random.default_rng(seed)
    model = GPT(65, 16, 32, 2, 2, dropout=0.1, rng=rng)
    optimizer = AdamWOptimizer(model.parameter_groups(), lr=1e-3)
    trainer = GPTTrainer(model, GPTLoss(), optimizer)
    losses = [r.loss for r in trainer.steps(RandomIds(65, 4, 16, seed), steps)]
    return {"损失": np.array(losses), **{n: p.data for n, p in model.named_parameters()}}
