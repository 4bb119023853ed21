"""内置语料：确定性、呼应、无歧义、概率与熵"""

import hashlib
import itertools
import math
import random
import re
import subprocess
import sys

import pytest

from gptcore.data.stories import (
    entropy_rate,
    generate_stories,
    negative_log_likelihood,
    surprisals,
)
from gptcore.data.stories.entropy import expected_length, story_entropy
from gptcore.data.stories.grammar import Grammar, Items, Slot, compile_template
from gptcore.data.stories.parsing import Parser
from gptcore.data.stories.sampling import Draw, sample_story, uniform_draw
from gptcore.data.stories.words import COLORS, PEOPLE, THINGS, story_grammar
from gptcore.errors import ArgumentError, DataError

DEFAULT_SHA256 = "7deba339bfa992825edccdaf90e8461e3e3a5c2b78261ce91c57beafe0e02380"

TOY = Grammar(
    plots=("[起][承]\n", "[主.名]和[友.名]来了。\n"),
    rules={
        "起": ("[主.名]来了，天[天.景]。", "天[天.景]，[主.名]走了。"),
        "承": ("[主.代]说：“[友.名]！”", "[友.合]接[友.名]走了。"),
    },
    lexicons={
        "人": (
            {"名": ("甲",), "代": ("他",), "合": ("他们",)},
            {"名": ("乙",), "代": ("她",), "合": ("[主.代]们", "大家")},
            {"名": ("丙丙",), "代": ("她",), "合": ("[主.代]们", "两人")},
        ),
        "天": ({"景": ("晴", "暖")}, {"景": ("雨",)}),
    },
    variables={"主": "人", "友": "人", "天": "天"},
)


@pytest.fixture(scope="module")
def corpus() -> str:
    return generate_stories()


@pytest.fixture(scope="module")
def parser() -> Parser:
    return Parser(story_grammar())


class Recorder:
    """记下每次选择有几个选项的抽取函数；故事的概率就是它们的倒数之积。"""

    def __init__(self, seed: int) -> None:
        self._draw = uniform_draw(seed)
        self.information = 0.0

    def __call__(self, count: int) -> int:
        self.information += math.log(count)
        return self._draw(count)


def every_story(grammar: Grammar) -> dict[str, list[float]]:
    """穷举所有选择，得到每篇故事的各种推导的概率。"""
    found: dict[str, list[float]] = {}
    prefixes: list[tuple[int, ...]] = [()]
    while prefixes:
        prefix = prefixes.pop()
        counts: list[int] = []

        def draw(count: int, prefix: tuple[int, ...] = prefix, counts: list[int] = counts) -> int:
            counts.append(count)
            return prefix[len(counts) - 1] if len(counts) <= len(prefix) else 0

        story = sample_story(grammar, draw)
        found.setdefault(story, []).append(1 / math.prod(counts))
        for position in range(len(prefix), len(counts)):
            head = prefix + (0,) * (position - len(prefix))
            prefixes += [(*head, other) for other in range(1, counts[position])]
    return found


# ---------------------------------------------------------------- 语料本身


def test_default_corpus_is_the_same_everywhere(corpus: str) -> None:
    assert hashlib.sha256(corpus.encode("utf-8")).hexdigest() == DEFAULT_SHA256


def test_default_corpus_size_and_alphabet(corpus: str) -> None:
    assert 500_000 <= len(corpus) < 500_200
    assert len(set(corpus)) <= 500
    assert corpus.endswith("\n")
    assert set(corpus) == set(generate_stories(100_000, seed=5))


def test_shorter_text_is_a_prefix_and_seeds_differ(corpus: str) -> None:
    assert corpus.startswith(generate_stories(5_000))
    assert generate_stories(5_000, seed=1) != generate_stories(5_000, seed=2)
    assert generate_stories(0) == ""
    assert generate_stories(1).count("\n") == 1


def test_global_random_state_is_neither_read_nor_changed() -> None:
    random.seed(1)
    before = random.getstate()
    first = generate_stories(2_000)
    assert random.getstate() == before
    random.seed(2)
    assert generate_stories(2_000) == first


