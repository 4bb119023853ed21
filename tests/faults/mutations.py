"""把保存好的文件夹改坏：有种子，认得文件夹的格式，也会伪造清单

`Mutations(第一个, 第二个)` 读两个 `save_folder` 写成的文件夹，`make(编号)` 给出第一个改坏之后的样子，
编号相同，结果就相同；再用 `examine` 以一个读取函数试它。模型文件夹与检查点用的是同一套，读取函数不同而已。
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from faults.mutation import Mutation, seal, sparse
from faults.trees import (
    ESCAPES,
    RAW,
    SHA,
    VALUES,
    Rng,
    at,
    edited,
    paths,
    pick,
    place,
    put,
    to_json,
)

from gptcore.serialization import MANIFEST, dump_arrays, parse_arrays


class Mutations:
    """两个文件夹的各种改法。

    Args:
        first: 要改坏的文件夹。
        second: 另一个同类的文件夹，从它取内容来替换。
    """

    def __init__(self, first: Path, second: Path) -> None:
        self.first, self.second = (
            {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
            for folder in (first, second)
        )
        names = [name for name in self.first if name != MANIFEST]
        self.json = [name for name in names if name.endswith(".json")]
        self.arrays = [name for name in names if name.endswith(".safetensors")]
        self.names = names
        self.kinds = {
            name.removeprefix("do_"): getattr(self, name) for name in dir(self) if name[:3] == "do_"
        }

    def make(self, number: int) -> Mutation:
        """第 `number` 种改法；各种改法轮流出现，每种都既有重算清单的，也有不重算的。"""
        rng = np.random.default_rng(number)
        kind = list(self.kinds)[number % len(self.kinds)]
        sealed = kind.split("_")[0] not in {"manifest", "place"} and bool(
            number // len(self.kinds) % 3
        )
        mutation = Mutation(number, kind, sealed, dict(self.first))
        self.kinds[kind](mutation, rng)
        if sealed:
            seal(mutation.files)
        return mutation

    # 字节

    def _bytes(self, m: Mutation, rng: Rng, change: Callable[[bytes], bytes]) -> None:
        name = pick(rng, self.names if m.sealed else [*self.names, MANIFEST])
        m.files[name] = change(m.files[name])

    def do_bytes_truncate(self, m: Mutation, rng: Rng) -> None:
        self._bytes(m, rng, lambda c: c[: place(rng, c)])

    def do_bytes_extend(self, m: Mutation, rng: Rng) -> None:
        extra = pick(rng, [b"\0", b"\n", b" " * 100, b"}", rng.bytes(50), bytes(1 << 20)])
        self._bytes(m, rng, lambda c: c + extra)

    def do_bytes_flip(self, m: Mutation, rng: Rng) -> None:
        def change(content: bytes) -> bytes:
            array = bytearray(content)
            for _ in range(int(rng.integers(1, 9))):
                array[place(rng, content)] ^= 1 << int(rng.integers(8))
            return bytes(array)

        self._bytes(m, rng, change)

    def do_bytes_run(self, m: Mutation, rng: Rng) -> None:
        filler = pick(rng, [b"\0", b"\xff", b" ", b"9", b'"'])

        def change(content: bytes) -> bytes:
            i, n = place(rng, content), int(2 ** rng.uniform(0, 12))
            return content[:i] + filler * min(n, len(content) - i) + content[i + n :]

        self._bytes(m, rng, change)

    def do_bytes_splice(self, m: Mutation, rng: Rng) -> None:
        """从别的文件，或者另一个文件夹，取一段插进来，或者盖住一段。"""
        source = pick(rng, [self.first, self.second])
        other = source[pick(rng, list(source))]
        start = place(rng, other)
        piece = other[start : start + int(2 ** rng.uniform(0, 10))]

        def change(content: bytes) -> bytes:
            i = place(rng, content)
            return content[:i] + piece + content[i + len(piece) * int(rng.integers(2)) :]

        self._bytes(m, rng, change)

    def do_bytes_cut(self, m: Mutation, rng: Rng) -> None:
        def change(content: bytes) -> bytes:
            i = place(rng, content)
            return content[:i] + content[i + int(2 ** rng.uniform(0, 10)) :]

        self._bytes(m, rng, change)

    def do_bytes_other(self, m: Mutation, rng: Rng) -> None:
        content = pick(rng, [b"", b"\0" * 8, b"{}", b"[]", b"null", rng.bytes(500), b"\x80\x02N."])
        self._bytes(m, rng, lambda c: content)

    def do_bytes_encoding(self, m: Mutation, rng: Rng) -> None:
        """换了编码或换行，像被编辑器另存过。"""

        def change(content: bytes) -> bytes:
            text = content.decode("utf-8", "replace")
            return pick(rng, [
                b"\xef\xbb\xbf" + content, content.replace(b"\n", b"\r\n"), text.encode("utf-16"),
                text.encode("gbk", "replace"), content.replace(b"\n", b""), content * 2,
            ])  # fmt: skip

        self._bytes(m, rng, change)

    def do_swap_models(self, m: Mutation, rng: Rng) -> None:
        """一部分文件换成另一个文件夹的。"""
        common = [n for n in (*self.names, *([] if m.sealed else [MANIFEST])) if n in self.second]
        for name in rng.permutation(common)[: int(rng.integers(1, len(common) + 1))]:
            m.files[str(name)] = self.second[str(name)]

    def do_swap_files(self, m: Mutation, rng: Rng) -> None:
        a, b = (str(name) for name in rng.permutation(self.names)[:2])
        m.files[a], m.files[b] = m.files[b], m.files[a]

    def do_remove(self, m: Mutation, rng: Rng) -> None:
        del m.files[pick(rng, self.names if m.sealed else list(m.files))]

    # JSON

    def _tree(self, m: Mutation, rng: Rng, change: Callable[[Any], Any], name: str = "") -> None:
        name = name or pick(rng, self.json)
        m.files[name] = to_json(change(json.loads(m.files[name])))

    def do_json_value(self, m: Mutation, rng: Rng) -> None:
        self._tree(m, rng, lambda tree: edited(tree, rng))

    def do_json_values(self, m: Mutation, rng: Rng) -> None:
        def change(tree: Any) -> Any:
            for _ in range(int(rng.integers(2, 6))):
                tree = edited(tree, rng)
            return tree

        self._tree(m, rng, change)

    def do_json_raw(self, m: Mutation, rng: Rng) -> None:
        """一个值换成不合语法、或不该接受的写法。"""
        name = pick(rng, self.json)
        tree = json.loads(m.files[name])
        mark = "\u0001换掉\u0001"
        text = to_json(edited(tree, rng, [mark]))
        m.files[name] = text.replace(json.dumps(mark, ensure_ascii=False).encode(), pick(rng, RAW))

    def do_json_duplicate(self, m: Mutation, rng: Rng) -> None:
        name = pick(rng, self.json)
        tree = json.loads(m.files[name])
        if isinstance(tree, dict) and tree:
            key = pick(rng, list(tree))
            item = b"{" + to_json(key) + b":" + to_json(pick(rng, [tree[key], *VALUES])) + b","
            m.files[name] = item + to_json(tree)[1:]

    def do_json_large(self, m: Mutation, rng: Rng) -> None:
        """解析之后比文件大几十倍的内容，或者很长的字符串。"""
        unit = pick(rng, ["{},", "[],", "1e9,", '"ab",', '{"a":0},'])
        large = pick(
            rng, [f"[{unit * 2_000_000}0]", f'"{"a" * 5_000_000}"', f'"{"中" * 2_000_000}"']
        )
        name = pick(rng, self.json)
        tree = json.loads(m.files[name])
        mark = "\u0001换掉\u0001"
        text = to_json(edited(tree, rng, [mark], shallow=True))
        m.files[name] = text.replace(json.dumps(mark, ensure_ascii=False).encode(), large.encode())

    def do_json_sizes(self, m: Mutation, rng: Rng) -> None:
        """整数变得很大，或者差一点：像是要分配很多内存的设置。"""

        def change(tree: Any) -> Any:
            for path in [p for p in paths(tree) if type(at(tree, p)) is int]:
                if rng.random() < 0.5:
                    n = at(tree, path)
                    near = [n + 1, n - 1, -n, n * 2, n * 1000, 10**6, 10**9, 2**40, 10**18, 10**30]
                    tree = put(tree, path, pick(rng, near))
            return tree

        self._tree(m, rng, change)

    # 数组

    def _arrays(self, m: Mutation, rng: Rng, change: Callable[[dict[str, Any]], Any]) -> None:
        name = pick(rng, self.arrays)
        arrays = dict(parse_arrays(m.files[name], name))
        change(arrays)
        m.files[name] = dump_arrays(arrays)

    def do_arrays_values(self, m: Mutation, rng: Rng) -> None:
        """只有数值变了：什么都还说得通，包括 NaN 与无穷。"""

        def change(arrays: dict[str, Any]) -> None:
            key = pick(rng, list(arrays))
            array = arrays[key] = arrays[key].copy()
            if array.size:
                value = pick(rng, [0, 1, -1.5, np.nan, np.inf, 3e38])
                with np.errstate(invalid="ignore"):
                    array.reshape(-1)[int(rng.integers(array.size))] = np.asarray(value).astype(
                        array.dtype
                    )

        self._arrays(m, rng, change)

    def do_arrays_dtype(self, m: Mutation, rng: Rng) -> None:
        dtype = pick(rng, ["f2", "f4", "f8", "i8", "i4", "u1", "?"])

        def change(arrays: dict[str, Any]) -> None:
            keys = list(arrays) if rng.random() < 0.5 else [pick(rng, list(arrays))]
            for key in keys:
                with np.errstate(all="ignore"):
                    arrays[key] = arrays[key].astype(dtype)

        self._arrays(m, rng, change)

    def do_arrays_shape(self, m: Mutation, rng: Rng) -> None:
        def change(arrays: dict[str, Any]) -> None:
            key = pick(rng, list(arrays))
            a = arrays[key]
            arrays[key] = pick(rng, [
                a.T, a.reshape(-1), a[None], a[..., None], a.reshape(-1)[:-1], a.reshape(-1)[:0],
                np.concatenate([a.reshape(-1)] * 2), np.zeros((*a.shape, 2), a.dtype),
                np.zeros((0, *a.shape), a.dtype), a.reshape((1,) * 20 + a.shape),
            ])  # fmt: skip

        self._arrays(m, rng, change)

    def do_arrays_names(self, m: Mutation, rng: Rng) -> None:
        def change(arrays: dict[str, Any]) -> None:
            a, b = (str(name) for name in rng.permutation(list(arrays))[:2])
            how = int(rng.integers(5))
            if how == 0:
                del arrays[a]
            elif how == 1:
                arrays[pick(rng, ["x", "", "../x", a + ".x", a.upper(), "长" * 500])] = arrays[a]
            elif how == 2:
                arrays[a + "2"] = arrays.pop(a)
            elif how == 3:
                arrays[a], arrays[b] = arrays[b], arrays[a]
            else:
                arrays.clear()

        self._arrays(m, rng, change)

    def _header(self, m: Mutation, rng: Rng, change: Callable[[Any], Any]) -> None:
        name = pick(rng, self.arrays)
        content = m.files[name]
        size = int.from_bytes(content[:8], "little")
        header = to_json(change(json.loads(content[8 : 8 + size])))
        m.files[name] = len(header).to_bytes(8, "little") + header + content[8 + size :]

    def do_header_value(self, m: Mutation, rng: Rng) -> None:
        self._header(m, rng, lambda tree: edited(tree, rng))

    def do_header_entry(self, m: Mutation, rng: Rng) -> None:
        """一个数组的类型、形状或位置换成像样的另一个。"""

        def change(tree: Any) -> Any:
            entry = tree[pick(rng, [key for key in tree if key != "__metadata__"])]
            which = pick(rng, ["dtype", "shape", "data_offsets"])
            if which == "dtype":
                entry[which] = pick(
                    rng, ["F16", "BF16", "F32", "F64", "I32", "U8", "BOOL", "F8_E4M3"]
                )
            elif entry[which]:
                i = int(rng.integers(len(entry[which])))
                n = entry[which][i]
                entry[which][i] = pick(
                    rng, [n + 1, n - 1, n * 2, 0, -n, 2**62, 2**63, n + 4, n / 2]
                )
            return tree

        self._header(m, rng, change)

    def do_header_huge(self, m: Mutation, rng: Rng) -> None:
        """文件头很大：真的写了那么多，或者只是这样说。"""
        name = pick(rng, self.arrays)
        content = m.files[name]
        size = int.from_bytes(content[:8], "little")
        claimed = [
            0,
            1,
            size - 1,
            size + 1,
            len(content) - 8,
            len(content),
            100_000_000,
            2**40,
            2**63,
            2**64 - 1,
        ]
        if rng.random() < 0.6:
            m.files[name] = pick(rng, claimed).to_bytes(8, "little") + content[8:]
            return
        filler = pick(
            rng, [b" " * 20_000_000, b',"x":1e9' * 500_000, b',"x":{}' * 500_000, b"[" * 10**6]
        )
        header = content[8 : 7 + size].rstrip().removesuffix(b"}") + filler + b"}"
        m.files[name] = len(header).to_bytes(8, "little") + header + content[8 + size :]

    # 清单

    def _manifest(self, m: Mutation, change: Callable[[Any], Any]) -> None:
        m.files[MANIFEST] = to_json(change(json.loads(m.files[MANIFEST])))

    def do_manifest_value(self, m: Mutation, rng: Rng) -> None:
        self._manifest(m, lambda tree: edited(tree, rng))

    def do_manifest_paths(self, m: Mutation, rng: Rng) -> None:
        """名字指到文件夹外面；那里确实有内容相同的文件。"""

        def change(tree: Any) -> Any:
            name = pick(rng, self.names)
            escape = pick(rng, ESCAPES)
            if rng.random() < 0.5:
                tree["files"][name]["new"] = escape
            else:
                tree["files"][escape] = tree["files"].pop(name)
            if rng.random() < 0.5:
                del m.files[name]
            return tree

        self._manifest(m, change)

    def do_manifest_entry(self, m: Mutation, rng: Rng) -> None:
        def change(tree: Any) -> Any:
            a, b = (str(name) for name in rng.permutation(self.names)[:2])
            files = tree["files"]
            how = int(rng.integers(6))
            if how == 0:
                files[a], files[b] = files[b], files[a]
            elif how == 1:
                files[a]["size"] = pick(rng, [*VALUES, files[a]["size"] + 1, 2**40])
            elif how == 2:
                files[a]["sha256"] = pick(rng, [SHA, SHA.upper(), files[b]["sha256"], *VALUES])
            elif how == 3:
                tree["version"] = pick(rng, [2, 99, *VALUES])
            elif how == 4:
                del files[a][pick(rng, list(files[a]))]
            else:
                files[a] = pick(rng, VALUES)
            return tree

        self._manifest(m, change)

    # 不是普通文件

    def do_place(self, m: Mutation, rng: Rng) -> None:
        name = pick(rng, list(m.files))
        del m.files[name]
        m.places[name] = pick(rng, [
            os.mkfifo, Path.mkdir, lambda p: p.symlink_to("/dev/zero"), lambda p: p.symlink_to(p),
            lambda p: p.symlink_to(p.parent), lambda p: p.symlink_to("../outside.bin"),
            lambda p: p.symlink_to("/etc/hostname"), sparse,
        ])  # fmt: skip
