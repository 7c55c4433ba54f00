"""Read GGUF, the file format of llama.cpp: settings of a model, its vocabulary, and its weights, often quantised.
Derived in chapter 14."""

import itertools
import math
import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

# Nothing in a file is believed before it is compared with these limits and with the size of the file.
_MAX_METADATA_BYTES = 2**26
_MAX_VALUES = 2**20
_MAX_TENSORS = 4096
_MAX_SETTINGS = 4096
_MAX_STRING = 2**20  # a chat template has some thousand letters

_SCALARS = dict(enumerate(("u1", "i1", "u2", "i2", "u4", "i4", "f4", "?", None, None, "u8", "i8", "f8")))
_STRING, _ARRAY = 8, 9
# How the format numbers the types that are read here: name, numbers in a block, bytes of a block.
_TENSOR_TYPES = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 3: ("Q4_1", 32, 20), 8: ("Q8_0", 32, 34)}
_BLOCKS = {name: (numbers, size) for name, numbers, size in _TENSOR_TYPES.values()}


class GGUFTensor(NamedTuple):
    """A tensor as the file stores it."""

    shape: tuple[int, ...]
    """As in PyTorch; the file lists the axes in the opposite order."""
    type: str
    """"F32", "F16", "Q8_0" (blocks of 32 numbers of 8 bits with a scale) or "Q4_1" (of 4 bits, with a scale and a
    minimum)."""
    path: Path
    start: int
    """The place of the first byte in the file."""

    @property
    def num_bytes(self) -> int:
        """Size in the file."""
        numbers, size = _BLOCKS[self.type]
        return math.prod(self.shape) // numbers * size

    @property
    def blocks(self) -> np.ndarray:
        """The bytes, read from the file now, one row for each block: (number of blocks, bytes of a block).

        Raises:
            ValueError: if the file has become shorter.
        """
        data = np.fromfile(self.path, np.uint8, self.num_bytes, offset=self.start)
        if len(data) < self.num_bytes:
            raise ValueError(f"{self.path} is incomplete: it has become shorter since it was opened")
        return data.reshape(-1, _BLOCKS[self.type][1])


