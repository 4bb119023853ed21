"""层：有参数的函数，及其组合"""

from gptcore.layers.activation import GELU, ReLU, Softmax
from gptcore.layers.base import Composite, Layer, Sequential
from gptcore.layers.embedding import Embedding, MeanPool
from gptcore.layers.initial import without_values
from gptcore.layers.linear import Linear
from gptcore.layers.masking import Dropout, Tril
from gptcore.layers.normalization import LayerNorm, RMSNorm

__all__ = [
    "GELU",
    "Composite",
    "Dropout",
    "Embedding",
    "Layer",
    "LayerNorm",
    "Linear",
    "MeanPool",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "Softmax",
    "Tril",
    "without_values",
]
