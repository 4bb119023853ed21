"""用 PyTorch 算出标准答案 gpt.npz：同样的初值和输入，logits、每个梯度、十步 AdamW

python tests/golden/make_golden.py           重新生成 gpt.npz
python tests/golden/make_golden.py --check   在内存里重新生成，与已提交的文件比较，不同则退出码为 1

文件里的名字：`config`（各尺寸）、`ids` 与 `labels`（每步一批）、`initial/参数名`，
以及 float64 与 float32 两份结果：
`类型/logits`、`类型/gradient/参数名`、`类型/losses`、`类型/norms`、`类型/final/参数名`。
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch_gpt import TorchGPT, draw_weights, reference_run

FILE = Path(__file__).with_name("gpt.npz")
# 各个尺寸互不相同，头数大于 1，窗口比模型的上下文短
CONFIG = {"vocab_size": 11, "context_size": 7, "embedding_size": 12, "heads": 3, "blocks": 2}
STEPS, BATCH, LENGTH = 10, 2, 5
LR = 1e-3
SEED = 20


def make() -> dict[str, np.ndarray]:
    torch.set_num_threads(1)
    random = np.random.RandomState(SEED)
    shape = (STEPS, BATCH, LENGTH)
    ids = random.randint(0, CONFIG["vocab_size"], shape, dtype=np.int64)
    labels = random.randint(0, CONFIG["vocab_size"], shape, dtype=np.int64)
    weights = draw_weights(TorchGPT(**CONFIG), SEED + 1)

    golden = {"config": np.array(list(CONFIG.values())), "ids": ids, "labels": labels}
    golden |= {f"initial/{name}": weight for name, weight in weights.items()}
    for dtype in (np.float64, np.float32):
        run = reference_run(CONFIG, weights, ids, labels, dtype, LR)
        golden |= {f"{np.dtype(dtype).name}/{name}": value for name, value in run.items()}
    return golden


def difference(new: np.ndarray, old: np.ndarray, key: str) -> str | None:
    """说明两个数组怎样不同；相同则返回 None。float64 逐元素比，float32 按整个数组的范数比。"""
    if new.shape != old.shape or new.dtype != old.dtype:
        return f"{new.dtype}{new.shape} 与 {old.dtype}{old.shape}"
    # 键的偏置的真梯度是零，算出来的是舍入噪声，不比
    if key.endswith("c_attn.bias") and not key.startswith("initial/"):
        size = len(old) // 3
        keys = slice(size, 2 * size)
        new, old = np.delete(new, keys), np.delete(old, keys)
    if not key.startswith("float32/"):
        worst = float(np.max(np.abs(new - old) / (1 + np.abs(old))))
        return f"相差 {worst:.1e}" if worst > 1e-12 else None
    worst = float(np.linalg.norm(new - old) / np.linalg.norm(old))
    return f"范数相差 {worst:.1e}" if worst > 1e-4 else None


def check() -> list[str]:
    """重新生成并与文件比较，返回所有不同之处。"""
    new = make()
    with np.load(FILE) as old:
        problems = [f"{key}：只在一边有" for key in sorted(set(new) ^ set(old.files))]
        for key in sorted(set(new) & set(old.files)):
            found = difference(new[key], old[key], key)
            problems += [f"{key}：{found}"] if found else []
    return problems


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        problems = check()
        print("\n".join(problems) or f"{FILE.name} 与重新生成的一致")
        sys.exit(bool(problems))
    if sys.argv[1:]:
        sys.exit(f"不认识的参数 {sys.argv[1:]}；只有 --check")
    golden = make()
    np.savez_compressed(FILE, **golden)
    print(f"{FILE.name}：{len(golden)} 个数组，{FILE.stat().st_size / 1024:.0f} KiB")
    for name in ("float64", "float32"):
        print(f"{name} 损失", golden[f"{name}/losses"].round(6))
        print(f"{name} 范数", golden[f"{name}/norms"].round(3))


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    main()
