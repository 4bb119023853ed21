"""读写文件的底层：写入是原子的，断电也不丢；只读普通文件，不会等在管道上

断电之后留下什么，取决于哪些内容已经落到磁盘上。`fsync` 一个文件，落盘的是它的内容；改名记在文件夹里，
要 `fsync` 文件夹。顺序因此是：写临时文件、落盘、改名、文件夹落盘。
"""

import contextlib
import errno
import os
import stat
import sys
import time
from collections.abc import Generator, Iterable
from io import BufferedReader
from pathlib import Path

CHUNK = 1 << 26
"""每次写多少字节；有的系统一次写不了 2 GiB"""
LOCK_SECONDS = 60.0
"""别的进程正在写同一个文件夹时，最多等多久"""
ATTEMPTS = 20 if os.name == "nt" else 1
"""改名试几次：Windows 不能替换正被打开的文件，杀毒软件常打开它片刻"""

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
# O_NONBLOCK：检查之后被换成管道，也不会等在打开上
_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)


def atomic_write(path: Path, content: bytes) -> None:
    """原子地写一个文件：其他进程要么看到旧内容，要么看到完整的新内容，断电之后也是。

    先写同一个文件夹里的临时文件并落盘，再改名；文件夹不存在时会先建立。

    Args:
        path: 目标路径。
        content: 文件的全部字节。

    Raises:
        OSError: 文件夹建不了或写不进去。
    """
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    write_new(temporary, content)
    try:
        replace(temporary, path)
    except PermissionError:
        # Windows 不允许替换别的进程正打开着的文件；若对方已写好同样的内容，就不必再写
        if not path.is_file() or path.read_bytes() != content:
            raise
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_new(path: Path, content: bytes | Iterable[bytes | bytearray | memoryview]) -> None:
    """写一个还不存在的文件并落盘；写不成就删去。名字已被占用（包括符号链接）时不写。

    Args:
        path: 文件，它的文件夹已经存在。
        content: 全部字节，或者依次给出的各段。

    Raises:
        OSError: 写不进去。
    """
    descriptor = os.open(path, _WRITE, 0o666)
    try:
        try:
            for piece in (content,) if isinstance(content, bytes) else content:
                view = memoryview(piece)
                while view:
                    view = view[os.write(descriptor, view[:CHUNK]) :]
            _sync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def is_file(name: str) -> bool:
    """有没有这个名字的普通文件；太长、有空字符等，成不了文件名的也是没有。"""
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


def require_replaceable(target: Path) -> None:
    """用户指定的文件还没有，或者可以替换：普通文件、符号链接。管道与设备（例如 `/dev/null`）不替换。

    Raises:
        OSError: 是文件夹、管道或设备，或者看不了。
    """
    with contextlib.suppress(FileNotFoundError):
        mode = target.lstat().st_mode
        if not stat.S_ISLNK(mode):
            _require_regular(mode)


def replace(source: Path, target: Path) -> None:
    """改名，替换原有的文件；目标是符号链接时替换的是链接自己。

    Raises:
        OSError: 改不了名。
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            source.replace(target)
        except PermissionError:
            if attempt == ATTEMPTS:
                raise
            time.sleep(0.05)
        else:
            return


def make_folder(folder: Path) -> list[Path]:
    """建立文件夹，连同上面还没有的各级；它们在断电之后也在。

    Returns:
        新建立的各级，从里到外。

    Raises:
        OSError: 建不了。
    """
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in created:
        sync_folder(path.parent)
    return created


def sync_folder(folder: Path) -> None:
    """让文件夹里的改名与新建落盘；Windows 没有这个操作，有的文件系统也没有。

    Raises:
        OSError: 磁盘出错。
    """
    if os.name == "nt":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # 能写不能读的文件夹
        return
    try:
        _sync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def open_regular(path: Path) -> Generator[BufferedReader]:
    """打开一个普通文件来读；符号链接可以，指向的也要是普通文件。

    Args:
        path: 文件。

    Raises:
        OSError: 打不开，或者是文件夹、管道、设备。
    """
    _require_regular(path.stat().st_mode)  # 打开某些设备本身就有副作用，先看
    with os.fdopen(os.open(path, _READ), "rb") as file:
        _require_regular(os.fstat(file.fileno()).st_mode)
        yield file


def _require_regular(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(0, "它不是普通文件，而是管道、设备之类")


@contextlib.contextmanager
def locked_folder(folder: Path, seconds: float | None = None) -> Generator[bool]:
    """同一时刻只让一个进程（或线程）写这个文件夹；进程结束，锁也就没有了。

    有的网络文件系统不支持锁，这时不锁，照样继续。

    Args:
        folder: 文件夹，已经存在。
        seconds: 最多等多久；不给时是 `LOCK_SECONDS`。

    Yields:
        是否锁住了。

    Raises:
        OSError: 等了 `seconds` 秒，别的进程还在写。
    """
    descriptor = _open_lock(folder)
    try:
        yield descriptor is not None and _wait(
            descriptor, LOCK_SECONDS if seconds is None else seconds
        )
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _wait(descriptor: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while True:
        try:
            _lock(descriptor)
        except (BlockingIOError, PermissionError) as error:
            if time.monotonic() > deadline:
                raise OSError(0, "另一个进程正在写同一个文件夹") from error
            time.sleep(0.01)
        except OSError:
            return False
        else:
            return True


if sys.platform == "win32":
    import msvcrt

    def _open_lock(folder: Path) -> int | None:
        """Windows 不能锁文件夹；锁一个临时文件，关上时由系统删去。"""
        flags = os.O_RDWR | os.O_CREAT | os.O_TEMPORARY
        with contextlib.suppress(OSError):
            return os.open(folder / f".lock.{'0' * 16}.tmp", flags)
        return None

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _sync(descriptor: int) -> None:
        os.fsync(descriptor)

else:
    import fcntl

    def _open_lock(folder: Path) -> int | None:
        with contextlib.suppress(OSError):
            return os.open(folder, os.O_RDONLY)
        return None

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _sync(descriptor: int) -> None:
        if sys.platform == "darwin":  # 那里的 fsync 只送到硬盘的缓存，断电仍会丢
            with contextlib.suppress(OSError):
                fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
                return
        os.fsync(descriptor)
