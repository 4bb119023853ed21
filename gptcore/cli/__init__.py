"""命令行：`gptcore demo`、`train`、`generate`、`info`，也可以写成 `python -m gptcore …`

- `app`：命令与选项；`run` 把一切错误变成一行消息和退出码
- `help`、`usage`、`failures`：中文的帮助；选项的解析；各种错误的消息
- `streams`、`terminal`、`progress`：输出流、颜色、训练进度
- `demo`、`train`、`generate`、`info`：各命令做的事，不依赖参数解析，可以直接调用
- `corpus`、`folders`、`scoring`、`records`：语料、模型文件夹、打分、训练记录
"""

import signal
from types import FrameType


def main() -> int:
    """命令行的入口。

    Returns:
        退出码：0 成功，2 用户的错误，130 被 Ctrl-C 中断，141 输出的管道被关闭。
    """
    signal.signal(signal.SIGTERM, _terminate)
    try:
        from gptcore.cli.app import run  # 只在运行命令时加载 typer 与 rich

        return run()
    except KeyboardInterrupt:  # 还在导入，或正在退出
        return 130


def _terminate(number: int, frame: FrameType | None) -> None:
    """SIGTERM 也逐层退出，这样终端的光标会还原；退出码是惯例的 143。"""
    del frame
    raise SystemExit(128 + number)
