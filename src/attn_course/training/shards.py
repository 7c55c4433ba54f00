"""Shards of a training text that does not fit into memory. Used by ``attn-course train``.

A checksum of each pair decides to which shard it belongs. So every shard is a sample of the whole text, and equal pairs
are in the same shard. Only one shard at a time is in memory.
"""

import functools
import hashlib
import io
import json
import math
import os
import shutil
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from attn_course.data.corpora import Pair
from attn_course.data.corpus_mixture import (
    LongText,
    Text,
    cut_pair,
    stream_text,
)
from attn_course.data.named_corpora import describe_corpus, stream_corpus
from attn_course.data.subwords import Subwords
from attn_course.training.checkpoint import write_atomically
from attn_course.training.distributed import find_processes
from attn_course.training.run_dir import SRC_SUBWORDS, TGT_SUBWORDS, describe_pairs, prepare_folder
from attn_course.training.settings import Settings

SHARDS, INDEX = "shards", "index.json"
_FORMAT = 1  # version of the files
# The settings that change the ids of a text.
_SETTINGS = (
    "pairs_per_shard",
    "max_pieces",
    "src_words",
    "src_vocab_size",
    "tgt_vocab_size",
    "required_characters",
    "split_digits",
    "init_from",
    "new_vocabularies",
)


class Shard(Sequence):
    """Pairs of ids in two memory-mapped arrays, of which only the needed parts are read from the disk.

    Args:
        tokens: the ids of all sentences, in the order source, target, source, target …
        bounds: the start of each sentence in ``tokens``, and the end of the last one.
    """

    def __init__(self, tokens: np.ndarray, bounds: np.ndarray) -> None:
        self._tokens, self._bounds = tokens, bounds

    def __len__(self) -> int:
        return len(self._bounds) // 2

    def __getitem__(self, index: int) -> tuple[list[int], list[int]]:
        start, middle, end = self._bounds[2 * index : 2 * index + 3].tolist()
        return self._tokens[start:middle].tolist(), self._tokens[middle:end].tolist()

    def lengths(self) -> list[tuple[int, int]]:
        """Return (source length, target length) for each pair."""
        return list(map(tuple, np.diff(self._bounds).reshape(-1, 2).tolist()))


class Shards(Sequence):
    """The shards in a folder. Each shard is checked and opened when it is needed."""

    def __init__(self, folder: Path, records: list[dict[str, Any]]) -> None:
        self.folder, self._records = folder, records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> Shard:
        return read_shard(self.folder, self._records[index])


