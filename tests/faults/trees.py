"""任意的 JSON 树：路径、任取一处改成别的"""

import copy
import json
from typing import Any

import numpy as np

Rng = np.random.Generator

SHA = "".join(f"{i:x}" for i in range(16)) * 4
NUMBERS = [0, 1, -1, 2, 3, 7, 2**31, 2**63 - 1, 2**63, 2**64, 10**30, 1e300, 0.5, -0.0, 1e-9]
VALUES = [
    *NUMBERS,
    None,
    True,
    False,
    "",
    "0",
    "文",
    "\ud800",
    "x" * 2000,
    [],
    {},
    [[]],
    [0, 1],
    {"a": 1},
]
ESCAPES = [
    "../outside.bin",
    "/etc/hostname",
    "..",
    ".",
    "",
    "a/b",
    "..\\x",
    "C:\\x",
    "a\0b",
    "\ud800",
    "x" * 300,
]
RAW = [
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"9" * 5000,
    b"[" * 3000,
    b'{"a":1,"a":2}',
    b"'x'",
    b"\xff",
    b"\\u00",
]


def to_json(value: Any) -> bytes:
    """写成 JSON；NaN 也写。"""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")


def pick(rng: Rng, items: Any) -> Any:
    """任取一个。"""
    items = list(items)
    return items[int(rng.integers(len(items)))]


def place(rng: Rng, content: bytes) -> int:
    """一个位置；开头、结尾与任何地方各三分之一，短的文件里才都碰得到。"""
    near = int(min(len(content) - 1, 2 ** rng.uniform(0, 8))) if content else 0
    last = max(len(content) - 1, 0)
    return pick(rng, [near, last - near, int(rng.integers(last + 1))])


def paths(tree: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """树里每个结点的路径，包括根。"""
    found = [prefix]
    items = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree if isinstance(tree, list) else ())
    )
    for key, value in items:
        found += paths(value, (*prefix, key))
    return found


def at(tree: Any, path: tuple[Any, ...]) -> Any:
    """路径上的值。"""
    for key in path:
        tree = tree[key]
    return tree


def put(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """换掉路径上的值。"""
    if not path:
        return value
    at(tree, path[:-1])[path[-1]] = value
    return tree


def edited(tree: Any, rng: Rng, values: list[Any] = VALUES, shallow: bool = False) -> Any:
    """任一结点换成 `values` 里的一个；不指定 `values` 时，也会删去、改名、增加、搬动。"""
    every = [path for path in paths(tree) if len(path) == 1 or not shallow] or [()]
    path = pick(rng, every if rng.random() < 0.1 else [p for p in every if p] or every)
    how = int(rng.integers(5)) if values is VALUES and path else 0
    outer = at(tree, path[:-1]) if path else None
    if how == 1:
        del outer[path[-1]]
    elif how == 2 and isinstance(outer, dict):
        outer[pick(rng, ["", "x", "新", path[-1] + " ", "rng", "\ud800"])] = outer.pop(path[-1])
    elif how == 3 and isinstance(outer, dict):
        outer[pick(rng, ["x", "dropout2", "__class__", "self"])] = copy.deepcopy(pick(rng, VALUES))
    elif how == 4 and len(path) > 1:
        return put(tree, path, copy.deepcopy(at(tree, pick(rng, every))))
    else:
        return put(tree, path, copy.deepcopy(pick(rng, values)))
    return tree
