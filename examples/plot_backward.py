r"""
# 看见一次反向传播

把计算图画出来，在每个节点上写出它的数值，再写出反向传播送到的梯度。

张量的 `parents` 记着它由谁算来。顺着 `parents` 一直走到头，就走遍了整张计算图；
画图只用 Matplotlib。要留意的是，图随用随拆：`backward()` 每传过一个节点，就放掉这个节点的 `parents`，
所以要先把图收集下来，再反向传播。
"""

# %%
# ## 收集一张图
#
# 例子是一个神经元和它的误差：
#
# $$s = wx + b,\qquad a = \tanh s,\qquad e = a - t,\qquad L = e \cdot e$$
#
# `collect` 用深度优先遍历给出节点的次序：每个节点都排在它的父张量之后。反向传播就按这个次序倒过来走，
# 这样轮到一个节点往回传时，所有用到它的节点都已经把梯度送到了。

import matplotlib.pyplot as plt
import numpy as np

from gptcore import GPT, GPTLoss, Tensor


def collect(root):
    """节点（父张量在前）与连线（父张量，结果）"""
    order, edges, seen = [], [], set()
    stack = [(root, False)]
    while stack:
        node, parents_done = stack.pop()
        if parents_done:
            order.append(node)
            edges += [(parent, node) for parent in node.parents]
        elif node not in seen:
            seen.add(node)
            stack += [(node, True), *((parent, False) for parent in node.parents)]
    return order, edges


def neuron(w, x, b, t):
    """同一个算式的每一步，连同名字"""
    product = w * x
    s = product + b
    a = s.tanh()
    e = a - t
    return {
        "w": w, "x": x, "b": b, "t": t,
        "w x": product, "s = w x + b": s, "a = tanh s": a, "e = a - t": e, "L = e e": e * e,
    }  # fmt: skip


w, b = Tensor(0.8), Tensor(-0.3)
x, t = Tensor(1.5, requires_grad=False), Tensor(0.2, requires_grad=False)
tensors = neuron(w, x, b, t)
names = {tensor: name for name, tensor in tensors.items()}
loss = tensors["L = e e"]

nodes, edges = collect(loss)
print(f"{len(nodes)} 个节点，{len(edges)} 条连线")
loss.backward()
print(f"反向传播之后，结果的 parents 是 {loss.parents}：图已经拆了")

# %%
# ## 数值往下走，梯度往上走
#
# 每个框里是名字、数值（黑）和梯度（红）；灰框是常量，不要梯度。计算从上往下，反向传播从下往上，
# 框外的序号是梯度传到的次序。最后一步 $e \cdot e$ 用了 $e$ 两次，图里就有两条连线，两份梯度加在一起才是 $2e$。

ROWS = (
    ("w", "x"),
    ("w x", "b"),
    ("s = w x + b",),
    ("a = tanh s", "t"),
    ("e = a - t",),
    ("L = e e",),
)
place = {
    name: (2.4 * column - (0 if len(row) == 1 else 1.2), -1.5 * depth)
    for depth, row in enumerate(ROWS)
    for column, name in enumerate(row)
}
backward_order = [node for node in reversed(nodes) if node.requires_grad]

fig, ax = plt.subplots(figsize=(5, 6.6), layout="constrained")
for node in nodes:
    drawn = [child for parent, child in edges if parent is node]
    for i, child in enumerate(drawn):
        bend = 0.0 if len(drawn) == 1 else 0.35 * (1 - 2 * i)
        ax.annotate(
            "",
            xy=(place[names[child]][0], place[names[child]][1] + 0.45),
            xytext=(place[names[node]][0], place[names[node]][1] - 0.45),
            arrowprops={"arrowstyle": "->", "color": "gray", "connectionstyle": f"arc3,rad={bend}"},
        )
for node in nodes:
    column, depth = place[names[node]]
    constant = not node.requires_grad
    ax.text(
        column,
        depth,
        f"{names[node]}\n{node.item():+.3f}\n",
        ha="center",
        va="center",
        fontsize=10,
        linespacing=1.25,
        bbox={
            "boxstyle": "round,pad=0.35",
            "facecolor": "0.92" if constant else "white",
            "edgecolor": "0.5",
        },
    )
    grad = "constant" if constant else f"{float(node.grad):+.3f}"
    color = "0.35" if constant else "tab:red"
    ax.text(column, depth - 0.26, grad, ha="center", va="center", fontsize=10, color=color)
    if not constant:
        number = backward_order.index(node) + 1
        ax.text(column - 0.72, depth, f"({number})", ha="right", va="center", color="tab:red")
