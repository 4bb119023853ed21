"""由 mpiexec 运行：`program.py 函数名 文件夹 [参数…]`；没有 mpiexec 时，同样的训练在一个进程里做

结果由第 0 个进程写进 `文件夹/名字.npz`。
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import pytest
from training.runs import chars, gpt_trainer, moments, scheduler, weights

from gptcore import (
    GPT,
    AdamWOptimizer,
    Callback,
    CharDataset,
    Checkpoints,
    DataParallel,
    Dataset,
    DistributedError,
    DtypeError,
    EarlyStopping,
    Evaluate,
    GPTLoss,
    GPTTrainer,
    Linear,
    MetricsFile,
    MSELoss,
    Tensor,
    Trainer,
    WarmupCosineScheduler,
    corpus_path,
)
from gptcore.mpiexec import launched_rank

BATCH = 12
"""全部进程一步的窗口数"""


def connect(**options: Any) -> DataParallel | None:
    return None if launched_rank() is None else DataParallel(**options)


def prepare(folder: Path, parallel: DataParallel | None, batch: int = BATCH, **options: Any) -> Any:
    """各个进程的数据与训练器；初始参数故意各不相同，以第 0 个的为准。"""
    rank, size = (parallel.rank, parallel.size) if parallel else (0, 1)
    own = folder / f"rank{rank}"
    own.mkdir(exist_ok=True)
    dataset = chars(own, batch // size)
    options = {"dropout": 0.0, **options}
    return dataset, gpt_trainer(dataset, seed=rank, distributed=parallel, **options)


def save(folder: Path, name: str, trainer: Any, losses: list[float], **more: Any) -> None:
    if trainer.strategy.rank == 0:
        arrays = {f"p{i}": w for i, w in enumerate(weights(trainer))} | moments(trainer)
        arrays["evaluations"] = np.array(trainer.state.evaluations).reshape(-1, 2)
        np.savez(folder / f"{name}.npz", losses=losses, **arrays, **more)


# ---------------------------------------------------------------- 结果相同


def gradients(folder: Path, name: str, dtype: str) -> None:
    """一步的梯度，不裁剪。"""
    dataset, trainer = prepare(folder, connect(), max_norm=None, dtype=dtype)
    before = trainer.evaluate(dataset).loss
    reports = list(trainer.steps(dataset, 1, shuffle=True))
    grads = {f"g{i}": p.grad for i, p in enumerate(trainer.model.parameters)}
    save(
        folder,
        name,
        trainer,
        [r.loss for r in reports],
        norm=reports[0].grad_norm,
        first=before,
        **grads,
    )


def stories(folder: Path, name: str) -> None:
    """自带的语料，单精度，200 步。"""
    parallel = connect()
    dataset = CharDataset(
        corpus_path("stories"), BATCH // (parallel.size if parallel else 1), context_size=16
    )
    np.random.seed(3)
    model = GPT(dataset.vocab_size, 16, 32, 2, 1)
    optimizer = AdamWOptimizer(model.parameter_groups(0.01))
    trainer = GPTTrainer(model, GPTLoss(), optimizer, distributed=parallel)
    schedule = WarmupCosineScheduler(1e-3, 200, 20)
    reports = trainer.steps(dataset, 200, schedule, shuffle=True)
    save(folder, name, trainer, [r.loss for r in reports])


def curve(folder: Path, name: str, k: str = "1", dropout: str = "0") -> None:
    """双精度：打乱、累积，走过几轮；每 20 步评估。"""
    options = {"accumulation_steps": int(k), "dropout": float(dropout), "dtype": np.float64}
    dataset, trainer = prepare(folder, connect(check_every=7), **options)
    reports = list(trainer.steps(dataset, 90, shuffle=True, callbacks=[Evaluate(20)]))
    evaluation = trainer.evaluate(dataset)
    tokens = [r.tokens for r in reports]
    where = [trainer.state.epoch, trainer.state.position, *trainer.state.epoch_losses]
    save(
        folder,
        name,
        trainer,
        [r.loss for r in reports],
        final=[evaluation.loss, evaluation.tokens],
        tokens=tokens,
        where=where,
    )


class Ragged(Dataset):
    """每个样本的标签数不同，有的一个也没有。"""

    def load(self) -> None:
        rng = np.random.default_rng(5)
        x, y = rng.integers(0, 9, (2, 60, 6))
        for i, row in enumerate(y):
            row[rng.random(6) < i % 4 / 3] = -100
        self.train_data, self.test_data = (x, y), (x[:7], y[:7])


def ragged(folder: Path, name: str, k: str) -> None:
    """按标签数加权：双精度里与一个进程只差舍入。"""
    parallel = connect()
    size = parallel.size if parallel else 1
    _, trainer = prepare(folder, parallel, dtype=np.float64, accumulation_steps=int(k))
    dataset = Ragged(6 // size)
    losses = [r.loss for r in trainer.steps(dataset, 30)]
    save(folder, name, trainer, losses, final=trainer.evaluate(dataset).loss)


# ---------------------------------------------------------------- 接着训练


def run(folder: Path, name: str, steps: str, dropout: str, k: str) -> None:
    """有检查点就接着训练；随机失活时，另记下各个进程的随机数。"""
    parallel = connect()
    options = {"accumulation_steps": int(k), "dropout": float(dropout)}
    batch = 4 * (parallel.size if parallel else 1)
    dataset, trainer = prepare(folder, parallel, batch, **options)
    trainer.resume(folder / name, missing_ok=True)
    callbacks = [Evaluate(5), Checkpoints(folder / name, 10)]
    given = trainer.steps(dataset, int(steps), scheduler(60), shuffle=True, callbacks=callbacks)
    losses = [r.loss for r in given]
    np.savez(folder / f"{name}-rank{parallel.rank if parallel else 0}", next=np.random.random(3))
    save(folder, name, trainer, losses)


def streams(folder: Path) -> None:
    """每个进程的随机数各不相同，只由种子与第几个进程决定。"""
    parallel = DataParallel()
    dataset, trainer = prepare(folder, parallel)
    for _ in trainer.steps(dataset, 1):
        pass
    (folder / f"{parallel.rank}.json").write_text(json.dumps(np.random.random(4).tolist()))


# ---------------------------------------------------------------- 商量


class Watch(Callback):
    """记下在哪个进程上运行了；到时候停止、出错、评估别的数据集。"""

    def __init__(self, folder: Path, rank: int, what: str) -> None:
        self.folder, self.rank, self.what = folder, rank, what

    def on_step(self, trainer: Any, report: Any) -> None:
        (self.folder / f"called-{self.rank}").touch()
        if trainer.state.step == 5:
            if self.what == "stop":
                trainer.stop("够了")
            if self.what == "raise":
                raise ValueError("回调坏了")
            if self.what == "surrogate":
                raise ValueError("文件名里有 \udcff")
            if self.what == "exit":
                sys.exit(0)
            if self.what == "evaluate":
                trainer.evaluate(trainer.dataset, 3)
                other = chars(self.folder, 2)
                trainer.evaluate(other, 3)
                trainer.save_checkpoint(self.folder / "here")


def callbacks(folder: Path, what: str) -> None:
    parallel = DataParallel()
    dataset, trainer = prepare(folder, parallel)
    given = [Watch(folder, parallel.rank, what), MetricsFile(folder / "metrics.jsonl")]
    if what == "early":
        given += [Evaluate(1, limit=1), EarlyStopping(2)]
    count = sum(1 for _ in trainer.steps(dataset, 40, callbacks=given))
    result = [count, trainer.stop_reason, trainer.state.evaluations]
    (folder / f"result-{parallel.rank}.json").write_text(json.dumps(result), encoding="utf-8")


def apart(folder: Path, what: str) -> None:
    """各个进程评估的不是同样的数据，批数却相同。"""
    parallel = DataParallel(threads=0 if what == "threads" and launched_rank() == 1 else None)
    dataset, trainer = prepare(folder, parallel)
    other = parallel.rank == 1
    if what == "data" and other:
        dataset.tokens = dataset.tokens[::-1].copy()
    trainer.evaluate(dataset, 3 if what == "limit" and other else 2)


def misbehave(what: str, trainer: Any) -> None:
    if what == "raise":
        raise ValueError("循环坏了")
    if what == "kill":
        os.kill(os.getpid(), 9)
    if what == "exit":
        sys.exit(0)
    if what == "stop":
        trainer.stop("第 1 个进程说够了")
    if what == "evaluate":
        trainer.evaluate(trainer.dataset)
    if what == "change":
        trainer.model.parameters[0].data += 1


def loop(folder: Path, what: str) -> None:
    """使用者的循环里，只有第 1 个进程做的事。"""
    parallel = DataParallel(check_every=3)
    if what == "before" and parallel.rank == 1:
        raise ValueError("还没有开始就坏了")
    if what == "everywhere":
        raise ValueError("处处都坏了")
    different = what == "different" and parallel.rank == 1
    dataset, trainer = prepare(folder, parallel, accumulation_steps=2 if different else 1)
    callbacks = [Checkpoints(folder / "run", 5)]
    count = 0
    for report in trainer.steps(dataset, 40, callbacks=callbacks):
        count += 1
        if report.step == 10 and parallel.rank == 1:
            if what == "break":
                break
            misbehave(what, trainer)
    if what == "save":
        trainer.save_checkpoint(folder / "saved")
        before = trainer.evaluate(dataset)
        for p in trainer.model.parameters:
            p.data *= parallel.rank
        trainer.resume(folder / "saved")
        assert trainer.evaluate(dataset) == before
    result = [count, trainer.stop_reason]
    (folder / f"result-{parallel.rank}.json").write_text(json.dumps(result), encoding="utf-8")


class Numbers(Dataset):
    """第 9 批里，分给第 1 个进程的那一份有 NaN。"""

    def load(self) -> None:
        x = np.linspace(-1, 1, 120, dtype=np.float32).reshape(60, 2)
        y = x[:, :1].copy()
        y[9 * 4 + 3] = np.nan
        self.train_data, self.test_data = (x, y), (x[:4], x[:4, :1].copy())


def nan(folder: Path, skip: str) -> None:
    parallel = connect()
    np.random.seed(0)
    model = Linear(2, 1)
    optimizer = AdamWOptimizer(model.parameters, lr=0.01)
    trainer = Trainer(model, MSELoss(), optimizer, skip_nonfinite=int(skip), distributed=parallel)
    dataset = Numbers(4 // (parallel.size if parallel else 1))
    callbacks = [Checkpoints(folder / "run", 5)]
    losses = [r.loss for r in trainer.steps(dataset, 14, callbacks=callbacks)]
    save(folder, "nan", trainer, losses, skipped=trainer.state.skipped)


def alone(folder: Path) -> None:
    """没有 mpiexec，自己给出通信器。"""
    from mpi4py import MPI

    parallel = DataParallel(MPI.COMM_SELF)
    dataset, trainer = prepare(folder, parallel)
    assert [r.step for r in trainer.steps(dataset, 3)] == [0, 1, 2]
    assert str(parallel) == "1 个进程，都在这台机器上"
    with pytest.raises(DistributedError, match="要由 mpiexec 启动"):
        DataParallel()
    with pytest.raises(DtypeError, match="comm 必须是 mpi4py 的通信器，这里是 'x'"):
        DataParallel("x")
    (folder / "done").touch()


def environment(folder: Path) -> None:
    parallel = DataParallel()
    x, loss = Tensor(np.zeros(2)), GPTLoss()
    assert x.size == 2
    assert loss.count(x) == 2
    found = [str(parallel), parallel.threads_each, parallel.environment()]
    (folder / f"{parallel.rank}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
