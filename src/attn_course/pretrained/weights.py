"""Read named tensors from safetensors files, complete or in shards. Derived in chapter 22."""

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
ADVICE = (
    "Look for a model.safetensors of the same model, on the hub often under a revision such as "
    "refs/pr/1, or have the model's class in transformers write one: "
    "MarianMTModel.from_pretrained(name).save_pretrained(folder) for a Marian"
)
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Read the tensors of a model, under the names that its authors gave them.

    A safetensors file is a list of names, types and shapes, then the numbers: there is nothing in it to
    run. A pickle is a program, which rebuilds the tensors when it is run, or does whatever else its
    author wrote; so pickles are refused.

    Args:
        path: a safetensors file, or the folder of a model: ``model.safetensors``, or the list of its
            shards ``model.safetensors.index.json`` with the shards beside it.

    Raises:
        FileNotFoundError: if there are no weights.
        ValueError: if they are in a pickle, damaged, or not all there.

    Example:
        >>> import tempfile, torch
        >>> from safetensors.torch import save_file
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_file({"a.weight": torch.ones(2)}, f"{folder}/model.safetensors")
        ...     read_weights(folder)
        {'a.weight': tensor([1., 1.])}
    """
    path = Path(path)
    if path.is_dir():
        if (path / WHOLE).is_file():
            return _read_file(path / WHOLE)
        if (path / INDEX).is_file():
            return _read_shards(path / INDEX)
        for file in sorted(path.iterdir()):
            if file.suffix in _PICKLES:
                raise ValueError(_refusal(file))
        raise FileNotFoundError(f"{path} holds no weights: neither {WHOLE} nor {INDEX}")
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}")
    return _read_shards(path) if path.name.endswith(".index.json") else _read_file(path)


def _read_file(path: Path) -> dict[str, Tensor]:
    with open(path, "rb") as file:
        beginning = file.read(2)
    # Whatever its name, a pickle begins with b"\x80", and torch.save's archive of pickles with b"PK".
    # The header of a safetensors file would have to be gigabytes or an odd number of bytes long.
    if path.suffix in _PICKLES or beginning == b"PK":
        raise ValueError(_refusal(path))
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        if beginning[:1] == b"\x80":
            raise ValueError(_refusal(path)) from None
        raise ValueError(f"{path} is damaged: it is no safetensors file, or not all of one ({error})") from error


def read_index(index: Path) -> dict[str, str]:
    """Read the file of each tensor.

    Raises:
        ValueError: if the index is damaged, or names files outside its folder.
    """
    try:
        places = json.loads(index.read_bytes())["weight_map"]
        inside = all(Path(file).name == file for file in places.values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{index} is damaged: it does not say which file holds which tensor") from error
    if not inside:
        raise ValueError(f"{index} names files outside its folder; that is refused")
    return places


def _read_shards(index: Path) -> dict[str, Tensor]:
    places = read_index(index)
    files = sorted(set(places.values()))
    if absent := [file for file in files if not (index.parent / file).is_file()]:
        raise ValueError(f"{index.parent} is not complete: {shorten(absent)} of {len(files)} files missing")
    tensors, wrong = {}, []
    for file in files:
        shard = _read_file(index.parent / file)
        listed = {name for name, place in places.items() if place == file}
        for name in sorted(listed ^ shard.keys()):
            says = "lacks" if name in listed else "holds, unlisted,"
            wrong.append(f"{file} {says} {name}")
        tensors |= shard
    if wrong:
        raise ValueError(f"{index} does not fit its files: {shorten(wrong)}")
    return tensors


def _refusal(path: Path) -> str:
    return (
        f"{path} is a pickle, and opening a pickle runs whatever program its author put into it, "
        f"so weights are read from safetensors files only. {ADVICE}"
    )


def shorten(items: list[str], most: int = 8) -> str:
    """Join the first names with commas, and add how many more there are."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
