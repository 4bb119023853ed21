"""模型：GPT 及其各个部分"""

from gptcore.models.generation import generate_ids
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
    "generate_ids",
    "load_model",
    "save_model",
]
