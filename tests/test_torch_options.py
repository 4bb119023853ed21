"""GPT 的选项与 PyTorch 现场对照：归一化的种类与位置、没有偏置、共用的矩阵、随机失活；没有安装 PyTorch 时跳过"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gptcore import GPT, GPTLoss, Tensor

torch = pytest.importorskip("torch", reason="没有安装 PyTorch")
nn, functional = torch.nn, torch.nn.functional

pytestmark = pytest.mark.reference

V, C, E, H, L, B, T = 17, 10, 15, 5, 3, 4, 7


class Recorder(np.random.Generator):
    """记下每次抽取的结果，PyTorch 那一边用同样的掩码。"""

    def __init__(self, seed: int) -> None:
        super().__init__(np.random.PCG64(seed))
        self.draws: list[np.ndarray] = []

    def random(self, *args: Any, **kwargs: Any) -> Any:
        self.draws.append(super().random(*args, **kwargs))
        return self.draws[-1]


class Masks:
    """随机失活，掩码由给出的抽取结果一个个得到。"""

    def __init__(self, p: float, draws: list[np.ndarray]) -> None:
        self.p, self.draws = p, iter(draws)

    def __call__(self, x: Any) -> Any:
        if not self.p:
            return x
        draw = next(self.draws)
        assert draw.shape == x.shape
        return x * torch.from_numpy(draw >= self.p) / (1 - self.p)


def norm_of(options: dict[str, Any]) -> Any:
    if options["norm"] == "LayerNorm":
        return nn.LayerNorm(E, bias=options["bias"])
    return nn.RMSNorm(E, eps=1e-5) if options["norm"] else nn.Identity()


class Block(nn.Module):
    """一个块，写成最直白的几步；每个分支前后的归一化由选项决定。"""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        bias = options["bias"]
        self.attention = nn.ModuleDict(
            {
                "normalize": norm_of(options),
                "c_attn": nn.Linear(E, 3 * E, bias=bias),
                "output": nn.Linear(E, E, bias=bias),
            }
        )
        self.feed_forward = nn.ModuleDict(
            {
                "normalize": norm_of(options),
                "input": nn.Linear(E, 4 * E, bias=bias),
                "output": nn.Linear(4 * E, E, bias=bias),
            }
        )
        self.pre = options["norm_position"] == "pre"

    def attend(self, x: Any, masks: Masks) -> Any:
        q, k, v = (
            part.view(B, T, H, -1).transpose(1, 2)
            for part in self.attention["c_attn"](x).split(E, dim=2)
        )
        future = torch.ones(T, T, dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(2, 3) / math.sqrt(E // H)).masked_fill(future, -math.inf)
        merged = (masks(scores.softmax(-1)) @ v).transpose(1, 2).reshape(B, T, E)
        return masks(self.attention["output"](merged))

    def feed(self, x: Any, masks: Masks) -> Any:
        h = functional.gelu(self.feed_forward["input"](x), approximate="tanh")
        return masks(self.feed_forward["output"](h))

    def forward(self, x: Any, masks: Masks) -> Any:
        for part, branch in ((self.attention, self.attend), (self.feed_forward, self.feed)):
            normalize = part["normalize"]
            x = x + branch(normalize(x), masks) if self.pre else normalize(x + branch(x, masks))
        return x


class Reference(nn.Module):
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self.embedding = nn.ModuleDict(
            {"embedding": nn.Embedding(V, E), "positional_embedding": nn.Embedding(C, E)}
        )
        self.transformers = nn.ModuleList(Block(options) for _ in range(L))
        last = norm_of(options) if options["norm_position"] == "pre" else nn.Identity()
        linear = nn.Linear(E, V, bias=options["head_bias"])
        self.output = nn.ModuleDict({"normalize": last, "linear": linear})
        if options["tied"]:
            linear.weight = self.embedding["embedding"].weight

    def forward(self, ids: Any, masks: Masks) -> Any:
        table, positions = self.embedding.values()
        x = masks(table(ids) + positions(torch.arange(T)))
        for block in self.transformers:
            x = block(x, masks)
        return self.output["linear"](self.output["normalize"](x))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


BASE: dict[str, Any] = {
    "norm": "LayerNorm",
    "norm_position": "pre",
    "bias": True,
    "head_bias": True,
    "tied": False,
    "dropout": 0.0,
}
VARIANTS: list[dict[str, Any]] = [
    {"norm_position": "post"},
    {"norm": "RMSNorm"},
    {"norm": "RMSNorm", "norm_position": "post", "bias": False},
    {"bias": False, "head_bias": False},
    {"bias": False, "norm_position": "post"},
    {"norm": None},
    {"norm": None, "bias": False, "head_bias": False, "tied": True},
    {"tied": True, "head_bias": False},
    {"tied": True, "head_bias": False, "norm": "RMSNorm", "bias": False, "dropout": 0.2},
    {"dropout": 0.1},
    {"dropout": 0.5, "norm_position": "post"},
]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: " ".join(f"{k}={v[k]}" for k in v))
def test_logits_and_every_gradient(variant: dict[str, Any], dtype: Any) -> None:
    options = {**BASE, **variant}
    rng = Recorder(VARIANTS.index(variant))
    model = GPT(V, C, E, H, L, **options, rng=rng).astype(dtype)
    values = np.random.default_rng(1)
    for p in model.parameters:
        p.data[...] = values.normal(0, 0.4 if p.ndim == 1 else 0.25, p.shape)

    reference = Reference(options).to(torch.from_numpy(np.zeros(1, dtype)).dtype)
    theirs = dict(reference.named_parameters())
    ours = dict(model.named_parameters())
    assert set(theirs) == set(ours)
    with torch.no_grad():
        for name, p in theirs.items():
            p.copy_(torch.from_numpy(ours[name].data))

    ids, labels = values.integers(0, V, (2, B, T))
    logits = model(Tensor(ids))
    loss = GPTLoss()(logits, Tensor(labels))
    loss.backward()
    expected = reference(torch.from_numpy(ids), Masks(options["dropout"], rng.draws))
    target = functional.cross_entropy(expected.flatten(0, 1), torch.from_numpy(labels).flatten())
    target.backward()

    assert bool(rng.draws) == bool(options["dropout"])
    pairs = {"logits": (logits.data, expected.detach().numpy())}
    pairs |= {name: (ours[name].grad, p.grad.numpy()) for name, p in theirs.items()}
    for name, (a, b) in pairs.items():
        assert a.dtype == b.dtype == dtype
        if name.endswith("c_attn.bias"):  # 键的偏置真梯度是零，算出来的是舍入噪声
            assert np.abs(a[E : 2 * E]).max() < 1e-6
            a, b = (np.delete(x, slice(E, 2 * E)) for x in (a, b))
        error = np.linalg.norm(a - b) / np.linalg.norm(b)
        assert error < (1e-12 if dtype is np.float64 else 2e-5), f"{name}：{error:.1e}"
    assert loss.item() == pytest.approx(target.item(), rel=1e-12 if dtype is np.float64 else 1e-5)
