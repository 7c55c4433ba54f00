"""Checkpoints: tensors in safetensors files that are replaced in one step, so that none is ever half-written."""

import json
import os
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write a file so that, whatever happens, either the old or the new one is there."""
    path = Path(path)
    unfinished = path.with_name(f".{path.name}.unfinished")
    with open(unfinished, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def save_checkpoint(
    path: str | Path, tensors: dict[str, Tensor], about: dict[str, Any]
) -> None:
    """Write tensors and, as JSON, what else there is to know about them."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, save(tensors, metadata={"about": json.dumps(about)}))


def load_checkpoint(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`save_checkpoint` wrote."""
    with safe_open(path, framework="pt") as file:
        about = json.loads((file.metadata() or {}).get("about", "{}"))
        return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118
