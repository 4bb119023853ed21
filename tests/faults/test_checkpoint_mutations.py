"""改坏的检查点：`resume` 只会拒绝，此时训练器与各个生成器一点也没有变；或者读出能接着训练的状态"""

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults.examine import examine
from faults.mutations import Mutation, Mutations
from faults.trees import Rng, at, paths, pick, put
from training.runs import chars, gpt_trainer, moments, scheduler, weights

from gptcore import Evaluate, GptcoreError, GPTTrainer
from gptcore.random import default_generator_state, generator_state, set_default_generator_state
from gptcore.serialization import dump_arrays, parse_arrays

FAST, FULL = 150, 1500
STATE = "training_state.json"


class CheckpointMutations(Mutations):
    """另外专门改训练状态与矩。"""

    def _state(self, m: Mutation, rng: Rng, value: Any, where: tuple[str, ...] = ()) -> None:
        """训练状态里任一处换成 `value`；`where` 是从哪里往下找。"""

        def change(tree: Any) -> Any:
            every = [path for path in paths(tree) if path[: len(where)] == where and path]
            return put(tree, pick(rng, every), value)

        self._tree(m, rng, change, STATE)

    def do_state_huge(self, m: Mutation, rng: Rng) -> None:
        huge = [2**63, 2**64, 2**127, 2**128, 10**400, 10**4000, 1e308, -(10**400), 2**63 - 1]
        self._state(m, rng, pick(rng, huge), pick(rng, [(), ("run",), ("generators",)]))

    def do_state_negative(self, m: Mutation, rng: Rng) -> None:
        self._state(m, rng, pick(rng, [-1, -0.5, -(2**63), -1e300]), ("run",))

    def do_state_types(self, m: Mutation, rng: Rng) -> None:
        other: list[Any] = [True, None, "7", 1.0, [], {}, [[1, 2]], {"a": 1}, "PCG64", "MT19937"]
        self._state(m, rng, pick(rng, other), pick(rng, [(), ("run",), ("generators",), ("data",)]))

    def do_state_nesting(self, m: Mutation, rng: Rng) -> None:
        nested: Any = 1
        for _ in range(int(rng.choice([1, 5, 40, 48, 60, 400]))):
            nested = [nested] if rng.random() < 0.5 else {"a": nested}
        self._state(m, rng, nested)

    def do_state_history(self, m: Mutation, rng: Rng) -> None:
        """评估与每一轮的损失：形式对、数值怪的。"""
        run = ("run", pick(rng, ["evaluations", "epoch_losses"]))
        value = pick(rng, [
            [[3, 1e308]] * 3, [[2**62, -1e308]], [[0, 0]], [[1, 2, 3]], [[1]], [3], [None], [1e308, None],
            [10**400], [[1, 10**400]], [[10**400, 1]], [[True, 1]], [True], ["1"], [1] * 100_000,
        ])  # fmt: skip
        self._tree(m, rng, lambda tree: put(tree, run, value), STATE)

    def do_state_place(self, m: Mutation, rng: Rng) -> None:
        """数据取到的位置、轮数与种子，类型都对。"""
        key = pick(rng, ["position", "epoch", "step", "order_seed", "loss_steps", "skipped"])
        value = pick(rng, [0, 1, 14, 15, 16, 10**6, 2**63 - 1, None])
        self._tree(m, rng, lambda tree: put(tree, ("run", key), value), STATE)

    def do_generators_names(self, m: Mutation, rng: Rng) -> None:
        def change(tree: Any) -> Any:
            saved = tree["generators"]
            name = pick(rng, list(saved))
            new = pick(rng, ["", "default", "trainer.rng", "model.rng", "文", "x" * 3000, "../x"])
            saved[new] = saved.pop(name) if rng.random() < 0.7 else saved[name]
            return tree

        self._tree(m, rng, change, STATE)

    def do_generators_states(self, m: Mutation, rng: Rng) -> None:
        """生成器的状态换成另一种的，或者改一个数。"""

        def change(tree: Any) -> Any:
            saved = tree["generators"]
            name = pick(rng, list(saved))
            kind = pick(rng, ["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64", None])
            if kind is not None:
                made = getattr(np.random, kind)(int(rng.integers(99)))
                saved[name] = generator_state(np.random.Generator(made))
                if name == "default" and rng.random() < 0.7:
                    saved[name] |= {"has_gauss": 0, "gauss": 0.0}
                return tree
            numbers = [p for p in paths(saved[name]) if type(at(saved[name], p)) in (int, float)]
            value = pick(rng, [0, 1, -1, 3, 624, 625, 2**31, 2**32, 2**64, 2**128, 0.5, 1e9, True])
            put(saved[name], pick(rng, numbers), value)
            return tree

        self._tree(m, rng, change, STATE)

    def do_generators_lists(self, m: Mutation, rng: Rng) -> None:
        """状态里的列表长短不对。"""

        def change(tree: Any) -> Any:
            lists = [p for p in paths(tree["generators"]) if isinstance(at(tree["generators"], p), list)]  # fmt: skip
            path = pick(rng, lists)
            old = at(tree["generators"], path)
            new = pick(rng, [old[:-1], [*old, 1], [], [old], old * 2, [str(n) for n in old]])
            return put(tree, ("generators", *path), new)

        self._tree(m, rng, change, STATE)

    def do_moments_scalars(self, m: Mutation, rng: Rng) -> None:
        """学习率与步数。"""
        name = "training_state.safetensors"

        def change(arrays: dict[str, Any]) -> None:
            key = pick(rng, ["lr", "steps"])
            value = pick(rng, [-1, 0, np.nan, np.inf, 1e300, 2**62, -(2**62)])
            with np.errstate(all="ignore"):
                arrays[key] = np.asarray(value).astype(arrays[key].dtype)

        arrays = dict(parse_arrays(m.files[name], name))
        change(arrays)
        m.files[name] = dump_arrays(arrays)


