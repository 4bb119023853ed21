"""错误消息：写出参数、得到的值或形状、补救的办法；从不漏出 NumPy 自己的错误"""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

import gptcore
from gptcore import (
    GPT,
    AdamWOptimizer,
    ArgumentError,
    DataError,
    Dropout,
    DtypeError,
    Embedding,
    GPTAttention,
    GptcoreError,
    GPTEmbedding,
    GPTLoss,
    GPTTrainer,
    LayerNorm,
    Linear,
    MeanPool,
    MSELoss,
    RangeError,
    RMSNorm,
    SGDOptimizer,
    ShapeError,
    Softmax,
    Tensor,
    Trainer,
    Tril,
    WarmupCosineScheduler,
)
from gptcore.models.generation import generate_ids, sample

F = Tensor(np.zeros((2, 3), np.float32))
I = Tensor(np.zeros((2, 3), np.int64))  # noqa: E741
W = Tensor([1.0, 2.0])
MODEL = GPT(7, 4, 6, 3, 1)


def trainer() -> Any:
    return GPTTrainer(MODEL, GPTLoss(), SGDOptimizer(MODEL.parameters, 0.1))


# 做什么，错误的类型，消息里应有的值与补救办法
CASES: dict[str, tuple[Any, Any, str]] = {
    # 张量
    "张量套张量": (lambda: Tensor(F), DtypeError, r"Tensor：已经是张量.*detach\(\)"),
    "文字": (lambda: Tensor("abc"), DtypeError, r"Tensor：数据必须是数.*'abc'.*<U3.*encode\(text\)"),
    "对象": (lambda: Tensor([{}]), DtypeError, r"Tensor：数据必须是数.*object"),
    "长短不一": (lambda: Tensor([[1], [1, 2]]), ShapeError, r"各行的长度不同.*补齐或截断"),
    "空": (lambda: Tensor(None), DtypeError, r"Tensor：数据必须是数，这里是 None；.*Tensor\(\[1\.0, 2\.0\]\)"),
    "复数": (lambda: Tensor(1j), DtypeError, r"complex128"),
    "整数要梯度": (lambda: Tensor(range(2), True), DtypeError, r"int64.*astype\(np\.float32\)"),
    "相加": (lambda: F + np.ones(4), ShapeError, r"加法 \+：形状 \(2, 3\) 与 \(4,\) .*要么有一个是 1"),
    "相减": (lambda: F - np.ones((3, 3)), ShapeError, r"减法 -：.*\(2, 3\) 与 \(3, 3\)"),
    "相乘": (lambda: np.ones(2) * F, ShapeError, r"乘法 \*：.*\(2, 3\) 与 \(2,\)"),
    "相除": (lambda: F / [1.0, 2.0], ShapeError, r"除法 /：.*\(2, 3\) 与 \(2,\)"),
    "加文字": (lambda: F + "a", DtypeError, r"数据必须是数.*a"),
    "矩阵乘法": (lambda: F @ F, ShapeError, r"矩阵乘法 @：形状 \(2, 3\) 与 \(2, 3\).*\(4, 3\) @ \(3, 2\)"),
    "乘 0 维": (lambda: F @ Tensor(1.0), ShapeError, r"\(2, 3\) 与 \(\)"),
    "乘方": (lambda: F**W, DtypeError, r"乘方 \*\*：.*Tensor.*\(x\.log\(\) \* n\)\.exp\(\)"),
    "轴": (lambda: F.sum(2), ShapeError, r"sum：没有轴 axis=2；形状 \(2, 3\) 的轴可以是 -2 到 1"),
    "轴重复": (lambda: F.mean((0, -2)), ShapeError, r"mean：.*\(0, -2\).*不能重复"),
    "轴是小数": (lambda: F.max(0.5), ShapeError, r"max：没有轴 axis=0\.5.*整数"),
    "空的平均": (lambda: Tensor([]).mean(), ShapeError, r"mean：没有元素.*\(0,\)"),
    "空的最大": (lambda: Tensor([]).max(), ShapeError, r"max：没有元素.*\(0,\)"),
    "换形": (lambda: F.reshape(4), ShapeError, r"reshape：形状 \(2, 3\) 有 6 个元素，不能变成 4.*-1 至多一处"),
    "转置": (lambda: F.transpose(0, 5), ShapeError, r"transpose：\(0, 5\) .*\(2, 3\).*例如 \(1, 0\)"),
    "转置少轴": (lambda: F.transpose(0), ShapeError, r"transpose：.*0 到 1 各一次"),
    "下标": (lambda: F[5], RangeError, r"取下标：形状 \(2, 3\) .*5.*范围内"),
    "下标类型": (lambda: F["a"], RangeError, r"取下标：.*a"),
    "类型名": (lambda: F.astype("abc"), DtypeError, r"astype：不认识类型 'abc'.*np\.float32"),
    "复数类型": (lambda: F.astype(complex), DtypeError, r"astype：.*complex128.*np\.float32"),
    "item": (F.item, ShapeError, r"item：.*\(2, 3\)"),
    # 层
    "线性层": (lambda: Linear(4, 2)(F), ShapeError, r"Linear：输入的形状 \(2, 3\).*in_size=4.*Linear\(3, 2\)"),
    "线性层整数": (lambda: Linear(3, 2)(I), DtypeError, r"Linear：.*int64.*Embedding"),
    "线性层列表": (lambda: Linear(3, 2)([1.0]), DtypeError, r"Linear：.*list.*Tensor\(x\)"),
    "线性层尺寸": (lambda: Linear(0, 2), ArgumentError, r"Linear：in_size 必须是正整数，这里是 0；"),
    "线性层小数": (lambda: Linear(2, 2.5), ArgumentError, r"out_size 必须是正整数，这里是 2\.5；"),  # type: ignore[arg-type]
    "编号越界": (lambda: Embedding(5, 2)([[0, 1], [7, 0]]), RangeError, r"编号 7（位置 \(1, 0\)）.*0 到 4.*vocab_size"),
    "编号为负": (lambda: Embedding(5, 2)(Tensor([0, -1])), RangeError, r"编号 -1.*0 到 4"),
    "编号是小数": (lambda: Embedding(5, 2)(F), DtypeError, r"Embedding：编号必须是整数.*float32.*astype\(int\)"),
    "嵌入标准差": (lambda: Embedding(5, 2, std=-1), ArgumentError, r"std.*0 ≤ std.*-1"),
    "层归一化": (lambda: LayerNorm(4)(F), ShapeError, r"LayerNorm：.*\(2, 3\).*normalized_size=4.*请检查"),
    "均方根归一化": (lambda: RMSNorm(4)(F), ShapeError, r"RMSNorm：.*\(2, 3\).*normalized_size=4"),
    "eps": (lambda: LayerNorm(4, eps=-1e-5), ArgumentError, r"LayerNorm：eps .*0 ≤ eps.*-1e-05"),
    "softmax 的轴": (lambda: Softmax(2)(F), ShapeError, r"Softmax：axis=2 .*\(2, 3\).*请选 0 到 1"),
    "softmax 的轴类型": (lambda: Softmax("a"), DtypeError, r"Softmax：axis.*'a'.*axis=-1"),  # type: ignore[arg-type]
    "掩码": (lambda: Tril()(W), ShapeError, r"Tril：.*\(2,\).*至少两轴"),
    "平均池化": (lambda: MeanPool()(W), ShapeError, r"MeanPool：.*\(2,\).*至少两轴"),
    "失活概率": (lambda: Dropout(1.0), ArgumentError, r"Dropout：p .*p < 1.*1\.0"),
    "失活概率类型": (lambda: Dropout("x"), ArgumentError, r"Dropout：p .*'x'"),  # type: ignore[arg-type]
    "头数": (lambda: GPTAttention(64, 5), ArgumentError, r"heads=5 .*embedding_size=64.*可以用 1、2、4、8"),
    "头数为零": (lambda: GPTAttention(64, 0), ArgumentError, r"heads 必须是正整数，这里是 0；可以用 1、2、4、8"),
    "模型的头数": (lambda: GPT(7, 4, 6, 4, 1), ArgumentError, r"heads=4 .*embedding_size=6"),
    "块数": (lambda: GPT(7, 4, 6, 3, -1), ArgumentError, r"blocks.*-1；可以是 0 或更大"),
    "注意力的轴": (lambda: GPTAttention(3, 1)(F), ShapeError, r"GPTAttention：.*\(2, 3\).*批大小, 长度, 嵌入尺寸"),
    "位置太多": (lambda: GPTEmbedding(7, 2, 4)(I), ShapeError, r"有 3 个词元.*context_size=2.*ids\[:, -2:\]"),
    # 模型
    "太长": (lambda: MODEL(Tensor([[0] * 5])), ShapeError, r"GPT：.*5 个词元.*context_size=4.*ids\[:, -4:\]"),
    "一轴": (lambda: MODEL(Tensor([1, 2])), ShapeError, r"GPT：输入的形状 \(2,\).*Tensor\(\[ids\]\)"),
    "空的批": (lambda: MODEL(Tensor([[]])), ShapeError, r"GPT：输入的形状 \(1, 0\).*不为空"),
    "词元越界": (lambda: MODEL(Tensor([[7]])), RangeError, r"编号 7.*0 到 6"),
    "词元是小数": (lambda: MODEL(Tensor([[0.5]])), DtypeError, r"float32"),
    "模型类型": (lambda: GPT(7, 4, 6, 3, 1).astype(int), DtypeError, r"astype：.*int64.*np\.float64"),
    # 损失
    "均方误差": (lambda: MSELoss()(F, W), ShapeError, r"MSELoss：.*\(2, 3\).*\(2,\).*独热"),
    "空的均方误差": (lambda: MSELoss()(Tensor([]), Tensor([])), ShapeError, r"不为空"),
    "整数的预测": (lambda: MSELoss()(I, I), DtypeError, r"MSELoss：.*int64.*astype\(DTYPE\)"),
    "标签是数组": (lambda: MSELoss()(F, F.data), DtypeError, r"MSELoss：标签.*ndarray.*Tensor"),
    "交叉熵": (lambda: GPTLoss()(F, I), ShapeError, r"GPTLoss：.*\(2, 3\).*\(2, 3\).*不是独热"),
    "标签越界": (lambda: GPTLoss()(F, Tensor([0, 3])), RangeError, r"标签 3 .*0 到 2.*vocab_size"),
    "标签为负": (lambda: GPTLoss()(F, Tensor([0, -1])), RangeError, r"标签 -1 .*0 到 2"),
    "标签是小数": (lambda: GPTLoss()(F, Tensor([0.5, 1])), DtypeError, r"float32.*astype\(int\)"),
    "标签是列表": (lambda: GPTLoss()(F, [0, 1]), DtypeError, r"GPTLoss：标签.*list.*Tensor"),  # type: ignore[arg-type]
    # 优化器
    "没有参数": (lambda: SGDOptimizer([], 0.1), ArgumentError, r"SGDOptimizer：没有参数.*model\.parameters"),
    "给了模型": (lambda: SGDOptimizer(MODEL, 0.1), DtypeError, r"GPT；请写 model\.parameters"),  # type: ignore[arg-type]
    "给了张量": (lambda: SGDOptimizer(W, 0.1), DtypeError, r"Tensor；.*\[w\]"),  # type: ignore[arg-type]
    "给了数组": (lambda: SGDOptimizer([np.ones(2)], 0.1), DtypeError, r"ndarray.*model\.parameters"),
    "给了整数": (lambda: SGDOptimizer([I], 0.1), DtypeError, r"浮点张量.*model\.parameters"),
    "给了算出来的": (lambda: SGDOptimizer([W * 2], 0.1), ArgumentError, r"\(2,\) .*算出来的.*请给出"),
    "学习率为负": (lambda: SGDOptimizer([W], -1), ArgumentError, r"SGDOptimizer：lr .*-1.*lr=0\.001"),
    "学习率 NaN": (lambda: setattr(SGDOptimizer([W], 1), "lr", np.nan), ArgumentError, r"lr .*nan"),
    "学习率文字": (lambda: SGDOptimizer([W], "1"), ArgumentError, r"lr .*'1'"),  # type: ignore[arg-type]
    "betas": (lambda: AdamWOptimizer([W], betas=(0.9, 1.0)), ArgumentError, r"betas.*\(0\.9, 1\.0\).*\(0\.9, 0\.999\)"),
    "betas 类型": (lambda: AdamWOptimizer([W], betas=0.9), ArgumentError, r"betas.*0\.9"),  # type: ignore[arg-type]
    "优化器的 eps": (lambda: AdamWOptimizer([W], eps=0), ArgumentError, r"eps.*0.*1e-8"),
    "衰减": (lambda: AdamWOptimizer([W], weight_decay=-1), ArgumentError, r"weight_decay .*-1"),
    "组的键": (lambda: AdamWOptimizer([{"params": [W]}]), ArgumentError, r"'parameters'.*第 0 组.*params"),
    "组里混着张量": (lambda: AdamWOptimizer([{"parameters": [W]}, W]), ArgumentError, r"第 1 组是"),  # type: ignore[list-item]
    "在两组里": (lambda: AdamWOptimizer([{"parameters": [W]}] * 2), ArgumentError, r"第 0 .*第 1 .*一组"),
    "裁剪": (lambda: SGDOptimizer([W], 1).clip_grad_norm(0), ArgumentError, r"max_norm 必须是正数，这里是 0"),
    "调度的步数": (lambda: WarmupCosineScheduler(1, -5, 0), ArgumentError, r"total_steps .*-5"),
    "升温的步数": (lambda: WarmupCosineScheduler(1, 5, -2), ArgumentError, r"warmup_steps .*-2"),
    "最低学习率": (lambda: WarmupCosineScheduler(1, 5, 1, 2), ArgumentError, r"min_lr=2 .*lr=1.*十分之一"),
    "第几步": (lambda: WarmupCosineScheduler(1, 5, 1).step(-1), ArgumentError, r"i .*-1"),
    # 训练与生成
    "轮数": (lambda: trainer().train(None, 0), ArgumentError, r"epochs 必须是正整数，这里是 0；"),
    "轮数小数": (lambda: trainer().train(None, 1.5), ArgumentError, r"epochs .*1\.5"),
    "步数": (lambda: trainer().steps(None, -1), ArgumentError, r"steps：count .*-1"),
    "提示": (lambda: generate_ids(MODEL, [], 3, 4), DataError, r"提示不能为空；至少给一个字符"),
    "生成步数": (lambda: generate_ids(MODEL, [1], -3, 4), ArgumentError, r"steps .*-3"),
    "温度": (lambda: generate_ids(MODEL, [1], 3, 4, temperature=-1), ArgumentError, r"temperature .*-1.*0\.8"),
    "概率": (lambda: sample(np.array([0.5, np.nan])), ArgumentError, r"sample：.*nan.*NaN"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_message(name: str) -> None:
    action, kind, pattern = CASES[name]
    with pytest.raises(GptcoreError) as caught:
        action()
    assert type(caught.value) is kind
    message = str(caught.value)
    assert re.search(pattern, message, re.DOTALL), message
    assert re.search(r"[一-鿿]", message)
    assert isinstance(caught.value, ValueError | TypeError)


def test_generating_with_a_model_of_the_wrong_kind() -> None:
    class Data:
        context_size = 4
        encode = staticmethod(lambda text: [1] * len(text))
        decode = staticmethod(str)

    simple = Trainer(MODEL, GPTLoss(), SGDOptimizer(MODEL.parameters, 0.1))
    with pytest.raises(ShapeError, match=r"Trainer\.generate：.*\(1, 2, 7\).*GPTTrainer"):
        simple.generate(Data(), "ab")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="提示不能为空"):
        simple.generate(Data(), "")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"steps .*-1"):
        simple.generate(Data(), "a", -1)  # type: ignore[arg-type]


