"""数据：文本、分词器、数据集与语料"""

from gptcore.data.base import Dataset
from gptcore.data.corpora import corpus_names, corpus_path, find_corpus, load_corpus
from gptcore.data.datasets import CharDataset, NextCharDataset, WindowDataset
from gptcore.data.text import read_text, text_chunks
from gptcore.data.text_datasets import TextDataset, TokenDataset
from gptcore.data.token_files import FileTokens, TokenFile
from gptcore.data.token_writing import write_tokens
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
from gptcore.data.windows import OneHotRows, TokenRows

__all__ = [
    "END_OF_TEXT",
    "BPETokenizer",
    "ByteTokenizer",
    "CharDataset",
    "CharTokenizer",
    "Dataset",
    "FileTokens",
    "IncrementalDecoder",
    "NextCharDataset",
    "OneHotRows",
    "TextDataset",
    "TokenDataset",
    "TokenFile",
    "TokenRows",
    "Tokenizer",
    "WindowDataset",
    "corpus_names",
    "corpus_path",
    "find_corpus",
    "hugging_face_files",
    "load_corpus",
    "load_tokenizer",
    "read_text",
    "text_chunks",
    "tokenizer_from_dict",
    "write_tokens",
]
