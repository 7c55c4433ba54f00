"""Load a model from a folder with the class for its architecture. Used from chapter 22 on."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from attn_course.pretrained.bert import build_bert, load_bert
from attn_course.pretrained.config import HFConfig, read_config
from attn_course.pretrained.decoder_from_config import build_configured, load_configured
from attn_course.pretrained.gpt2 import build_gpt2, load_gpt2
from attn_course.pretrained.llama import build_llama, load_llama
from attn_course.pretrained.marian import build_marian, load_marian

_LOADERS = {
    "bert": (build_bert, load_bert),
    "gpt2": (build_gpt2, load_gpt2),
    "llama": (build_llama, load_llama),
    "marian": (build_marian, load_marian),
    "qwen3": (build_configured, load_configured),
    "gemma2": (build_configured, load_configured),
    "gemma3_text": (build_configured, load_configured),
    "gpt_oss": (build_configured, load_configured),
}


def load_from_folder(folder: str | Path, *, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Load a model of any architecture that we have, by the ``model_type`` in its ``config.json``.

    Args:
        folder: with config.json and safetensors.
        dtype: type of the model, whatever that of the file.

    Raises:
        FileNotFoundError: if config.json or the weights are missing.
        ValueError: if we have no such architecture, or as ``load_bert`` and the like.
    """
    _, load = _find_loader(read_config(folder))
    return load(folder, dtype=dtype)


def check_config(folder: str | Path) -> None:
    """Raise an error if we cannot build the model of a ``config.json``. No weights are needed.

    Raises:
        FileNotFoundError: if config.json is missing.
        ValueError: as :func:`load_from_folder`.
    """
    config = read_config(folder)
    build, _ = _find_loader(config)
    with torch.device("meta"):  # sizes without numbers
        build(config)


def _find_loader(config: HFConfig) -> tuple[Callable[..., nn.Module], ...]:
    name = config.get("model_type")
    if name not in _LOADERS:
        raise ValueError(f"{config.path} describes a model of type {name!r}; here there are {', '.join(_LOADERS)}")
    return _LOADERS[name]
