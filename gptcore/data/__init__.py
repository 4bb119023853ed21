"""数据：文本、分词器、数据集与语料"""

from gptcore.data.base import Dataset
from gptcore.data.corpora import corpus_names, corpus_path, find_corpus, load_corpus
from gptcore.data.datasets import CharDataset, NextCharDataset
from gptcore.data.text import read_text
from gptcore.data.tokenizers import CharTokenizer, Tokenizer, tokenizer_from_dict
from gptcore.data.windows import OneHotRows

__all__ = [
    "CharDataset",
    "CharTokenizer",
    "Dataset",
    "NextCharDataset",
    "OneHotRows",
    "Tokenizer",
    "corpus_names",
    "corpus_path",
    "find_corpus",
    "load_corpus",
    "read_text",
    "tokenizer_from_dict",
]
