"""中文写法的检查：空格与标点用 AutoCorrect，用词看 docs/glossary.md 的“别处的叫法”

    python .ci/style.py          检查全部 Markdown、docstring 与示例里的文字，有问题就失败
    python .ci/style.py --fix    改正 Markdown 里的空格与标点；docstring 请按提示手改

“别处的叫法”里带括号说明的词（例如“字典（指 vocabulary）”）有别的意思，不检查。
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import autocorrect_py

ROOT = Path(__file__).resolve().parents[1]
MARKDOWN = ("*.md", "docs/**/*.md")
PYTHON = ("gptcore/**/*.py", "docs/**/*.py", "examples/*.py", "tests/**/*.py", ".ci/*.py")
TONE = {"您": "你", "显然": "说出理由", "众所周知": "说出理由", "不言而喻": "说出理由"}
FENCE = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2 *$", re.MULTILINE | re.DOTALL)


def main() -> None:
    """检查，打印问题，有问题时以 1 退出。"""
    words, problems = {**glossary_words(), **TONE}, []
    for path, line, text in passages():
        name = path.relative_to(ROOT)
        result = autocorrect_py.lint_for(text, "markdown")
        for item in result.lines:
            where = f"{name}:{line + item.line - 1}"
            problems.append(f"{where}: 空格与标点\n    {item.old.strip()}\n    {item.new.strip()}")
        if name.as_posix() != "docs/glossary.md":
            prose = re.sub(r"`[^`\n]+`", "", FENCE.sub(blank, text))
            for number, row in enumerate(prose.split("\n")):
                problems += [
                    f"{name}:{line + number}: “{word}”请改成“{better}”\n    {row.strip()}"
                    for word, better in words.items()
                    if word in row
                ]
    if "--fix" in sys.argv:
        fix()
    print("\n".join(problems) or "中文写法没有问题")
    sys.exit(bool(problems))


def passages() -> Iterator[tuple[Path, int, str]]:
    """要检查的文字：文件，从第几行开始，内容。"""
    for path in files(MARKDOWN):
        yield path, 1, path.read_text(encoding="utf-8")
    for path in files(PYTHON):
        source = path.read_text(encoding="utf-8")
        for line, text in docstrings(source):
            yield path, line, text
        if path.parent.name == "examples":
            for block in re.finditer(r"^# %%.*\n((?:#.*\n)+)", source, re.MULTILINE):
                text = re.sub(r"^# ?", "", block[1], flags=re.MULTILINE)
                yield path, source.count("\n", 0, block.start(1)) + 1, text


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """文件里的每个 docstring；属性下面的字符串也算。"""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str):
                text = text.replace("\n" + " " * node.col_offset, "\n")
                yield node.lineno, FENCE.sub(blank, text)


def blank(match: re.Match[str]) -> str:
    """代码块换成同样多的空行。"""
    return "\n" * match[0].count("\n")


def files(patterns: tuple[str, ...]) -> Iterator[Path]:
    """符合的文件，按名字排序。"""
    for pattern in patterns:
        yield from sorted(ROOT.glob(pattern))


def glossary_words() -> dict[str, str]:
    """“别处的叫法”一节的表格：不用的词与代替它的词。"""
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", page.split("## 别处的叫法")[1], re.MULTILINE)
    return {
        word: better
        for others, better in rows[1:]
        for word in others.split("、")
        if "（" not in word
    }


def fix() -> None:
    """改正 Markdown 文件。"""
    for path in files(MARKDOWN):
        text = path.read_text(encoding="utf-8")
        path.write_text(autocorrect_py.format_for(text, "markdown"), encoding="utf-8")


if __name__ == "__main__":
    main()
