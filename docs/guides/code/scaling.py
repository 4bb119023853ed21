"""“更大的规模”一页的推算：由量得的计算时间与网络的带宽、延迟，算几台机器的一步

    python docs/guides/code/scaling.py            由结果文件写出页面的表 scaling.json 与图 scaling.svg
    python docs/guides/code/scaling.py torch      运行 continue_in_torch.py，把它打印的写进 scaling_torch.json
    python docs/guides/code/scaling.py parallel   用两个进程运行 train_parallel.py，写进 scaling_parallel.json
    python docs/guides/code/scaling.py try --parameters 124e6 --compute 2.8 --update 0.2 \\
        --windows 512 --gigabits 10 --microseconds 20          代入你自己的数

结果文件在 docs/book/results/：scaling_compute.json 与 scaling_mpi.json 由 tests/benchmarks/ 里的
scaling.py 与 mpi.py 写出。算出来的是推算，不是测量。
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from math import ceil, log2
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "docs" / "book" / "results"
WINDOWS = 512  # GPT-2 的一批：512 个窗口，每个 1024 个词元
FASTER = 16  # 另一种节点：计算快这么多倍
NETWORKS = {  # 名字：每秒的比特数，一次收发的延迟（秒）；带宽是标称值，延迟是假定的典型值
    "1 Gbit/s": (1e9, 50e-6),
    "10 Gbit/s": (10e9, 20e-6),
    "100 Gbit/s": (100e9, 2e-6),
}
NODES = [2**i for i in range(10)]
A100 = {"tokens": 300e9, "days": 4, "cards": 8}  # nanoGPT 的说明里的数


# --8<-- [start:model]
def ring(nodes, size, bandwidth, latency, add):
    """环形归约：2(N−1) 次收发，每次 S/N 字节；add 是两份 S 字节的梯度相加的时间"""
    return 2 * (nodes - 1) * (size / nodes / bandwidth + latency) + (nodes - 1) / nodes * add


def halving(nodes, size, bandwidth, latency, add):
    """先折半归约、再成倍收集：传的字节与环形相同，只要 2 log₂N 次收发"""
    transfer = 2 * (nodes - 1) / nodes * size / bandwidth
    return 2 * ceil(log2(nodes)) * latency + transfer + (nodes - 1) / nodes * add


def doubling(nodes, size, bandwidth, latency, add):
    """成倍交换：log₂N 次收发，每次都是整份梯度；只有短的消息才合算"""
    return ceil(log2(nodes)) * (size / bandwidth + latency + add)


def step_time(nodes, windows, compute, update, communication):
    """一步的时间：分到最多窗口的节点算完，通信，各自更新"""
    return ceil(windows / nodes) * compute + update + communication


# --8<-- [end:model]


# ---------------------------------------------------------------- 由结果文件推算


def read(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def gpt2(network, nodes, faster=1, windows=WINDOWS):
    """124M 的一步，返回（总时间，其中的通信）"""
    row = read("scaling_compute")["gpt2"]
    compute, update, pack, add = (row[key] / faster for key in ("compute", "update", "pack", "add"))
    bits, latency = NETWORKS[network]
    update += pack if nodes > 1 else 0
    communication = ring(nodes, 4 * row["parameters"], bits / 8, latency, add)
    return step_time(nodes, windows, compute, update, communication), communication


def efficiency(network, nodes, faster=1):
    """加速的倍数除以节点数"""
    return gpt2(network, 1, faster)[0] / gpt2(network, nodes, faster)[0] / nodes


def most_nodes(network, faster=1, least=0.5):
    """效率还不低于 least 的最大节点数，只看 2 的幂"""
    return max(n for n in NODES if efficiency(network, n, faster) >= least)


def steps_table():
    rows = []
    for faster in (1, FASTER):
        for network in NETWORKS:
            cells = []
            for nodes in (8, 64):
                total, communication = gpt2(network, nodes, faster)
                cells.append(f"{duration(total)}（{percent(communication / total)}）")
            cells.append(f"{gpt2(network, 1, faster)[0] / total:.1f} 倍")
            last = most_nodes(network, faster)
            cells.append(f"{last}" if last < NODES[-1] else f"{last} 以上")
            rows.append(["本机" if faster == 1 else f"快 {faster} 倍", network, *cells])
    head = ["节点", "网络", "8 个节点一步", "64 个节点一步", "64 个节点快", "效率还有一半"]
    return {"head": head, "align": "llrrrr", "rows": rows}


def latency_table(nodes=64):
    """传输、延迟、相加三项各是多少：看哪一项要紧"""
    row = read("scaling_compute")["gpt2"]
    size, rows = 4 * row["parameters"], []
    for network, (bits, latency) in NETWORKS.items():
        transfer = ring(nodes, size, bits / 8, 0, 0)
        rounds = [way(nodes, 0, 1, latency, 0) for way in (ring, halving)]
        assumed = f"{1e6 * latency:.0f} 微秒"
        rows.append([network, assumed, duration(transfer), *map(duration, rounds)])
    head = ["网络", "假定的 α", "传输", f"延迟，环形（{2 * nodes - 2} 次）"]
    head.append(f"延迟，折半（{2 * ceil(log2(nodes))} 次）")
    return {"head": head, "align": "lrrrr", "rows": rows}


def models_table(nodes=8):
    """每个节点各算一整批：小模型与大模型的通信占多少"""
    measured, row = read("scaling_mpi"), read("scaling_compute")["gpt2"]
    cases = [
        (f"{size}：{measured[size]['parameters'] / 1e6:.1f}M", measured[size]["parameters"],
         measured[size]["single_ms"] / 1e3)
        for size in ("M", "L")
    ]  # fmt: skip
    cases += [
        (f"124M，{windows} 个窗口", row["parameters"], windows * row["compute"] + row["update"])
        for windows in (1, 8)
    ]
    rows = []
    for name, parameters, compute in cases:
        cells = []
        for bits, latency in NETWORKS.values():
            communication = ring(nodes, 4 * parameters, bits / 8, latency, 0)
            cells.append(percent(communication / (communication + compute)))
        rows.append([name, f"{4 * parameters / 1e6:.1f} MB", duration(compute), *cells])
    head = ["模型，每个节点的批", "梯度", "计算"]
    return {"head": [*head, *NETWORKS], "align": "lrrrrr", "rows": rows}


def gpu():
    """64 个这样的节点与 8 张 A100"""
    row = read("scaling_compute")["gpt2"]
    total, _ = gpt2("10 Gbit/s", 64)
    steps = A100["tokens"] / (WINDOWS * row["context"])
    card = A100["tokens"] / (A100["days"] * 86400 * A100["cards"])
    return {
        "days_64": steps * total / 86400,
        "card_tokens": card,
        "node_tokens": row["context"] / row["compute"],
        "nodes_per_card": card * row["compute"] / row["context"],
    }


def percent(share):
    return f"{100 * share:.0f}%" if share >= 0.01 else "不到 1%"


def duration(value):
    """三位有效数字，单位按大小选"""
    for unit, scale in (("秒", 1), ("毫秒", 1e-3), ("微秒", 1e-6)):
        if value >= scale or unit == "微秒":
            number = value / scale
            digits = 0 if number >= 100 else 1 if number >= 10 else 2
            return f"{number:.{digits}f} {unit}"
    raise AssertionError


def summary():
    row = read("scaling_compute")["gpt2"]
    single = row["compute"] * WINDOWS + row["update"]
    return {
        "steps": steps_table(),
        "latency": latency_table(),
        "models": models_table(),
        "gpu": gpu(),
        "megabytes": 4 * row["parameters"] / 1e6,
        "update": row["update"] + row["pack"],
        "single": single,
        "faster_single": single / FASTER,
    }


# ---------------------------------------------------------------- 命令


def write(name, content):
    text = json.dumps(content, ensure_ascii=False, indent=1) + "\n"
    (RESULTS / f"{name}.json").write_text(text, encoding="utf-8", newline="\n")


def run(name, program, launcher, packages):
    """在临时的文件夹里运行程序，留下它打印的"""
    command = [*launcher, sys.executable, Path(__file__).with_name(program)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
    versions = {"python": platform.python_version()}
    versions |= {package: version(package) for package in ("gptcore", "numpy", *packages)}
    output = done.stdout.rstrip("\n")
    command = f"python docs/guides/code/scaling.py {name}"
    write(f"scaling_{name}", {"command": command, "versions": versions, "output": output})
    print(output)


def mpiexec():
    """与解释器在同一个环境里的 mpiexec，其次是系统的"""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else "mpiexec"


def try_it(options):
    """代入命令行给的数，打印各个节点数的一步"""
    size, bandwidth = 4 * options.parameters, options.gigabits * 1e9 / 8
    latency = options.microseconds * 1e-6
    single = step_time(1, options.windows, options.compute, options.update, 0)
    for nodes in [n for n in NODES if n <= options.windows]:
        communication = ring(nodes, size, bandwidth, latency, options.add)
        total = step_time(nodes, options.windows, options.compute, options.update, communication)
        share, speed = percent(communication / total), single / total
        print(f"{nodes:4} 个节点：一步 {duration(total)}，通信 {share}，快 {speed:.1f} 倍")


def parse():
    parser = argparse.ArgumentParser(description="几台机器的一步要多久：推算")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("torch", help="运行 continue_in_torch.py，留下它打印的")
    commands.add_parser("parallel", help="用两个进程运行 train_parallel.py，留下它打印的")
    trial = commands.add_parser("try", help="代入你自己的数")
    trial.add_argument("--parameters", type=float, default=124439808, help="参数的个数")
    trial.add_argument("--compute", type=float, required=True, help="一个窗口的前向与反向，秒")
    trial.add_argument("--update", type=float, default=0.0, help="裁剪与更新，秒")
    trial.add_argument("--add", type=float, default=0.0, help="两份梯度相加，秒")
    trial.add_argument("--windows", type=int, default=WINDOWS, help="一批有几个窗口")
    trial.add_argument("--gigabits", type=float, required=True, help="带宽，Gbit/s")
    trial.add_argument("--microseconds", type=float, default=20.0, help="一次收发的延迟，微秒")
    return parser.parse_args()


def main():
    options = parse()
    if options.command == "torch":
        run("torch", "continue_in_torch.py", [], ["torch", "transformers"])
    elif options.command == "parallel":
        run("parallel", "train_parallel.py", [mpiexec(), "-n", "2"], ["mpi4py"])
    elif options.command == "try":
        try_it(options)
    else:
        import scaling_figure

        write("scaling", summary())
        scaling_figure.main()


if __name__ == "__main__":
    main()
