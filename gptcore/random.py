"""默认的随机数生成器，以及生成器状态的保存与恢复

所有会用到随机数的地方都接受 `rng: np.random.Generator | None`；不给时用这里的默认生成器。
状态是可以写进 JSON 的字典：恢复之后，接着抽出来的每一个数都与当时接着抽的一样。
"""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from gptcore.errors import DataError, DtypeError

_U32, _U64, _U128 = 2**32 - 1, 2**64 - 1, 2**128 - 1
_SPARE = {"has_uint32": (0, 1), "uinteger": (0, _U32)}
_PCG = {"state.state": (0, _U128), "state.inc": (0, _U128), **_SPARE}

# 各种位生成器的状态：字段 → (元素个数，0 表示单个整数；最大的值)
# 字段与含义见 NumPy 文档 “Bit generators”；下标 pos、buffer_pos 越界会让 NumPy 读到数组之外
_LAYOUTS: dict[str, dict[str, tuple[int, int]]] = {
    "MT19937": {"state.key": (624, _U32), "state.pos": (0, 624)},
    "PCG64": _PCG,
    "PCG64DXSM": _PCG,
    "Philox": {
        "state.counter": (4, _U64),
        "state.key": (2, _U64),
        "buffer": (4, _U64),
        "buffer_pos": (0, 4),
        **_SPARE,
    },
    "SFC64": {"state.state": (4, _U64), **_SPARE},
}


def default_rng() -> np.random.Generator:
    """返回与 `np.random.seed` 共用状态的生成器。

    `np.random.seed(42)` 重置的正是这份状态，因此 NumPy 用户的习惯写法在这里同样有效。
    每次抽取随机数之前都重新取得，不缓存：这样 `np.random.set_bit_generator` 换掉的生成器也会立即生效。

    Returns:
        共享全局状态的生成器。
    """
    return np.random.Generator(_legacy().get_bit_generator())


def resolve_rng(operation: str, rng: Any) -> np.random.Generator:
    """用户给的生成器；没有给时是默认的。

    Args:
        operation: 哪个操作，写进错误消息。
        rng: 生成器或 `None`。

    Returns:
        要用的生成器。

    Raises:
        DtypeError: 给的不是生成器，例如只给了种子。
    """
    if rng is None:
        return default_rng()
    if not isinstance(rng, np.random.Generator):
        seed = rng if isinstance(rng, int) and 0 <= rng < 2**64 else 42
        raise DtypeError(
            f"{operation}：rng 必须是随机数生成器，这里是 {type(rng).__name__}；"
            f"请写 rng=np.random.default_rng({seed})"
        )
    return rng


def generator_state(rng: np.random.Generator) -> dict[str, Any]:
    """生成器此刻的状态；读取状态不抽取随机数。

    `rng.spawn` 已经分出几个子生成器不在其中；NumPy 把它记在种子里，不在状态里。

    Args:
        rng: 生成器，位生成器是 NumPy 自带的任意一种。

    Returns:
        可以写进 JSON 的字典：`"bit_generator"` 是位生成器的名字，其余是它的状态，数组写成整数的列表。
        PCG64 的整数有 128 位，Python 的 JSON 原样读写。

    Raises:
        DataError: 位生成器不是 NumPy 自带的。
        DtypeError: `rng` 不是生成器。

    Examples:
        >>> rng = np.random.default_rng(42)
        >>> state = generator_state(rng)
        >>> first = rng.random()
        >>> set_generator_state(rng, state)
        >>> rng.random() == first
        True
    """
    state = _plain(_require("generator_state", rng).bit_generator.state)
    _check("generator_state", state)
    return state


def set_generator_state(rng: np.random.Generator, state: Mapping[str, Any]) -> None:
    """把生成器恢复到保存时的状态，一位不差。

    Args:
        rng: 要恢复的生成器，就地修改。
        state: `generator_state` 的结果。

    Raises:
        DataError: 状态不完整或不可能出现，或者来自另一种位生成器；生成器不变。
        DtypeError: `rng` 不是生成器。
    """
    bit_generator = _require("set_generator_state", rng).bit_generator
    given = _plain(state)
    name = _check("set_generator_state", given)
    own = type(bit_generator).__name__
    if name != own:
        raise DataError(
            f"set_generator_state：状态来自 {name}，这里的生成器是 {own}；"
            f"请用同一种位生成器，例如 np.random.Generator(np.random.{name}())"
        )
    bit_generator.state = _arrays(name, given)


def default_generator_state() -> dict[str, Any]:
    """默认生成器此刻的状态，也就是 `np.random` 的全局状态；读取状态不抽取随机数。

    `np.random.randn` 一次算出两个正态数，留下一个给下一次；留着的数也在状态里。

    Returns:
        可以写进 JSON 的字典：比 `generator_state` 多 `"has_gauss"` 与 `"gauss"`，即留着的正态数。

    Raises:
        DataError: 全局的位生成器不是 NumPy 自带的。
    """
    state = _plain(_legacy().get_state(legacy=False))
    _check_default("default_generator_state", state)
    return state


