"""与 PyTorch 现场对照：不算的标签；没有安装 PyTorch 时跳过"""

from typing import Any

import numpy as np
import pytest

from gptcore import GPTLoss, Tensor

torch = pytest.importorskip("torch", reason="没有安装 PyTorch")

pytestmark = pytest.mark.reference


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ignore", [-100, 0, 64])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.95])
def test_cross_entropy_with_ignored_labels(dtype: Any, ignore: int, share: float) -> None:
    rng = np.random.default_rng(7)
    logits = rng.normal(0, 3, (4, 32, 65)).astype(dtype)
    labels = rng.integers(0, 65, (4, 32))
    labels[rng.random((4, 32)) < share] = ignore
    mine, theirs = Tensor(logits), torch.tensor(logits, requires_grad=True)
    loss = GPTLoss(ignore)(mine, Tensor(labels))
    loss.backward()
    expected = torch.nn.functional.cross_entropy(
        theirs.flatten(0, 1), torch.tensor(labels).flatten(), ignore_index=ignore
    )
    expected.backward()
    rtol, atol = (1e-12, 1e-15) if dtype is np.float64 else (1e-5, 1e-7)
    np.testing.assert_allclose(loss.data, expected.detach().numpy(), rtol=rtol)
    np.testing.assert_allclose(mine.grad, theirs.grad.numpy(), rtol=rtol, atol=atol)
