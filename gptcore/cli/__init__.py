"""命令行：`gptcore demo`、`train`、`generate`、`eval` 等命令，也可以写成 `python -m gptcore …`

- `app`、`options`：命令与选项；`run` 把一切错误变成一行消息和退出码
- `help`、`usage`、`failures`：中文的帮助；选项的解析；各种错误的消息
- `signals`、`streams`、`terminal`、`wrapping`、`progress`：中断、输出流、颜色与折行、训练进度
- `demo`、`train`、`generate`、`evaluate`、`info`、`plot`、`tokenize`、`transfer`、`doctor`：各命令做的事，
  不依赖参数解析，可以直接调用
- `settings`、`runs`、`fitting`：一次训练的设置、文件夹与训练循环
- `corpus`、`tokenizers`、`datasets`：语料、分词器，与训练用的窗口
- `models`、`folders`、`prompts`、`scoring`、`records`：读入模型、模型文件夹、生成的提示、打分、训练记录
"""

import sys

from gptcore.cli import signals
from gptcore.mpiexec import launched_together


def main() -> int:
    """命令行的入口。

    Returns:
        退出码：0 成功，1 诊断有问题，2 用户的错误，129、130、143 被 SIGHUP、Ctrl-C、SIGTERM 中断，
        141 输出的管道被关闭。
    """
    try:
        if sys.argv[1:2] == ["train"] and launched_together():
            signals.leave_to_system()  # 直到连上，见 ranks
        else:
            signals.install()
        from gptcore.cli.app import run  # 只在运行命令时加载 NumPy、typer 与 rich

        signals.check()
        return run()
    except KeyboardInterrupt:  # 还在导入，或正在退出
        return 130
