"""生成的速度与内存：gptcore 与 transformers 在同一个进程里轮流运行

两边是同一组随机的权重、同样的线程数、float32，都用缓存、总取分数最高的，写出的词元也应当相同。
机器忽快忽慢，所以每一轮两边各测一次、次序交替，比较每一轮的比值，取中位数。

- 每秒词元数：除去第一个词元，只算接着的每一步；
- 第一个词元：从给出提示到得到第一个词元；
- 内存：另开一个只有 gptcore 的进程，除了权重与缓存还用了多少。

    python tests/benchmarks/generation.py                     # GPT-2 124M 的形状，两个线程
    python tests/benchmarks/generation.py --size M --threads 1 --cpu
    python tests/benchmarks/generation.py --size M --threads 1 --alone   # 缓存的开与关
"""

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

import gptcore
from gptcore import GPT
from gptcore.layers.initial import without_values

SIZES = {  # 上下文、嵌入、头数、块数、词表；提示的长度，第一个词元的提示的长度
    "S": (32, 64, 2, 2, 65, 4, 24),
    "M": (64, 128, 4, 4, 65, 8, 48),
    "G": (1024, 768, 12, 12, 50257, 19, 512),
}
MEGABYTE = 2**20
clock = {"now": time.perf_counter}
"""计时用的钟；`--cpu` 时是进程用去的处理器时间"""
Once = Callable[[], tuple[float, float, list[int]]]
"""生成一次：第一个词元的秒数，其余每个的秒数，全部词元"""


def make_model(size: str) -> GPT:
    """随机的权重；直接抽 float32，不另占内存。"""
    context, embedding, heads, blocks, vocab, *_ = SIZES[size]
    with without_values():
        model = GPT(vocab, context, embedding, heads, blocks, head_bias=False, tied=True)
    rng = np.random.default_rng(0)
    for name, p in model.named_parameters():
        if p.ndim == 2:
            p.data = rng.standard_normal(p.shape, np.float32)
            p.data *= 0.02
        else:
            p.data = np.full(p.shape, "normalize.weight" in name, np.float32)
    return model


def ours(model: GPT, prompt: list[int], count: int, use_cache: bool = True) -> Once:
    def once() -> tuple[float, float, list[int]]:
        start = clock["now"]()
        tokens = model.generate(prompt, count, temperature=0, use_cache=use_cache)
        ids = [next(tokens)]
        first = clock["now"]() - start
        ids += tokens
        rest = clock["now"]() - start - first
        return first, rest / max(1, count - 1), ids

    return once


def theirs(model: GPT, prompt: list[int], count: int) -> Once:
    """同一组权重的 transformers 模型。"""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    hf = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=model.vocab_size,
            n_positions=model.context_size,
            n_embd=model.config["embedding_size"],
            n_layer=len(model.transformers),
            n_head=model.config["heads"],
            bos_token_id=None,
            eos_token_id=None,
        )
    ).eval()
    with torch.no_grad():
        state = hf.transformer
        state.wte.weight.copy_(torch.from_numpy(model.embedding.embedding.weight.data))
        state.wpe.weight.copy_(torch.from_numpy(model.embedding.positional_embedding.weight.data))
        for layer, block in zip(state.h, model.transformers, strict=True):
            attention, forward = block.attention, block.feed_forward
            for theirs, mine in (
                (layer.attn.c_attn, attention.c_attn),
                (layer.attn.c_proj, attention.output),
                (layer.mlp.c_fc, forward.input),
                (layer.mlp.c_proj, forward.output),
            ):
                theirs.weight.copy_(torch.from_numpy(mine.weight.data.T))
    ids = torch.tensor([prompt])
    mask = torch.ones_like(ids)

    class Clock:
        """由 generate 在每个词元之后调用。"""

        def put(self, value: torch.Tensor) -> None:
            self.times.append(clock["now"]())

        def end(self) -> None: ...

    def once() -> tuple[float, float, list[int]]:
        streamer = Clock()
        streamer.times = []
        start = clock["now"]()
        with torch.inference_mode():
            out = hf.generate(
                ids,
                attention_mask=mask,
                max_new_tokens=count,
                do_sample=False,
                pad_token_id=0,
                streamer=streamer,
            )
        first, last = streamer.times[1], streamer.times[-1]  # 第 0 次给出的是提示
        return first - start, (last - first) / max(1, count - 1), out[0, len(prompt) :].tolist()

    return once


