"""在 gptcore 里训练，到 PyTorch 里接着训练，再回到 gptcore：每次换地方，损失都从原来的地方开始

    pip install torch transformers
    python continue_in_torch.py

随机失活关着，三段用同样的训练集，同样的 128 个测试窗口；只有参数与分词器跟着走，优化器每次从头开始。
"""

# --8<-- [start:start]
import numpy as np
import torch
from torch.nn import functional
from transformers import AutoTokenizer, GPT2LMHeadModel

from gptcore import (
    GPT,
    AdamWOptimizer,
    GPTLoss,
    GPTTrainer,
    TextDataset,
    WarmupCosineScheduler,
    corpus_path,
    load_pretrained,
)
from gptcore.data import BPETokenizer


def require_same(before, after):
    """换了地方，损失不应当变"""
    if abs(before - after) > 1e-4:
        raise SystemExit(f"损失变了：原来 {before}，现在 {after}")


stories = corpus_path("stories")
tokenizer = BPETokenizer.train(stories, vocab_size=600, special_tokens=["<|endoftext|>"])
dataset = TextDataset(stories, tokenizer, batch_size=8, context_size=32)
rng = np.random.default_rng(0)  # 上下文 32，嵌入 48，4 头，2 块
model = GPT(tokenizer.vocab_size, 32, 48, 4, 2, head_bias=False, tied=True, init="gpt2", rng=rng)
optimizer = AdamWOptimizer(model.parameter_groups(0.1))
trainer = GPTTrainer(model, GPTLoss(), optimizer, rng=np.random.default_rng(1))
schedule = WarmupCosineScheduler(5e-3, total_steps=200, warmup_steps=20, min_lr=1e-3)
for _ in trainer.steps(dataset, 200, schedule, shuffle=True):
    pass
left = trainer.evaluate(dataset, limit=128).loss
model.save_pretrained("to-torch", tokenizer)
print(f"{left:.4f}  gptcore 训练 200 步")
# --8<-- [end:start]


# --8<-- [start:torch]
device = "cuda" if torch.cuda.is_available() else "cpu"
theirs = GPT2LMHeadModel.from_pretrained("to-torch").to(device)
adam = torch.optim.AdamW(theirs.parameters(), lr=1e-3, weight_decay=0.1)


def torch_loss(x, y):
    """一批的平均损失；x 与 y 是 gptcore 的张量，形状 (B, T)"""
    ids, labels = (torch.from_numpy(part.data).to(device) for part in (x, y))
    logits = theirs(ids).logits  # (B, T, V)
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def torch_evaluate():
    """与 trainer.evaluate 同样的窗口，同样按词元平均"""
    theirs.eval()
    with torch.no_grad():
        pairs = [(float(torch_loss(x, y)), y.size) for x, y in dataset.evaluation_batches(128)]
    theirs.train()
    return sum(loss * count for loss, count in pairs) / sum(count for _, count in pairs)


arrived = torch_evaluate()
require_same(left, arrived)
print(f"{arrived:.4f}  PyTorch 读进来，一步还没有走")

dataset.train()
for i in np.random.default_rng(2).permutation(len(dataset))[:200]:
    adam.zero_grad()
    torch_loss(*dataset[int(i)]).backward()
    torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
    adam.step()
trained = torch_evaluate()
theirs.save_pretrained("from-torch")
AutoTokenizer.from_pretrained("to-torch").save_pretrained("from-torch")
print(f"{trained:.4f}  PyTorch 又训练 200 步")
# --8<-- [end:torch]


# --8<-- [start:back]
model, tokenizer = load_pretrained("from-torch")
optimizer = AdamWOptimizer(model.parameter_groups(0.1), lr=1e-3)
trainer = GPTTrainer(model, GPTLoss(), optimizer, rng=np.random.default_rng(3))
returned = trainer.evaluate(dataset, limit=128).loss
require_same(trained, returned)
print(f"{returned:.4f}  gptcore 读回来，一步还没有走")

for _ in trainer.steps(dataset, 100, shuffle=True):
    pass
final = trainer.evaluate(dataset, limit=128).loss
print(f"{final:.4f}  gptcore 又训练 100 步")
# --8<-- [end:back]