# 随机的形状与类型：要么算得出来，要么是 GptcoreError


DTYPES = ["f4", "f8", "f2", "i8", "i4", "u1", "?"]
SHAPES = array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)
ARRAYS = st.builds(
    lambda shape, dtype, seed: (
        (np.random.default_rng(seed).normal(0, 2, shape)).astype(dtype)
        if dtype in "f4f8f2"
        else np.random.default_rng(seed).integers(0, 3, shape).astype(dtype)
    ),
    SHAPES,
    st.sampled_from(DTYPES),
    st.integers(0, 99),
)
AXES = st.one_of(
    st.none(),
    st.integers(-4, 4),
    st.lists(st.integers(-3, 3), max_size=3),
    st.tuples(st.integers(-3, 3), st.integers(-3, 3)),
    st.sampled_from([0.5, "a", True, [[0]], (None,)]),
)
ANYTHING = st.one_of(
    ARRAYS,
    st.sampled_from([None, "abc", 2, -1, 0.5, [1.0, 2.0], [[1], [2, 3]], {}, 1j, object, slice(1)]),
)
INDEX = st.one_of(
    st.integers(-3, 3),
    st.slices(3),
    ARRAYS,
    AXES,
    st.tuples(st.integers(-2, 2), st.slices(2)),
    st.tuples(st.lists(st.integers(-1, 3), max_size=3), st.lists(st.integers(0, 2), max_size=3)),
    st.sampled_from([..., None, "a", [], [0.5], slice("a", None), slice(None, None, 0)]),
)

