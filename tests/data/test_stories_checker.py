"""内置语料的检查器：句子、故事与被截断的片段"""

import math

import pytest

from gptcore.data.stories import check_text, generate_stories, negative_log_likelihood
from gptcore.data.stories.checking import split_sentences
from gptcore.data.stories.words import COLORS, PEOPLE, THINGS


def test_checker_accepts_every_sample() -> None:
    report = check_text(generate_stories(10_000))
    assert report.valid_sentences == report.sentences == 4 * report.stories
    assert report.valid_stories == report.stories
    assert report.fragment == ""


def a_lost_story() -> str:
    """一篇丢了东西的故事（不含换行），两人合称“他们”，结尾说到在哪里找到了什么颜色的东西。"""
    for story in generate_stories(50_000, seed=6).splitlines():
        if "不见了" in story and "他们在" in story:
            return story
    raise LookupError("样本里没有这样的故事")


def test_mutations_are_rejected() -> None:
    story = a_lost_story()
    assert check_text(story + "\n").valid_stories == 1
    named = [entry["名"][0] for entry in PEOPLE if entry["名"][0] in story]
    hero, friend = sorted(named, key=story.index)
    other = next(entry["名"][0] for entry in PEOPLE if entry["名"][0] not in story)
    color = next(entry["名"][0] for entry in COLORS if entry["名"][0] in story)
    another = next(entry["名"][0] for entry in COLORS if entry["名"][0] not in story)
    thing = next(entry["名"][0] for entry in THINGS if entry["名"][0] in story)
    wrong = next(entry["名"][0] for entry in THINGS if entry["名"][0] not in story)
    last = story.rindex(color)
    mutations = [
        story[:last] + story[last:].replace(color, another),
        story[: story.rindex(thing)] + wrong + story[story.rindex(thing) + len(thing) :],
        story.replace("他们", "她们"),
        story.replace(hero, other, 1),
        story.replace(hero, friend),
        story.replace(friend, hero),
        story[:-1],
        story[1:],
        story + "。",
        "".join(split_sentences(story)[:-1]),
        "".join(split_sentences(story)[1:]),
    ]
    for mutated in mutations:
        report = check_text(mutated + "\n")
        assert (report.stories, report.valid_stories) == (1, 0), mutated
        assert report.invalid_stories == (mutated,)
        assert negative_log_likelihood(mutated + "\n") == math.inf


def test_swapped_pronoun_is_rejected() -> None:
    for story in generate_stories(3_000, seed=8).splitlines():
        swapped = story.translate(str.maketrans("他她", "她他"))
        assert check_text(swapped + "\n").valid_stories == 0


def test_sentences_are_judged_one_by_one() -> None:
    story = a_lost_story()
    sentences = split_sentences(story)
    assert len(sentences) == 4
    assert check_text("".join(reversed(sentences)) + "\n").valid_sentences == 4
    damaged = [*sentences[:3], sentences[3].replace("在", "再", 1)]
    report = check_text("".join(damaged) + "\n")
    assert (report.sentences, report.valid_sentences) == (4, 3)
    assert report.invalid_sentences == (damaged[3],)
    assert report.sentence_rate == 0.75
    assert report.story_rate == 0.0


def test_pieces_of_stories() -> None:
    story = a_lost_story()
    first, second, *_ = split_sentences(story)
    cut = check_text(f"{story}\n{first}{second[:-3]}")
    assert (cut.sentences, cut.valid_sentences) == (5, 5)
    assert (cut.stories, cut.valid_stories) == (1, 1)
    assert cut.fragment == second[:-3]
    # 没有换行但已经写完的故事照常计入
    assert check_text(f"\n{story}").valid_stories == 1
    late = f"{first[4:]}{second}\n{story}\n"
    assert check_text(late).valid_stories == 1
    assert check_text(late).stories == 2
    report = check_text(late, starts_mid_story=True)
    assert (report.sentences, report.valid_sentences) == (5, 5)
    assert (report.stories, report.valid_stories) == (1, 1)
    whole = check_text(f"{second}\n{story}\n", starts_mid_story=True)
    assert (whole.sentences, whole.valid_sentences) == (5, 5)


@pytest.mark.parametrize(
    ("text", "sentences", "stories", "fragment"),
    [
        ("", 0, 0, ""),
        ("\n", 0, 0, ""),
        ("\n\n", 0, 1, ""),
        ("今天", 0, 0, "今天"),
        ("Hello, world!\nFoo.\n", 2, 2, ""),
        ("“没有说完的话。\n", 1, 1, ""),
        ("“没有说完的话。", 0, 0, "“没有说完的话。"),
        ("他说：“你好！”她走了。", 2, 0, ""),
        ("”！\r\n", 2, 1, ""),
    ],
)
def test_foreign_text(text: str, sentences: int, stories: int, fragment: str) -> None:
    report = check_text(text)
    assert (report.sentences, report.valid_sentences) == (sentences, 0)
    assert (report.stories, report.valid_stories) == (stories, 0)
    assert report.fragment == fragment
    assert report.sentence_rate == report.story_rate == 0.0


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("甲来了。乙走了！", ["甲来了。", "乙走了！"]),
        ("“好！走。”甲说。乙走了。", ["“好！走。”甲说。", "乙走了。"]),
        ("甲说：“好！走吗？”乙走了。", ["甲说：“好！走吗？”", "乙走了。"]),
        ("甲说：“好！”“走。”乙说。半", ["甲说：“好！”", "“走。”乙说。", "半"]),
    ],
)
def test_split_sentences(line: str, parts: list[str]) -> None:
    assert split_sentences(line) == parts
