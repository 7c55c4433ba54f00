"""Checkpoints: tensors in safetensors files that are replaced atomically. Derived in chapter 12."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write a file so that its path always holds either the whole old file or the whole new file.

    The content goes to a temporary file in the same folder, then to the disk. Then one atomic step renames the file.
    The new file has the mode of the old one, and a link keeps pointing to its file. A pipe or a device gets the
    content directly.

    Raises:
        OSError: if the file cannot be written, such as on a full disk. The old file stays unchanged.
    """
    path = Path(path)
    if path.exists() and not path.is_file():  # a pipe or a device cannot be replaced
        path.write_bytes(content)
        return
    target = Path(os.path.realpath(path))  # replace the file, not a link to it
    unfinished = target.with_name(f".{target.name}.unfinished")
    try:
        with open(unfinished, "wb") as file:
            if target.exists():
                shutil.copymode(target, unfinished)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # write to the disk before the file gets its name
        os.replace(unfinished, target)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        message = f"{path} could not be written ({error.strerror}); the old file remains"
        raise OSError(error.errno, message) from error


def save_checkpoint(path: str | Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write tensors, and a description as JSON.

    Raises:
        OSError: if the file cannot be written. An older file stays unchanged.
    """
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    sha256 = hashlib.sha256(_split(save(tensors))[1]).hexdigest()
    metadata = {"about": json.dumps(about), "sha256": sha256}
    write_atomically(path, save(tensors, metadata=metadata))


def load_checkpoint(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file of :func:`save_checkpoint`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged.
    """
    content = Path(path).read_bytes()
    try:
        tensors = load(content)  # raises an error if the header does not describe tensors
        header, data = _split(content)
        metadata = header.get("__metadata__", {})
        about = json.loads(metadata.get("about", "{}"))
        if not isinstance(about, dict):
            raise ValueError(f"its description is {about!r}, not a table")
    except (AttributeError, TypeError, ValueError, SafetensorError) as error:
        raise ValueError(f"{path} is damaged: it is no safetensors file, or not all of one ({error})") from error
    sha256 = hashlib.sha256(data).hexdigest()
    if metadata.get("sha256", sha256) != sha256:
        raise ValueError(
            f"{path} is damaged: its tensors are not those that were written (SHA-256 {sha256}, "
            f"expected {metadata['sha256']})"
        )
    return tensors, about


def _split(content: bytes) -> tuple[dict[str, Any], memoryview]:
    # A safetensors file is the length of its header (8 bytes), the header as JSON, and the numbers.
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), memoryview(content)[8 + length :]