CALLS: dict[str, Any] = {
    "加": lambda x, y, a, i: x + y,
    "减": lambda x, y, a, i: x - y,
    "反减": lambda x, y, a, i: 2 - x,
    "乘": lambda x, y, a, i: x * y,
    "除": lambda x, y, a, i: x / y,
    "矩阵乘": lambda x, y, a, i: x @ y,
    "乘方": lambda x, y, a, i: x ** (a if isinstance(a, int) else 0.5),
    "负": lambda x, y, a, i: -x,
    "exp": lambda x, y, a, i: x.exp() + x.tanh() + x.sqrt() + x.log(),
    "和": lambda x, y, a, i: x.sum(a),
    "平均": lambda x, y, a, i: x.mean(a, keepdims=True),
    "最大": lambda x, y, a, i: x.max(a),
    "换形": lambda x, y, a, i: x.reshape(a),
    "转置": lambda x, y, a, i: x.transpose(a),
    "下标": lambda x, y, a, i: x[i],
    "张量下标": lambda x, y, a, i: x[Tensor(i)] if isinstance(i, np.ndarray) else x,
    "ReLU": lambda x, y, a, i: gptcore.ReLU()(x),
    "GELU": lambda x, y, a, i: gptcore.GELU()(x),
    "Softmax": lambda x, y, a, i: Softmax(a)(x),
    "Tril": lambda x, y, a, i: Tril(-9)(x),
    "Dropout": lambda x, y, a, i: Dropout(0.5)(x),
    "MeanPool": lambda x, y, a, i: MeanPool()(x),
    "Linear": lambda x, y, a, i: Linear(2, 3)(x),
    "Embedding": lambda x, y, a, i: Embedding(2, 3)(x),
    "LayerNorm": lambda x, y, a, i: LayerNorm(2)(x),
    "RMSNorm": lambda x, y, a, i: RMSNorm(2)(x),
    "GPTAttention": lambda x, y, a, i: GPTAttention(2, 1)(x),
    "weights": lambda x, y, a, i: GPTAttention(2, 1).weights(x),
    "GPTFeedForward": lambda x, y, a, i: gptcore.GPTFeedForward(2)(x),
    "GPTOutput": lambda x, y, a, i: gptcore.GPTOutput(2, 3)(x),
    "GPTEmbedding": lambda x, y, a, i: GPTEmbedding(2, 2, 3)(x),
    "GPT": lambda x, y, a, i: GPT(2, 2, 2, 1, 1)(x),
    "MSE": lambda x, y, a, i: MSELoss()(x, y),
    "交叉熵": lambda x, y, a, i: GPTLoss()(x, y),
}


