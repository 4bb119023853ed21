"""分词器：文本与词元编号之间的转换

所有分词器都遵守 [`Tokenizer`][gptcore.data.tokenizers.Tokenizer] 这个小接口，
数据集、生成和保存只通过它打交道。有三种：

- [`CharTokenizer`][gptcore.data.tokenizers.CharTokenizer]：每个字符是一个词元；
- [`ByteTokenizer`][gptcore.data.tokenizers.ByteTokenizer]：UTF-8 的每个字节是一个词元；
- [`BPETokenizer`][gptcore.data.tokenizers.BPETokenizer]：从文字里学出常见的字节串，GPT-2 用的就是它。
"""

from gptcore.data.tokenizers.base import END_OF_TEXT, IncrementalDecoder, Tokenizer
from gptcore.data.tokenizers.bpe import BPETokenizer
from gptcore.data.tokenizers.byte_level import ByteLevelDecoder, ByteLevelTokenizer
from gptcore.data.tokenizers.bytes import ByteTokenizer
from gptcore.data.tokenizers.chars import BLOCK, CharTokenizer
from gptcore.data.tokenizers.hugging_face_writing import hugging_face_files
from gptcore.data.tokenizers.ids import Ids, check_range, integer_ids
from gptcore.data.tokenizers.loading import TOKENIZERS, load_tokenizer, tokenizer_from_dict
from gptcore.data.tokenizers.special import AllowedSpecial
from gptcore.data.tokenizers.texts import describe

__all__ = [
    "BLOCK",
    "END_OF_TEXT",
    "TOKENIZERS",
    "AllowedSpecial",
    "BPETokenizer",
    "ByteLevelDecoder",
    "ByteLevelTokenizer",
    "ByteTokenizer",
    "CharTokenizer",
    "Ids",
    "IncrementalDecoder",
    "Tokenizer",
    "check_range",
    "describe",
    "hugging_face_files",
    "integer_ids",
    "load_tokenizer",
    "tokenizer_from_dict",
]
