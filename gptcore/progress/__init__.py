"""训练的进度：终端里与 Jupyter 里原地刷新，别处写成一行一行的日志"""

from gptcore.progress.display import ProgressDisplay
from gptcore.progress.views import LineView, LiveView, NotebookView, View, open_view

__all__ = ["LineView", "LiveView", "NotebookView", "ProgressDisplay", "View", "open_view"]