def require_chinese(error: GptcoreError) -> None:
    assert re.search(r"[一-鿿]", str(error))


@settings(max_examples=50)
@given(x=ARRAYS, y=ANYTHING, a=AXES, i=INDEX)
@example(x=np.ones((2, 1)), y=np.ones(2), a=(0, 0), i=(0, 5))
@example(x=np.ones((2, 2, 2), "f4"), y=np.ones((2, 2), "i8"), a=-1, i=[0, 0])
@pytest.mark.parametrize("name", CALLS)
def test_only_our_own_errors(name: str, x: np.ndarray, y: Any, a: Any, i: Any) -> None:
    try:
        tensor = Tensor(x)
        if isinstance(y, np.ndarray):
            y = Tensor(y)
        with np.errstate(all="ignore"):
            result = CALLS[name](tensor, y, a, i)
            if result.requires_grad:
                result.backward()
    except GptcoreError as error:
        require_chinese(error)
        return
    assert result.dtype.kind in "fiub"
    if tensor.requires_grad and result.requires_grad:
        assert tensor.grad.shape == tensor.shape
        assert tensor.grad.dtype == tensor.dtype


@settings(max_examples=50)
@given(st.lists(ANYTHING, max_size=3) | ANYTHING, ANYTHING, ANYTHING)
@pytest.mark.parametrize(
    "build",
    [
        lambda a, b, c: Tensor(a),
        lambda a, b, c: W + a,
        lambda a, b, c: Linear(b, c),
        lambda a, b, c: Embedding(b, c),
        lambda a, b, c: LayerNorm(b, c),
        lambda a, b, c: GPTAttention(b, c),
        lambda a, b, c: GPT(b, 4, 6, 3, c),
        lambda a, b, c: GPT(5, b, c, 3, 1),
        lambda a, b, c: Dropout(b),
        lambda a, b, c: SGDOptimizer(a, b),
        lambda a, b, c: AdamWOptimizer([W], lr=a, betas=b, eps=c),
        lambda a, b, c: WarmupCosineScheduler(0.1, b, c),
        lambda a, b, c: W.astype(b),
        lambda a, b, c: Linear(2, 2).load_state_dict({"weight": a, "bias": b}),
        lambda a, b, c: Tensor([1.0, 2.0]).backward(b),
    ],
)
def test_constructors_raise_only_our_own_errors(build: Any, a: Any, b: Any, c: Any) -> None:
    try:
        with np.errstate(all="ignore"):
            build(a, b, c)
    except GptcoreError as error:
        require_chinese(error)
