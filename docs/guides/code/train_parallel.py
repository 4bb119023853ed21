"""几个进程一起训练，随时可以中断，再接着训练

mpiexec -n 2 python train_parallel.py
"""

import numpy as np

from gptcore import (
    GPT,
    AdamWOptimizer,
    CharDataset,
    Checkpoints,
    DataParallel,
    Evaluate,
    GPTLoss,
    GPTTrainer,
    WarmupCosineScheduler,
    corpus_path,
)

parallel = DataParallel()
dataset = CharDataset(corpus_path("stories"), batch_size=12, context_size=32)  # 每个进程的批
rng = np.random.default_rng(0)
model = GPT(dataset.vocab_size, 32, 48, 4, 2, init="gpt2", tied=True, head_bias=False, rng=rng)
optimizer = AdamWOptimizer(model.parameter_groups(0.1))
trainer = GPTTrainer(model, GPTLoss(), optimizer, rng=rng, distributed=parallel)
trainer.resume("parallel", missing_ok=True)

STEPS = 200
schedule = WarmupCosineScheduler(1e-2, total_steps=STEPS, warmup_steps=20, min_lr=1e-3)
callbacks = [Evaluate(every=50, limit=64), Checkpoints("parallel", every=100)]
if parallel.is_main:
    print(parallel)
for report in trainer.steps(dataset, STEPS, schedule, shuffle=True, callbacks=callbacks):
    if parallel.is_main and report.step % 50 == 49:
        print(f"做完 {report.step + 1:3} 步，这一步的损失 {report.loss:.2f}")

evaluation = trainer.evaluate(dataset)  # 全部进程一起调用，各算一份
if parallel.is_main:
    print(f"测试损失 {evaluation.loss:.3f}，预测了 {evaluation.tokens:,} 个词元")
