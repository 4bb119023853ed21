r"""熵：任何模型平均都越不过的下限

设一篇故事（连同结尾的换行）为 $S$，长度为 $L$。相邻的故事相互独立，所以文本每个字符的熵是

$$h = \frac{H(S)}{\mathbb E[L]}, \qquad H(S) = -\sum_s p(s) \ln p(s).$$

求和有天文数字那么多项，但文法**无歧义**：每篇故事只有一种推导，$p(s)$ 就是推导中各次选择的概率之积。
于是由熵的链式法则，$H(S)$ 等于各次选择的熵的期望之和：

$$H(S) = H(\text{情节}) + \sum_{v} H(v \mid \text{前面的变量}) + \sum_{\text{槽位}} \mathbb E[\ln n],$$

$n$ 是槽位处等概率说法的个数。期望是线性的，不必管各槽位之间是否相关，逐个槽位递归地求平均即可；长度的期望同理：

$$\ell(\text{模板}) = \sum_{\text{文字}} \text{字数}
+ \sum_{\text{槽位}} \mathbb E_v \Big[\frac1n \sum_{i=1}^{n} \ell(\text{说法}_i)\Big].$$

来源：Cover 与 Thomas，*Elements of Information Theory*，定理 2.5.1（链式法则）与第 4 章（熵率）。
"""

import math

from gptcore.data.stories.grammar import Grammar, Items, World


def story_entropy(grammar: Grammar) -> float:
    """一篇故事的熵 $H(S)$，单位奈特；要求文法无歧义。"""
    total = math.log(len(grammar.plots))
    for plot, variables in zip(grammar.plots, grammar.plot_variables, strict=True):
        total += _Expectation(grammar).of(plot, {})[0] / len(grammar.plots)
        world: World = {}
        for variable in variables:
            entries = grammar.open_entries(variable, world)
            # 同一词表里还剩几个可取，与前面取了哪个无关
            world[variable] = entries[0]
            total += math.log(len(entries)) / len(grammar.plots)
    return total


def expected_length(grammar: Grammar) -> float:
    r"""一篇故事的平均长度 $\mathbb E[L]$，含结尾的换行。"""
    lengths = [_Expectation(grammar).of(plot, {})[1] for plot in grammar.plots]
    return sum(lengths) / len(lengths)


class _Expectation:
    """递归求“选择的熵”与“长度”的期望；世界的变量等概率，已定下的由 world 给出。"""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._memory: dict[tuple[Items, tuple[tuple[str, int], ...]], tuple[float, float]] = {}

    def of(self, items: Items, world: World) -> tuple[float, float]:
        key = (items, tuple(sorted(world.items())))
        if key not in self._memory:
            self._memory[key] = self._compute(items, world)
        return self._memory[key]

    def _compute(self, items: Items, world: World) -> tuple[float, float]:
        entropy = length = 0.0
        for item in items:
            if isinstance(item, str):
                length += len(item)
                continue
            entries: list[int | None] = [None]
            if item.field is not None:
                known = world.get(item.name)
                entries = [known] if known is not None else [*self._open(item.name, world)]
            for entry in entries:
                inner = world if entry is None else {**world, item.name: entry}
                choices = self._grammar.alternatives(item, entry)
                results = [self.of(choice, inner) for choice in choices]
                share = 1 / (len(entries) * len(choices))
                entropy += math.log(len(choices)) / len(entries)
                entropy += share * sum(result[0] for result in results)
                length += share * sum(result[1] for result in results)
        return entropy, length

    def _open(self, variable: str, world: World) -> list[int]:
        return self._grammar.open_entries(variable, world)
