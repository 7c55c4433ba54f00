"""Download models by their name on the Hugging Face hub. Used from chapter 17 on."""

from pathlib import Path

import torch
from torch import nn

from attn_course.pretrained.loading import load_from_folder
from attn_course.pretrained.weights import ADVICE

_FILES = [
    "*config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "tokenizer.json",
    "special_tokens_map.json",
    "*vocab.json",
    "vocab.txt",
    "merges.txt",
    "*.spm",
]


def download(name: str, revision: str | None = None) -> Path:
    """Fetch a model from the Hugging Face hub: its config, safetensors and tokenizer, and nothing that could run.

    Args:
        name: such as "openai-community/gpt2".
        revision: a branch, tag, commit, or a change proposed to it such as "refs/pr/1".

    Returns:
        The folder in the hub's cache, where it is found again without a network.

    Raises:
        ModuleNotFoundError: if ``huggingface_hub`` is not installed.
        OSError: if it cannot be fetched; a FileNotFoundError if it has no safetensors.
    """
    try:
        from huggingface_hub import errors, snapshot_download
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "loading from the hub needs the library huggingface_hub: pip install huggingface_hub"
        ) from None
    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=_FILES))
    except errors.LocalEntryNotFoundError:
        said = "is not in the cache of the hub, and the hub cannot be reached: connect to it once"
    except errors.RevisionNotFoundError:
        said = f"has no revision {revision!r} on the hub"
    except errors.RepositoryNotFoundError:
        said = "is no model on the hub, or one that only opens after its terms are accepted there"
    except errors.HFValidationError:
        said = "is no name of a model: that is author/model, such as openai-community/gpt2"
    except OSError as error:
        said = f"could not be fetched from the hub: {(str(error).splitlines() or [''])[0]}"
    else:
        if any(folder.glob("*.safetensors")):
            return folder
        raise FileNotFoundError(
            f"{name} has no safetensors on the hub, at most a pickle, which may run anything. {ADVICE}"
        )
    raise OSError(f"{name} {said}")


def load_from_hub(
    name: str, revision: str | None = None, *, dtype: torch.dtype = torch.float32
) -> nn.Module:
    """Load a model by its name on the Hugging Face hub into our own modules.

    Args:
        name: such as "openai-community/gpt2".
        revision: as in :func:`download`.
        dtype: type of the model, whatever that of the file.

    Raises:
        ModuleNotFoundError: as :func:`download`.
        OSError: as :func:`download`.
        ValueError: as :func:`load_from_folder`.
    """
    return load_from_folder(download(name, revision), dtype=dtype)
