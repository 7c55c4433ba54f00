"""Load a model from a folder with the class for its architecture. Used from chapter 17 on."""

from pathlib import Path

import torch
from torch import nn

from attn_course.pretrained.bert import load_bert
from attn_course.pretrained.config import read_config
from attn_course.pretrained.decoder_from_config import load_configured
from attn_course.pretrained.gpt2 import load_gpt2
from attn_course.pretrained.llama import load_llama
from attn_course.pretrained.marian import load_marian

_LOADERS = {
    "bert": load_bert,
    "gpt2": load_gpt2,
    "llama": load_llama,
    "marian": load_marian,
    "qwen3": load_configured,
    "gemma2": load_configured,
    "gemma3_text": load_configured,
    "gpt_oss": load_configured,
}


def load_from_folder(
    folder: str | Path, *, dtype: torch.dtype = torch.float32
) -> nn.Module:
    """Load a model of any architecture that we have, by the ``model_type`` in its ``config.json``.

    Args:
        folder: with config.json and safetensors.
        dtype: type of the model, whatever that of the file.

    Raises:
        FileNotFoundError: if config.json or the weights are missing.
        ValueError: if we have no such architecture, or as ``load_bert`` and the like.
    """
    config = read_config(folder)
    name = config.get("model_type")
    if name not in _LOADERS:
        raise ValueError(
            f"{config.path} describes a model of type {name!r}; here there are {', '.join(_LOADERS)}"
        )
    return _LOADERS[name](folder, dtype=dtype)
