"""采样：按文法写故事"""

import random
from collections.abc import Callable

from gptcore.data.stories.grammar import Grammar, Items, World

Draw = Callable[[int], int]
"""给出选择的个数 n，返回 0 … n − 1 中的一个"""


def uniform_draw(seed: int) -> Draw:
    """由种子得到等概率的选择。

    只用标准库 `random.Random` 的 `random()`：Python 保证同一种子的这一串数在各平台、各版本上相同，
    而 `choice`、`shuffle` 等方法没有这个保证。

    Args:
        seed: 非负整数。

    Returns:
        选择函数。
    """
    generator = random.Random(seed)

    def draw(count: int) -> int:
        return int(generator.random() * count)

    return draw


def sample_story(grammar: Grammar, draw: Draw) -> str:
    """写一篇故事：先定世界，再讲述。

    Args:
        grammar: 文法。
        draw: 选择函数；每次选择恰好调用一次，因此故事的概率是各次 $1/n$ 之积。

    Returns:
        一篇故事，以换行结尾。
    """
    plot = draw(len(grammar.plots))
    world: World = {}
    for variable in grammar.plot_variables[plot]:
        entries = grammar.open_entries(variable, world)
        world[variable] = entries[draw(len(entries))]
    parts: list[str] = []
    _tell(grammar, grammar.plots[plot], world, draw, parts)
    return "".join(parts)


def _tell(grammar: Grammar, items: Items, world: World, draw: Draw, parts: list[str]) -> None:
    for item in items:
        if isinstance(item, str):
            parts.append(item)
            continue
        choices = grammar.alternatives(item, world.get(item.name))
        # 只有一种说法时不必抽取
        chosen = choices[draw(len(choices)) if len(choices) > 1 else 0]
        _tell(grammar, chosen, world, draw, parts)
