"""按名字下载 Hugging Face 上的模型：可以换镜像，断了接着下，不完整的从不当作完整的

只有这里用网络，而且只在明确要求下载时。文件放在缓存文件夹里，大小与哈希都对上才改成正式的名字；
全部文件都在之后，才写下 `complete.json`。各个文件取自同一个提交（commit），不会新旧混杂。
"""

import os
import re
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from gptcore.data.cache import cache_dir
from gptcore.errors import ArgumentError, DataError, DtypeError, system_reason
from gptcore.files import atomic_write, locked_folder, make_folder
from gptcore.kernels.convert import brief
from gptcore.models.huggingface.loading import CONFIG, CONFIG_LIMIT
from gptcore.models.huggingface.remote import (
    Info,
    Missing,
    Progress,
    Remote,
    Stopped,
    Unreachable,
)
from gptcore.models.huggingface.settings import parse_settings
from gptcore.models.huggingface.vocabulary import FILES
from gptcore.models.huggingface.weights import INDEX, INDEX_LIMIT, WEIGHTS, shards
from gptcore.serialization import dump_json, parse_json, read_bytes

ENDPOINT, VARIABLE = "https://huggingface.co", "GPTCORE_HF_ENDPOINT"
COMPLETE = "complete.json"
SMALL = 64 << 20
"""分词器的文件最多多少字节"""
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
REVISION = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})*", re.ASCII)


def download_pretrained(
    name: str, *, revision: str = "main", progress: Progress | None = None
) -> Path:
    """按名字下载一个 GPT-2 模型；已经下载过的不再下载，没有网络时用上次下载的。

    环境变量 `GPTCORE_HF_ENDPOINT` 是网站或镜像的网址，默认 <https://huggingface.co>；
    `GPTCORE_CACHE` 是放在哪里。先取 `config.json`：不是 GPT-2 的，不会去下载几百兆的参数。

    Args:
        name: 名字，例如 `gpt2`、`openai-community/gpt2-medium`。
        revision: 分支、标签或提交。
        progress: 每下载一些就调用一次，参数是文件名、已有的字节数、总的字节数（不知道时是 `None`）。

    Returns:
        本机的文件夹，交给 `GPT.from_pretrained` 或 `load_pretrained`。

    Raises:
        ArgumentError: 名字、`revision` 或 `GPTCORE_HF_ENDPOINT` 的写法不对。
        DataError: 连不上，没有这个模型，不是 GPT-2，内容与网站说的不符，或者写不进缓存。
        DtypeError: 名字不是字符串。
    """
    for argument, value, pattern in (("name", name, NAME), ("revision", revision, REVISION)):
        _check(argument, value, pattern)
    endpoint = _endpoint()
    place = cache_dir() / "huggingface" / name.replace("/", "--")
    reference = place / f"{revision.replace('/', '--')}.txt"
    try:
        remote = Remote(endpoint, name, progress)
        info = remote.find(revision, CONFIG)
        folder = place / (info.commit or revision.replace("/", "--"))
        make_folder(folder)
        with locked_folder(folder):
            if not (info.commit and _recorded(folder)):
                _fetch_all(remote, info, info.commit or revision, folder)
        atomic_write(reference, folder.name.encode())
    except Unreachable as error:
        if (folder := _downloaded(place, reference)) is not None:
            return folder
        raise DataError(_offline_message(name, endpoint, str(error))) from error
    except Missing as error:
        raise DataError(
            f"下载 {name}：{endpoint} 上没有它（{error}），或者它要登录才能下载；"
            "请检查名字，例如 gpt2；要登录的请自己下载，再给出文件夹"
        ) from error
    except Stopped as error:
        raise DataError(
            f"下载 {name}：{error}；再运行一次会接着下，总是不行时请{_MIRROR}"
        ) from error
    except OSError as error:
        raise DataError(
            f"下载 {name}：不能写入 {place}（{system_reason(error)}）；"
            "请检查磁盘空间，或用环境变量 GPTCORE_CACHE 换一个位置"
        ) from error
    return folder


