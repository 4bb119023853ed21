"""中文的帮助：用法、参数、选项和命令

typer 自己的帮助里夹着英文（Usage、Options、default……），各版本的写法又不同，所以这里只用它登记的参数，
文字由我们来排；窄终端上，说明写在选项的下一行。
"""

import math
from typing import Any, cast

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from gptcore.cli.terminal import open_terminal
from gptcore.cli.usage import UsageError, suggestion
from gptcore.cli.wrapping import wrap

NARROW = 64
"""比这更窄的终端上，选项与说明上下排列"""

Row = tuple[str, str]


class Command(TyperCommand):
    """一个命令，帮助是中文的。"""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """把帮助写到标准输出。"""
        del formatter
        sections: dict[str, list[Row]] = {}
        usage: list[str] = []
        for param in self.get_params(ctx):
            if param.param_type_name == "argument":
                usage.append(str(param.metavar))
                sections.setdefault("参数", []).append((str(param.metavar), _describe(param)))
            else:
                title = getattr(param, "rich_help_panel", None) or "选项"
                sections.setdefault(str(title), []).append((_names(param), _describe(param)))
        other = sections.pop("选项", [])
        _show(ctx.command_path, [*usage, "[选项]"], self.help, {**sections, "其他选项": other})


class Group(TyperGroup):
    """全部命令，帮助与“没有这个命令”是中文的。"""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """把帮助写到标准输出。"""
        del formatter
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        sections = {
            "命令": [(n, (c.help or "").split("\n")[0]) for n, c in commands.items() if c],
            "选项": [(_names(param), _describe(param)) for param in self.get_params(ctx)],
        }
        _show(ctx.command_path, ["命令", "[选项]"], self.help, sections)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """找到命令；没有时给出相近的名字。"""
        name = args[0]
        known = self.list_commands(ctx)
        if name not in known:
            raise UsageError(
                f"没有命令 {name!r}{suggestion(name, known)}；"
                f"可用的命令是 {'、'.join(known)}，请看 {ctx.command_path} --help"
            )
        return super().resolve_command(ctx, args)


def _names(param: Any) -> str:
    """选项的写法，至多两种，再多的是早先的名字；需要值的加上值的名字。"""
    names = ", ".join([*sorted(param.opts[:2], key=len), *param.secondary_opts])
    return names if param.is_flag or param.name == "help" else f"{names} {param.metavar}"


def _describe(param: Any) -> str:
    """选项的说明与默认值。"""
    if param.name == "help":
        return "显示帮助并退出"
    text = str(param.help or "")
    default = param.default
    if param.param_type_name == "argument" or default in (None, "") or isinstance(default, bool):
        return text
    if isinstance(default, list | tuple):
        default = "、".join(map(str, cast("list[Any]", default)))
    if isinstance(default, float) and math.isfinite(default):
        default = f"{default:g}"
    return f"{text}（默认 {default}）"


def _show(command: str, usage: list[str], text: str | None, sections: dict[str, list[Row]]) -> None:
    console = open_terminal().console
    line = Text.assemble(("用法：", "bold"), command, " ", " ".join(usage))
    console.print(line)
    for paragraph in (text or "").strip().split("\n\n"):
        console.print()
        _wrapped(console, "\n".join(s.strip() for s in paragraph.split("\n")))
    for title, rows in sections.items():
        if rows:
            console.print()
            console.print(Text(title, "bold"))
            _table(console, rows)


def _table(console: Console, rows: list[Row]) -> None:
    narrow = console.width < NARROW
    width = 6 if narrow else max(cell_len(name) for name, _ in rows) + 4
    for name, text in rows:
        title = Text("  " + name, "cyan")
        if narrow:
            console.print(title)
            title = Text()
        _wrapped(console, text, width, title)


def _wrapped(console: Console, text: str, indent: int = 0, title: Text | None = None) -> None:
    """折行写一段文字，各行缩进，第一行前面是 `title`；行尾没有空格。"""
    title = title or Text()
    for line in wrap(Text(text), console.width - indent):
        console.print(title, " " * (indent - title.cell_len), line, sep="")
        title = Text()