class GGUFFile(NamedTuple):
    """The contents of a GGUF file. The tensors stay in the file until they are read."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GGUFTensor]

    def dequantize(self, name: str) -> Tensor:
        """Return the numbers of a tensor as float32.

        Raises:
            ModuleNotFoundError: if the library ``gguf`` is not installed.
        """
        try:
            from gguf import GGMLQuantizationType, quants
        except ModuleNotFoundError:
            raise ModuleNotFoundError("reading quantised weights needs the library gguf: pip install gguf") from None
        tensor = self.tensors[name]
        rows = tensor.blocks.reshape(math.prod(tensor.shape[:-1]), -1)  # long rows, because the library loops over them
        numbers = quants.dequantize(rows, GGMLQuantizationType[tensor.type])
        numbers = np.require(numbers, np.float32, ["C", "W"])  # the library returns views of F32, which are read-only
        return torch.from_numpy(numbers).view(tensor.shape)

    def setting(self, name: str, kind: type, default: Any = None) -> Any:
        """Return a value of the metadata with a check of its type.

        Args:
            name: such as ``"llama.block_count"``.
            kind: bool, int, float, str or list.
            default: for a file without it; None if the file must have it.

        Raises:
            ValueError: if the value is missing or has another type.
        """
        value = self.metadata.get(name, default)
        if value is None:
            raise ValueError(f"{self.path} does not say {name}, without which nothing can be built")
        if type(value) is not kind or (kind is float and not math.isfinite(value)):
            raise ValueError(f"{self.path} has {name} {str(value)[:40]!r}, which must be a finite {kind.__name__}")
        return value


def read_gguf(path: str | Path) -> GGUFFile:
    """Read the metadata of a GGUF file, and where its tensors are.

    The file may come from a stranger: every count, length and offset in it is compared with the size of the file before
    it is used, and the metadata may have 64 MiB at most.

    Args:
        path: a file of version 2 or 3 in little-endian order.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is no GGUF file, damaged, incomplete, or has tensors of another type.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    with open(path, "rb") as file:
        if file.read(4) != b"GGUF":
            raise ValueError(f"{path} is no GGUF file: such a file begins with the letters GGUF")
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(path, data).read()
        except (struct.error, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is damaged or incomplete: {error}") from None


class _Reader:
    """Reads one value after the other from the beginning of the file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data = path, data
        self.limit = min(len(data), _MAX_METADATA_BYTES)
        self.position, self.num_values = 4, 0

    def read(self) -> GGUFFile:
        version = self.number("u4")
        if version not in (2, 3):
            raise ValueError(f"{self.path} has version {version} of GGUF; here there are 2 and 3, little-endian")
        num_tensors, num_settings = self.number("u8"), self.number("u8")
        if num_tensors > _MAX_TENSORS:
            raise ValueError(f"{self.path} claims {num_tensors} tensors, more than {_MAX_TENSORS}")
        if num_settings > _MAX_SETTINGS:
            raise ValueError(f"{self.path} claims {num_settings} settings, more than {_MAX_SETTINGS}")
        metadata: dict[str, Any] = {}
        for _ in range(num_settings):
            name = self.string()
            if name in metadata:
                raise ValueError(f"{self.path} says {name[:80]!r} twice")
            metadata[name] = self.value(self.number("u4"))
        rows = [(self.string(200), *self.layout()) for _ in range(num_tensors)]
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment not in (2**n for n in range(3, 17)):
            raise ValueError(f"{self.path} has general.alignment {str(alignment)[:40]}, which must be a power of two")
        start = -(-self.position // alignment) * alignment
        tensors: dict[str, GGUFTensor] = {}
        for name, shape, kind, offset in rows:
            if name in tensors:
                raise ValueError(f"{self.path} has two tensors {name!r}")
            tensors[name] = self.tensor(name, shape, kind, start + offset)
        # Tensors that share bytes would let a small file fill the memory.
        in_order = sorted((tensor.start, tensor.num_bytes, name) for name, tensor in tensors.items())
        for (first, size, name), (second, _, other) in itertools.pairwise(in_order):
            if first + size > second:
                raise ValueError(f"{self.path} is damaged: the tensors {name!r} and {other!r} share bytes")
        return GGUFFile(self.path, metadata, tensors)

    def take(self, num_bytes: int) -> bytes:
        end = self.position + num_bytes
        if end > self.limit:
            reason = "where it ends" if end > len(self.data) else "beyond the 64 MiB that are read"
            raise ValueError(
                f"{self.path} is damaged or incomplete: at byte {self.position}, its metadata go on {reason}"
            )
        part = self.data[self.position : end]
        self.position = end
        return part

    def number(self, kind: str) -> Any:
        return np.frombuffer(self.take(np.dtype(kind).itemsize), "<" + kind).item()

    def string(self, longest: int = _MAX_STRING) -> str:
        length = self.number("u8")
        if length > longest:
            raise ValueError(
                f"{self.path} is damaged: at byte {self.position}, a string has {length} bytes, more than {longest}"
            )
        return self.take(length).decode()

    def strings(self, length: int) -> list[str]:
        # A vocabulary is most of the metadata, so this loop calls as little as possible.
        texts, data, start = [], self.data, self.position
        for _ in range(length):
            self.position = start
            end = start + 8 + int.from_bytes(data[start : start + 8], "little")
            if end > self.limit or start + 8 > self.limit or end - start - 8 > _MAX_STRING:
                self.position = start
                self.string()  # says what is wrong
            texts.append(data[start + 8 : end].decode())
            start = end
        self.position = start
        return texts

    def count(self, number: int, what: str) -> None:
        self.num_values += number
        if self.num_values > _MAX_VALUES:
            raise ValueError(f"{self.path} claims {number} {what}, and more than {_MAX_VALUES} values in all")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            kind, length = self.number("u4"), self.number("u8")
            self.count(length, "entries of a list")
            if scalar := _SCALARS.get(kind):
                part = self.take(length * np.dtype(scalar).itemsize)
                return np.frombuffer(part, "<" + scalar).tolist()
            if kind == _STRING:
                return self.strings(length)
        elif scalar := _SCALARS.get(kind):
            return self.number(scalar)
        raise ValueError(f"{self.path} is damaged: at byte {self.position}, it has values of the unknown type {kind}")

    def layout(self) -> tuple[tuple[int, ...], int, int]:
        num_axes = self.number("u4")
        if not 1 <= num_axes <= 4:
            raise ValueError(f"{self.path} has a tensor with {num_axes} axes, which must be from 1 to 4")
        sizes = [self.number("u8") for _ in range(num_axes)]
        return tuple(reversed(sizes)), self.number("u4"), self.number("u8")

    def tensor(self, name: str, shape: tuple[int, ...], kind: int, start: int) -> GGUFTensor:
        if kind not in _TENSOR_TYPES:
            types = ", ".join(f"{number} ({name})" for number, (name, *_) in _TENSOR_TYPES.items())
            raise ValueError(f"{self.path} stores {name} with type {kind}; here there are {types}")
        type_name, numbers, size = _TENSOR_TYPES[kind]
        total = math.prod(shape)
        end = start + total // numbers * size
        if total < 1 or shape[-1] % numbers:
            raise ValueError(
                f"{self.path} stores {name} {shape} with type {type_name}, whose rows must be whole blocks of {numbers}"
            )
        if end > len(self.data):
            raise ValueError(
                f"{self.path} is incomplete: {name} {shape} ends at byte {end}, and the file has {len(self.data)}"
            )
        return GGUFTensor(shape, type_name, self.path, start)
