"""生成：由提示往下写

- [`sampling`][gptcore.models.generation.sampling]：由分数选下一个词元；
- [`ids`][gptcore.models.generation.ids]：逐个词元地生成，一条或几条一起；
- [`text`][gptcore.models.generation.text]：文本进，文本出，逐字给出。
"""

from gptcore.models.generation.checks import require_count, require_prompt
from gptcore.models.generation.ids import GeneratedToken, SamplingOptions, generate_ids
from gptcore.models.generation.sampling import Sampler, sample
from gptcore.models.generation.text import generate_text

__all__ = [
    "GeneratedToken",
    "Sampler",
    "SamplingOptions",
    "generate_ids",
    "generate_text",
    "require_count",
    "require_prompt",
    "sample",
]
