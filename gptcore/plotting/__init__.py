"""画图：训练的过程，学习率的安排

需要 matplotlib：`pip install "gptcore[plot]"`；没有它，`import gptcore.plotting` 与 `read_metrics` 照样能用。
"""

from gptcore.plotting.metrics import Metrics, read_metrics
from gptcore.plotting.panels import plot_metrics
from gptcore.plotting.schedule import plot_schedule
from gptcore.plotting.style import MissingMatplotlibError

__all__ = [
    "Metrics",
    "MissingMatplotlibError",
    "plot_metrics",
    "plot_schedule",
    "read_metrics",
]
