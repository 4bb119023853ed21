"""环境、BLAS、编码与文件的检查：正常时通过；环境不对时说出哪里不对、怎么改"""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gptcore
from gptcore.diagnostics import Status, blas, environment, files
from gptcore.diagnostics.environment import minimum_version, usable_cpus

Mapping = dict[str, str]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """去掉 BLAS 的变量，各个测试自己设。"""
    for name in [*blas.OTHERS, *(n for names in blas.THREADS.values() for n in names)]:
        monkeypatch.delenv(name, raising=False)


def loaded(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """假装进程里的 BLAS 是这样的。"""
    info = {"blas": "openblas 0.3.30", "blas_kernel": "Haswell", "threads": 2} | changes
    monkeypatch.setattr(blas, "blas_info", lambda: info)


# 版本


def test_versions_name_the_place() -> None:
    assert str(Path(gptcore.__file__).parent) in environment.gptcore_version().value
    assert sys.executable in environment.python_version().value
    assert environment.numpy_version().value == np.__version__
    assert "个核" in environment.system().value


def test_a_stale_installation_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "__version__", "9.9.9")
    result = environment.gptcore_version()
    assert result.status is Status.WARNING
    assert "9.9.9" in result.explanation
    monkeypatch.setattr(environment, "installed_version", lambda name: None)  # 没有经 pip 安装
    assert environment.gptcore_version().status is Status.OK


def test_minimum_versions_come_from_the_package_itself() -> None:
    assert minimum_version("numpy") == "1.26"
    assert minimum_version("rich")
    assert minimum_version("没有这个库") is None


def test_an_old_or_missing_package_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment.packages().status is Status.OK
    right = environment.installed_version
    monkeypatch.setattr(
        environment, "installed_version", lambda n: "0.3.1" if n == "safetensors" else right(n)
    )
    result = environment.packages()
    assert result.status is Status.FAILURE
    assert "safetensors 太旧：0.3.1" in result.explanation
    assert 'pip install "safetensors>=' in result.remedy
    monkeypatch.setitem(sys.modules, "pooch", None)
    result = environment.packages()
    assert "pooch 不能导入" in result.explanation
    assert "safetensors 太旧" in result.explanation


def test_versions_are_compared_as_numbers() -> None:
    numbers = environment._numbers
    assert numbers("1.26.4") < numbers("2.0.0rc1") < numbers("2.10") < numbers("10.0+local.7")


def test_a_missing_optional_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "installed_version", lambda name: None)
    result = environment.optional_packages()
    assert result.status is Status.OK
    assert "pip install 'gptcore[plot]'" in result.value


# 核数与容器的配额


@pytest.fixture
def root(tmp_path: Path) -> Callable[[Mapping], Path]:
    """一个假的根文件夹。"""

    def make(contents: Mapping) -> Path:
        for name, text in contents.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        ({}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "300000 100000\n"}, 3),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "1000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "坏的"}, 8),
        (
            {
                "proc/self/cgroup": "4:memory:/x\n1:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            4,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
    ],
)
def test_usable_cpus(
    root: Callable[[Mapping], Path],
    contents: Mapping,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert usable_cpus(root(contents)) == expected


def test_without_affinity_the_cpu_count_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert usable_cpus(tmp_path) == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cpus(tmp_path) == 1


# BLAS


def test_blas_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(monkeypatch)
    assert blas.blas().value == "OpenBLAS 0.3.30，按 Haswell 优化"
    loaded(monkeypatch, blas=None, threads=None)
    monkeypatch.setattr(
        np, "show_config", lambda mode: {"Build Dependencies": {"blas": {"name": "accelerate"}}}
    )
    assert "accelerate" in blas.blas().value
    assert blas.threads().status is Status.OK
    monkeypatch.setenv("VECLIB_MAXIMUM_THREADS", "3")
    assert "VECLIB_MAXIMUM_THREADS=3" in blas.threads().value


@pytest.mark.parametrize(
    ("variables", "changes", "told"),
    [
        ({"OPENBLAS_NUM_THREADS": "64"}, {"threads": 4}, "线程（64 个）比可以用的核（4 个）多"),
        ({"OMP_NUM_THREADS": "5"}, {"threads": 4}, "线程（5 个）比可以用的核（4 个）多"),
        ({}, {"threads": 16}, "线程（16 个）比可以用的核（4 个）多"),
        ({"MKL_NUM_THREADS": "9"}, {"blas": "mkl 2024.1"}, "线程（9 个）"),
        ({"OPENBLAS_NUM_THREADS": "abc"}, {}, "OPENBLAS_NUM_THREADS='abc' 不是正整数"),
        ({"OPENBLAS_NUM_THREADS": "0"}, {}, "不是正整数"),
        ({"OPENBLAS_NUM_THREADS": "-2"}, {}, "不是正整数"),
    ],
)
def test_oversubscription_is_a_warning(
    variables: Mapping, changes: Mapping, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blas, "usable_cpus", lambda: 4)
    loaded(monkeypatch)
    assert blas.threads().status is Status.OK
    loaded(monkeypatch, **changes)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    result = blas.threads()
    assert result.status is Status.WARNING
    assert told in result.explanation
    name = next(iter(variables), "OPENBLAS_NUM_THREADS")
    assert name in result.remedy


def test_variables_of_another_blas_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(monkeypatch)
    monkeypatch.setattr(blas, "usable_cpus", lambda: 4)
    monkeypatch.setenv("MKL_NUM_THREADS", "99")
    assert blas.threads().status is Status.OK
    assert "MKL_NUM_THREADS=99" in blas.variables().value


def test_variables_that_change_results_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GPTCORE_CACHE", "GPTCORE_DATA", "GPTCORE_MIRROR"):
        monkeypatch.delenv(name, raising=False)
    assert "没有设置" in blas.variables().value
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Nehalem")
    monkeypatch.setenv("GPTCORE_MIRROR", "某处")
    assert blas.variables().value == "OPENBLAS_CORETYPE=Nehalem，GPTCORE_MIRROR=某处"


def test_a_wrong_product_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert blas.products().status is Status.OK

    class Wrong(np.ndarray):
        """乘积的一个元素差了最小的一位。"""

        def __matmul__(self, other: Any) -> Any:
            result = np.asarray(self) @ np.asarray(other)
            if self.dtype == np.float32:
                result[..., -1] = np.nextafter(result[..., -1], np.float32(np.inf))
            return result

    class Rng:
        def integers(self, low: int, high: int, size: Any) -> Any:
            return np.random.RandomState(0).randint(low, high, size).view(Wrong)

    monkeypatch.setattr(np.random, "default_rng", lambda seed: Rng())
    result = blas.products()
    assert result.status is Status.FAILURE
    assert result.value == "float32 的结果不对"
    assert "OPENBLAS_CORETYPE" in result.remedy


# 编码


@pytest.mark.parametrize("encoding", ["utf-8", "gbk", "gb18030"])
def test_streams_that_write_chinese(encoding: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    result = files.streams(stream, stream)
    assert result.status is Status.OK
    assert encoding in result.value


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "big5"])
def test_a_stream_that_cannot_write_chinese_fails(encoding: str) -> None:
    bad = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    good = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    result = files.streams(bad, good)
    assert result.status is Status.FAILURE
    assert "stdout" in result.explanation
    assert "stderr" not in result.explanation
    assert "PYTHONIOENCODING" in result.remedy
    assert "stderr" in files.streams(good, bad).explanation


