"""MkDocs 钩子：sphinx-gallery 运行 examples/plot_*.py，这里把结果变成页面

Sphinx 只是 sphinx-gallery 需要的宿主：它在 Sphinx 应用建立时就做完全部工作，不构建任何 Sphinx 文档。
它运行脚本，截取输出和图，制作缩略图与笔记本，跳过没有变的脚本，遇到失败的脚本就停下。
文字块写 Markdown，原样经过它。
"""

import hashlib
import io
import json
import os
import platform
import re
import shutil
import struct
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "gptcore"
CACHE = ROOT / ".cache" / "gallery"
NAME = "examples"  # 脚本的文件夹，也是页面在站点里的文件夹
CONF = {
    "gallery_dirs": NAME,
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "ignore_repr_types": r"matplotlib\.",
    "image_srcset": ["2x"],
    "min_reported_time": 1e9,  # 页面里没有运行时间：两次构建得到同样的站点
    "write_computation_times": False,
    "show_signature": False,
}
ANSI = re.compile(r"\x1b\[[\d;]*m")
DIRECTIVE = re.compile(r"(?P<pad> *)\.\. (?P<name>[\w-]+):: ?(?P<argument>.*)")
REFERENCE = re.compile(r"\[(`?[^\]\[]+`?)\]\[[\w.]*\]")  # [文字][gptcore.名字]，笔记本里用不上


def on_config(config: Any) -> None:
    """改动示例时，mkdocs serve 也重新构建。"""
    config.watch.append(str(ROOT / NAME))


def on_files(files: Files, config: Any) -> Files:
    """把画廊的页面、图和下载的文件加进站点与导航。"""
    pages = make_pages()
    for uri, what in pages.items():
        kind = {"content": what} if isinstance(what, str) else {"abs_src_path": str(what)}
        files.append(File.generated(config, uri, **kind))
    nav = [uri for uri in pages if uri.endswith(".md")]
    config.nav = [
        {title: nav if value == f"{NAME}/" else value for title, value in item.items()}
        for item in config.nav
    ]
    return files