def _fetch_all(remote: Remote, config: Info, revision: str, folder: Path) -> None:
    """下载一个版本的全部文件，最后写下 `complete.json`。"""
    before = _recorded(folder) or {}
    record: dict[str, Any] = {}

    def fetch(info: Info, limit: int | None) -> Path:
        path = folder / info.name
        entry = {"size": info.size, "tag": info.tag}
        if not (info.tag and before.get(info.name) == entry):
            path = remote.fetch(info, folder, limit)
        record[info.name] = {**entry, "size": path.stat().st_size}
        return path

    def fetch_optional(name: str, limit: int) -> Path | None:
        try:
            return fetch(remote.find(revision, name), limit)
        except Missing:
            return None

    (folder / COMPLETE).unlink(missing_ok=True)
    path = fetch(config, CONFIG_LIMIT)
    parse_settings(parse_json(read_bytes(path, CONFIG_LIMIT), path), path, dropout=0.0)
    for name in (*FILES, "generation_config.json"):
        fetch_optional(name, SMALL)
    try:
        weights = [remote.find(revision, WEIGHTS)]
    except Missing as error:
        index = fetch_optional(INDEX, INDEX_LIMIT)
        if index is None:
            raise DataError(
                f"下载 {remote.name}：其中没有 {WEIGHTS}；别的格式不能读，请换一个有它的模型"
            ) from error
        weights = [remote.find(revision, name) for name in shards(index)]
    _require_space(folder, weights)
    for info in weights:
        fetch(info, None)
    for leftover in folder.glob(".*.part"):  # 以前的版本没有下完的
        leftover.unlink()
    atomic_write(folder / COMPLETE, dump_json({"files": record}))


def _require_space(folder: Path, files: list[Info]) -> None:
    """磁盘放不下的，先说，不等下到一半。"""
    import shutil

    needed, free = sum(info.size or 0 for info in files), shutil.disk_usage(folder).free
    if needed > free:
        raise DataError(
            f"下载要 {needed / 2**20:,.0f} MiB，{folder} 所在的磁盘只剩 {free / 2**20:,.0f} MiB；"
            "请腾出空间，或用环境变量 GPTCORE_CACHE 换一个位置"
        )


def _recorded(folder: Path) -> dict[str, Any] | None:
    """已经下载完整的文件夹里有哪些文件；不完整时是 `None`。"""
    try:
        value: Any = parse_json(read_bytes(folder / COMPLETE, SMALL), folder / COMPLETE)
        files = cast("dict[str, dict[str, Any]]", value["files"])
        for name, entry in files.items():
            if (folder / name).stat().st_size != entry["size"]:
                return None
    except (DataError, OSError, AttributeError, LookupError, TypeError, ValueError):
        return None
    return files


def _downloaded(place: Path, reference: Path) -> Path | None:
    """上次下载的；没有或不完整时是 `None`。"""
    try:
        name = reference.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    folder = place / name
    return folder if folder.parent == place and _recorded(folder) else None


def _check(argument: str, value: Any, pattern: re.Pattern[str]) -> None:
    if not isinstance(value, str):
        raise DtypeError(
            f"download_pretrained：{argument} 得到 {type(value).__name__}，它必须是字符串"
        )
    if not pattern.fullmatch(value) or ".." in value or "--" in value:
        raise ArgumentError(
            f"download_pretrained：{argument} 是 {brief(value)}，不是 Hugging Face 上的写法；"
            "请写例如 gpt2 或 openai-community/gpt2"
        )


def _endpoint() -> str:
    """网站的网址，末尾没有 `/`"""
    endpoint = os.environ.get(VARIABLE, "").strip().rstrip("/") or ENDPOINT
    parts = urlsplit(endpoint)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise ArgumentError(
            f"环境变量 {VARIABLE} 是 {endpoint!r}，它必须是 http 或 https 的网址，例如 {ENDPOINT}"
        )
    return endpoint


_MIRROR = f"让环境变量 {VARIABLE} 指向一个镜像，例如 https://hf-mirror.com"


def _offline_message(name: str, endpoint: str, reason: str) -> str:
    return (
        f"下载 {name}：从 {endpoint} 取不到（{reason}）。有两种办法："
        f"（1）{_MIRROR}；"
        f"（2）在别处下载 {CONFIG}、{WEIGHTS} 与 tokenizer.json，放进一个文件夹，再给出这个文件夹"
    )