def alternate(sides: dict[str, Once], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """轮流各运行一次；第一轮是热身，顺便看写出的是否相同。"""
    written = {name: once()[2] for name, once in sides.items()}
    print("写出的词元相同：", len({tuple(ids) for ids in written.values()}) == 1)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for i in range(rounds):
        for name in list(sides)[:: 1 if i % 2 else -1]:
            times[name].append(sides[name]()[:2])
    return times


def report(title: str, times: dict[str, list[tuple[float, float]]], part: int) -> float:
    """打印两边的中位数与比值的中位数；比值是第二个的时间除以第一个的。"""
    (a, first), (b, second) = ((n, [t[part] for t in times[n]]) for n in times)
    ratios = [y / x for x, y in zip(first, second, strict=True)]
    shown = [f"{n} {statistics.median(t) * 1e3:.2f} ms" for n, t in ((a, first), (b, second))]
    if part:
        shown = [f"{s}（{1e3 / float(s.split()[-2]):.1f} 词元/秒）" for s in shown]
    low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
    print(f"{title}：{'，'.join(shown)}；比值 {middle:.2f}（四分位 {low:.2f} – {high:.2f}）")
    return float(middle)


def memory(size: str, count: int) -> None:
    """在单独的进程里：除了权重与缓存，最多还用了多少内存。"""
    *_, length = SIZES[size]
    model = make_model(size)
    weights = sum(p.data.nbytes for p in model.parameters)
    prompt = np.random.default_rng(1).integers(0, model.vocab_size, length).tolist()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    list(model.generate(prompt, count, temperature=0.8, top_k=50, top_p=0.95))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    cache = model.new_cache(1, min(model.context_size, length + count)).nbytes
    print(json.dumps({"weights": weights, "cache": cache, "before": before, "peak": peak}))


def main() -> int:
    parser = argparse.ArgumentParser(description="生成的速度与内存：gptcore 与 transformers")
    parser.add_argument("--size", choices=SIZES, default="G", help="模型的尺寸")
    parser.add_argument("--threads", type=int, default=2, help="两边的线程数")
    parser.add_argument("--rounds", type=int, default=7, help="轮数")
    parser.add_argument("--tokens", type=int, default=40, help="每次生成多少个词元")
    parser.add_argument("--at-least", type=float, default=1.3, help="每秒词元数之比的下限")
    parser.add_argument(
        "--alone", action="store_true", help="只比较缓存的开与关，不用 transformers"
    )
    parser.add_argument("--memory", action="store_true", help="只量内存，由脚本自己调用")
    parser.add_argument(
        "--cpu",
        action="store_true",
        help="量处理器时间：机器上有别的程序时用，只在一个线程时有意义",
    )
    options = parser.parse_args()
    if options.cpu:
        clock["now"] = time.process_time
    if options.memory:
        memory(options.size, options.tokens)
        return 0
    context, *_, short, long = SIZES[options.size]
    print(
        f"{options.size} {SIZES[options.size]}，{options.threads} 个线程，gptcore {gptcore.__version__}，"
        f"NumPy {np.__version__}，Python {platform.python_version()}"
    )
    # 趁自己还小先量：子进程的峰值从父进程的大小算起
    command = [sys.executable, __file__, "--memory", "--size", options.size]
    used = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    extra = (used["peak"] - used["weights"] - used["cache"]) / MEGABYTE
    shown = {name: f"{value / MEGABYTE:.0f} MiB" for name, value in used.items()}
    print(f"内存：{shown}；除权重与缓存 {extra:.0f} MiB，其中解释器与 NumPy 在内")
    model = make_model(options.size)
    rng, good = np.random.default_rng(1), True
    with threadpool_limits(options.threads):
        if not options.alone:
            import torch
            import transformers

            torch.set_num_threads(options.threads)
            transformers.logging.set_verbosity_error()
            print(f"PyTorch {torch.__version__}，transformers {transformers.__version__}")
        for length in (short, long):
            prompt = rng.integers(0, model.vocab_size, length).tolist()
            count = min(options.tokens, context - length)
            sides = {"gptcore": ours(model, prompt, count)}
            if options.alone:
                sides["没有缓存"] = ours(model, prompt, count, use_cache=False)
            else:
                sides["transformers"] = theirs(model, prompt, count)
            times = alternate(sides, options.rounds)
            good &= report(f"提示 {length}，接着的每一步", times, 1) >= options.at_least
            first = report(f"提示 {length}，第一个词元", times, 0)
            good &= options.alone or length == short or first >= 1 / 1.3
    return 0 if good and extra <= 200 else 1


if __name__ == "__main__":
    raise SystemExit(main())
