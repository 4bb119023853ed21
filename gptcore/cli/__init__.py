"""命令行：`gptcore demo`、`train`、`generate`、`info`，也可以写成 `python -m gptcore …`

- `app`：命令与选项；`run` 把一切错误变成一行消息和退出码
- `help`、`usage`：中文的帮助；选项的解析与用法错误
- `terminal`、`progress`：输出流、颜色、训练进度
- `demo`、`train`、`generate`、`info`：各命令做的事，不依赖参数解析，可以直接调用
- `folders`、`scoring`、`blas`：模型文件夹、打分、BLAS 的线程数
"""


def main() -> int:
    """命令行的入口。

    Returns:
        退出码：0 成功，2 用户的错误，130 被 Ctrl-C 中断，141 输出的管道被关闭。
    """
    from gptcore.cli.app import run  # 只在运行命令时加载 typer 与 rich

    return run()
