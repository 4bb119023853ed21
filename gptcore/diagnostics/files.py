"""编码与文件：写不写得出中文，文件夹能不能写，语料在不在"""

import codecs
import locale
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from gptcore.data.cache import cache_dir, folder_from_environment
from gptcore.data.corpora import find_corpus
from gptcore.diagnostics.results import CheckResult, check, failure, ok, warning
from gptcore.errors import DataError, system_reason
from gptcore.files import atomic_write

SAMPLE = "中文：写一遍，读回来。"
SPACE = 200 * 2**20
"""磁盘的余量少于这么多字节时提醒"""


@check("输出的编码")
def streams(stdout: TextIO | None = None, stderr: TextIO | None = None) -> CheckResult:
    """标准输出与标准错误写不写得出中文。

    Args:
        stdout: 标准输出；默认是现在的。
        stderr: 标准错误；默认是现在的。
    """
    given = {"stdout": stdout or sys.stdout, "stderr": stderr or sys.stderr}
    encodings = {name: getattr(stream, "encoding", None) for name, stream in given.items()}
    value = "，".join(f"{name} {encoding or '未知'}" for name, encoding in encodings.items())
    wrong = [name for name, encoding in encodings.items() if not writes_chinese(encoding)]
    if wrong:
        return failure(
            value,
            f"{' 与 '.join(wrong)} 的编码写不出简体中文，会变成问号",
            "取消设置环境变量 PYTHONIOENCODING，或把它设为 utf-8（set PYTHONIOENCODING=utf-8）",
        )
    return ok(value, "写得出中文")


@check("文件名与区域")
def encodings() -> CheckResult:
    """操作系统接口的编码；gptcore 读写文件总是用 UTF-8，与区域无关。"""
    filesystem, region = sys.getfilesystemencoding(), locale.getencoding()
    mode = "，UTF-8 模式" if sys.flags.utf8_mode else ""
    value = f"文件名 {filesystem}，区域 {region}{mode}"
    if not writes_chinese(filesystem):
        return failure(
            value,
            "文件名的编码写不出中文，路径里有中文的文件打不开",
            "设环境变量 PYTHONUTF8=1，或把区域换成 UTF-8 的，例如 LC_ALL=C.UTF-8",
        )
    utf8 = codecs.lookup(region).name == "utf-8"
    return ok(value, "" if utf8 else "gptcore 读写文件总是用 UTF-8，与区域无关")


def writes_chinese(encoding: str | None) -> bool:
    """一种编码写不写得出简体中文；名字不认识的算写不出，没有名字的（内存里的流）算写得出。

    Args:
        encoding: 编码的名字。
    """
    if encoding is None:
        return True
    try:
        SAMPLE.encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return True


@check("当前文件夹")
def current_folder() -> CheckResult:
    """模型默认存在当前文件夹里：能不能写，还剩多少空间。"""
    try:
        folder = Path.cwd()
    except FileNotFoundError:
        return failure(
            "当前文件夹不在了", "它被删除或改名了，相对的路径都打不开", "换一个文件夹，例如 cd ~"
        )
    try:
        write_and_read(folder)
    except OSError as error:
        return failure(
            f"{folder} 不能写",
            f"模型默认存在当前文件夹里，这里写不进去：{system_reason(error)}",
            "换一个文件夹（cd），或用 --out 指定一个可写的位置",
        )
    return _space(folder, f"{folder} 可写")


@check("缓存文件夹")
def cache_folder() -> CheckResult:
    """语料存在缓存文件夹里；写不了时仍可以用，只是每次都要重新生成。"""
    try:
        folder = cache_dir()
    except DataError as error:
        return failure("找不到缓存文件夹", str(error), "改正环境变量 GPTCORE_CACHE，或取消设置")
    existing = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    try:
        write_and_read(existing)
    except OSError as error:
        return warning(
            f"{folder} 不能写",
            f"语料不能留在缓存里，每次都要重新生成或下载：{system_reason(error)}",
            "把环境变量 GPTCORE_CACHE 设为一个可写的文件夹",
        )
    return _space(existing, f"{folder} 可写")


@check("语料")
def corpora() -> CheckResult:
    """语料在不在本机；只看，不下载也不生成。"""
    try:
        stories, shakespeare = find_corpus("stories"), find_corpus("tinyshakespeare")
        folder = folder_from_environment("GPTCORE_DATA")
    except DataError as error:
        return failure("语料不能用", str(error), "改正或取消设置 GPTCORE_DATA 与 GPTCORE_CACHE")
    value = "stories " + ("在缓存里" if stories else "第一次用时生成")
    value += "，tinyshakespeare " + (f"在 {shakespeare}" if shakespeare else "第一次用时下载")
    if folder is not None and not folder.is_dir():
        return warning(
            value,
            f"环境变量 GPTCORE_DATA 指向的 {folder} 不是文件夹",
            "改正 GPTCORE_DATA，或取消设置",
        )
    return ok(value)


def write_and_read(folder: Path) -> None:
    """在文件夹里写一个中文名字、中文内容的文件，像保存模型那样改名落盘，读回来，再删掉。

    Args:
        folder: 已有的文件夹。

    Raises:
        OSError: 写不了，或读回来的内容不同。
    """
    try:
        with tempfile.TemporaryDirectory(prefix=".gptcore-", dir=folder) as inner:
            path = Path(inner) / "诊断.txt"
            atomic_write(path, SAMPLE.encode("utf-8"))
            content = path.read_text(encoding="utf-8")
    except UnicodeEncodeError as error:
        raise OSError(f"文件名写不出中文（{error.encoding}）") from error
    if content != SAMPLE:
        raise OSError("读回来的内容与写的不同")


def _space(folder: Path, value: str) -> CheckResult:
    """可写的文件夹：还剩多少空间。"""
    free = shutil.disk_usage(folder).free
    value += f"，剩 {free / 2**30:.1f} GiB"
    if free < SPACE:
        return warning(
            value, "磁盘快满了，检查点可能存不下", "删去不用的文件，或换一个磁盘（--out）"
        )
    return ok(value)
