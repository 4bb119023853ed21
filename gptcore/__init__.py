"""用 NumPy 从零写成的 GPT：张量与自动求导、层、损失、优化器、数据与模型"""

from gptcore.data import (
    CharDataset,
    CharTokenizer,
    Dataset,
    NextCharDataset,
    corpus_path,
    load_corpus,
)
from gptcore.errors import (
    ArgumentError,
    DataError,
    DtypeError,
    GptcoreError,
    GraphError,
    RangeError,
    ShapeError,
)
from gptcore.layers import (
    GELU,
    Composite,
    Dropout,
    Embedding,
    Layer,
    LayerNorm,
    Linear,
    MeanPool,
    ReLU,
    RMSNorm,
    Sequential,
    Softmax,
    Tril,
)
from gptcore.losses import GPTLoss, Loss, MSELoss
from gptcore.models import (
    GPT,
    GPTAttention,
    GPTEmbedding,
    GPTFeedForward,
    GPTOutput,
    GPTTransformer,
    generate_ids,
    load_model,
    save_model,
)
from gptcore.optim import AdamWOptimizer, Optimizer, SGDOptimizer, WarmupCosineScheduler
from gptcore.random import default_rng
from gptcore.tensor import DTYPE, Tensor, is_grad_enabled, no_grad
from gptcore.threads import blas_threads
from gptcore.training import GPTTrainer, StepReport, Trainer

__version__ = "0.1.0"

__all__ = [
    "DTYPE",
    "GELU",
    "GPT",
    "AdamWOptimizer",
    "ArgumentError",
    "CharDataset",
    "CharTokenizer",
    "Composite",
    "DataError",
    "Dataset",
    "Dropout",
    "DtypeError",
    "Embedding",
    "GPTAttention",
    "GPTEmbedding",
    "GPTFeedForward",
    "GPTLoss",
    "GPTOutput",
    "GPTTrainer",
    "GPTTransformer",
    "GptcoreError",
    "GraphError",
    "Layer",
    "LayerNorm",
    "Linear",
    "Loss",
    "MSELoss",
    "MeanPool",
    "NextCharDataset",
    "Optimizer",
    "RMSNorm",
    "RangeError",
    "ReLU",
    "SGDOptimizer",
    "Sequential",
    "ShapeError",
    "Softmax",
    "StepReport",
    "Tensor",
    "Trainer",
    "Tril",
    "WarmupCosineScheduler",
    "blas_threads",
    "corpus_path",
    "default_rng",
    "generate_ids",
    "is_grad_enabled",
    "load_corpus",
    "load_model",
    "no_grad",
    "save_model",
]
