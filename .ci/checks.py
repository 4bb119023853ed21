"""`.ci/run` 用到的几项小检查，只用标准库

python .ci/checks.py readme-command "pip install -e"   从 README 取出那条命令
python .ci/checks.py no-skips 结果.xml                  有测试被跳过就失败
python .ci/checks.py dist 目录                          检查 wheel 和 sdist 的内容
"""

import sys
import tarfile
import tomllib
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def readme_command(start: str) -> None:
    """打印 README 的命令块里以 start 开头的那条命令；必须恰好有一条。"""
    inside, found = False, []
    for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = line.strip() == "```bash"
        elif inside and line.startswith(start):
            found.append(line.strip())
    if len(set(found)) != 1:
        sys.exit(f"README.md 里应当恰好有一条以 {start!r} 开头的命令，找到 {found}")
    print(found[0])


def no_skips(report: str) -> None:
    """读 JUnit 格式的结果：有跳过的测试、或一个测试也没有，就失败。"""
    cases = list(ElementTree.parse(report).iter("testcase"))
    skipped = [
        f"{case.get('classname')}::{case.get('name')}（{reason.get('message')}）"
        for case in cases
        for reason in case.iter("skipped")
    ]
    if not cases or skipped:
        sys.exit("\n  ".join([f"{len(cases)} 个测试里跳过了 {len(skipped)} 个：", *skipped]))
    print(f"{len(cases)} 个测试，没有一个被跳过")


def floors(project: str) -> None:
    """把运行依赖的 `名字>=版本` 打印成 `名字==版本`；NumPy 的版本由 .ci/run 指定。"""
    text = (ROOT / project).read_text(encoding="utf-8")
    pins = [item.replace(">=", "==") for item in tomllib.loads(text)["project"]["dependencies"]]
    print(*[pin for pin in pins if not pin.startswith("numpy")])


def dist(folder: str) -> None:
    """wheel 只装包本身；sdist 带上测试、示例和文档，不带缓存和 CI。"""
    (wheel,) = Path(folder).glob("*.whl")
    (sdist,) = Path(folder).glob("*.tar.gz")
    problems: list[str] = []

    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    info = next(top for top in tops if top.endswith(".dist-info"))
    if tops != {"gptcore", info}:
        problems.append(f"wheel 里多了顶层目录：{sorted(tops)}")
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "gptcore").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    if missing := package.symmetric_difference(n for n in names if n.startswith("gptcore/")):
        problems.append(f"wheel 与 gptcore/ 不一致：{sorted(missing)}")
    problems += [
        f"wheel 缺少 {name}"
        for name in ("gptcore/py.typed", f"{info}/licenses/LICENSE")
        if name not in names
    ]

    with tarfile.open(sdist) as archive:
        members = [name.split("/", 1)[1] for name in archive.getnames() if "/" in name]
    wanted = (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "mkdocs.yml",
        "gptcore/__init__.py",
        "tests/test_package.py",
    )
    problems += [f"sdist 缺少 {name}" for name in wanted if name not in members]
    strays = [name for name in members if name.startswith((".ci", ".cache", "site", "dist"))]
    strays += [name for name in members if "__pycache__" in name or name.endswith(".pyc")]
    if strays:
        problems.append(f"sdist 里不该有：{strays}")

    if problems:
        sys.exit("\n".join(problems))
    print(f"{wheel.name}：{len(names)} 个文件，{wheel.stat().st_size / 1024:.0f} KiB")
    print(f"{sdist.name}：{len(members)} 个文件，{sdist.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    sys.stderr.reconfigure(encoding="utf-8")
    checks = {
        "readme-command": readme_command,
        "no-skips": no_skips,
        "floors": floors,
        "dist": dist,
    }
    checks[sys.argv[1]](sys.argv[2])
