"""`config.json`：Hugging Face 的设置变成 GPT 的设置，反过来也一样；不同的结构一律拒绝"""

from pathlib import Path
from typing import Any, NoReturn, cast

from gptcore.errors import DataError
from gptcore.kernels.convert import brief
from gptcore.layers.checks import FLOAT_MAX, LARGEST_SIZE
from gptcore.models.gpt import GPT

SIZES = {
    "vocab_size": ("vocab_size", 50257),
    "context_size": ("n_positions", 1024),
    "embedding_size": ("n_embd", 768),
    "heads": ("n_head", 12),
    "blocks": ("n_layer", 12),
}
"""gptcore 的设置、Hugging Face 的字段，与字段没有写出时的值（`GPT2Config` 的默认值）"""
ALIASES = {
    "n_positions": "max_position_embeddings",
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_layer": "num_hidden_layers",
}
"""`GPT2Config` 也认得的另一个写法"""
DROPOUTS = ("embd_pdrop", "attn_pdrop", "resid_pdrop")
ARCHITECTURES = ("GPT2LMHeadModel", "GPT2Model")
GELU = ("gelu_new", "gelu_pytorch_tanh")
"""同一个函数的两个名字：$x\\cdot\\frac12(1+\\tanh(\\sqrt{2/\\pi}(x+0.044715x^3)))$"""

FIXED: dict[str, tuple[Any, str]] = {
    "scale_attn_weights": (True, "注意力分数总是除以头尺寸的平方根"),
    "scale_attn_by_inverse_layer_idx": (False, "注意力分数不再除以层的序号"),
    "add_cross_attention": (False, "没有交叉注意力"),
    "is_encoder_decoder": (False, "只有解码器"),
    "position_embedding_type": ("absolute", "位置嵌入是学到的表"),
    "multi_query": (False, "每个头各有自己的键与值"),
    "alibi": (False, "位置嵌入是学到的表"),
}
"""只有一种取值的字段：没有写出时就是它"""
ABSENT: dict[str, str] = {
    "quantization_config": "参数要是小数，不能是量化的",
    "auto_map": "这里不运行模型自带的代码",
    "sliding_window": "注意力看得见前面的全部位置",
    "num_key_value_heads": "每个头各有自己的键与值",
}
"""不能有的字段；写成 `null` 的等于没有"""


def parse_settings(
    config: Any, path: Path, dropout: float | None = None
) -> tuple[dict[str, Any], bool]:
    """`config.json` 的内容变成 `GPT` 的设置。

    没有写出的字段取 `GPT2Config` 的默认值，与 transformers 相同。

    Args:
        config: `config.json` 的内容。
        path: 文件，写进错误消息。
        dropout: 随机失活的概率；不给时用文件里的。

    Returns:
        `GPT` 的设置（`tied` 除外），以及 `tie_word_embeddings`。

    Raises:
        DataError: 不是 GPT-2，或者有这里没有实现的选项；消息写出字段与它的值。
    """
    if not isinstance(config, dict):
        raise DataError(f"{path} 应当是 JSON 的字典，这里是 {type(config).__name__}")
    fields = cast("dict[str, Any]", config)
    _require_gpt2(fields, path)
    settings: dict[str, Any] = {ours: _size(fields, path, *place) for ours, place in SIZES.items()}
    size, heads = settings["embedding_size"], settings["heads"]
    if size % heads:
        _refuse(path, "n_head", heads, f"头数要能整除 n_embd={size}")
    inner = fields.get("n_inner")
    if inner is not None and (type(inner) is not int or inner != 4 * size):
        _refuse(path, "n_inner", inner, f"前馈网络的中间宽度总是 4 × n_embd = {4 * size}")
    settings["dropout"] = _dropout(fields, path) if dropout is None else dropout
    eps = settings["norm_eps"] = _number(fields, path, "layer_norm_epsilon", 1e-5)
    if not 0 <= eps < 1:
        _refuse(path, "layer_norm_epsilon", eps, "要在 0 与 1 之间")
    tie = fields.get("tie_word_embeddings", True)
    if not isinstance(tie, bool):
        _refuse(path, "tie_word_embeddings", tie, "应当是 true 或 false")
    return {**settings, "head_bias": False, "init": "gpt2"}, tie


