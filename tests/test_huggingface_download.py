"""按名字下载：只连本机的回环地址。镜像，断了接着下，核对，离线，坏的网站"""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hf_folders import CONFIG, draw_state, safetensors, write_folder, write_shards
from hf_server import COMMIT, Hub, running

from gptcore import GPT, ArgumentError, CharTokenizer, DataError, DtypeError, load_pretrained
from gptcore.models.huggingface import download, download_pretrained, remote

WEIGHTS = "model.safetensors"


@pytest.fixture(autouse=True)
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("GPTCORE_CACHE", str(tmp_path / "缓存"))
    monkeypatch.setattr(remote, "WAIT", 0.01)
    monkeypatch.setattr(remote, "CHUNK", 1000)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running() as site:
        monkeypatch.setenv("GPTCORE_HF_ENDPOINT", site.url + "/")
        yield site


@pytest.fixture
def source(tmp_path: Path, hub: Hub) -> Path:
    """网站上的 gpt2，与 someone/small；有分词器，还有别的文件。"""
    model = GPT(11, 7, 6, 3, 2, head_bias=False, tied=True)
    folder = model.save_pretrained(tmp_path / "source", CharTokenizer("abcdefghijk"))
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    (folder / "README.md").write_text("x", encoding="utf-8")
    hub.add("gpt2", folder)
    hub.add("someone/small", folder)
    return folder


def gets(hub: Hub) -> list[str]:
    return [path for method, path, _ in hub.asked if method == "GET"]


def test_downloads_once(hub: Hub, source: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    folder = download_pretrained("gpt2", progress=lambda *args: seen.append(args))
    assert folder == tmp_path / "缓存" / "huggingface" / "gpt2" / COMMIT
    names = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}
    assert {p.name for p in folder.iterdir()} == names | {WEIGHTS, "complete.json"}
    for name in names | {WEIGHTS}:
        assert (folder / name).read_bytes() == (source / name).read_bytes()
    size = (source / WEIGHTS).stat().st_size
    assert (WEIGHTS, size, size) in seen
    assert [path for path in gets(hub) if "model" in path] == [
        f"/gpt2/resolve/{COMMIT}/{WEIGHTS}",  # 与设置取自同一个提交
        f"/cdn/gpt2/{WEIGHTS}",
    ]
    model, tokenizer = load_pretrained(folder)
    assert model.num_parameters == sum(a.size for a in draw_state().values())
    assert tokenizer == CharTokenizer("abcdefghijk")
    hub.asked.clear()
    assert download_pretrained("gpt2") == folder
    assert hub.asked == [("HEAD", "/gpt2/resolve/main/config.json", "")]


def test_names_and_revisions(hub: Hub, source: Path) -> None:
    folder = download_pretrained("someone/small", revision="refs/pr/1")
    assert folder.parent.name == "someone--small"
    assert hub.asked[0][1] == "/someone/small/resolve/refs%2Fpr%2F1/config.json"
    hub.files |= {key.replace("gpt2/", "new/gpt2/", 1): v for key, v in hub.files.items()}
    hub.large.add(f"new/gpt2/{WEIGHTS}")
    assert GPT.from_pretrained(download_pretrained("old/gpt2")).config["vocab_size"] == 11


def test_a_new_commit_is_downloaded_again(hub: Hub, source: Path, tmp_path: Path) -> None:
    old = download_pretrained("gpt2")
    hub.commit = "f" * 40
    GPT(11, 7, 6, 3, 2, head_bias=False, tied=True).save_pretrained(source)
    hub.add("gpt2", source)
    new = download_pretrained("gpt2")
    assert new.name == "f" * 40
    assert (new / WEIGHTS).read_bytes() == (source / WEIGHTS).read_bytes()
    assert (old / WEIGHTS).read_bytes() != (new / WEIGHTS).read_bytes()


