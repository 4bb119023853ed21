"""由 test_resume 在单独的进程里运行：`resume_program.py 文件夹 名字 步数`

有检查点就接着训练；结束时把参数、矩、生成器的状态与损失写进 `名字.npz`。
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from training.runs import chars, gpt_trainer, moments, scheduler

from gptcore import Checkpoints, Evaluate

folder, name, steps = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
dataset = chars(folder)
trainer = gpt_trainer(dataset)
checkpoints = Checkpoints(folder / name, 10)
if (folder / name).exists():
    trainer.resume(folder / name)
for _ in trainer.steps(
    dataset, steps, scheduler(20), shuffle=True, callbacks=[Evaluate(5), checkpoints]
):
    pass
assert trainer.rng is not None
arrays = {f"p{i}": p.data for i, p in enumerate(trainer.model.parameters)} | moments(trainer)
arrays["evaluations"] = np.array(trainer.state.evaluations)
arrays["losses"] = np.array([trainer.state.loss_sum, *trainer.state.epoch_losses])
arrays["global"] = np.random.random(4)
arrays["trainer"] = trainer.rng.random(4)
np.savez(folder / f"{name}.npz", **arrays)
