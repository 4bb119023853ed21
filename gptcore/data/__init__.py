"""数据：文本、分词器、数据集与语料"""

from gptcore.data.base import Dataset
from gptcore.data.corpora import corpus_names, corpus_path, find_corpus, load_corpus
from gptcore.data.datasets import CharDataset, NextCharDataset
from gptcore.data.text import read_text
from gptcore.data.tokenizers import (
    END_OF_TEXT,
    BPETokenizer,
    ByteTokenizer,
    CharTokenizer,
    IncrementalDecoder,
    Tokenizer,
    hugging_face_files,
    load_tokenizer,
    tokenizer_from_dict,
)
from gptcore.data.windows import OneHotRows

__all__ = [
    "END_OF_TEXT",
    "BPETokenizer",
    "ByteTokenizer",
    "CharDataset",
    "CharTokenizer",
    "Dataset",
    "IncrementalDecoder",
    "NextCharDataset",
    "OneHotRows",
    "Tokenizer",
    "corpus_names",
    "corpus_path",
    "find_corpus",
    "hugging_face_files",
    "load_corpus",
    "load_tokenizer",
    "read_text",
    "tokenizer_from_dict",
]
