"""A text that does not fit into memory, prepared once in shards that all processes read. Used by ``attn-course train``.

A checksum of each pair says which shard it is in. So every shard is a sample of the whole text, and a pair that is
there twice meets itself. One shard at a time is in memory, while they are made and while they are read.
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
from attn_course.data.mixture import (
    LongText,
    Text,
    cut_pair,
    stream_text,
)
from attn_course.data.named_corpora import describe_corpus, stream_corpus
from attn_course.data.subwords import Subwords
from attn_course.training.checkpoint import write_atomically
from attn_course.training.distributed import find_processes
from attn_course.training.run_dir import (
    SRC_SUBWORDS,
    TGT_SUBWORDS,
    describe_pairs,
    prepare_folder,
)
from attn_course.training.settings import Settings

SHARDS, INDEX = "shards", "index.json"
_FORMAT = 1  # of the files; another one makes them anew
# What the ids of a text depend on, beside the text.
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
    """Pairs of ids in two arrays that are mapped into memory: only what is looked at is read from the disk.

    Args:
        tokens: the ids of all sentences, one after the other: source, target, source, target …
        bounds: where each sentence begins in them, and where the last one ends.
    """

    def __init__(self, tokens: np.ndarray, bounds: np.ndarray) -> None:
        self._tokens, self._bounds = tokens, bounds

    def __len__(self) -> int:
        return len(self._bounds) // 2

    def __getitem__(self, index: int) -> tuple[list[int], list[int]]:
        start, middle, end = self._bounds[2 * index : 2 * index + 3].tolist()
        return self._tokens[start:middle].tolist(), self._tokens[middle:end].tolist()

    def lengths(self) -> list[tuple[int, int]]:
        """(source length, target length) of each pair."""
        return list(map(tuple, np.diff(self._bounds).reshape(-1, 2).tolist()))


class Shards(Sequence):
    """The shards in a folder, each of which is checked and opened when it is asked for."""

    def __init__(self, folder: Path, records: list[dict[str, Any]]) -> None:
        self.folder, self._records = folder, records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> Shard:
        return read_shard(self.folder, self._records[index])


def write_shard(
    folder: Path,
    number: int,
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
    *,
    vocab_size: int,
) -> dict[str, Any]:
    """Write pairs of ids, and return what :func:`read_shard` must know of them: how many, and the files' SHA-256.

    Raises:
        OSError: if a file cannot be written.
    """
    tokens, bounds = array("L"), array("q", [0])
    for pair in pairs:
        for ids in pair:
            tokens.extend(ids)
            bounds.append(len(tokens))
    smallest = np.uint16 if vocab_size <= 2**16 else np.uint32
    arrays = {"tokens": np.asarray(tokens, smallest), "bounds": np.asarray(bounds)}
    files = {}
    for name, values in arrays.items():
        written = io.BytesIO()
        np.save(written, values)
        file = f"{number:05}.{name}.npy"
        write_atomically(folder / file, written.getvalue())
        files[file] = hashlib.sha256(written.getvalue()).hexdigest()
    return {"pairs": len(bounds) // 2, "files": files}


def read_shard(folder: Path, record: dict[str, Any]) -> Shard:
    """Open a shard that :func:`write_shard` has written.

    Raises:
        ValueError: if one of its files is not there, or is not what was written.
    """
    arrays = []
    for name, sha256 in record["files"].items():
        path = folder / name
        if not path.is_file():
            raise ValueError(f"{path} is not there; {_how_to_mend(folder)}")
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != sha256:
            raise ValueError(
                f"{path} is damaged: its SHA-256 must be {sha256[:12]}…, and is {found[:12]}…; {_how_to_mend(folder)}"
            )
        arrays.append(np.load(path, mmap_mode="r"))
    return Shard(*arrays)


def prepare_shards(folder: Path, settings: Settings, *, quiet: bool = False) -> Text:
    """Prepare a training's folder and its text, or find that this is done; all processes must call it.

    The first process reads the text, spells it, leaves out what is in dev and test, and learns the vocabularies from
    the first shard. Then each process cuts its share of the shards into ids.

    Returns:
        The text, whose ``train`` is :class:`Shards`.

    Raises:
        ValueError: what ``prepare_folder`` and
            :func:`~attn_course.data.mixture.stream_text` raise; or if the shards' list is damaged.
        OSError: if the text cannot be read, or a shard cannot be written.
    """
    processes = find_processes()
    text = stream_text(settings.corpora, **settings.division)
    shards, unfinished = folder / SHARDS, folder / f".{SHARDS}.unfinished"
    to_make = 0
    if processes.is_first:
        made_from = _describe(settings, text)
        before = _read_index(shards)
        same_text = before.get("made_from") == made_from
        num_lines = (
            before["lines"]
            if same_text
            else sum(1 for name in settings.corpora for _ in stream_corpus(name))
        )
        num_shards = math.ceil(num_lines / settings.pairs_per_shard)

        def is_done() -> bool:
            return same_text and before["vocabularies"] == _vocabularies(folder)

        @functools.cache  # for the vocabularies, or after them
        def spread() -> None:
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            pairs = tqdm(
                text.train(), "reading", num_lines, unit="pair", disable=quiet or None
            )
            _spread(pairs, num_shards, unfinished, settings.pairs_per_shard)

        def learn_from() -> tuple[Iterator[list[str]], Iterator[list[str]]]:
            spread()
            pairs = _read_pairs(min(unfinished.glob("*.txt")))
            return (cut_pair(pair).ja for pair in pairs), (en.split() for _, en in pairs)

        data = {
            "corpora": list(settings.corpora),
            # Of the corpora as they are, for cleaning them is what shall not be done again.
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
        vocabularies = [
            Subwords.load(folder / name) for name in (SRC_SUBWORDS, TGT_SUBWORDS)
        ]
        made = {
            number: _encode(unfinished, number, vocabularies, settings)
            for number in tqdm(mine, "preparing", unit="shard", disable=quiet or None)
        }
        everywhere = processes.gather(made)
        if processes.is_first:
            records = {
                number: record for made in everywhere for number, record in made.items()
            }
            index = {
                "made_from": made_from,
                "lines": num_lines,
                "vocabularies": _vocabularies(folder),
                "shards": [records[n] for n in sorted(records) if records[n]["pairs"]],
            }
            write_atomically(
                unfinished / INDEX, (json.dumps(index, indent=1) + "\n").encode()
            )
            shutil.rmtree(shards, ignore_errors=True)
            os.replace(unfinished, shards)
        processes.wait()
    return Text(Shards(shards, _read_index(shards)["shards"]), text.dev, text.test)


def _describe(settings: Settings, text: LongText) -> dict[str, Any]:
    """Everything that the shards depend on, but for the vocabularies themselves."""
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
            raise ValueError("it is no list of shards")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}; {_how_to_mend(shards)}") from error
    return index


def _how_to_mend(shards: Path) -> str:
    return f"remove the folder {shards}, and the same command makes it anew"


def _spread(pairs: Iterable[Pair], num_shards: int, folder: Path, at_once: int) -> None:
    """Write each pair into the file of its shard, holding so many in memory."""
    waiting: list[list[str]] = [[] for _ in range(num_shards)]

    def write() -> None:
        for number, lines in enumerate(waiting):
            if (
                lines
            ):  # opened anew each time, since a system allows only so many open files
                with _text_of(folder, number).open(
                    "a", encoding="utf-8", newline="\n"
                ) as file:
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
            "the training text has no sentence pairs: all of them share a sentence with dev or test"
        )


def _text_of(folder: Path, number: int) -> Path:
    return folder / f"{number:05}.txt"


def _read_pairs(path: Path) -> list[Pair]:
    """The different pairs of a shard."""
    with path.open(encoding="utf-8", newline="\n") as file:
        lines = dict.fromkeys(file)
    return [Pair(*line.removesuffix("\n").split("\t")) for line in lines]


def _encode(
    folder: Path, number: int, vocabularies: Sequence[Subwords], settings: Settings
) -> dict[str, Any]:
    """Turn the text of a shard into ids."""
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