def test_import_builds_nothing() -> None:
    code = (
        "import gptcore.data.stories as s, gptcore.data.stories.words as w;"
        "print(w.story_grammar.cache_info().currsize)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"


def test_stories_hardly_ever_repeat(corpus: str) -> None:
    stories = corpus.splitlines()
    assert len(set(stories)) == len(stories)


@pytest.mark.parametrize("name", ["characters", "seed"])
@pytest.mark.parametrize("value", [-3, 2.5, "10", True, None])
def test_bad_arguments(name: str, value: object) -> None:
    with pytest.raises(ArgumentError, match=re.escape(repr(value))) as error:
        generate_stories(**{name: value})  # type: ignore[arg-type]
    assert name in str(error.value)
    assert "非负整数" in str(error.value)


# ---------------------------------------------------------------- 呼应


def test_agreement_across_sentences(corpus: str) -> None:
    pronouns = {entry["名"][0]: entry["代"][0] for entry in PEOPLE}
    colors = [entry["名"][0] for entry in COLORS]
    things = [entry["名"][0] for entry in THINGS]
    for story in corpus.splitlines()[:2_000]:
        named = {name for name in pronouns if name in story}
        assert len(named) == 2, story
        mentioned = set(re.findall("[他她](?!们)", story))
        assert mentioned <= {pronouns[name] for name in named}
        if "他们" in story:
            assert "他" in {pronouns[name] for name in named}
        if "她们" in story:
            assert {pronouns[name] for name in named} == {"她"}
        assert sum(thing in story for thing in things) <= 1
        assert sum(color in story for color in colors) <= 1
        plain = re.sub("思雨|雨伞|风筝", "", story)
        assert sum(weather in plain for weather in "雨雪风雾") <= 1


# ---------------------------------------------------------------- 无歧义与概率


def languages_clash(grammar: Grammar, first: Items, second: Items) -> bool:
    """两种说法能否一个是另一个的开头（或相等）。

    忽略世界：每个变量槽位都可以是任何词条的任何说法。这样得到的语言只大不小，所以没有冲突就是证明。
    """

    def heads(rest: Items) -> set[tuple[str, Items]]:
        item, *tail = rest
        if isinstance(item, str):
            return {(item[0], (*((item[1:],) if len(item) > 1 else ()), *tail))}
        return set().union(*(heads((*e, *tail)) for e in grammar.expansions(item)))

    pending, seen = [(first, second)], {(first, second)}
    while pending:
        left, right = pending.pop()
        if not left or not right:
            return True
        by_head: dict[str, list[Items]] = {}
        for character, rest in heads(right):
            by_head.setdefault(character, []).append(rest)
        for character, rest in heads(left):
            for other in by_head.get(character, []):
                if (rest, other) not in seen:
                    seen.add((rest, other))
                    pending.append((rest, other))
    return False


def all_slots(grammar: Grammar) -> set[Slot]:
    found: set[Slot] = set()
    pending = [item for plot in grammar.plots for item in plot]
    while pending:
        item = pending.pop()
        if isinstance(item, Slot) and item not in found:
            found.add(item)
            pending += itertools.chain.from_iterable(grammar.expansions(item))
    return found


def test_alternatives_form_prefix_codes() -> None:
    """结构上的证明：每处选择的各种说法互不为开头，于是从左到右读，每一步只有一种推导说得通。"""
    grammar = story_grammar()
    for slot in all_slots(grammar):
        entries = [None] if slot.field is None else range(grammar.size(slot.name))
        for entry in entries:
            for a, b in itertools.combinations(grammar.alternatives(slot, entry), 2):
                assert not languages_clash(grammar, a, b), (slot, a, b)
    for a, b in itertools.combinations(grammar.plots, 2):
        assert not languages_clash(grammar, a, b)


def first_mentions(grammar: Grammar, items: Items, known: frozenset[str]) -> tuple[set[Slot], list]:
    """可能是“第一次提到变量”的槽位，以及读完后各种可能的已知变量。"""
    found: set[Slot] = set()
    ends = [known]
    for item in items:
        if isinstance(item, str):
            continue
        after = []
        for have in ends:
            inner = have
            if item.field is not None:
                if item.name not in have:
                    found.add(item)
                inner = have | {item.name}
            for expansion in grammar.expansions(item):
                more, ways = first_mentions(grammar, expansion, inner)
                found |= more
                after += ways
        ends = list(dict.fromkeys(after))
    return found, ends


def test_first_mention_reveals_the_entry_and_everything_is_told() -> None:
    """变量在文中第一次出现时，不同词条的说法也互不为开头；世界里的每个变量都会讲到。"""
    grammar = story_grammar()
    for plot, variables in zip(grammar.plots, grammar.plot_variables, strict=True):
        mentions, ends = first_mentions(grammar, plot, frozenset())
        assert all(set(variables) == set(known) for known in ends)
        for slot in mentions:
            for i, j in itertools.combinations(range(grammar.size(slot.name)), 2):
                pairs = itertools.product(
                    grammar.alternatives(slot, i), grammar.alternatives(slot, j)
                )
                assert not any(languages_clash(grammar, a, b) for a, b in pairs), (slot, i, j)


def test_parser_agrees_with_the_sampler_and_finds_one_derivation(parser: Parser) -> None:
    recorder = Recorder(seed=11)
    for _ in range(400):
        recorder.information = 0.0
        story = sample_story(story_grammar(), recorder)
        (probability,) = parser.derivations(story)
        assert -math.log(probability) == pytest.approx(recorder.information, rel=1e-12)
        assert negative_log_likelihood(story) == pytest.approx(recorder.information, rel=1e-12)


def test_toy_grammar_against_enumeration() -> None:
    stories = every_story(TOY)
    assert sum(map(sum, stories.values())) == pytest.approx(1.0)
    parser = Parser(TOY)
    for story, probabilities in stories.items():
        assert len(probabilities) == 1
        assert parser.derivations(story) == pytest.approx(probabilities)


def test_ambiguity_would_be_noticed() -> None:
    grammar = Grammar(
        plots=("[句]\n",),
        rules={"句": ("甲[尾]", "甲乙"), "尾": ("乙", "丙")},
        lexicons={},
        variables={},
    )
    assert len(Parser(grammar).derivations("甲乙\n")) == 2
    assert len(Parser(grammar).derivations("甲丙\n")) == 1
    assert languages_clash(grammar, *grammar.alternatives(Slot("句", None)))


# ---------------------------------------------------------------- 熵


def test_entropy_of_a_toy_grammar_by_enumeration() -> None:
    stories = every_story(TOY)
    exact = -sum(p * math.log(p) for (p,) in stories.values())
    assert story_entropy(TOY) == pytest.approx(exact, rel=1e-12)
    length = sum(p * len(story) for story, (p,) in stories.items())
    assert expected_length(TOY) == pytest.approx(length, rel=1e-12)


def test_entropy_agrees_with_the_parser_on_samples(parser: Parser) -> None:
    draw: Draw = uniform_draw(2)
    stories = [sample_story(story_grammar(), draw) for _ in range(1_000)]
    bits = [-math.log(parser.derivations(story)[0]) for story in stories]
    for values, expected in (
        (bits, story_entropy(story_grammar())),
        ([float(len(story)) for story in stories], expected_length(story_grammar())),
        # 比值估计：H − h·L 的均值应为 0
        ([b - entropy_rate() * len(s) for b, s in zip(bits, stories, strict=True)], 0.0),
    ):
        mean = sum(values) / len(values)
        variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
        assert abs(mean - expected) < 4 * math.sqrt(variance / len(values))
    assert 0.3 < entropy_rate() < 0.8


# ---------------------------------------------------------------- 逐字的概率


def test_conditional_probabilities_sum_to_one(parser: Parser) -> None:
    alphabet = sorted(set(generate_stories(60_000)))
    story = generate_stories(1, seed=3)
    for cut in range(0, len(story), 19):
        before = negative_log_likelihood(story[:cut])
        total = sum(
            math.exp(before - negative_log_likelihood(story[:cut] + character))
            for character in alphabet
        )
        assert total == pytest.approx(1.0, abs=1e-9)


def test_surprisals_of_prefixes_and_impossible_text() -> None:
    text = generate_stories(600, seed=4)
    values = surprisals(text)
    assert len(values) == len(text)
    assert min(values) >= 0
    assert surprisals(text[:250]) == values[:250]
    assert sum(values) == pytest.approx(negative_log_likelihood(text))
    broken = "今" + text
    found = surprisals(broken)
    end = broken.index("\n")
    assert all(math.isinf(value) for value in found[: end + 1])
    assert found[end + 1 :] == values[end:]
    assert negative_log_likelihood(broken) == math.inf
    assert negative_log_likelihood("") == 0.0
    assert surprisals("") == []
    assert negative_log_likelihood("\n") == math.inf


# ---------------------------------------------------------------- 写错的文法


def test_mistakes_in_a_grammar_are_named() -> None:
    for template in ("", "[主", "主]来了"):
        with pytest.raises(DataError, match="模板"):
            compile_template(template)
    with pytest.raises(DataError, match=r"没有 \[甲\]"):
        Grammar(("[甲]\n",), {}, {}, {})
    with pytest.raises(DataError, match="递归"):
        Grammar(("[甲]\n",), {"甲": ("乙[甲]",)}, {}, {})
    with pytest.raises(DataError, match="换行"):
        Grammar(("[甲]",), {"甲": ("乙",)}, {}, {})
    with pytest.raises(DataError, match=r"没有 \[主\.代\]"):
        Grammar(("[主.代]\n",), {}, {"人": ({"名": ("甲",)},)}, {"主": "人"})
    with pytest.raises(DataError, match="空的列表"):
        Grammar(("[甲]\n",), {"甲": ()}, {}, {})
