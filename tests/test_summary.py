"""summary()：名字、个数、内存、冻结与共用；各列按显示的宽度对齐"""

import re
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from gptcore import GPT, Layer, LayerNorm, Linear, ReLU, Sequential, Tensor
from gptcore.layers import without_values
from gptcore.layers.summary import display_width, format_bytes


def rows_of(text: str) -> dict[str, list[str]]:
    """表里每一行的名字与其余各列。"""
    body = text.split("─\n")[1]
    return {
        (columns := re.split(r"  +", line))[0]: columns[1:]
        for line in body.splitlines()
        if not line.startswith("─")
    }


def test_the_example_of_the_docstring() -> None:
    text = Sequential([Linear(3, 20), ReLU(), Linear(20, 2)]).summary()
    example = dedent((Layer.summary.__doc__ or "").split("summary())\n")[1])
    assert text == example.strip()


@pytest.mark.parametrize(
    "options",
    [{}, {"tied": True, "head_bias": False}, {"norm": "RMSNorm", "bias": False}, {"norm": None}],
)
def test_counts_add_up(options: dict[str, Any]) -> None:
    model = GPT(65, 32, 64, 2, 2, **options)
    text = model.summary()
    rows = rows_of(text)
    names = {n for n, _ in model.named_parameters()}
    shared = {"output.linear.weight"} if options.get("tied") else set()
    assert set(rows) == names | shared
    counts = [int(r[2].replace(",", "")) for n, r in rows.items() if n not in shared]
    assert sum(counts) == model.num_parameters
    memory = format_bytes(4 * model.num_parameters)
    assert text.endswith(f"合计 {model.num_parameters:,} 个参数，都可训练；{memory}")
    assert rows["embedding.embedding.weight"][:4] == ["Embedding", "(65, 64)", "4,160", "16.2 KiB"]


def test_tied_frozen_and_views_are_noted() -> None:
    model = GPT(65, 32, 64, 2, 1, tied=True)
    model.embedding.positional_embedding.weight.requires_grad = False
    model.held = model.transformers[0].attention.query  # type: ignore[attr-defined]
    model.transformers[0].attention.normalize = LayerNorm(64).astype(np.float64)
    text = model.summary()
    rows = rows_of(text)
    assert rows["embedding.positional_embedding.weight"][-1] == "冻结"
    assert rows["output.linear.weight"][-1] == "与 embedding.embedding.weight 共用"
    assert rows["held.weight"][-1] == "transformers.0.attention.c_attn.weight 的几行"
    assert rows["transformers.0.attention.normalize.weight"] == [
        "LayerNorm",
        "(64,)",
        "64",
        "512 B",
    ]
    total, frozen = model.num_parameters + 32 * 64, 32 * 64
    memory = format_bytes(4 * total + 4 * 128)
    assert text.endswith(
        f"合计 {total:,} 个参数，可训练 {model.num_parameters:,} 个，冻结 {frozen:,} 个；{memory}"
    )


def test_columns_line_up_by_display_width() -> None:
    class 层(Layer):  # noqa: N801
        def __init__(self) -> None:
            self.权重 = Tensor(np.zeros((2, 3), np.float32))
            self.w = Linear(1000, 30)
            self.冻 = Tensor(np.zeros(1, np.float32), requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return x

    lines = 层().summary().splitlines()
    assert lines[0] == "层"
    header, rule, *body = lines[1:-1]
    assert body.pop() == rule
    edges = display_width(header[: header.index("内存") + 2])
    for line in body:
        memory = re.search(r"[\d.]+ (B|KiB)", line)
        assert memory is not None
        assert display_width(line[: memory.end()]) == edges  # 右对齐的一列
        assert display_width(line) <= len(rule)
    starts = {display_width(line[: line.index("(")]) for line in body}
    assert starts == {display_width(header[: header.index("形状")])}  # 左对齐的一列
    assert not any(line != line.rstrip() for line in lines)


def test_parameters_that_a_layer_names_itself() -> None:
    hidden = Tensor(np.zeros(4, np.float32))

    class Chosen(Layer):
        def __init__(self) -> None:
            self.weight = Tensor(np.zeros(3, np.float32))
            self.left_out = Tensor(np.zeros(2, np.float32))

        @property
        def parameters(self) -> list[Tensor]:
            return [hidden, self.weight]

        def forward(self, x: Tensor) -> Tensor:
            return x

    rows = rows_of(Chosen().summary())
    assert rows["0"] == ["Chosen", "(4,)", "4", "16 B"]
    assert rows["left_out"] == ["Chosen", "(2,)", "2", "8 B", "冻结"]
    assert Chosen().summary().endswith("可训练 7 个，冻结 2 个；36 B")


def test_no_parameters() -> None:
    assert ReLU().summary() == "ReLU\n没有参数"


def test_gpt2_in_mebibytes_without_allocating_it() -> None:
    with without_values():
        text = GPT(50257, 1024, 768, 12, 12, head_bias=False, tied=True).summary()
    assert text.endswith("合计 124,439,808 个参数，都可训练；474.7 MiB")
    assert rows_of(text)["embedding.embedding.weight"][-2:] == ["38,597,376", "147.2 MiB"]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (2**20, "1.0 MiB"),
        (5 * 2**30, "5,120.0 MiB"),
    ],
)
def test_bytes(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_display_width() -> None:
    assert display_width("ab，c") == 5
    assert display_width("层") == 2
    assert display_width("e\u0301") == 1  # 附加的重音不占位置


def test_readable_without_print() -> None:
    """在 Jupyter 与 Python 的提示符下，单独一行也照样分行。"""
    summary = Linear(3, 2).summary()
    assert repr(summary) == summary
    assert "\n" in repr(summary)
    assert repr(ReLU().summary()) == "ReLU\n没有参数"