def fingerprint(library: Path = LIBRARY) -> str:
    """示例的结果除了脚本自身还取决于什么；脚本自身由 sphinx-gallery 的 md5 负责。"""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted(library.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(path.relative_to(library).as_posix().encode() + path.read_bytes())
    for package in ("numpy", "matplotlib", "sphinx-gallery"):
        digest.update(version(package).encode())
    digest.update(platform.python_version().encode())
    return digest.hexdigest()


def run_gallery(examples: Path = ROOT / NAME, library: Path = LIBRARY, cache: Path = CACHE) -> Path:
    """运行变了的示例，返回 sphinx-gallery 写好的文件夹。"""
    os.environ.setdefault("MPLBACKEND", "agg")
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace

    stamp, now = cache / "fingerprint", fingerprint(library)
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != now:
        shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir(parents=True, exist_ok=True)
    log = io.StringIO()
    try:
        with docutils_namespace():
            Sphinx(
                cache,
                None,
                cache / "_out",
                cache / "_tree",
                "dummy",
                status=None,
                warning=log,
                confoverrides={
                    "extensions": ["sphinx_gallery.gen_gallery"],
                    "sphinx_gallery_conf": {**CONF, "examples_dirs": str(examples)},
                },
            )
    except Exception as error:  # 示例里可能抛出任何错误
        raise PluginError(f"示例运行失败：\n{ANSI.sub('', log.getvalue())}\n{error}") from error
    stamp.write_text(now, encoding="utf-8")
    return cache / NAME


def make_pages() -> dict[str, str | Path]:
    """画廊的每个文件：在站点里的位置，以及文字或者存放它的文件。"""
    made, cards = run_gallery(), []
    pages: dict[str, str | Path] = {f"{NAME}/index.md": ""}
    for script in sorted((ROOT / NAME).glob("plot_*.py")):
        stem = script.stem
        page = to_markdown((made / f"{stem}.rst").read_text(encoding="utf-8"), stem, made)
        title, intro = ([*page.split("\n\n"), ""])[:2]
        title, intro = title.lstrip("# "), " ".join(intro.split())
        cards.append(
            f"-   [![《{title}》的缩略图](images/thumb/sphx_glr_{stem}_thumb.png)]({stem}.md)\n\n"
            f"    **[{title}]({stem}.md)**\n\n    {intro}\n"
        )
        pages[f"{NAME}/{stem}.md"] = f"---\ndescription: {json.dumps(plain(intro))}\n---\n\n{page}"
        pages[f"{NAME}/{stem}.py"] = script
        pages[f"{NAME}/{stem}.ipynb"] = notebook(made / f"{stem}.ipynb")
        images = [*made.glob(f"images/*{stem}_[0-9]*.png"), *made.glob(f"images/*/*{stem}_*.png")]
        for path in sorted(images):
            pages[f"{NAME}/{path.relative_to(made).as_posix()}"] = path
    header = (ROOT / NAME / "GALLERY_HEADER.txt").read_text(encoding="utf-8")
    pages[f"{NAME}/index.md"] = (
        "---\ndescription: 可以整段复制运行的示例，带图和真实的输出，可下载脚本与笔记本。\n---\n\n"
        f'{header}\n<div class="grid cards" markdown>\n\n' + "\n".join(cards) + "\n</div>\n"
    )
    return pages


def plain(text: str) -> str:
    """去掉 Markdown 的标记，用在网页的描述里。"""
    return re.sub(r"[*`$]", "", REFERENCE.sub(r"\1", text))


def notebook(path: Path) -> str:
    """笔记本的内容：交叉引用只留文字，其余照 sphinx-gallery 写的。"""
    content = json.loads(path.read_text(encoding="utf-8"))
    for cell in content["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = [REFERENCE.sub(r"\1", line) for line in cell["source"]]
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def to_markdown(rst: str, stem: str, folder: Path) -> str:
    """把 sphinx-gallery 写的一页变成 Markdown。"""
    rst = rst.split(f".. _sphx_glr_{NAME}_{stem}.py:\n", 1)[1]
    rst = rst.split(f".. _sphx_glr_download_{NAME}_{stem}.py:", 1)[0]
    blocks = re.split(r"^\.\. GENERATED FROM PYTHON SOURCE LINES .*\n", rst, flags=re.MULTILINE)
    parts = [
        code_and_outputs(block, stem, folder)
        if block.lstrip().startswith(".. code-block:: Python")
        else block.strip()
        for block in blocks
    ]
    parts.append(
        f"[下载脚本 {stem}.py]({stem}.py){{ .md-button download }} "
        f"[下载笔记本 {stem}.ipynb]({stem}.ipynb){{ .md-button download }}"
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def code_and_outputs(rst: str, stem: str, folder: Path) -> str:
    """一个代码块，连同它打印和画出的东西；只认得 sphinx-gallery 写的几种指令。"""
    lines, parts, i = rst.splitlines(), [], 0
    while i < len(lines):
        match = DIRECTIVE.match(lines[i])
        i += 1
        if not match or match["name"] == "rst-class":
            continue
        start, inside = i, " " * (len(match["pad"]) + 1)
        while i < len(lines) and (not lines[i].strip() or lines[i].startswith(inside)):
            i += 1
        body = "\n".join(line[4:] for line in lines[start:i]).strip("\n")
        if match["name"] == "code-block":
            python = match["argument"] == "Python"
            info = "python" if python else '{.text .gallery-output title="输出"}'
            parts.append(fence(info, body))
        elif match["name"] == "image-sg":
            parts.append(image(match["argument"], "\n".join(lines[start:i]), stem, folder))
        elif match["name"] == "raw":
            parts.append(body)
        else:
            raise PluginError(f"gallery.py 不认得指令 {match['name']!r}，它在 {stem} 的输出里")
    return "\n\n".join(parts)


def fence(info: str, body: str) -> str:
    """一个围栏代码块；内容里有三个反引号时用五个。"""
    ticks = "`" * (3 if "```" not in body else 5)
    return f"{ticks}{info}\n{body}\n{ticks}"


def image(path: str, options: str, stem: str, folder: Path) -> str:
    """一幅图：用两倍分辨率的那张，宽度按一倍显示。"""
    path = path.removeprefix(f"/{NAME}/")
    alt = re.search(r":alt: ?(.*)", options)[1].strip()
    if not alt or alt == stem.removeprefix("plot_") or alt == stem.replace("_", " "):
        alt = "上面的代码画出的图"
    if alt.isascii():
        alt = f"上面的代码画出的图：{alt}"
    (width,) = struct.unpack(">I", (folder / path).read_bytes()[16:20])  # PNG 的 IHDR
    double = path.replace(".png", "_2_00x.png")
    return f'![{alt}]({double if (folder / double).exists() else path}){{ width="{width}" }}'
