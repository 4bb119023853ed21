"""MkDocs 钩子：公式用的 KaTeX 在构建时从 npm 安装，放进站点，不放进 git

版本与校验和固定在 docs/_katex/package-lock.json；文件装在 .cache/katex/ 里，锁文件不变就不再安装。
"""

import hashlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "docs" / "_katex"
CACHE = ROOT / ".cache" / "katex"
PLACE = "assets/katex"  # 在站点里的位置
SCRIPTS = ("katex.min.js", "contrib/auto-render.min.js")
# 样式表里给旧浏览器准备的字体格式；只带 woff2，所以去掉
OLD_FONTS = re.compile(r',url\([^)]*\.(?:woff|ttf)\) format\("\w+"\)')

NO_NODE = (
    "没有找到 npm。公式由 KaTeX 排版，构建文档时从 npm 安装，需要 Node.js。"
    "Debian 和 Ubuntu 上请运行 apt-get install nodejs npm，其他系统见 https://nodejs.org，"
    "装好后重新构建。"
)


def on_files(files: Files, config: Any) -> Files:
    """把 KaTeX 的文件加进站点。"""
    dist = install()
    for script in SCRIPTS:
        path = dist / script
        files.append(File.generated(config, f"{PLACE}/{path.name}", abs_src_path=str(path)))
    for font in sorted((dist / "fonts").glob("*.woff2")):
        files.append(File.generated(config, f"{PLACE}/fonts/{font.name}", abs_src_path=str(font)))
    style = (dist / "katex.min.css").read_text(encoding="utf-8")
    files.append(File.generated(config, f"{PLACE}/katex.min.css", content=OLD_FONTS.sub("", style)))
    return files


def install() -> Path:
    """返回 KaTeX 的 dist 文件夹，必要时先安装。"""
    lock = (SOURCE / "package-lock.json").read_bytes()
    folder = CACHE / hashlib.sha256(lock).hexdigest()[:16]
    dist = folder / "node_modules" / "katex" / "dist"
    if dist.is_dir():
        return dist
    npm = shutil.which("npm")
    if npm is None:
        raise PluginError(NO_NODE)
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        work = Path(name) / "katex"
        work.mkdir()
        for file in ("package.json", "package-lock.json"):
            shutil.copy(SOURCE / file, work)
        result = subprocess.run(
            [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=work,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        if result.returncode:
            raise PluginError(f"npm ci 没有装上 KaTeX，请检查网络：\n{result.stderr.strip()}")
        shutil.rmtree(folder, ignore_errors=True)
        work.rename(folder)
    return dist