def set_default_generator_state(state: Mapping[str, Any]) -> None:
    """把默认生成器恢复到保存时的状态。

    状态来自另一种位生成器时，用 `np.random.set_bit_generator` 换成那一种：恢复之后，
    `np.random` 与 `default_rng()` 抽出来的数与保存时接着抽的一样。

    Args:
        state: `default_generator_state` 的结果。

    Raises:
        DataError: 状态不完整或不可能出现；默认生成器不变。
    """
    given = _plain(state)
    name = _check_default("set_default_generator_state", given)
    legacy = _legacy()
    restored = _arrays(name, given)
    if type(legacy.get_bit_generator()).__name__ != name:
        bit_generator = getattr(legacy, name)(0)
        bit_generator.state = restored
        legacy.set_bit_generator(bit_generator)
    legacy.set_state(restored)


def _legacy() -> Any:
    """`np.random` 模块；它的类型声明里没有 `get_bit_generator` 等函数。"""
    return np.random


def _require(operation: str, rng: Any) -> np.random.Generator:
    if rng is None:
        raise DtypeError(
            f"{operation}：rng 是 None；默认生成器请用 default_generator_state 与 set_default_generator_state"
        )
    return resolve_rng(operation, rng)


def _plain(value: Any, depth: int = 0) -> Any:
    """字典逐层复制；数组变成列表，NumPy 的数变成 Python 的数。"""
    if isinstance(value, Mapping) and depth < 3:  # 状态只有两层，更深的原样留给检查
        items = cast("Mapping[Any, Any]", value).items()
        return {key: _plain(item, depth + 1) for key, item in items}
    if isinstance(value, np.ndarray | np.generic):
        return cast("Any", value).tolist()
    return cast("Any", value)


def _check(operation: str, state: Any) -> str:
    """检查状态的每一个字段；返回位生成器的名字。"""
    given = cast("dict[Any, Any]", state if isinstance(state, dict) else {})
    name: Any = given.get("bit_generator")
    if not isinstance(name, str) or name not in _LAYOUTS:
        raise DataError(
            f"{operation}：位生成器是 {_short(name)}，认识的有 {'、'.join(_LAYOUTS)}；"
            "请用 np.random.default_rng(种子) 建立生成器，或换回原来的文件"
        )
    fields, layout = _flat(given), _LAYOUTS[name]
    del fields["bit_generator"]
    if fields.keys() != layout.keys():
        names = "、".join(sorted(str(field) for field in fields))
        _refuse(operation, name, f"字段是 {names[:200]}，应当是 {'、'.join(sorted(layout))}")
    for field, (count, limit) in layout.items():
        value = fields[field]
        items = cast("list[Any]", value) if isinstance(value, list) else [value]
        if isinstance(value, list) != bool(count) or len(items) != (count or 1):
            wanted = f"{count} 个整数的列表" if count else "单个整数"
            _refuse(operation, name, f"{field} 应当是{' ' if count else ''}{wanted}")
        for item in items:
            if type(item) is not int or not 0 <= item <= limit:
                shown = _short(item)
                _refuse(operation, name, f"{field} 里有 {shown}，应当是 0 到 {limit} 的整数")
    if name.startswith("PCG64") and fields["state.inc"] % 2 == 0:
        _refuse(operation, name, "state.inc 是偶数，应当是奇数")
    if name == "MT19937" and not any(fields["state.key"]):
        _refuse(operation, name, "state.key 全是 0，以后只会抽出 0")
    return name


def _check_default(operation: str, state: Any) -> str:
    """默认生成器的状态：另有一个留着的正态数。"""
    given = cast("dict[Any, Any]", state if isinstance(state, dict) else {})
    own = {key: value for key, value in given.items() if key not in ("has_gauss", "gauss")}
    name = _check(operation, own if given else state)
    has, gauss = given.get("has_gauss"), given.get("gauss")
    if type(has) is not int or has not in (0, 1):
        _refuse(operation, name, f"has_gauss 是 {_short(has)}，应当是 0 或 1")
    if type(gauss) is not float or not abs(gauss) < 100:  # 极坐标法得到的数远小于 100
        _refuse(operation, name, f"gauss 是 {_short(gauss)}，应当是正态分布的一个小数")
    return name


def _refuse(operation: str, name: str, problem: str) -> None:
    raise DataError(f"{operation}：{name} 的状态不对，{problem}；状态可能被改动过，请换回原来的")


def _short(value: Any) -> str:
    """写进消息的值：太长的、不是简单类型的只说类型。"""
    if isinstance(value, int) and abs(value) >= _U128**2:
        return "很大的整数"
    if value is None or isinstance(value, int | float | str):
        return repr(value if not isinstance(value, str) else value[:60])
    return f"{type(value).__name__} 类型的值"


def _flat(state: dict[Any, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` → `{"a.b": 1}`。"""
    fields: dict[str, Any] = {}
    for key, value in state.items():
        if isinstance(value, dict) and not prefix:
            fields |= _flat(cast("dict[Any, Any]", value), f"{key}.")
        else:
            fields[f"{prefix}{key}"] = value
    return fields


def _arrays(name: str, state: dict[str, Any]) -> dict[str, Any]:
    """整数的列表变回 NumPy 要的数组。"""
    dtype = np.uint32 if name == "MT19937" else np.uint64

    def restored(value: Any) -> Any:
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value).items()
            return {key: restored(item) for key, item in items}
        return np.array(value, dtype=dtype) if isinstance(value, list) else value

    return cast("dict[str, Any]", restored(state))
