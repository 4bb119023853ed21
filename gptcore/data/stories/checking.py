"""检查：文本里哪些句子、哪些故事是文法写得出的

句子单独判断：存在某个世界、某种情节使文法能写出这一句，就算合格；同一句里的人称、物件等必须一致，句与句之间是否一致不在此列。
故事整篇判断：一行（到换行为止）恰好是文法能写出的一篇，才算合格。

模型生成的文本常常在故事中间结束，用户给的文本也可能从故事中间开始，因此：

- 最后一行没有换行时，若加上换行就是一篇完整的故事，则照常计入；否则这一行不算故事，
  只数其中写完的句子，没写完的句子放进 `fragment`。
- `starts_mid_story=True` 表示文本从故事中间开始：第一行不算故事；它的第一句若不合格，视为只剩后半截的句子，也不计入。
- 文本开头的换行只是分隔，不算一篇空的故事；其余的空行算一篇不合格的故事。
"""

from dataclasses import dataclass

from gptcore.data.stories.grammar import Grammar, Slot
from gptcore.data.stories.parsing import Parser

_ENDS = "。！？"


@dataclass(frozen=True)
class StoryReport:
    """检查的结果。

    Attributes:
        sentences: 写完的句子数。
        valid_sentences: 其中文法写得出的句子数。
        stories: 完整的行数，每行一篇故事。
        valid_stories: 其中文法写得出的故事数。
        invalid_sentences: 不合格的句子，按出现的次序。
        invalid_stories: 不合格的故事（不含换行），按出现的次序。
        fragment: 文本末尾没有写完的句子，没有则为空。
    """

    sentences: int
    valid_sentences: int
    stories: int
    valid_stories: int
    invalid_sentences: tuple[str, ...]
    invalid_stories: tuple[str, ...]
    fragment: str

    @property
    def sentence_rate(self) -> float:
        """合格句子的比例；一句也没有时为 0。"""
        return self.valid_sentences / self.sentences if self.sentences else 0.0

    @property
    def story_rate(self) -> float:
        """合格故事的比例；一篇也没有时为 0。"""
        return self.valid_stories / self.stories if self.stories else 0.0


def split_sentences(line: str) -> list[str]:
    """把一行拆成句子。

    句子在引号外的“。！？”之后结束；以“：”引出的话，在话尾的引号“”之后结束。

    Args:
        line: 不含换行的文本。

    Returns:
        句子的列表，连起来就是原文；最后一个可能没有写完，用 `is_finished` 判断。
    """
    sentences: list[str] = []
    begin = 0
    quoted = led_by_colon = False
    for index, character in enumerate(line):
        if character == "“":
            quoted = True
            led_by_colon = index > begin and line[index - 1] == "："
            continue
        closes = character == "”" and led_by_colon
        if character == "”":
            quoted = False
        if closes or (not quoted and character in _ENDS):
            sentences.append(line[begin : index + 1])
            begin = index + 1
            led_by_colon = False
    if begin < len(line):
        sentences.append(line[begin:])
    return sentences


def is_finished(sentence: str) -> bool:
    """`split_sentences` 给出的一句是否写完了。"""
    if sentence.endswith("”"):
        return "：“" in sentence
    return sentence.endswith(tuple(_ENDS)) and sentence.rfind("“") <= sentence.rfind("”")


class Checker:
    """用解析器检查文本；相同的句子只解析一次。"""

    def __init__(self, grammar: Grammar) -> None:
        """准备检查。

        Args:
            grammar: 文法；每个情节须由句子的槽位依次组成，最后是换行。
        """
        self._parser = Parser(grammar)
        slots = dict.fromkeys(s for plot in grammar.plots for s in plot if isinstance(s, Slot))
        self._openings = tuple((slot,) for slot in slots)
        self._known: dict[str, bool] = {}

    def is_sentence(self, text: str) -> bool:
        """文法是否写得出这一句。"""
        if text not in self._known:
            self._known[text] = bool(self._parser.derivations(text, self._openings))
        return self._known[text]

    def is_story(self, line: str) -> bool:
        """文法是否写得出这一篇（不含换行）。"""
        return bool(self._parser.derivations(line + "\n"))

    def check(self, text: str, starts_mid_story: bool = False) -> StoryReport:
        """检查一段文本，规则见模块说明。

        Args:
            text: 任意文本。
            starts_mid_story: 文本是否从故事中间开始。

        Returns:
            检查的结果。
        """
        lines = text.split("\n")
        tail = lines.pop()
        if lines and lines[0] == "" and not starts_mid_story:
            del lines[0]
        if tail and self.is_story(tail):
            lines.append(tail)
            tail = ""
        judged: list[str] = []
        for line in lines:
            judged += split_sentences(line)
        fragment = ""
        pieces = split_sentences(tail)
        if pieces and not is_finished(pieces[-1]):
            fragment = pieces.pop()
        judged += pieces
        stories = lines
        if starts_mid_story:
            stories = lines[1:]
            if judged and not self.is_sentence(judged[0]):
                del judged[0]
        bad_sentences = tuple(s for s in judged if not self.is_sentence(s))
        bad_stories = tuple(s for s in stories if not self.is_story(s))
        return StoryReport(
            sentences=len(judged),
            valid_sentences=len(judged) - len(bad_sentences),
            stories=len(stories),
            valid_stories=len(stories) - len(bad_stories),
            invalid_sentences=bad_sentences,
            invalid_stories=bad_stories,
            fragment=fragment,
        )