def test_an_ascii_filesystem_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    result = files.encodings()
    assert result.status is Status.FAILURE
    assert "PYTHONUTF8=1" in result.remedy


@pytest.mark.skipif(sys.platform != "linux", reason="文件名的编码只在 Linux 上随区域变化")
def test_in_a_real_ascii_locale(tmp_path: Path) -> None:
    code = (
        "import sys; from gptcore.diagnostics import files\n"
        "for r in (files.encodings(), files.current_folder()):\n"
        "    sys.stdout.buffer.write(f'{r.status} {r.explanation}\\n'.encode())\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    encodings, folder = result.stdout.decode().splitlines()
    assert encodings.startswith("错误 文件名的编码写不出中文")
    assert folder.startswith("错误")
    assert "文件名写不出中文（ascii）" in folder


# 文件夹


def test_writable_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPTCORE_CACHE", str(tmp_path / "还没有" / "缓存"))
    for result in (files.current_folder(), files.cache_folder()):
        assert result.status is Status.OK
        assert "GiB" in result.value
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows 不能删去当前文件夹")
def test_the_current_folder_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    result = files.current_folder()
    assert (result.status, result.value) == (Status.FAILURE, "当前文件夹不在了")
    assert "cd" in result.remedy


def refuse(folder: Path) -> None:
    raise PermissionError(13, "denied", str(folder))


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPTCORE_CACHE", str(tmp_path))
    monkeypatch.setattr(files, "write_and_read", refuse)
    here, cache = files.current_folder(), files.cache_folder()
    assert here.status is Status.FAILURE
    assert "没有权限" in here.explanation
    assert "--out" in here.remedy
    assert cache.status is Status.WARNING  # 语料会放在临时文件夹里
    assert "GPTCORE_CACHE" in cache.remedy


def test_a_file_in_place_of_the_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "文件").write_bytes(b"")
    for name in ("文件", "文件/里面"):
        monkeypatch.setenv("GPTCORE_CACHE", str(tmp_path / name))
        assert files.cache_folder().status is Status.WARNING


def test_a_full_disk_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    usage = type("Usage", (), {"free": 2**20})
    monkeypatch.setattr(files.shutil, "disk_usage", lambda folder: usage)
    result = files.current_folder()
    assert result.status is Status.WARNING
    assert "剩 0.0 GiB" in result.value


def test_a_filesystem_that_changes_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "atomic_write", lambda path, content: path.write_bytes(content[:9]))
    result = files.current_folder()
    assert result.status is Status.FAILURE
    assert "读回来的内容与写的不同" in result.explanation


def test_corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPTCORE_CACHE", str(tmp_path))
    monkeypatch.delenv("GPTCORE_DATA", raising=False)
    assert files.corpora().value == "stories 第一次用时生成，tinyshakespeare 第一次用时下载"
    monkeypatch.setenv("GPTCORE_DATA", str(tmp_path / "没有"))
    assert files.corpora().status is Status.WARNING
    (tmp_path / "tinyshakespeare.txt").write_bytes(b"short")
    monkeypatch.setenv("GPTCORE_DATA", str(tmp_path))
    result = files.corpora()
    assert result.status is Status.FAILURE
    assert "SHA-256" in result.explanation
    assert "GPTCORE_DATA" in result.remedy


def test_a_home_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPTCORE_CACHE", "~没有这个用户/缓存")
    result = files.cache_folder()
    assert result.status is Status.FAILURE
    assert "GPTCORE_CACHE" in result.remedy
    assert files.corpora().status is Status.FAILURE