def test_offline_uses_what_was_downloaded(
    hub: Hub, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = download_pretrained("gpt2")
    hub.statuses = [500]
    assert download_pretrained("gpt2") == folder
    monkeypatch.setenv("GPTCORE_HF_ENDPOINT", unreachable())
    assert download_pretrained("gpt2") == folder
    (folder / WEIGHTS).write_bytes(b"x")  # 不完整的不算
    with pytest.raises(DataError, match="连不上"):
        download_pretrained("gpt2")


def unreachable() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def test_unreachable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    endpoint = unreachable()
    monkeypatch.setenv("GPTCORE_HF_ENDPOINT", endpoint)
    with pytest.raises(DataError) as caught:
        download_pretrained("gpt2")
    for part in ("下载 gpt2", endpoint, "GPTCORE_HF_ENDPOINT", "hf-mirror", "放进一个文件夹"):
        assert part in str(caught.value)


def test_timeout(hub: Hub, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "TIMEOUT", (0.2, 0.2))
    hub.hang = 2
    with pytest.raises(DataError, match="取不到（超时）"):
        download_pretrained("gpt2")


# 断线


def test_resumes_where_it_stopped(hub: Hub, source: Path) -> None:
    cuts = [2000, *range(2100, 5000, 300), 5000]
    hub.cuts[f"gpt2/{WEIGHTS}"] = cuts.copy()
    folder = download_pretrained("gpt2")
    assert (folder / WEIGHTS).read_bytes() == (source / WEIGHTS).read_bytes()
    ranges = [wanted for _, path, wanted in hub.asked if path.startswith("/cdn/")]
    assert len(ranges) == len(cuts) + 1 > remote.ATTEMPTS  # 有进展的不算失败
    assert ranges[:2] == ["", "bytes=2000-"]
    assert ranges[-1] == "bytes=5000-"


def test_resumes_in_the_next_run(hub: Hub, source: Path) -> None:
    """下到一半按 Ctrl-C：正式的名字下没有文件，再运行一次接着下。"""

    def interrupt(name: str, have: int, total: int | None) -> None:
        if name == WEIGHTS and have >= 3000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download_pretrained("gpt2", progress=interrupt)
    folder = next((Path(download.cache_dir()) / "huggingface" / "gpt2").iterdir())
    assert not (folder / WEIGHTS).exists()
    assert not (folder / "complete.json").exists()
    with pytest.raises(DataError):
        GPT.from_pretrained(folder)
    hub.asked.clear()
    assert download_pretrained("gpt2") == folder
    assert (folder / WEIGHTS).read_bytes() == (source / WEIGHTS).read_bytes()
    assert [w for _, path, w in hub.asked if path.startswith("/cdn/")] == ["bytes=3000-"]
    assert not [p for p in folder.iterdir() if p.suffix == ".part"]


def test_a_site_without_ranges_starts_over(hub: Hub, source: Path) -> None:
    hub.ranges = False
    hub.cuts[f"gpt2/{WEIGHTS}"] = [2000]
    folder = download_pretrained("gpt2")
    assert (folder / WEIGHTS).read_bytes() == (source / WEIGHTS).read_bytes()


def test_always_cut_gives_up(hub: Hub, source: Path) -> None:
    hub.ranges = False
    hub.cuts[f"gpt2/{WEIGHTS}"] = [2000] * 50
    with pytest.raises(DataError, match=r"没有下完.*GPTCORE_HF_ENDPOINT"):
        download_pretrained("gpt2")
    assert len(hub.cuts[f"gpt2/{WEIGHTS}"]) == 50 - remote.ATTEMPTS


def test_errors_of_the_site_are_retried(hub: Hub, source: Path) -> None:
    folder = download_pretrained("gpt2")
    (folder / "complete.json").unlink()
    (folder / "config.json").unlink()
    original = hub.answer

    def answer(handler: Any, body: bool) -> None:
        if body and "config.json" in handler.path and len(gets(hub)) < 100:
            hub.statuses, hub.answer = [503, 429], original  # type: ignore[method-assign]
        original(handler, body)

    hub.answer = answer  # type: ignore[method-assign]
    assert download_pretrained("gpt2") == folder
    assert hub.statuses == []


# 核对


@pytest.mark.parametrize("name", [WEIGHTS, "config.json", "tokenizer.json"])
def test_wrong_content_is_never_used(hub: Hub, source: Path, tmp_path: Path, name: str) -> None:
    """SHA-256（大文件）与 Git 的对象名（小文件）都核对。"""
    hub.corrupt = {f"gpt2/{name}"}
    with pytest.raises(DataError, match=f"{name} 没有下完：内容与网站给出的哈希不符"):
        download_pretrained("gpt2")
    assert not list(tmp_path.glob(f"缓存/**/{name}"))
    hub.corrupt = set()
    assert download_pretrained("gpt2")


def test_a_plain_mirror(hub: Hub, source: Path) -> None:
    """静态的镜像：没有提交，没有哈希；只核对大小，每次重新下载。"""
    hub.plain = True
    folder = download_pretrained("gpt2")
    assert folder.name == "main"
    assert (folder / WEIGHTS).read_bytes() == (source / WEIGHTS).read_bytes()
    hub.files["gpt2/config.json"] = json.dumps(CONFIG).encode()
    download_pretrained("gpt2")
    assert json.loads((folder / "config.json").read_text(encoding="utf-8")) == CONFIG
    hub.cuts[f"gpt2/{WEIGHTS}"] = [2000] * 50
    with pytest.raises(DataError, match="没有下完"):
        download_pretrained("gpt2")
    assert not (folder / "complete.json").exists()


# 仓库里有什么


def test_shards(hub: Hub, tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "shards", draw_state(), [4, 9])
    hub.add("gpt2", folder)
    found = download_pretrained("gpt2")
    assert len(list(found.glob("model-*.safetensors"))) == 3
    assert GPT.from_pretrained(found).config["vocab_size"] == 11


def test_an_index_that_escapes(hub: Hub, tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "shards", draw_state(), [4])
    index = '{"weight_map": {"transformer.wte.weight": "../../x.safetensors"}}'
    (folder / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    hub.add("gpt2", folder)
    with pytest.raises(DataError, match="分片只能是同一个文件夹里"):
        download_pretrained("gpt2")
    assert not any("x.safetensors" in path for _, path, _ in hub.asked)


def test_other_architectures_are_refused_first(hub: Hub, tmp_path: Path) -> None:
    """先看设置：不是 GPT-2 的，不下载参数。"""
    folder = write_folder(tmp_path / "llama", {**CONFIG, "model_type": "llama"}, draw_state())
    hub.add("gpt2", folder)
    with pytest.raises(DataError, match="model_type 是 'llama'"):
        download_pretrained("gpt2")
    assert not any("safetensors" in path for _, path, _ in hub.asked)


def test_no_safetensors(hub: Hub, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "x")
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")
    hub.add("gpt2", folder)
    with pytest.raises(DataError, match=r"没有 model\.safetensors"):
        download_pretrained("gpt2")


@pytest.mark.parametrize("status", [401, 403, 404])
def test_missing_or_gated(hub: Hub, status: int) -> None:
    hub.statuses = [status]
    with pytest.raises(DataError, match=f"上没有它.*{status}.*登录"):
        download_pretrained("gpt2")


def test_hostile_sizes(hub: Hub, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.files["gpt2/config.json"] = b" " * (2 << 20)
    with pytest.raises(DataError, match=r"config\.json 有 2097152 个字节，最多"):
        download_pretrained("gpt2")
    hub.add("gpt2", source)

    class Usage:
        free = 100

    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage)
    with pytest.raises(DataError, match=r"只剩 0 MiB.*GPTCORE_CACHE"):
        download_pretrained("gpt2")


def test_endless_redirects(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(handler: Any, body: bool) -> None:
        hub._reply(handler, 307, {"Location": handler.path})

    hub.answer = answer  # type: ignore[method-assign]
    with pytest.raises(DataError, match="重定向的次数太多"):
        download_pretrained("gpt2")


def test_a_cache_that_cannot_be_written(
    hub: Hub, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    monkeypatch.setenv("GPTCORE_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"不能写入.*GPTCORE_CACHE"):
        download_pretrained("gpt2")


# 参数


@pytest.mark.parametrize(
    "name",
    ["", "..", "../gpt2", "a/b/c", "a b", "http://x/y", "/etc", "a--b", "a/..", "名字", "a" * 200],
)
def test_bad_names(name: str) -> None:
    with pytest.raises(ArgumentError, match="download_pretrained：name"):
        download_pretrained(name)


def test_bad_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DtypeError, match="name 得到 int"):
        download_pretrained(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="revision"):
        download_pretrained("gpt2", revision="../x")
    for endpoint in ("hf-mirror.com", "ftp://x", "http://", "file:///etc"):
        monkeypatch.setenv("GPTCORE_HF_ENDPOINT", endpoint)
        with pytest.raises(ArgumentError, match="环境变量 GPTCORE_HF_ENDPOINT 是"):
            download_pretrained("gpt2")
    assert safetensors(draw_state())
