"""MkDocs 钩子：命令行一页里的帮助是构建时真正打印的

独占一行的 `{{ gptcore train --help }}` 换成这条命令的输出。
"""

import os
import re
import subprocess
import sys
from typing import Any

from mkdocs.exceptions import PluginError

COMMAND = re.compile(r"^\{\{ (gptcore [\w -]*--help) \}\}$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """MkDocs 读入一页之后调用。"""
    if page.file.src_uri != "api/cli.md":
        return markdown
    return COMMAND.sub(lambda match: output(match[1]), markdown)


def output(command: str) -> str:
    """命令与它打印的内容，写成代码块。"""
    result = subprocess.run(
        [sys.executable, "-X", "utf8", "-m", *command.split()],
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if result.returncode:
        raise PluginError(f"{command} 的退出码是 {result.returncode}：{result.stderr}")
    lines = [line.rstrip() for line in result.stdout.strip("\n").splitlines()]
    return f'```text title="{command}"\n' + "\n".join(lines) + "\n```"
