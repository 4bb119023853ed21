"""文档里的程序：每页的 ```python 代码块按顺序在同一个命名空间里运行，输出与页面所写的一致

约定：

- 每个 python 代码块都运行，不论带什么属性、缩进多深；不该运行的用别的语言标记，例如 bash、text。
- 打印了内容的代码块，后面紧跟着标题为“输出”的 text 代码块，两者逐字比较；没有打印就不写。
- 含有 `--8<--` 的代码块只展示文件里的一段，不运行，那个文件另有测试；两种内容不能混在一块里。
- 页面可以直接 `import` docs/book/code 里的程序；运行时的当前文件夹是临时的。
- 代码里提到 tinyshakespeare 的页面，与夹具 tinyshakespeare_path 同样的规则：没有设置 GPTCORE_DATA 才跳过。
"""

import contextlib
import difflib
import io
import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from oracles import CODE
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
OPENING = re.compile(r"^(?P<pad>[ \t>]*)(?P<marks>`{3,}|~{3,})(?P<info>.*)$")
LANGUAGE = re.compile(r"^\s*\{?\s*\.?(?P<name>[\w+-]*)")
ALIASES = {"py", "py3", "python3", "pycon", "ipython", "Python"}


class PageError(AssertionError):
    """页面有问题；消息以文件名、冒号和行号开头。"""


@dataclass(frozen=True)
class Fence:
    """一个代码块；line 是开头标记所在的行，从 1 数起。"""

    language: str
    info: str
    code: str
    line: int

    @property
    def is_output(self) -> bool:
        return re.search(r"""title=["']输出["']""", self.info) is not None

    @property
    def is_snippet(self) -> bool:
        return "--8<--" in self.code


def fences(text: str, name: str) -> Iterator[Fence]:
    """依次给出页面里的代码块；缩进的也算，没有结束的报错。"""
    opening, start, body = None, 0, []
    for number, line in enumerate(text.split("\n"), start=1):
        match = OPENING.match(line)
        if opening is None:
            inline = match and match["marks"][0] == "`" and "`" in match["info"]
            if match and not inline:
                opening, start, body = match, number, []
        elif (
            match
            and match["marks"].startswith(opening["marks"])
            and not match["info"].strip()
            and len(match["pad"]) <= len(opening["pad"])
        ):
            language = LANGUAGE.match(opening["info"])["name"]
            yield Fence(language, opening["info"], "".join(body), start)
            opening = None
        else:
            pad = len(opening["pad"])
            body.append((line[pad:] if not line[:pad].strip(" \t>") else line) + "\n")
    if opening is not None:
        raise PageError(f"{name}:{start}: 代码块没有结束")


def run_page(path: Path, name: str) -> int:
    """运行一页里的代码块，返回运行了几块；不一致时抛出 PageError。"""
    namespace = {"__name__": "__main__"}
    pending: tuple[Fence, str] | None = None  # 刚运行过、输出还没有比较的代码块
    count = 0

    def settle() -> None:
        if pending is not None and pending[1]:
            fence, output = pending
            raise PageError(
                f"{name}:{fence.line}: 这块代码有输出，后面却没有标题为“输出”的代码块。"
                f"真实输出是：\n{output}"
            )

    for fence in fences(path.read_text(encoding="utf-8"), name):
        where = f"{name}:{fence.line}"
        if fence.is_output:
            if pending is None:
                raise PageError(f"{where}: “输出”之前没有运行过的 python 代码块")
            if pending[1].rstrip("\n") != fence.code.rstrip("\n"):
                raise PageError(f"{where}: 输出与真实的不同\n{difference(fence.code, pending[1])}")
            pending = None
            continue
        settle()
        pending = None
        if not is_program(fence, where):
            continue
        pending = fence, execute(fence, path, name, namespace)
        count += 1
    settle()
    return count


def is_program(fence: Fence, where: str) -> bool:
    """这个代码块要不要运行；写法不合约定时抛出 PageError。"""
    if fence.language in ALIASES:
        raise PageError(f"{where}: 语言请写 python，{fence.language} 的代码块不会运行")
    if fence.language == "python" and fence.is_snippet:
        lines = [line.strip() for line in fence.code.split("\n") if line.strip()]
        if not all(line.startswith("--8<--") for line in lines):
            raise PageError(f"{where}: 引用文件的代码块里不能再写别的代码")
    return fence.language == "python" and not fence.is_snippet


