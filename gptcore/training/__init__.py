"""训练：训练器、评估、检查点与回调"""

from gptcore.training.callbacks import Callback, EarlyStopping, Evaluate
from gptcore.training.checkpoints import Checkpoints
from gptcore.training.evaluation import Evaluation
from gptcore.training.gpt import GPTTrainer
from gptcore.training.metrics import MetricsFile
from gptcore.training.state import RunState, Scheduler, StepReport
from gptcore.training.trainer import Trainer

__all__ = [
    "Callback",
    "Checkpoints",
    "EarlyStopping",
    "Evaluate",
    "Evaluation",
    "GPTTrainer",
    "MetricsFile",
    "RunState",
    "Scheduler",
    "StepReport",
    "Trainer",
]
