"""优化器、梯度裁剪与学习率调度"""

from gptcore.optim.adamw import AdamWOptimizer
from gptcore.optim.groups import ParameterGroup
from gptcore.optim.optimizer import Optimizer, SGDOptimizer
from gptcore.optim.schedulers import WarmupCosineScheduler

__all__ = [
    "AdamWOptimizer",
    "Optimizer",
    "ParameterGroup",
    "SGDOptimizer",
    "WarmupCosineScheduler",
]