def snapshot(trainer: GPTTrainer) -> list[Any]:
    """训练器与默认生成器的全部状态。"""
    assert trainer.rng is not None
    arrays = [array.tobytes() for array in (*weights(trainer), *moments(trainer).values())]
    states = [default_generator_state(), generator_state(trainer.rng), trainer.state.to_dict()]
    return [arrays, states]


def settings(trainer: GPTTrainer) -> dict[str, Any]:
    """训练器的其余属性。"""
    apart = {"model", "optimizer", "rng", "state"}
    return {name: value for name, value in vars(trainer).items() if name not in apart}


def make_checkpoints(folder: Path) -> tuple[Path, Path, Any]:
    """同一次训练的两个检查点，与它的数据集。"""
    folder.mkdir()
    dataset = chars(folder)
    trainer = gpt_trainer(dataset)
    steps = trainer.steps(dataset, 30, scheduler(60), shuffle=True, callbacks=[Evaluate(3, 4)])
    for report in steps:
        if report.step in (8, 20):
            trainer.save_checkpoint(folder / str(report.step))
    return folder / "20", folder / "8", dataset


def resume_strictly(trainer: GPTTrainer, path: Path) -> list[Any]:
    """接着训练，返回读入之后的状态；被拒绝时检查什么也没有变。默认生成器换回原来的。"""
    before, own = snapshot(trainer), settings(trainer)
    default = default_generator_state()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "从 .* 接着训练", UserWarning)
            trainer.resume(path)
        return snapshot(trainer)
    except GptcoreError:
        assert (snapshot(trainer), settings(trainer)) == (before, own), "被拒绝的检查点改动了训练器"
        raise
    finally:
        set_default_generator_state(default)


def go_on(trainer: GPTTrainer, dataset: Any) -> str:
    """再训练几步，只许有库自己的错误。"""
    count = trainer.state.step + 3
    default = default_generator_state()
    try:
        list(trainer.steps(dataset, count, shuffle=True, callbacks=[Evaluate(1, 2)]))
    except GptcoreError as error:
        return str(error)
    finally:
        set_default_generator_state(default)
    assert trainer.state.step == count
    return ""


@pytest.mark.parametrize(
    ("start", "count"), [(0, FAST), pytest.param(FAST, FULL - FAST, marks=pytest.mark.slow)]
)
def test_mutated_checkpoints(tmp_path: Path, start: int, count: int) -> None:
    first, second, dataset = make_checkpoints(tmp_path / "run")
    secret = (first / STATE).read_bytes()
    mutations = CheckpointMutations(first, second)
    originals = [resume_strictly(gpt_trainer(dataset), path) for path in (first, second)]
    parent = tmp_path / "parent"
    parent.mkdir()
    outcomes: Counter[str] = Counter()
    trainer = gpt_trainer(dataset, seed=3)
    for number in range(start, start + count):
        mutation = mutations.make(number)
        try:
            state, error = examine(
                mutation,
                parent,
                lambda path, trainer=trainer: resume_strictly(trainer, path),
                {"outside.bin": secret},
            )
            if error is None:
                same = state in originals
                assert same or mutation.sealed, "清单没有重算，却读出了不同的状态"
                outcomes["相同" if same else "不同"] += 1
                assert len(go_on(trainer, dataset)) < 5000
                trainer = gpt_trainer(dataset, seed=3)
            else:
                assert len(str(error)) < 5000, f"消息有 {len(str(error))} 个字"
                outcomes["重算而拒绝" if mutation.sealed else "拒绝"] += 1
        except BaseException as error:
            error.add_note(f"第 {number} 种改法：{mutation.kind}，重算清单：{mutation.sealed}")
            raise
    print(dict(outcomes))
    least = {"拒绝": 0.2, "重算而拒绝": 0.3, "不同": 0.02, "相同": 0.01}
    assert all(outcomes[kind] > share * count for kind, share in least.items()), outcomes
