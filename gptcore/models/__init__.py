"""模型：GPT 及其各个部分"""

from gptcore.models.gpt import (
    GPT,
    GPTAttention,
    GPTEmbedding,
    GPTFeedForward,
    GPTOutput,
    GPTTransformer,
)
from gptcore.models.storage import load_model, save_model

__all__ = [
    "GPT",
    "GPTAttention",
    "GPTEmbedding",
    "GPTFeedForward",
    "GPTOutput",
    "GPTTransformer",
    "load_model",
    "save_model",
]
