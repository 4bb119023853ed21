"""库的 GPT 走一遍与 torch_gpt.reference_run 完全相同的流程，结果的名字也相同"""

import numpy as np

from gptcore import GPT, AdamWOptimizer, GPTLoss, Tensor


def library_run(
    config: dict[str, int],
    weights: dict[str, np.ndarray],
    ids: np.ndarray,
    labels: np.ndarray,
    dtype: type,
    lr: float = 1e-3,
) -> dict[str, np.ndarray]:
    model = GPT(**config).astype(dtype)
    parameters = dict(model.named_parameters())
    assert set(parameters) == set(weights)
    for name, parameter in parameters.items():
        parameter.data[...] = weights[name]

    result: dict[str, np.ndarray] = {}
    loss_fn, optimizer = GPTLoss(), AdamWOptimizer(model.parameters, lr=lr)
    losses, norms = [], []
    for step in range(len(ids)):
        optimizer.zero_grad()
        logits = model(Tensor(ids[step]))
        loss = loss_fn(logits, Tensor(labels[step]))
        loss.backward()
        if step == 0:
            result["logits"] = logits.data.copy()
            result |= {f"gradient/{name}": p.grad.copy() for name, p in parameters.items()}
        norms.append(float(optimizer.clip_grad_norm(1.0)))
        optimizer.step()
        losses.append(float(loss.data))
    result["losses"], result["norms"] = np.array(losses), np.array(norms)
    return result | {f"final/{name}": p.data.copy() for name, p in parameters.items()}


def assert_agree(
    mine: dict[str, np.ndarray], reference: dict[str, np.ndarray], dtype: type
) -> None:
    """float64 逐元素比；float32 按每个张量的范数比，损失比到 1e-4。"""
    assert set(mine) == set(reference)
    for key, expected in reference.items():
        actual = mine[key]
        assert actual.shape == expected.shape, key
        assert actual.dtype == expected.dtype, key
        if key.endswith("c_attn.bias"):
            _assert_key_bias(key, actual, expected, dtype)
            keys = _keys(expected)
            actual, expected = np.delete(actual, keys), np.delete(expected, keys)
        if dtype is np.float64:
            np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12, err_msg=key)
        elif key == "losses":
            np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-4, err_msg=key)
        else:
            error = np.linalg.norm(actual - expected) / np.linalg.norm(expected)
            assert error < 1e-4, f"{key}：范数误差 {error:.1e}"


def _keys(bias: np.ndarray) -> slice:
    """合并的偏置里属于键的那一段。"""
    size = len(bias) // 3
    return slice(size, 2 * size)


def _assert_key_bias(key: str, actual: np.ndarray, expected: np.ndarray, dtype: type) -> None:
    """键的偏置给同一行的所有分数加同一个数，softmax 不变，真梯度是零，算出来的只是舍入噪声。

    AdamW 除以噪声自己的大小，噪声与 eps 相当时会走出一大步，所以更新之后只能给较宽的绝对误差。
    """
    if key.startswith("gradient/"):
        bound = 1e-12 if dtype is np.float64 else 1e-6
    else:
        bound = 1e-9 if dtype is np.float64 else 0.02
    keys = _keys(expected)
    assert np.max(np.abs(actual[keys] - expected[keys])) < bound, key
