"""读 metrics.jsonl，平滑与取点；不需要 matplotlib"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from gptcore import DataError
from gptcore.plotting import Metrics, read_metrics
from gptcore.plotting.curves import smooth, thin

NAN = float("nan")


def step(i: int, seconds: float, loss: float | None = 1.0, **more: Any) -> dict[str, Any]:
    line = {"step": i, "loss": loss, "lr": 0.1, "grad_norm": 0.5, "tokens": 100, "seconds": seconds}
    return line | more


def write(path: Path, *lines: Any, end: str = "\n") -> Path:
    text = "\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines)
    path.write_bytes((text + end).encode())
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def test_every_kind_of_line(file: Path) -> None:
    write(
        file,
        {"run": {"numpy": "2"}, "step": 0},
        step(0, 0.5, 3.0),
        step(1, 0.75, None, grad_norm=None, lr=0.2),
        {"evaluation": 2.5, "step": 2, "seconds": 10.75},
        step(2, 11.0, 2.0),
        {"evaluation": 2.25, "step": 3, "seconds": 21.0},
    )
    m = read_metrics(file)
    assert_array_equal(m.steps, [0, 1, 2])
    assert_array_equal(m.losses, [3, NAN, 2])
    assert_array_equal(m.lrs, [0.1, 0.2, 0.1])
    assert_array_equal(m.grad_norms, [0.5, NAN, 0.5])
    assert_array_equal(m.tokens, [100, 100, 100])
    assert_array_equal(m.seconds, [0.5, 0.25, 0.25])  # 评估的 10 秒不算
    assert_array_equal(m.evaluation_steps, [2, 3])
    assert_array_equal(m.evaluations, [2.5, 2.25])
    assert (m.runs, m.restarts) == ([{"numpy": "2"}], [])


def test_the_folder_is_enough(file: Path) -> None:
    write(file, step(0, 1))
    assert len(read_metrics(file.parent).steps) == len(read_metrics(str(file)).steps) == 1


def test_recording_every_few_steps(file: Path) -> None:
    """每十步记一次时，词元与秒数都是这十步的。"""
    write(file, {"run": {}, "step": 0}, step(0, 1.0), step(10, 3.0), step(20, 5.5))
    m = read_metrics(file)
    assert_array_equal(m.tokens, [100, 1000, 1000])
    assert_array_equal(m.seconds, [1, 2, 2.5])


def test_resuming_abandons_what_came_after_the_checkpoint(file: Path) -> None:
    write(
        file,
        {"run": "第一次", "step": 0},
        *(step(i, i + 1.0, 10.0 + i) for i in range(6)),
        {"evaluation": 5.0, "step": 3, "seconds": 6.5},
        {"evaluation": 4.0, "step": 6, "seconds": 7.5},
        {"run": "第二次", "step": 3},
        step(3, 0.25, 30.0),
        step(4, 0.5, 40.0),
    )
    m = read_metrics(file)
    assert_array_equal(m.steps, [0, 1, 2, 3, 4])  # 第 5 步作废
    assert_array_equal(m.losses, [10, 11, 12, 30, 40])
    assert_array_equal(m.seconds, [1, 1, 1, 0.25, 0.25])
    assert_array_equal(m.evaluation_steps, [3])
    assert (m.runs, m.restarts) == (["第一次", "第二次"], [3])


def test_a_new_start_forgets_the_old_resumptions(file: Path) -> None:
    write(
        file,
        *({"run": {}, "step": 0}, step(0, 1), step(1, 2)),
        *({"run": {}, "step": 2}, step(2, 1)),
        *({"run": {}, "step": 1}, step(1, 1)),
    )
    m = read_metrics(file)
    assert (m.restarts, m.steps.tolist()) == ([1], [0, 1])


def test_the_later_of_two_lines_wins(file: Path) -> None:
    write(file, step(0, 1, 5), step(1, 2, 6), {"run": {}}, step(1, 0.5, 7), step(0, 0.75, 8))
    m = read_metrics(file)
    assert_array_equal(m.losses, [8, 7])
    assert_array_equal(m.seconds, [NAN, 0.5])  # 步数往回走，不知道用了多久


def test_an_evaluation_written_before_its_step_is_not_subtracted(file: Path) -> None:
    write(
        file,
        {"run": {}, "step": 0},
        step(0, 1.0),
        {"evaluation": 1.0, "step": 2, "seconds": 9.0},
        step(1, 9.0),
        step(2, 10.0),
    )
    assert_array_equal(read_metrics(file).seconds, [1, 8, 1])


def test_an_evaluation_before_the_first_step(file: Path) -> None:
    write(
        file,
        {"run": {}, "step": 0},
        {"evaluation": 4.0, "step": 0, "seconds": 9.0},
        step(0, 9.5),
    )
    m = read_metrics(file)
    assert (m.seconds.tolist(), m.evaluation_steps.tolist()) == ([0.5], [0])


def test_numbers_that_are_missing_or_not_finite(file: Path) -> None:
    write(file, {"step": 0, "loss": NAN}, '{"step": 1, "loss": 1e999, "lr": -Infinity}')
    m = read_metrics(file)
    for values in (m.losses, m.lrs, m.grad_norms, m.tokens, m.seconds):
        assert_array_equal(values, [NAN, NAN])


@pytest.mark.parametrize("content", [b"", b"\n\n", b'{"run": {}, "step": 0}\n', b'{"st'])
def test_nothing_recorded_yet(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    m = read_metrics(file)
    assert isinstance(m, Metrics)
    assert [len(m.steps), len(m.losses), len(m.evaluations)] == [0, 0, 0]


def test_any_cut_at_the_end_is_ignored(file: Path) -> None:
    """写到一半被杀：无论断在哪个字节，前面的都读得出来。"""
    first = json.dumps({"run": {"名字": "模型"}, "step": 0}, ensure_ascii=False).encode() + b"\n"
    last = json.dumps(step(0, 1) | {"名": "中文"}, ensure_ascii=False).encode()
    for cut in range(len(last)):
        file.write_bytes(first + last[:cut])
        assert len(read_metrics(file).steps) == 0
    file.write_bytes(first + last)
    assert len(read_metrics(file).steps) == 1
    file.write_bytes(first + last + b"\n" + b"\0" * 4096)  # 断电之后常见
    assert len(read_metrics(file).steps) == 1


def test_half_a_line_before_a_resumption_is_ignored(file: Path) -> None:
    write(file, step(0, 1), '{"step": 1, "lo', {"run": {}, "step": 1}, step(1, 1, 7.0))
    assert_array_equal(read_metrics(file).losses, [1, 7])


def test_windows_line_ends_and_blank_lines(file: Path) -> None:
    file.write_bytes(b'\xef\xbb\xbf{"step": 0, "loss": 1}\r\n\r\n{"step": 1, "loss": 2}\r\n')
    assert_array_equal(read_metrics(file).losses, [1, 2])


BROKEN: dict[str, tuple[str, str]] = {
    "不是 JSON": ("step 5", "第 2 行不是 JSON 对象"),
    "半行": ('{"step": 1, "lo', "第 2 行不是 JSON 对象"),
    "数组": ("[1, 2]", "第 2 行不是 JSON 对象"),
    "数": ("5", "第 2 行不是 JSON 对象"),
    "嵌套太深": ("[" * 100_000, "第 2 行不是 JSON 对象"),
    "数字太长": ('{"step": 1, "loss": ' + "9" * 5000 + "}", "第 2 行不是 JSON 对象"),
    "不认识": ('{"step": 1}', "第 2 行既没有 loss"),
    "没有步数": ('{"loss": 1}', "第 2 行的 step 是 None，必须是非负整数"),
    "负的步": ('{"step": -1, "loss": 1}', "第 2 行的 step 是 -1"),
    "小数步": ('{"step": 1.0, "loss": 1}', r"第 2 行的 step 是 1\.0"),
    "布尔步": ('{"step": true, "loss": 1}', "第 2 行的 step 是 True"),
    "步太大": ('{"step": 1' + "0" * 30 + ', "loss": 1}', "第 2 行的 step 是 2 的"),
    "文字损失": ('{"step": 1, "loss": "a"}', "第 2 行的 loss 是 'a'，必须是数或 null"),
    "布尔损失": ('{"step": 1, "loss": true}', "第 2 行的 loss 是 True"),
    "文字的秒": ('{"step": 1, "loss": 1, "seconds": "1"}', "第 2 行的 seconds"),
    "文字的评估": ('{"step": 1, "evaluation": []}', "第 2 行的 evaluation"),
    "评估没有步": ('{"evaluation": 1}', "第 2 行的 step"),
    "开始的步": ('{"run": {}, "step": "0"}', "第 2 行的 step"),
    "太长的行": ('{"run": "' + "a" * (1 << 20) + '"}', "第 2 行不是 JSON 对象"),
}


@pytest.mark.parametrize(("line", "message"), BROKEN.values(), ids=BROKEN)
def test_other_broken_lines_are_named(file: Path, line: str, message: str) -> None:
    write(file, step(0, 1), line, step(2, 3))
    with pytest.raises(DataError, match=r"^\S+metrics\.jsonl " + message) as caught:
        read_metrics(file)
    assert "请删去这一行" in str(caught.value)


def test_not_utf8(file: Path) -> None:
    file.write_bytes("{'步': 1}\n".encode("gbk") + b'{"step": 1, "loss": 1}\n')
    with pytest.raises(DataError, match="第 1 行不是 JSON 对象"):
        read_metrics(file)


def test_a_huge_integer_as_a_number(file: Path) -> None:
    write(file, '{"step": 0, "loss": 1' + "0" * 400 + "}")
    assert_array_equal(read_metrics(file).losses, [NAN])


@given(st.binary(max_size=200))
def test_any_bytes_give_our_own_error_or_a_result(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(b'{"step": 0, "loss": 1}\n' + content)
    try:
        read_metrics(path)
    except DataError:
        return


def test_missing_files_and_folders_without_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^不能读 \S*没有（文件不存在）；.*metrics\.jsonl"):
        read_metrics(tmp_path / "没有")
    with pytest.raises(DataError, match=r"不能读 .*metrics\.jsonl（文件不存在）"):
        read_metrics(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="没有管道")
def test_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(DataError, match="不是普通文件"):
        read_metrics(tmp_path)


# 平滑与取点


def test_smoothing_by_hand() -> None:
    x = np.array([9.0, 0, 0, 6, NAN, 2])
    assert_allclose(smooth(x, 0), x)
    assert_allclose(smooth(x, 1), [9, 3, 2, 3, 4, 2])
    assert_allclose(smooth(x, 2), [9, 3, 3.75, 2, 8 / 3, 4])


def test_smoothing_keeps_constants_and_lines() -> None:
    """窗口两边对称，所以直线也不变；只有结尾的几点例外。"""
    x = np.linspace(0, 1, 100)
    assert_allclose(smooth(np.full(100, 3.0), 7), 3)
    assert_allclose(smooth(x, 7)[:-7], x[:-7])


def test_smoothing_with_weights_is_a_ratio_of_sums() -> None:
    """吞吐量：一共多少词元，除以一共多少秒。"""
    tokens, seconds = np.array([10.0, 10, 10]), np.array([1.0, 4, 5])
    assert_allclose(smooth(tokens / seconds, 1, seconds)[1], 30 / 10)


def test_smoothing_nothing() -> None:
    assert_array_equal(smooth(np.array([NAN, NAN]), 1), [NAN, NAN])
    assert smooth(np.zeros(0), 3).shape == (0,)
    assert_array_equal(smooth(np.array([1.0, 1.0]), 1, np.zeros(2)), [NAN, NAN])


@given(st.integers(1, 5000), st.integers(0, 2**32 - 1))
def test_thinning_keeps_the_ends_and_the_peaks(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = rng.normal(size=count)
    y[rng.random(count) < 0.2] = NAN
    x, kept = thin(np.arange(count), y, 100)
    assert len(x) <= 102
    assert (x[0], x[-1]) == (0, count - 1)
    assert (np.diff(x) > 0).all()
    assert_array_equal(kept, y[x])
    if np.isfinite(y).any():
        assert np.nanmax(kept) == np.nanmax(y)
        assert np.nanmin(kept) == np.nanmin(y)


def test_short_curves_are_kept_whole() -> None:
    y = np.arange(50.0)
    assert thin(np.arange(50), y)[1] is y
