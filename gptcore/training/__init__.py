"""训练：训练器、评估、检查点与回调"""

from gptcore.training.trainer import GPTTrainer, Scheduler, StepReport, Trainer

__all__ = ["GPTTrainer", "Scheduler", "StepReport", "Trainer"]
