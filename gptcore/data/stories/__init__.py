r"""内置语料 `stories`：由一部小小的概率文法写成的中文故事

每行一篇故事，以换行结尾；每篇四句话，写一个人在某天、某地遇到的一件小事。故事前后呼应：丢了的东西就是后来找到的那件，
他还是她、他们还是她们都与人物一致，雨天的故事不会以雪停收尾。模型要写好，就得记住前文。

每行一篇、只用一个换行分隔，是因为换行在故事里不出现：见到它就知道下一篇从头开始，解析、截取和检查都按行进行，
它本身几乎不含信息（故事写完，换行是必然的）。

语料是文法写的，所以有两件别的语料没有的东西：

- `check_text` 判断一段文本里哪些句子、哪些故事是文法写得出的；
- `entropy_rate` 给出语料每个字符的熵。任何模型在它身上的平均交叉熵都不会低于这个数；
  `negative_log_likelihood` 由独立的解析器给出某一段文本的 $-\ln p$，可以与模型在同一段文本上的损失直接比较。
"""

import math
import operator
from functools import cache
from typing import SupportsIndex

from gptcore.data.stories.checking import Checker, StoryReport
from gptcore.data.stories.entropy import expected_length, story_entropy
from gptcore.data.stories.parsing import Parser
from gptcore.data.stories.sampling import sample_story, uniform_draw
from gptcore.data.stories.words import story_grammar
from gptcore.errors import ArgumentError

__all__ = [
    "StoryReport",
    "check_text",
    "entropy_rate",
    "generate_stories",
    "negative_log_likelihood",
    "surprisals",
]


def generate_stories(characters: SupportsIndex = 500_000, seed: SupportsIndex = 0) -> str:
    """写出整篇整篇的故事，直到总长度不少于 `characters`。

    同一种子在任何平台、任何 Python 与 NumPy 版本上写出的文本都相同；长度更大的文本以长度更小的文本开头。

    Args:
        characters: 至少多少个字符；最后一篇写完为止，所以会多出不到一篇。0 得到空文本。
        seed: 种子，非负整数。

    Returns:
        故事文本，以换行结尾（`characters=0` 时为空）。

    Raises:
        ArgumentError: `characters` 或 `seed` 不是整数，或者是负数。

    Examples:
        ```python
        text = generate_stories(1_000, seed=7)
        ```
    """
    characters, seed = _natural("characters", characters), _natural("seed", seed)
    grammar, draw = story_grammar(), uniform_draw(seed)
    stories: list[str] = []
    length = 0
    while length < characters:
        story = sample_story(grammar, draw)
        stories.append(story)
        length += len(story)
    return "".join(stories)


@cache
def entropy_rate() -> float:
    r"""语料的熵，单位奈特每字符：$h = H(S) / \mathbb E[L]$，换行计入长度。

    推导见 `gptcore.data.stories.entropy`。

    Returns:
        熵率。它是期望意义上的下限：在某一段具体的文本上，`negative_log_likelihood` 除以字符数会在它上下略有出入。
    """
    return story_entropy(story_grammar()) / expected_length(story_grammar())


def negative_log_likelihood(text: str) -> float:
    r"""文本的 $-\ln p$，单位奈特，由独立于采样器的解析器算出。

    文本须从一篇故事的开头开始，可以在故事中间结束：$p$ 是以 `text` 开头的全部文本的概率之和。

    Args:
        text: 任意文本；空文本的概率是 1。

    Returns:
        $-\ln p(\text{text})$；文法写不出的文本概率为 0，得到无穷大。哪里写不出，用 `surprisals` 或 `check_text` 查看。
    """
    return math.fsum(surprisals(text))


def surprisals(text: str) -> list[float]:
    r"""文本每个字符的 $-\ln p(x_t \mid x_{<t})$，单位奈特。

    由精确的前缀概率之比得到，其和就是 `negative_log_likelihood(text)`；画出来可以看到语料的熵落在哪些字上。

    Args:
        text: 从一篇故事的开头开始的文本，可以在故事中间结束。

    Returns:
        与文本等长的列表。文法写不出的字符，以及它之后直到行末的字符，都是无穷大；下一行重新开始。
    """
    return _parser().surprisals(text)


def check_text(text: str, *, starts_mid_story: bool = False) -> StoryReport:
    """检查一段文本：哪些句子、哪些故事是文法写得出的。

    句子单独判断，故事整篇判断；被截断的开头与结尾怎样处理，见 `gptcore.data.stories.checking`。

    Args:
        text: 任意文本，例如模型生成的。
        starts_mid_story: 文本是否从故事中间开始；是则第一行不算故事，第一句只剩后半截也不算错。

    Returns:
        句子数、合格句子数、故事数、合格故事数，以及不合格的原文。
    """
    # 每次用新的检查器：它记下见过的句子，不留在全局
    return Checker(story_grammar()).check(text, starts_mid_story)


@cache
def _parser() -> Parser:
    return Parser(story_grammar())


def _natural(name: str, value: SupportsIndex) -> int:
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < 0:
        raise ArgumentError(
            f"generate_stories：{name} 得到 {value!r}，它必须是非负整数。请给出 0 或更大的整数。"
        )
    return number