def execute(fence: Fence, path: Path, name: str, namespace: dict[str, object]) -> str:
    """运行一个代码块，返回它写到标准输出的内容。"""
    output = io.StringIO()
    try:
        # 前面补上空行，错误信息里的行号就是页面的行号
        code = compile("\n" * fence.line + fence.code, str(path), "exec")
        with contextlib.redirect_stdout(output):
            exec(code, namespace)
    except (Exception, SystemExit) as error:  # noqa: BLE001 任何错误都要报出页面和行号
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        if isinstance(error, SyntaxError) and error.filename == str(path):
            lines.append(error.lineno)
        report = "".join(traceback.format_exception(error))
        raise PageError(
            f"{name}:{lines[-1] if lines else fence.line}: 运行出错\n{report}"
        ) from None
    return output.getvalue()


def difference(shown: str, real: str) -> str:
    """逐行对照页面所写的和真实的输出。"""
    lines = difflib.unified_diff(
        shown.rstrip("\n").split("\n"),
        real.rstrip("\n").split("\n"),
        "页面所写",
        "真实输出",
        lineterm="",
    )
    return "\n".join(lines)


def uses_shakespeare(path: Path) -> bool:
    """代码里提到 tinyshakespeare。"""
    found = fences(path.read_text(encoding="utf-8"), path.name)
    return any(f.language == "python" and "tinyshakespeare" in f.code for f in found)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """临时的当前文件夹、能导入书里的程序、一个 BLAS 线程；结束时还原随机数状态。"""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(CODE))
    state = np.random.get_state()
    with threadpool_limits(1, "blas"):
        yield tmp_path
    np.random.set_state(state)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_page(path: Path, workplace: Path, request: pytest.FixtureRequest) -> None:
    name = path.relative_to(ROOT).as_posix()
    try:
        if uses_shakespeare(path):
            request.getfixturevalue("tinyshakespeare_path")
        run_page(path, name)
    except PageError as error:
        pytest.fail(str(error), pytrace=False)


# 下面检查检查者自己


def check(folder: Path, text: str) -> int:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    return run_page(page, "page.md")


def test_good_page(workplace: Path) -> None:
    text = """
```python
x = 3
```

文字。

```python hl_lines="1" title="带属性的也运行"
print(x + 1)
print()
```

```text title="输出"
4

```

??? note "缩进的也运行"

    ```{.python title="四格"}
    if x:
        print("是")
    ```

    ~~~text title="输出"
    是
    ~~~

```python
--8<-- "docs/book/code/chapter07.py:embedding"
```

```bash
python 不会运行
```
"""
    assert check(workplace, text) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('```python\nprint(1)\n```\n\n```text title="输出"\n2\n```\n', r"page\.md:5: 输出与真实的"),
        ("# 标题\n\n```python\nprint(1)\n```\n", r"page\.md:3: 这块代码有输出"),
        ('```text title="输出"\n1\n```\n', r"page\.md:1: “输出”之前没有"),
        (
            '```python {linenums="1"}\n\nx = 1 / 0\n```\n',
            r"page\.md:3: 运行出错[\s\S]*ZeroDivision",
        ),
        ("```python\nx = 1\nif x\n```\n", r"page\.md:3: 运行出错[\s\S]*SyntaxError"),
        ("```python\nimport sys\nsys.exit()\n```\n", r"page\.md:3: 运行出错[\s\S]*SystemExit"),
        ("```py\nx = 1\n```\n", r"page\.md:1: 语言请写 python"),
        ("文字\n```python\nx = 1\n", r"page\.md:2: 代码块没有结束"),
        ('```python\nx = 1\n--8<-- "a.py"\n```\n', r"page\.md:1: 引用文件的代码块"),
    ],
)
def test_bad_pages_are_reported_with_page_and_line(
    text: str, message: str, workplace: Path
) -> None:
    with pytest.raises(PageError, match=message):
        check(workplace, text)


def test_every_page_has_its_own_namespace(workplace: Path) -> None:
    check(workplace, "```python\nleft = 1\n```\n")
    with pytest.raises(PageError, match="NameError"):
        check(workplace, "```python\nprint(left)\n```\n")