def write_shard(
    folder: Path, number: int, pairs: Iterable[tuple[Sequence[int], Sequence[int]]], *, vocab_size: int
) -> dict[str, Any]:
    """Write pairs of ids, and return their number and the SHA-256 of the files for :func:`read_shard`.

    Raises:
        OSError: if a file cannot be written.
    """
    tokens, bounds = array("L"), array("q", [0])
    for pair in pairs:
        for ids in pair:
            tokens.extend(ids)
            bounds.append(len(tokens))
    dtype = np.uint16 if vocab_size <= 2**16 else np.uint32
    arrays = {"tokens": np.asarray(tokens, dtype), "bounds": np.asarray(bounds)}
    files = {}
    for name, values in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, values)
        file = f"{number:05}.{name}.npy"
        write_atomically(folder / file, buffer.getvalue())
        files[file] = hashlib.sha256(buffer.getvalue()).hexdigest()
    return {"pairs": len(bounds) // 2, "files": files}


def read_shard(folder: Path, record: dict[str, Any]) -> Shard:
    """Open a shard from :func:`write_shard`.

    Raises:
        ValueError: if one of its files is missing or damaged.
    """
    arrays = []
    for name, sha256 in record["files"].items():
        path = folder / name
        if not path.is_file():
            raise ValueError(f"{path} is missing; {_how_to_repair(folder)}")
        with path.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
        if actual != sha256:
            raise ValueError(
                f"{path} is damaged: its SHA-256 must be {sha256[:12]}…, not {actual[:12]}…; {_how_to_repair(folder)}"
            )
        arrays.append(np.load(path, mmap_mode="r"))
    return Shard(*arrays)


def prepare_shards(folder: Path, settings: Settings, *, quiet: bool = False) -> Text:
    """Prepare the folder of a run and the shards of its text, unless this is done. All processes must call it.

    The first process reads and cleans the text, removes sentences of dev and test, and learns the vocabularies from the
    first shard. Then each process converts its share of the shards to ids.

    Returns:
        The text, whose ``train`` is :class:`Shards`.

    Raises:
        ValueError: as :func:`prepare_folder` and :func:`~attn_course.data.corpus_mixture.stream_text`, or if the index
            of the shards is damaged.
        OSError: if the text cannot be read, or a shard cannot be written.
    """
    processes = find_processes()
    text = stream_text(settings.corpora, **settings.division)
    shards = Path(os.path.realpath(folder / SHARDS))  # replace the folder, not a link to it
    unfinished = shards.with_name(f".{shards.name}.unfinished")
    to_make = 0
    if processes.is_first:
        made_from = _describe(settings, text)
        before = _read_index(shards)
        same_text = before.get("made_from") == made_from
        num_lines = before["lines"] if same_text else sum(1 for name in settings.corpora for _ in stream_corpus(name))
        num_shards = math.ceil(num_lines / settings.pairs_per_shard)

        def is_done() -> bool:
            return same_text and before["vocabularies"] == _vocabularies(folder)

        @functools.cache  # needed for the vocabularies, or later, but only once
        def spread() -> None:
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            pairs = tqdm(text.train(), "reading", num_lines, unit="pair", disable=quiet or None)
            _spread(pairs, num_shards, unfinished, settings.pairs_per_shard)

        def learn_from() -> tuple[Iterator[list[str]], Iterator[list[str]]]:
            spread()
            pairs = _read_pairs(min(unfinished.glob("*.txt")))
            return (cut_pair(pair).ja for pair in pairs), (en.split() for _, en in pairs)

        data = {
            "corpora": list(settings.corpora),
            # Counted before cleaning, because cleaning is the step that is not repeated.
            "train": {"pairs": num_lines, "sha256": _sha256(made_from["corpora"])},
            "dev": describe_pairs(text.dev),
            "test": describe_pairs(text.test),
        }
        prepare_folder(folder, settings, data, learn_from, keep_vocabularies=is_done())
        if is_done():
            shutil.rmtree(unfinished, ignore_errors=True)
        else:
            spread()
            to_make = num_shards
    to_make = processes.gather(to_make)[0]
    if to_make:
        mine = range(processes.rank, to_make, processes.size)
        vocabularies = [Subwords.load(folder / name) for name in (SRC_SUBWORDS, TGT_SUBWORDS)]
        records = {
            number: _encode(unfinished, number, vocabularies, settings)
            for number in tqdm(mine, "preparing", unit="shard", disable=quiet or None)
        }
        all_records = processes.gather(records)
        if processes.is_first:
            records = {n: record for part in all_records for n, record in part.items()}
            index = {
                "made_from": made_from,
                "lines": num_lines,
                "vocabularies": _vocabularies(folder),
                "shards": [records[n] for n in sorted(records) if records[n]["pairs"]],
            }
            write_atomically(unfinished / INDEX, (json.dumps(index, indent=1) + "\n").encode())
            shutil.rmtree(shards, ignore_errors=True)
            os.replace(unfinished, shards)
        processes.wait()
    return Text(Shards(shards, _read_index(shards)["shards"]), text.dev, text.test)


def _describe(settings: Settings, text: LongText) -> dict[str, Any]:
    """Return everything that the shards depend on, except the vocabularies."""
    return {
        "format": _FORMAT,
        "corpora": {name: describe_corpus(name) for name in settings.corpora},
        "held_out": [describe_pairs(part) for part in (text.dev, text.test)],
        "settings": {name: getattr(settings, name) for name in _SETTINGS},
    }


def _vocabularies(folder: Path) -> dict[str, str]:
    return {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in (SRC_SUBWORDS, TGT_SUBWORDS)
        if (folder / name).exists()
    }


def _sha256(values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def _read_index(shards: Path) -> dict[str, Any]:
    path = shards / INDEX
    if not path.exists():
        return {}
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        if not {"made_from", "lines", "vocabularies", "shards"} <= set(index):
            raise ValueError("it is not an index of shards")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}; {_how_to_repair(shards)}") from error
    return index


def _how_to_repair(shards: Path) -> str:
    return f"remove the folder {shards}, and the same command makes it again"


def _spread(pairs: Iterable[Pair], num_shards: int, folder: Path, at_once: int) -> None:
    """Write each pair into the file of its shard, with at most ``at_once`` pairs in memory."""
    waiting: list[list[str]] = [[] for _ in range(num_shards)]

    def write() -> None:
        for number, lines in enumerate(waiting):
            # A system limits the number of open files.
            if lines:
                with _text_of(folder, number).open("a", encoding="utf-8", newline="\n") as file:
                    file.writelines(lines)
                lines.clear()

    count = 0
    for count, (ja, en) in enumerate(pairs, start=1):
        line = f"{ja}\t{en}\n"
        waiting[zlib.crc32(line.encode()) % num_shards].append(line)
        if count % at_once == 0:
            write()
    write()
    if count == 0:
        raise ValueError(
            "the training text has no sentence pairs, because all of them share a sentence with dev or test"
        )


def _text_of(folder: Path, number: int) -> Path:
    return folder / f"{number:05}.txt"


def _read_pairs(path: Path) -> list[Pair]:
    """Return the pairs of a shard without duplicates."""
    with path.open(encoding="utf-8", newline="\n") as file:
        lines = dict.fromkeys(file)
    return [Pair(*line.removesuffix("\n").split("\t")) for line in lines]


def _encode(folder: Path, number: int, vocabularies: Sequence[Subwords], settings: Settings) -> dict[str, Any]:
    """Convert the text of a shard to ids."""
    src, tgt = vocabularies
    path = _text_of(folder, number)
    pairs = _read_pairs(path) if path.exists() else []

    def encoded() -> Iterator[tuple[list[int], list[int]]]:
        for pair in pairs:
            ja = cut_pair(pair).ja if settings.src_words else [pair.ja]
            ids = src.encode(ja), tgt.encode(pair.en.split())
            if min(map(len, ids)) > 0 and max(map(len, ids)) <= settings.max_pieces:
                yield ids

    record = write_shard(folder, number, encoded(), vocab_size=max(len(src), len(tgt)))
    path.unlink(missing_ok=True)
    return record
