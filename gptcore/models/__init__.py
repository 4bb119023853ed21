"""模型：GPT 及其各个部分"""

from gptcore.models.blocks import (
    GPTAttention,
    GPTEmbedding,
    GPTFeedForward,
    GPTOutput,
    GPTTransformer,
)
from gptcore.models.cache import KVCache
from gptcore.models.generation import (
    GeneratedToken,
    Sampler,
    SamplingOptions,
    generate_ids,
    generate_text,
)
from gptcore.models.gpt import GPT
from gptcore.models.huggingface import (
    download_pretrained,
    from_pretrained,
    load_pretrained,
    save_pretrained,
)
from gptcore.models.options import BlockOptions
from gptcore.models.storage import load_model, save_model

__all__ = [
    "GPT",
    "BlockOptions",
    "GPTAttention",
    "GPTEmbedding",
    "GPTFeedForward",
    "GPTOutput",
    "GPTTransformer",
    "GeneratedToken",
    "KVCache",
    "Sampler",
    "SamplingOptions",
    "download_pretrained",
    "from_pretrained",
    "generate_ids",
    "generate_text",
    "load_model",
    "load_pretrained",
    "save_model",
    "save_pretrained",
]
