"""数值梯度：与反向传播的结果对照

把输出投影到一个随机方向 u，得到一个数 L = Σ u·y；再让每个输入沿随机方向 v 移动一点，
L 的变化率应等于 Σ v·grad。变化率用五点公式算：误差是步长的四次方。
弯曲厉害的函数（例如只有两个数的层归一化）要更小的步长，
所以依次试几个，取最接近的：梯度若是错的，哪个步长都不会接近。

库里的 `gptcore.diagnostics.check_gradients` 是另一份实现，测试有意不用它：它若出错，不能连测试也一起骗过。
两者互相印证，见 test_diagnostics_gradients.py。
"""

from collections.abc import Callable, Sequence

import numpy as np

from gptcore import Layer, Tensor

STEPS = (1e-3, 1e-4, 1e-5)
DIRECTIONS = 3
FLOOR = 1e-3
"""梯度本来就是零时（例如注意力里键的偏置）用的绝对尺度。"""


def check_gradients(
    compute: Callable[[], Tensor],
    tensors: Sequence[Tensor],
    seed: int = 0,
    tolerance: float = 1e-6,
) -> float:
    """对照每个张量的梯度；返回最大的相对误差。

    Args:
        compute: 每次重新做一遍前向计算。
        tensors: 参与其中的 float64 叶子张量。
        seed: 随机方向的种子。
        tolerance: 相对误差的上限。
    """
    rng = np.random.default_rng(seed)
    for t in tensors:
        assert t.dtype == np.float64
        t.zero_grad()
    y = compute()
    assert y.dtype == np.float64
    u = rng.normal(size=y.shape)
    y.backward(u)
    worst = 0.0
    for t in tensors:
        assert t.grad.shape == t.shape
        assert t.grad.dtype == t.dtype
        directions = [rng.normal(size=t.shape) for _ in range(DIRECTIONS)]
        actual = [float(np.sum(t.grad * v)) for v in directions]
        best = np.inf
        for h in STEPS:
            expected = [_slope(compute, t, u, v, h) for v in directions]
            difference = np.linalg.norm(np.subtract(actual, expected))
            scale = max(np.linalg.norm(actual), np.linalg.norm(expected), FLOOR)
            best = min(best, float(difference / scale))
            if best < tolerance / 10:
                break
        worst = max(worst, best)
    assert worst < tolerance, f"相对误差 {worst:.1e}"
    return worst


def check_layer(layer: Layer, *arrays: np.ndarray, seed: int = 0) -> float:
    """对照一个层的输入与所有参数的梯度；参数先换成不平凡的随机数。"""
    rng = np.random.default_rng(seed)
    layer.astype(np.float64)
    for p in layer.parameters:
        p.data[...] = rng.normal(0.3, 0.7, p.shape)
    inputs = [Tensor(a) for a in arrays]
    floats = [x for x in inputs if x.requires_grad]
    return check_gradients(lambda: layer(*inputs), floats + layer.parameters, seed)


def _slope(
    compute: Callable[[], Tensor], t: Tensor, u: np.ndarray, v: np.ndarray, h: float
) -> float:
    start = t.data
    values = []
    for k in (-2, -1, 1, 2):
        t.data = start + k * h * v
        values.append(float(np.sum(u * compute().data)))
    t.data = start
    return (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)


def distinct(rng: np.random.Generator, *shape: int, gap: float = 0.05) -> np.ndarray:
    """互不相同、且都不靠近零的随机数：有折点的函数（ReLU、max）也可导。"""
    size = int(np.prod(shape))
    steps = rng.permutation(size) - size // 2 + 0.5
    return (steps * gap).reshape(shape)
