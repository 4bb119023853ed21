"""命令行的设置：真的到了模型、训练器与学习率调度；写错了说得清楚"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.running import Outcome
from cli.test_errors import assert_error

from gptcore import CharDataset, ConstantScheduler, LinearScheduler, WarmupCosineScheduler
from gptcore.cli.fitting import build_scheduler, build_trainer
from gptcore.cli.settings import TrainSettings, parse_settings
from gptcore.errors import DataError

Cli = Callable[..., Outcome]


def test_missing_settings_have_the_defaults() -> None:
    values = TrainSettings(lr=0.5).to_dict()
    del values["beta2"]
    assert parse_settings(values, "x") == TrainSettings(lr=0.5)
    with pytest.raises(DataError, match="keep"):
        parse_settings({**values, "keep": 0}, "x")


def trainer_of(text_file: Path, **options: Any) -> Any:
    settings = replace(TrainSettings(context_size=8, embedding_size=8), **options)
    return build_trainer(settings, CharDataset(text_file, 4, 8))


def test_every_option_reaches_the_model_and_the_trainer(text_file: Path) -> None:
    model, trainer = trainer_of(
        text_file,
        dropout=0.25,
        norm="rms",
        post_norm=True,
        tied=True,
        no_bias=True,
        init="gpt2",
        accumulate=3,
        clip=0.0,
        skip_nonfinite=4,
        beta2=0.95,
        weight_decay=0.3,
        lr=0.5,
    )
    wanted = {
        "dropout": 0.25,
        "norm": "RMSNorm",
        "norm_position": "post",
        "tied": True,
        "bias": False,
        "init": "gpt2",
        "head_bias": False,
    }
    assert {key: model.config[key] for key in wanted} == wanted
    assert trainer.accumulation_steps == 3
    assert trainer.max_norm is None
    assert trainer.skip_nonfinite == 4
    assert trainer.optimizer.lr == 0.5
    assert trainer.optimizer.betas == (0.9, 0.95)
    assert trainer_of(text_file, norm="none")[0].config["norm"] is None
    assert trainer_of(text_file)[1].max_norm == 1.0


def test_one_seed_two_generators(text_file: Path) -> None:
    model, trainer = trainer_of(text_file, seed=5)
    other = trainer_of(text_file, seed=5, dropout=0.5)[1]
    assert trainer.rng.random() == other.rng.random()  # 打乱的次序与模型的选项无关
    assert trainer.rng.random() != np.random.default_rng(5).random()
    different = trainer_of(text_file, seed=6)[0]
    a, b = (m.output.linear.weight.data for m in (model, different))
    assert not np.array_equal(a, b)


def test_schedules() -> None:
    settings = TrainSettings(lr=0.5, warmup_steps=3)
    kinds = {"cosine": WarmupCosineScheduler, "linear": LinearScheduler}
    for name, kind in kinds.items():
        scheduler = build_scheduler(replace(settings, schedule=name), 10)
        assert type(scheduler) is kind
        assert scheduler.step(10) == pytest.approx(0.05)
        assert build_scheduler(replace(settings, schedule=name, min_lr=0.2), 10).step(10) == 0.2
    constant = build_scheduler(replace(settings, schedule="constant"), 10)
    assert type(constant) is ConstantScheduler
    assert (constant.step(0), constant.step(99)) == (0.5 / 3, 0.5)


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["--norm", "rns"], ["--norm 得到 'rns'", "layer、rms、none", "你要的是不是 rms"]),
        (["--init", "xavier"], ["--init 得到 'xavier'", "he、gpt2"]),
        (["--schedule", "step"], ["--schedule", "cosine、linear、constant"]),
        (["--dropout", "1"], ["--dropout", "'1'", "小于 1 的数"]),
        (["--beta2", "1.5"], ["--beta2", "小于 1 的数"]),
        (["--clip", "-1"], ["--clip", "'-1'"]),
        (["--accumulate", "0"], ["--accumulate", "'0'"]),
        (["--patience", "0"], ["--patience", "'0'"]),
        (["--keep", "0"], ["--keep", "'0'"]),
        (["--norm", "none", "--post-norm"], ["--post-norm 与 --norm none 矛盾"]),
        (["--schedule", "constant", "--min-lr", "0"], ["--schedule constant", "--min-lr"]),
    ],
)
def test_mistakes_in_the_new_options(cli: Cli, args: list[str], parts: list[str]) -> None:
    assert_error(cli("train", *args), *parts)
