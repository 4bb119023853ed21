"""生成的参数检查"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

from gptcore.data.tokenizers import check_range, integer_ids
from gptcore.errors import ArgumentError, DataError, DtypeError, GptcoreError
from gptcore.kernels.convert import brief
from gptcore.random import resolve_rng

Generators = np.random.Generator | Sequence[np.random.Generator] | None


def require_count(name: str, argument: str, value: Any, low: int = 0) -> None:
    """次数必须是不小于 `low` 的整数。"""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
        kind = "正整数" if low else "非负整数"
        raise ArgumentError(
            f"{name}：{argument} 必须是{kind}，这里是 {brief(value)}；请写例如 {argument}=10"
        )


def require_prompt(prompt: Sequence[int], steps: int) -> list[int]:
    """提示至少一个词元，步数不能为负；返回提示的编号。"""
    require_count("generate", "steps", steps)
    return prompt_ids(prompt)


def prompt_ids(prompt: Any, vocab_size: int | None = None) -> list[int]:
    """提示的编号，至少一个，都在词表之内。"""
    ids = integer_ids("generate", prompt)
    if not len(ids):
        raise DataError("generate：提示不能为空；至少给一个字符，例如换行符 '\\n'")
    if vocab_size is not None:
        check_range("generate", ids, vocab_size)
    return ids.tolist()


def prompt_rows(prompts: Any, vocab_size: int) -> list[list[int]]:
    """几条提示的编号；错误说出是第几条。"""
    given = list(cast("Iterable[Any]", prompts)) if isinstance(prompts, Iterable) else None
    if given is None or (given and all(isinstance(i, int | np.integer) for i in given)):
        raise DtypeError(
            f"generate_batch：prompts 必须是几条提示的列表，这里是 {brief(prompts)}；只有一条时请写 [提示]"
        )
    rows: list[list[int]] = []
    for i, prompt in enumerate(given):
        try:
            rows.append(prompt_ids(prompt, vocab_size))
        except GptcoreError as error:
            raise type(error)(f"第 {i} 条提示：{error}") from error
    return rows


def stop_ids(end_of_text: Any, vocab_size: int) -> frozenset[int]:
    """遇到哪些词元就停下；给一个编号、几个编号或 `None`。"""
    if end_of_text is None:
        return frozenset()
    single = isinstance(end_of_text, int | np.integer)
    try:
        ids = integer_ids("generate", [end_of_text] if single else end_of_text)
        check_range("generate", ids, vocab_size)
    except GptcoreError as error:
        raise ArgumentError(
            f"generate：end_of_text 是 {brief(end_of_text)}，要是 0 到 {vocab_size - 1} 的编号，一个或几个；"
            "请给出同一个分词器的文本结束词元"
        ) from error
    return frozenset(ids.tolist())


def row_generators(rng: Any, rows: int) -> list[np.random.Generator]:
    """每一条文字一个生成器：给出几个就是那几个；只给一个时，由它依次抽出各条的种子。

    第 i 条用的随机数只与给出的生成器和 i 有关，与别的几条无关。
    """
    if isinstance(rng, Iterable):
        rngs = [resolve_rng("generate_batch", r) for r in cast("Iterable[Any]", rng)]
        if len(rngs) != rows or len({id(r) for r in rngs}) != rows:
            raise ArgumentError(
                f"generate_batch：有 {rows} 条提示，rng 给了 {len(rngs)} 个生成器，要各不相同、一样多；"
                "也可以只给一个，由它分出各条的"
            )
        return rngs
    seeds = resolve_rng("generate_batch", rng).integers(0, 2**63, rows)
    return [np.random.default_rng(seed) for seed in seeds.tolist()]
