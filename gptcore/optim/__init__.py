"""优化器、梯度裁剪与学习率调度"""

from gptcore.optim.adamw import AdamWOptimizer
from gptcore.optim.groups import ParameterGroup
from gptcore.optim.optimizer import Optimizer, SGDOptimizer
from gptcore.optim.schedulers import (
    ConstantScheduler,
    DecayScheduler,
    LinearScheduler,
    WarmupCosineScheduler,
    WarmupScheduler,
)

__all__ = [
    "AdamWOptimizer",
    "ConstantScheduler",
    "DecayScheduler",
    "LinearScheduler",
    "Optimizer",
    "ParameterGroup",
    "SGDOptimizer",
    "WarmupCosineScheduler",
    "WarmupScheduler",
]