def _require_gpt2(fields: dict[str, Any], path: Path) -> None:
    """结构就是 GPT-2 的。

    `reorder_and_upcast_attn` 两种取值都可以：它只决定半精度训练时注意力分数用 float32，而这里总是 float32。
    """
    if "model_type" not in fields and "context_size" in fields:
        raise DataError(f"{path} 是 gptcore 自己的模型文件夹里的；请用 load_model 读入")
    if "model_type" not in fields:
        remedy = '确实是 GPT-2 时，请在文件里写上 "model_type": "gpt2"'
        raise DataError(f"{path} 里没有 model_type，不知道是什么模型；{remedy}")
    if fields["model_type"] != "gpt2":
        _refuse(path, "model_type", fields["model_type"], '这里只读 "gpt2"')
    names = fields.get("architectures")
    if names and not (isinstance(names, list) and any(n in ARCHITECTURES for n in names)):  # pyright: ignore[reportUnknownVariableType]
        _refuse(path, "architectures", names, f"可以是 {'、'.join(ARCHITECTURES)}")
    function = fields.get("activation_function", GELU[0])
    if function not in GELU:
        _refuse(path, "activation_function", function, f"激活函数可以是 {'、'.join(GELU)}")
    for name, (value, reason) in FIXED.items():
        found = fields.get(name, value)
        null = False if isinstance(value, bool) else value  # transformers 把 null 当作假
        given = null if found is None else found
        if type(given) is not type(value) or given != value:
            _refuse(path, name, found, f"这里总是 {value}：{reason}")
    for name, value in fields.items():
        if value is not None and (name in ABSENT or name.startswith("rope")):
            _refuse(path, name, value, ABSENT.get(name, "位置嵌入是学到的表，没有旋转位置编码"))


def _size(fields: dict[str, Any], path: Path, name: str, default: int) -> int:
    """一个尺寸；块数可以是 0。"""
    alias = ALIASES.get(name, name)
    value = fields.get(name, fields.get(alias, default))
    if fields.get(alias, value) != value:
        _refuse(path, alias, fields[alias], f"它与 {name}={brief(value)} 说的是同一个数，却不相等")
    low = 0 if name == "n_layer" else 1
    if type(value) is not int or not low <= value <= LARGEST_SIZE:
        _refuse(path, name, value, f"应当是 {low} 到 10 亿的整数")
    return value


def _dropout(fields: dict[str, Any], path: Path) -> float:
    """随机失活的概率：三处要相同。"""
    rates = {name: _number(fields, path, name, 0.1) for name in DROPOUTS}
    if len(set(rates.values())) > 1:
        shown = "、".join(f"{name}={rate:g}" for name, rate in rates.items())
        raise DataError(
            f"{path} 里三处随机失活的概率不同：{shown}；这里三处用同一个，它只影响训练，"
            "请自己选一个，例如 dropout=0.0"
        )
    for name, rate in rates.items():
        if not 0 <= rate < 1:
            _refuse(
                path, name, rate, "要在 0 与 1 之间，不能是 1；也可以自己给出，例如 dropout=0.0"
            )
    return rates[DROPOUTS[0]]


def _number(fields: dict[str, Any], path: Path, name: str, default: float) -> float:
    value = fields.get(name, default)
    if type(value) not in (int, float) or not -FLOAT_MAX <= value <= FLOAT_MAX:
        _refuse(path, name, value, "应当是有限的数")
    return float(value)


def _refuse(path: Path, name: str, value: Any, reason: str) -> NoReturn:
    raise DataError(f"{path} 里的 {name} 是 {brief(value)}，与 gptcore 的 GPT 不同：{reason}")


def dump_settings(model: GPT, end_of_text: int | None) -> dict[str, Any]:
    """模型的设置变成 `config.json` 的内容。

    Args:
        model: 模型。
        end_of_text: 文本结束词元的编号；没有时是 `None`。

    Raises:
        DataError: GPT-2 没有这样的结构；消息写出选项。
    """
    config = model.config
    wanted = {
        "head_bias": (False, "GPT-2 的输出头没有偏置"),
        "bias": (True, "GPT-2 的线性层与归一化都有偏置"),
        "norm": ("LayerNorm", "GPT-2 用层归一化"),
        "norm_position": ("pre", "GPT-2 在各分支的入口归一化"),
    }
    for name, (value, reason) in wanted.items():
        if config[name] != value:
            raise DataError(
                f"save_pretrained：模型的 {name}={config[name]!r}，写不成 Hugging Face 的 GPT-2：{reason}；"
                f"请用 {name}={value!r} 建立并训练模型，或用 save_model 存成 gptcore 自己的文件夹"
            )
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        **{theirs: config[ours] for ours, (theirs, _) in SIZES.items()},
        "n_ctx": config["context_size"],
        "n_inner": None,
        "activation_function": GELU[0],
        **dict.fromkeys(DROPOUTS, config["dropout"]),
        "layer_norm_epsilon": config["norm_eps"],
        "initializer_range": 0.02,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "add_cross_attention": False,
        "tie_word_embeddings": config["tied"],
        "bos_token_id": end_of_text,
        "eos_token_id": end_of_text,
        "torch_dtype": model.embedding.embedding.weight.dtype.name,
        "use_cache": True,
    }
