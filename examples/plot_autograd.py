r"""
# 自动求导十分钟

写出怎样算，就得到怎样求导：这个示例从一个数开始，到用梯度下降拟合一条曲线为止。

自动求导（automatic differentiation）不是符号推导，也不是用很小的差去估计。
每做一步运算，程序记下“结果由谁算来、梯度怎样传回去”；调用 `backward()` 时，从结果出发沿着记录往回走一遍，
应用链式法则。
"""

# %%
# ## 一个数的导数
#
# 取 $f(x) = x^3 - 3x + \tanh(4x)$，它的导数是 $f'(x) = 3x^2 - 3 + 4\,(1 - \tanh^2 4x)$。
# 我们只写 $f$，导数由 `backward()` 给出；手推的公式只用来核对。

import matplotlib.pyplot as plt
import numpy as np

from gptcore import Linear, MSELoss, Sequential, SGDOptimizer, Tensor, no_grad
from gptcore.layers import Layer


def f(x):
    return x**3 - 3 * x + (4 * x).tanh()


x = Tensor(1.5)
y = f(x)
y.backward()
by_hand = 3 * 1.5**2 - 3 + 4 * (1 - np.tanh(6.0) ** 2)
print(f"f(1.5) = {y.item():.6f}")
print(f"自动求导 {float(x.grad):.6f}，手推公式 {by_hand:.6f}")

# %%
# 张量可以装许多数。把 `x` 换成一串点，再对 $\sum_i f(x_i)$ 求导，得到的就是每个点上的 $f'(x_i)$：
# $f(x_i)$ 只与自己的 $x_i$ 有关，别的项的导数是 0。
# 图里上面是函数，下面是它的导数；曲线平的地方，导数穿过零。

points = Tensor(np.linspace(-2, 2, 401))
values = f(points)
values.sum().backward()

fig, (top, bottom) = plt.subplots(2, 1, figsize=(5, 4.4), sharex=True, layout="constrained")
top.plot(points.data, values.data)
top.set_title("a function and its derivative")
top.set_ylabel("f(x)")
bottom.plot(points.data, points.grad, color="tab:red")
bottom.axhline(0, color="gray", linewidth=0.8)
bottom.set_ylabel("f '(x) by backward()")
bottom.set_xlabel("x")
plt.show()

# %%
# ## 用到两次的量
#
# 令 $h = 2x$，$y = 3h + 5h$。$h$ 用到了两次，两条路上的梯度要相加：
#
# $$\frac{\mathrm{d}y}{\mathrm{d}x} = (3 + 5) \times 2 = 16$$
#
# 梯度从不覆盖，总是累加。所以同一个 `x` 再算一次、再反向一次，`grad` 会变成两倍；
# 训练时每一步之前都要清零，就是这个缘故。

x = Tensor(1.0)
for round_ in (1, 2):
    h = 2 * x
    y = 3 * h + 5 * h
    y.backward()
    print(f"第 {round_} 次反向传播之后，x.grad = {float(x.grad):g}")
x.zero_grad()
print(f"清零之后，x.grad = {float(x.grad):g}")

# %%
# ## 用有限差分检验
#
# 怎样知道一个梯度是对的？把输入挪动一点，看输出变多少（中心差分）：
#
# $$f'(x) \approx \frac{f(x + \varepsilon) - f(x - \varepsilon)}{2\varepsilon}$$
#
# $\varepsilon$ 太大，公式本身不准，误差与 $\varepsilon^2$ 成正比；太小，两个相近的数相减，
# 舍入误差被 $1/\varepsilon$ 放大。于是误差先降后升，最好的 $\varepsilon$ 在中间。
# float32 的谷底比 float64 高得多，所以梯度检查要用 float64。

steps = 10.0 ** np.arange(-12, 0.25, 0.25)
fig, ax = plt.subplots(figsize=(5, 3.4), layout="constrained")
for dtype in (np.float32, np.float64):
    x = Tensor(np.array(0.3, np.float64))
    f(x).backward()
    exact = float(x.grad)
    errors = []
    with no_grad():
        for step in steps:
            ahead, behind = (Tensor(np.array(0.3 + s, dtype)) for s in (step, -step))
            estimate = (f(ahead).item() - f(behind).item()) / (2 * step)
            errors.append(abs(estimate - exact) / abs(exact))
    best = int(np.argmin(errors))
    name = np.dtype(dtype).name
    print(f"{name}：ε = {steps[best]:.1e} 时相对误差最小，{errors[best]:.1e}")
    ax.loglog(steps, np.maximum(errors, 1e-16), marker=".", label=name)
ax.set_title("error of the central difference")
ax.set_xlabel("step ε")
ax.set_ylabel("relative error")
ax.legend()
plt.show()

# %%
# ## 沿着梯度走
#
# 有了梯度就能学习。下面的网络有两层，中间是 $\tanh$：
#
# $$\hat y = W_2 \tanh(W_1 x + b_1) + b_2$$
#
# 它要拟合 $\sin 2x$ 加上一点噪声的 60 个点。
# 每一步只做三件事：算损失，`backward()`，把参数朝梯度相反的方向挪一点。


class Tanh(Layer):
    def forward(self, x):
        return x.tanh()


np.random.seed(42)
inputs = np.random.uniform(-2, 2, (60, 1)).astype(np.float32)
targets = np.sin(2 * inputs) + np.random.normal(0, 0.1, inputs.shape).astype(np.float32)
data_x, data_y = Tensor(inputs, requires_grad=False), Tensor(targets, requires_grad=False)

model = Sequential([Linear(1, 16), Tanh(), Linear(16, 1)])
loss_fn, optimizer = MSELoss(), SGDOptimizer(model.parameters, lr=0.05)
grid = Tensor(np.linspace(-2, 2, 200, dtype=np.float32)[:, None], requires_grad=False)
curves = {}
for step in range(3001):
    optimizer.zero_grad()
    loss = loss_fn(model(data_x), data_y)
    if step in (0, 100, 3000):
        print(f"第 {step:4d} 步，均方误差 {loss.item():.4f}")
        with no_grad():
            curves[step] = model(grid).data
    loss.backward()
    optimizer.step()

# %%
# 噪声的方差是 $0.1^2 = 0.01$，所以均方误差降到 0.01 上下就是学到头了；再往下，学的就是这 60 个点上的噪声。

fig, ax = plt.subplots(figsize=(5, 3.4), layout="constrained")
ax.plot(inputs, targets, ".", color="gray", label="data")
for (step, curve), style in zip(curves.items(), (":", "--", "-"), strict=True):
    ax.plot(grid.data, curve, style, label=f"step {step}")
ax.set_title("gradient descent fits a curve")
ax.set_xlabel("x")
ax.set_ylabel("y")
ax.set_ylim(-1.6, 2.0)
ax.legend(loc="upper center", ncol=4, fontsize=8, columnspacing=1)
plt.show()