ax.set_title("values (black) and gradients (red)")
ax.set_xlim(-2.6, 2.2)
ax.set_ylim(-8.2, 0.7)
ax.axis("off")
plt.show()

# %%
# 用有限差分核对：把每个参数挪动 $\pm 10^{-4}$，在 float64 里重算一遍。

for name in ("w", "b"):
    results = []
    for shift in (1e-4, -1e-4):
        given = {"w": 0.8, "x": 1.5, "b": -0.3, "t": 0.2}
        given[name] += shift
        values = {key: Tensor(np.array(value)) for key, value in given.items()}
        results.append(neuron(**values)["L = e e"].item())
    estimate = (results[0] - results[1]) / 2e-4
    print(f"dL/d{name}：反向传播 {float(tensors[name].grad):.6f}，有限差分 {estimate:.6f}")

# %%
# ## 一个 GPT 的图
#
# 同一个 `collect` 也能走遍 GPT 的图。下面的模型只有两块，一步计算的每个结果画成圆点，从上往下排；参数画成左边的方块。
# 右边绕过去的弧线是残差连接：每个子层的输入除了走进子层，还直接加到子层的输出上。
# 每块有两条弧线，一条绕过注意力，一条绕过前馈网络；最上面那条短的不是残差连接，是位置嵌入加到词元嵌入上。
#
# 颜色是反向传播之后梯度的范数。沿着残差连接，梯度可以不经过子层直接传到最上面的嵌入。

np.random.seed(42)
model = GPT(vocab_size=20, context_size=8, embedding_size=12, heads=3, blocks=2)
ids = np.random.randint(0, 20, (4, 9))
loss = GPTLoss()(model(Tensor(ids[:, :-1])), Tensor(ids[:, 1:]))
nodes, edges = collect(loss)
parameters = {parameter: name for name, parameter in model.named_parameters()}
results = [node for node in nodes if node not in parameters and node.requires_grad]
print(f"{len(nodes)} 个节点：{len(parameters)} 个参数，{len(results)} 个结果，其余是常量")
loss.backward()

row = {node: -i for i, node in enumerate(results)}
norms = {node: float(np.linalg.norm(node.grad)) for node in results}
used_by = {parameter: child for parameter, child in edges if parameter in parameters}

fig, ax = plt.subplots(figsize=(5, 7.2), layout="constrained")
for parent, child in edges:
    if parent not in row:
        continue
    gap = row[parent] - row[child]
    style = {"arrowstyle": "-", "color": "0.6"} if gap == 1 else {"arrowstyle": "->", "color": "C0"}
    style["connectionstyle"] = "arc3,rad=0" if gap == 1 else "arc3,rad=-0.45"
    ax.annotate("", xy=(0, row[child]), xytext=(0, row[parent]), arrowprops=style)
beside = {}
for parameter, child in used_by.items():
    beside.setdefault(child, []).append(parameters[parameter])
for child, labels in beside.items():
    prefix = labels[0].rpartition(".")[0]
    short = prefix.replace("transformers.", "block ").replace("feed_forward", "ff")
    ax.plot([-0.5, 0], [row[child]] * 2, color="0.8", linewidth=1, zorder=0)
    ax.plot(-0.5, row[child], "s", color="0.6", markersize=5)
    ax.text(-0.6, row[child], short, ha="right", va="center", fontsize=8.5)
dots = ax.scatter(
    [0] * len(results),
    list(row.values()),
    c=[norms[node] for node in results],
    norm="log",
    cmap="plasma",
    edgecolors="0.3",
    s=60,
    zorder=3,
)
for node in results:
    ax.text(0.12, row[node], str(node.shape), ha="left", va="center", fontsize=7.5, color="0.3")
fig.colorbar(dots, label="norm of the gradient", location="bottom", shrink=0.8)
ax.set_title("one training step of a GPT")
ax.set_xlim(-3.3, 1.7)
ax.axis("off")
plt.show()

# %%
# 梯度传到的参数一个也没有少：

reached = sum(bool(np.any(parameter.grad)) for parameter in parameters)
print(f"{len(parameters)} 个参数里，{reached} 个得到了不为零的梯度")
