"""生成 gptcore/data/tokenizers/unicode_ranges.py：GPT-2 的切分规则用到的三类字符

    python tests/data/make_unicode_ranges.py           重新生成
    python tests/data/make_unicode_ranges.py --check   在内存里重新生成，与已提交的文件比较，不同则退出码为 1

字符的类别取自 Unicode 16.0.0。Python 3.14 的 unicodedata 恰好是这个版本；别的版本的 Python 请先
`pip install unicodedata2==16.0.0`。

为什么是 16.0.0：tiktoken（Rust 的 regex）与 tokenizers（Oniguruma）对每一个码位的判断都与它相同，
tests/data/test_gpt2_pattern.py 逐个比较；各个 Python 自带的 unicodedata 是另外的版本，
`re` 的 `\\s` 还多出 U+001C 到 U+001F。
"""

import importlib
import sys
import textwrap
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

VERSION = "16.0.0"
FILE = Path(__file__).parents[2] / "gptcore" / "data" / "tokenizers" / "unicode_ranges.py"
HEADER = '''"""Unicode {version} 的字母、数字与空白，由 tests/data/make_unicode_ranges.py 生成，不手改

每一类是若干段十六进制的码位，从小到大；`41-5a` 表示 U+0041 到 U+005A，两端都在内。
"""

VERSION = "{version}"
'''


def database() -> Any:
    """这个版本的 unicodedata。"""
    if unicodedata.unidata_version == VERSION:
        return unicodedata
    try:
        module = importlib.import_module("unicodedata2")
    except ModuleNotFoundError:
        sys.exit(f"需要 Unicode {VERSION}：请 pip install unicodedata2=={VERSION}")
    if module.unidata_version != VERSION:
        sys.exit(
            f"unicodedata2 是 {module.unidata_version}；请 pip install unicodedata2=={VERSION}"
        )
    return module


def make() -> str:
    """文件的全部内容。"""
    category: Callable[[str], str] = database().category
    categories = [category(chr(code)) for code in range(0x110000)]
    # White_Space 属性：分隔符 Z*，加上 U+0009 到 U+000D 与 U+0085，见 PropList.txt
    controls = {*range(0x09, 0x0E), 0x85}
    classes = {
        "LETTERS": ("一般类别 L*", [name[0] == "L" for name in categories]),
        "NUMBERS": ("一般类别 N*", [name[0] == "N" for name in categories]),
        "SPACES": (
            "White_Space 属性",
            [name[0] == "Z" or code in controls for code, name in enumerate(categories)],
        ),
    }
    parts = [HEADER.format(version=VERSION)]
    for name, (title, members) in classes.items():
        rows = textwrap.wrap(" ".join(ranges(members)), 94, break_on_hyphens=False)
        body = "".join(f'    "{row} "\n' for row in rows[:-1]) + f'    "{rows[-1]}"\n'
        value = f"(\n{body})" if len(rows) > 1 else body.strip()
        parts.append(f'{name} = {value}\n"""{title}，{sum(members)} 个码位。"""\n')
    return "".join(parts)


def ranges(members: list[bool]) -> list[str]:
    """连续的码位合成一段。"""
    found, start = [], None
    for code, inside in enumerate([*members, False]):
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            found.append(f"{start:x}" if start == code - 1 else f"{start:x}-{code - 1:x}")
            start = None
    return found


def main() -> int:
    text = make()
    if "--check" in sys.argv[1:]:
        same = FILE.read_text(encoding="utf-8") == text
        print("与已提交的文件相同" if same else f"与 {FILE.name} 不同，请重新生成")
        return int(not same)
    FILE.write_text(text, encoding="utf-8")
    print(f"{FILE.name}：Unicode {VERSION}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
