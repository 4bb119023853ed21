"""第 7 章的表：由实验的各行排成，见 chapter07_experiments.py"""


def number(value, digits):
    """排进表里的数；负号用减号。"""
    return f"{value:,.{digits}f}".replace("-", "−")


def scientific(value):
    """科学记数法，排成公式。"""
    digits, power = f"{value:.2e}".split("e")
    return rf"${digits}\times10^{{{int(power)}}}$"


def tables(baseline, runs):
    """由各行排出章节里的表。"""

    def after(name):
        return runs[name]["after"]

    def scores(row):
        share = f"{100 * row['accuracy']:.1f}%"
        return [number(row["mse"], 6), number(row["cross_entropy"], 3), share]

    gradients = [runs[name]["gradients"] for name in ("loss_mse", "loss_cross_entropy")]

    def seconds(name):
        return number(runs[name]["cpu_seconds"], 0)

    result = {
        "main": {
            "head": ["猜法", "均方误差", "交叉熵（奈特）", "猜中"],
            "align": "lrrr",
            "rows": [
                ["均匀：每个字符 1/65", *scores(baseline["uniform"])],
                ["**本章的网络，10 轮**", *scores(after("loss_mse"))],
                ["单字频率（unigram）", *scores(baseline["unigram"])],
                ["二元模型（bigram）", *scores(baseline["bigram"])],
            ],
        },
        "loss": {
            "head": ["损失", "学习率", "均方误差", "交叉熵（奈特）", "预测的熵", "猜中"],
            "align": "lrrrrr",
            "rows": [
                [
                    title,
                    f"{runs[name]['config']['lr']:g}",
                    *scores(after(name))[:2],
                    number(after(name)["entropy"], 4),
                    scores(after(name))[2],
                ]
                for title, name in (
                    ("均方误差", "loss_mse"),
                    ("均方误差", "loss_mse_scaled"),
                    ("交叉熵", "loss_cross_entropy"),
                )
            ],
        },
        "lr": {
            "head": ["学习率", "均方误差", "交叉熵（奈特）", "预测的熵", "时间（秒）"],
            "align": "rrrrr",
            "rows": [
                [
                    f"{runs[name]['config']['lr']:g}",
                    *scores(after(name))[:2],
                    number(after(name)["entropy"], 4),
                    seconds(name),
                ]
                for name in runs
                if name.startswith("lr_")
            ],
        },
        "gradients": {
            "head": ["参数", "均方误差", "交叉熵", "倍数"],
            "align": "lrrr",
            "rows": [
                [
                    title,
                    *(scientific(g[key]) for g in gradients),
                    number(gradients[1][key] / gradients[0][key], 0),
                ]
                for title, key in (
                    ("嵌入表", "embedding"),
                    ("第一层权重", "weight1"),
                    ("第一层偏置", "bias1"),
                    ("第二层权重", "weight2"),
                    ("第二层偏置", "bias2"),
                )
            ],
        },
        "order": {
            "head": ["看最后几个字符", "平均", "拼接", "拼接的参数"],
            "align": "rrrr",
            "rows": [
                [
                    str(last),
                    number(after(f"mean_{last}")["cross_entropy"], 3),
                    number(after(f"concatenate_{last}")["cross_entropy"], 3),
                    f"{runs[f'concatenate_{last}']['parameters']:,}",
                ]
                for last in (1, 2, 4, 8, 16, 32)
            ],
        },
        "bag": {
            "head": ["做法", "学习率 0.01", "学习率 0.1", "Adam"],
            "align": "lrrr",
            "rows": [],
        },
        "shuffle": {
            "head": ["做法", "原样", "打乱", "相差"],
            "align": "lrrr",
            "rows": [],
        },
    }

    def three(names):
        """三个种子的平均，方括号里是最小与最大。"""
        values = [after(name)["cross_entropy"] for name in names]
        middle = sum(values) / len(values)
        return middle, f"{middle:.3f} [{min(values):.3f}, {max(values):.3f}]"

    for title, name, first in (
        ("嵌入", "embedding", "loss_cross_entropy"),
        ("词袋", "bag", "bag_42"),
    ):
        row = [
            title,
            three([first, f"{name}_1", f"{name}_2"])[1],
            three([f"{name}_fast_{seed}" for seed in (42, 1, 2)])[1],
            three([f"{name}_adam_{seed}" for seed in (1, 2, 3)])[1],
        ]
        result["bag"]["rows"].append(row)

    for title, pooling in (("平均", "mean"), ("拼接", "concatenate")):
        kept, shuffled = (
            three([f"shuffle_{pooling}_{kind}_{seed}" for seed in (1, 2, 3)])
            for kind in ("kept", "shuffled")
        )
        row = [title, kept[1], shuffled[1], number(shuffled[0] - kept[0], 3)]
        result["shuffle"]["rows"].append(row)
    return result
