"""Download models by their name on the Hugging Face hub. Used from chapter 22 on."""

from pathlib import Path

import torch
from torch import nn

from attn_course.pretrained.loading import check_config, load_from_folder
from attn_course.pretrained.weights import ADVICE, INDEX, WHOLE, read_index

# All names are exact, because the pattern "*.json" would also match files in subfolders.
_CONFIG = "config.json"
_TOKENIZER = ("tokenizer.json", "vocab.json", "target_vocab.json", "source.spm", "target.spm")


def download(name: str, revision: str | None = None) -> Path:
    """Fetch a model from the Hugging Face hub: its config, safetensors and tokenizer, and nothing that could run.

    It fetches only files that this package reads, and of several copies of the weights only one.

    Args:
        name: such as "openai-community/gpt2".
        revision: a branch, tag, commit, or a change proposed to it such as "refs/pr/1".

    Returns:
        The folder in the hub's cache, where it is found again without a network.

    Raises:
        ModuleNotFoundError: if ``huggingface_hub`` is not installed.
        OSError: if it cannot be fetched; a FileNotFoundError if it has no safetensors.
        ValueError: if its list of shards is damaged.
    """
    folder = _fetch(name, revision, [_CONFIG, *_TOKENIZER, WHOLE, INDEX])
    if not (folder / WHOLE).is_file():
        if not (folder / INDEX).is_file():
            raise FileNotFoundError(
                f"{name} has no safetensors on the hub, at most a pickle, which may run anything. {ADVICE}"
            )
        shards = set(read_index(folder / INDEX).values())
        folder = _fetch(name, revision, sorted(shards))
    return folder


def _fetch(name: str, revision: str | None, files: list[str]) -> Path:
    """Fetch those of the files that a model has, and return its folder."""
    try:
        from huggingface_hub import errors, snapshot_download
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "loading from the hub needs the library huggingface_hub: pip install huggingface_hub"
        ) from None
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=files))
    except errors.LocalEntryNotFoundError:
        reason = "is not in the cache of the hub, and the hub cannot be reached: connect to it once"
    except errors.RevisionNotFoundError:
        reason = f"has no revision {revision!r} on the hub"
    except errors.RepositoryNotFoundError:
        reason = "is no model on the hub, or one that only opens after its terms are accepted there"
    except errors.HFValidationError:
        reason = "is no name of a model: that is author/model, such as openai-community/gpt2"
    except OSError as error:
        reason = f"could not be fetched from the hub: {(str(error).splitlines() or [''])[0]}"
    raise OSError(f"{name} {reason}")


def load_from_hub(name: str, revision: str | None = None, *, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Load a model by its name on the Hugging Face hub into our own modules. Its config is read before its weights are
    fetched.

    Args:
        name: such as "openai-community/gpt2".
        revision: as in :func:`download`.
        dtype: type of the model, whatever that of the file.

    Raises:
        ModuleNotFoundError: as :func:`download`.
        OSError: as :func:`download`.
        ValueError: as :func:`load_from_folder`.
    """
    check_config(_fetch(name, revision, [_CONFIG]))
    return load_from_folder(download(name, revision), dtype=dtype)
