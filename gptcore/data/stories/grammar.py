r"""文法：模板、槽位与词表

一篇故事分两步产生：先定下**世界**（情节、人物、天气、物件……），再**讲述**它。两步都只做等概率的选择：

- 情节、世界里每个变量的取值：从词表中等概率地取一个；用同一份词表的变量取值互不相同（主角和朋友不会重名）。
- 讲述时，模板里的槽位 `[规则]` 从该规则的几种说法里等概率地选一种；`[变量.字段]` 从该变量所取词条的那个字段里选一种。

采样器、解析器和熵的计算都只读取这里的 `Grammar`，彼此没有调用关系。
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gptcore.errors import DataError


class Slot(NamedTuple):
    """模板中的一个槽位：`[规则]`（`field` 为 `None`）或 `[变量.字段]`。"""

    name: str
    field: str | None


Items = tuple["str | Slot", ...]
"""编译好的模板：文字片段与槽位交替的序列"""

World = dict[str, int]
"""世界的一部分：变量名 → 词条编号"""

_SLOT = re.compile(r"\[([^\[\].]+)(?:\.([^\[\].]+))?\]")


def compile_template(template: str) -> Items:
    """把模板拆成文字与槽位。

    Args:
        template: 例如 `"[主.名]来到[地.名]。"`。

    Returns:
        文字片段与 `Slot` 的元组，不含空片段。

    Raises:
        DataError: 模板为空，或方括号不成对。
    """
    items: list[str | Slot] = []
    end = 0
    for match in _SLOT.finditer(template):
        items.append(template[end : match.start()])
        items.append(Slot(match[1], match[2]))
        end = match.end()
    items.append(template[end:])
    result = tuple(item for item in items if item != "")
    if not result or any(isinstance(item, str) and set(item) & set("[]") for item in result):
        raise DataError(
            f"文法的模板 {template!r} 写错了：不能为空，槽位要写成 [规则] 或 [变量.字段]。"
        )
    return result


class Grammar:
    r"""一部没有递归的概率文法，所有选择都是等概率的。

    Examples:
        ```python
        grammar = Grammar(
            plots=("[句]\n",),
            rules={"句": ("[谁.名]来了。", "[谁.名]走了。")},
            lexicons={"人": ({"名": ("小明",)}, {"名": ("小红",)})},
            variables={"谁": "人"},
        )
        ```
    """

    def __init__(
        self,
        plots: Sequence[str],
        rules: Mapping[str, Sequence[str]],
        lexicons: Mapping[str, Sequence[Mapping[str, Sequence[str]]]],
        variables: Mapping[str, str],
    ) -> None:
        """编译并检查一部文法。

        Args:
            plots: 各种情节的模板，每个都以换行结尾。
            rules: 规则名 → 几种说法。
            lexicons: 词表名 → 词条；词条是“字段名 → 几种说法”。
            variables: 世界的变量名 → 所用的词表名。

        Raises:
            DataError: 模板写错、槽位指向不存在的规则或字段、文法有递归、情节不以换行结尾。
        """
        self.variables = dict(variables)
        self._rules = {name: _compile_all(texts) for name, texts in rules.items()}
        compiled = {
            name: tuple({f: _compile_all(texts) for f, texts in e.items()} for e in entries)
            for name, entries in lexicons.items()
        }
        self._entries = {variable: compiled[name] for variable, name in variables.items()}
        self._rivals = {
            v: tuple(u for u in variables if u != v and variables[u] == variables[v])
            for v in variables
        }
        self.plots = _compile_all(plots)
        for text, plot in zip(plots, self.plots, strict=True):
            if not text.endswith("\n") or text.count("\n") > 1:
                raise DataError(f"文法的情节 {text!r} 要以换行结尾，并且只有这一个换行。")
            self._check(plot, ())
        self.plot_variables = tuple(self._used(plot) for plot in self.plots)

    def size(self, variable: str) -> int:
        """变量所用词表的词条数。"""
        return len(self._entries[variable])

    def open_entries(self, variable: str, world: World) -> list[int]:
        """变量还能取哪些词条：同一词表里已被别的变量取走的除外。"""
        taken = {world[rival] for rival in self._rivals[variable] if rival in world}
        return [entry for entry in range(self.size(variable)) if entry not in taken]

    def alternatives(self, slot: Slot, entry: int | None = None) -> tuple[Items, ...]:
        """槽位的几种说法。

        Args:
            slot: 槽位。
            entry: 变量槽位所取的词条编号；规则槽位不需要。

        Returns:
            编译好的几种说法，等概率。
        """
        if slot.field is None or entry is None:
            return self._rules[slot.name]
        return self._entries[slot.name][entry][slot.field]

    def expansions(self, slot: Slot) -> Iterator[Items]:
        """槽位在所有词条下的全部说法，不管世界如何。"""
        if slot.field is None:
            yield from self._rules[slot.name]
        else:
            for entry in self._entries[slot.name]:
                yield from entry[slot.field]

    def _check(self, items: Items, path: tuple[Slot, ...]) -> None:
        for slot in items:
            if isinstance(slot, str):
                continue
            if slot in path:
                raise DataError(
                    f"文法的槽位 {_show(slot)} 经由自己展开，故事会没有尽头；请去掉递归。"
                )
            if slot.field is None:
                known = slot.name in self._rules
            else:
                entries = self._entries.get(slot.name, ())
                known = bool(entries) and all(slot.field in entry for entry in entries)
            if not known:
                raise DataError(
                    f"文法里没有 {_show(slot)}：规则、变量或某个词条的字段不存在，请补上。"
                )
            for expansion in self.expansions(slot):
                self._check(expansion, (*path, slot))

    def _used(self, items: Items) -> tuple[str, ...]:
        found: set[str] = set()
        pending = list(items)
        seen: set[Slot] = set()
        while pending:
            slot = pending.pop()
            if isinstance(slot, str) or slot in seen:
                continue
            seen.add(slot)
            if slot.field is not None:
                found.add(slot.name)
            for expansion in self.expansions(slot):
                pending.extend(expansion)
        return tuple(variable for variable in self.variables if variable in found)


def _compile_all(templates: Sequence[str]) -> tuple[Items, ...]:
    if not templates:
        raise DataError(
            "文法里有一处没有任何说法（空的列表）；每条规则、每个字段至少要有一种说法。"
        )
    return tuple(compile_template(template) for template in templates)


def _show(slot: Slot) -> str:
    return f"[{slot.name}]" if slot.field is None else f"[{slot.name}.{slot.field}]"
