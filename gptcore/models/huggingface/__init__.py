r"""GPT-2 与 Hugging Face：读入别人的模型，把自己的模型带出去

[`from_pretrained`][gptcore.models.huggingface.loading.from_pretrained] 读入 Hugging Face 格式的 GPT-2 文件夹，
[`save_pretrained`][gptcore.models.huggingface.saving.save_pretrained] 写出 transformers 能读的文件夹；两个方向上，
同样的词元得到同样的 logits（相差在 float32 的舍入之内），参数来回一次一位不差。只用本机的文件，不需要 PyTorch；
有网络的地方可以用 [`download_pretrained`][gptcore.models.huggingface.download.download_pretrained] 按名字下载。

名字与形状的对照，$E$ 是嵌入尺寸，$V$ 是词表大小，$T$ 是上下文尺寸，`i` 是第几块：

| gptcore | 形状 | Hugging Face | 形状 |
|---|---|---|---|
| `embedding.embedding.weight` | $(V, E)$ | `transformer.wte.weight` | $(V, E)$ |
| `embedding.positional_embedding.weight` | $(T, E)$ | `transformer.wpe.weight` | $(T, E)$ |
| `transformers.i.attention.normalize.weight`、`.bias` | $(E,)$ | `transformer.h.i.ln_1.weight`、`.bias` | $(E,)$ |
| `transformers.i.attention.c_attn.weight` | $(3E, E)$ | `transformer.h.i.attn.c_attn.weight` | $(E, 3E)$ |
| `transformers.i.attention.c_attn.bias` | $(3E,)$ | `transformer.h.i.attn.c_attn.bias` | $(3E,)$ |
| `transformers.i.attention.output.weight` | $(E, E)$ | `transformer.h.i.attn.c_proj.weight` | $(E, E)$，转置 |
| `transformers.i.attention.output.bias` | $(E,)$ | `transformer.h.i.attn.c_proj.bias` | $(E,)$ |
| `transformers.i.feed_forward.normalize.weight`、`.bias` | $(E,)$ | `transformer.h.i.ln_2.weight`、`.bias` | $(E,)$ |
| `transformers.i.feed_forward.input.weight` | $(4E, E)$ | `transformer.h.i.mlp.c_fc.weight` | $(E, 4E)$ |
| `transformers.i.feed_forward.input.bias` | $(4E,)$ | `transformer.h.i.mlp.c_fc.bias` | $(4E,)$ |
| `transformers.i.feed_forward.output.weight` | $(E, 4E)$ | `transformer.h.i.mlp.c_proj.weight` | $(4E, E)$ |
| `transformers.i.feed_forward.output.bias` | $(E,)$ | `transformer.h.i.mlp.c_proj.bias` | $(E,)$ |
| `output.normalize.weight`、`.bias` | $(E,)$ | `transformer.ln_f.weight`、`.bias` | $(E,)$ |
| `output.linear.weight`，与词元嵌入共用时不另存 | $(V, E)$ | `lm_head.weight` | $(V, E)$ |

- `GPT2Model` 单独存的文件没有开头的 `transformer.`，也读得。
- Conv1D 的矩阵是 `(输入, 输出)`，即 $y = xW + b$，我们的是 $y = xW^\top + b$。映射时权重就是文件那一段的转置视图，
  $W^\top$ 恰好是连续的，乘法一样快。
- `attn.bias` 与 `attn.masked_bias` 是以前的版本存下的因果掩码，不是参数，跳过。
- 三处随机失活（`embd_pdrop`、`attn_pdrop`、`resid_pdrop`）在这里是同一个 `dropout`。
- `activation_function` 的 `gelu_new` 与 `gelu_pytorch_tanh` 是同一个函数，就是我们的 GELU；
  `reorder_and_upcast_attn` 只在半精度下有区别，两种取值都读得；其余不同的选项一律拒绝，消息写出字段与它的值。

来源：transformers 的 `models/gpt2/configuration_gpt2.py` 与 `modeling_gpt2.py`，
<https://github.com/huggingface/transformers/tree/main/src/transformers/models/gpt2>；
Radford 等 2019，*Language Models are Unsupervised Multitask Learners*。

教程：第 20 章 载入 GPT-2。
"""

from gptcore.models.huggingface.download import download_pretrained
from gptcore.models.huggingface.loading import from_pretrained, load_pretrained
from gptcore.models.huggingface.saving import save_pretrained

__all__ = ["download_pretrained", "from_pretrained", "load_pretrained", "save_pretrained"]
