r"""解析：不经过采样器，求任意文本的概率

逐字前进，同时保留所有还说得通的推导。一个**状态**是“概率、已知的世界、还没读到的部分”；读入一个字符，把对不上的状态丢掉。
变量在文中第一次出现时才确定：有 $k$ 个词条可取，就分成 $k$ 个状态，各乘 $1/k$。因为各变量在自己的词表上是对称的，
按出现的次序确定与采样时按固定的次序确定，概率相同。

读完前缀 $x_{1:t}$ 后，所有状态的概率之和恰好是**前缀概率**：以 $x_{1:t}$ 开头的全部故事的概率之和。所以

$$p(x_t \mid x_{<t}) = \frac{P(x_{1:t})}{P(x_{1:t-1})}$$

是精确的条件概率；在故事中间截断的文本也一样。换行只出现在故事末尾，下一篇从头开始。
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from gptcore.data.stories.grammar import Grammar, Items, Slot, World

Stack = tuple["str | Slot", "Stack"] | None
"""还没读到的部分：单向链表，`None` 表示已经读完"""


class State(NamedTuple):
    """一种还说得通的推导。"""

    probability: float
    world: World
    stack: Stack


class Parser:
    """逐字解析器；对象只缓存文法的首字集合，可以反复使用。"""

    def __init__(self, grammar: Grammar) -> None:
        """准备解析。

        Args:
            grammar: 文法。
        """
        self._grammar = grammar
        self._first: dict[Items, frozenset[str]] = {}

    def start(self, templates: Sequence[Items] | None = None) -> list[State]:
        """开头的状态。

        Args:
            templates: 从哪些模板开始，等概率；默认是全部情节，即一篇故事的开头。

        Returns:
            每个模板一个状态。
        """
        chosen = self._grammar.plots if templates is None else templates
        return [State(1 / len(chosen), {}, _push(items, None)) for items in chosen]

    def step(self, states: Sequence[State], character: str) -> list[State]:
        """读入一个字符，返回仍然说得通的状态（可能为空）。"""
        result: list[State] = []
        for state in states:
            self._advance(state, character, result)
        return result

    def derivations(self, text: str, templates: Sequence[Items] | None = None) -> list[float]:
        """把 `text` 整个读完的每一种推导的概率；不可能的文本没有推导。"""
        states = self.start(templates)
        for character in text:
            states = self.step(states, character)
        return [state.probability for state in states if state.stack is None]

    def surprisals(self, text: str) -> list[float]:
        r"""每个字符的 $-\ln p(x_t \mid x_{<t})$，文本从一篇故事的开头开始。

        Args:
            text: 任意文本，可以在故事中间结束。

        Returns:
            与文本等长的列表。文法写不出的字符，以及它之后直到行末的字符，都是无穷大；下一行重新开始。
        """
        result: list[float] = []
        begin = self.start()
        states, mass = begin, 1.0
        for character in text:
            states = self.step(states, character)
            new_mass = sum(state.probability for state in states)
            result.append(max(0.0, -math.log(new_mass / mass)) if states else math.inf)
            mass = new_mass
            if character == "\n":
                states, mass = begin, 1.0
        return result

    def _advance(self, state: State, character: str, result: list[State]) -> None:
        probability, world, stack = state
        if stack is None:
            return
        item, rest = stack
        if isinstance(item, str):
            if item[0] == character:
                remaining = (item[1:], rest) if len(item) > 1 else rest
                result.append(State(probability, world, remaining))
            return
        if item.field is None:
            self._branch(item, None, State(probability, world, rest), character, result)
        elif item.name in world:
            after = State(probability, world, rest)
            self._branch(item, world[item.name], after, character, result)
        else:
            entries = self._grammar.open_entries(item.name, world)
            for entry in entries:
                after = State(probability / len(entries), {**world, item.name: entry}, rest)
                self._branch(item, entry, after, character, result)

    def _branch(
        self, slot: Slot, entry: int | None, after: State, character: str, result: list[State]
    ) -> None:
        choices = self._grammar.alternatives(slot, entry)
        for choice in choices:
            if character in self._first_characters(choice):
                probability = after.probability / len(choices)
                stack = _push(choice, after.stack)
                self._advance(State(probability, after.world, stack), character, result)

    def _first_characters(self, items: Items) -> frozenset[str]:
        """模板可能的首字（不管世界如何，只会多不会少），用来早早丢掉对不上的说法。"""
        found = self._first.get(items)
        if found is None:
            head = items[0]
            if isinstance(head, str):
                found = frozenset(head[0])
            else:
                expansions = self._grammar.expansions(head)
                found = frozenset[str]().union(*(self._first_characters(e) for e in expansions))
            self._first[items] = found
        return found


def _push(items: Items, stack: Stack) -> Stack:
    for item in reversed(items):
        stack = (item, stack)
    return stack
