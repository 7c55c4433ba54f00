"""The table of corpora that can be named, such as ``everyday`` or ``pairs=PATH``. Used from chapter 12 on."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from attn_course.data.corpora import (
    SMALL_PARALLEL_ENJA,
    TATOEBA_ARCHIVE,
    TATOEBA_TABLE,
    Corpus,
    Pair,
    cache_folder,
    find_folder,
    load_pairs,
    load_small_parallel_enja,
    load_snow,
    load_tatoeba,
    load_tsv,
    stream_pairs,
)
from attn_course.data.everyday import load_handwritten, make_corpus


class Source(NamedTuple):
    """A corpus that can be named."""

    load: Callable[[str], Corpus]
    """Takes what follows ``=`` in the name, if anything does."""
    num_pairs: str
    licence: str
    find: Callable[[], str]
    """Where it is, in words."""


# Functions are looked up when called, so that a name stands for the function that is there then.
SOURCES = {
    "everyday": Source(lambda _: _load_everyday(), "6,000", "MIT", lambda: "in the package"),
    "handwritten": Source(
        lambda _: Corpus(load_handwritten(), [], []), "some hundred", "MIT", lambda: "in the package"
    ),
    "small_parallel_enja": Source(
        lambda _: load_small_parallel_enja(),
        "51,000",
        "CC BY 2.0 FR",
        lambda: _find("small_parallel_enja", SMALL_PARALLEL_ENJA, "small_parallel_enja/train.ja"),
    ),
    "tatoeba": Source(
        lambda _: Corpus(load_tatoeba(), [], []),
        "203,308",
        "CC BY 2.0 FR",
        lambda: _find("", [TATOEBA_ARCHIVE], TATOEBA_TABLE),
    ),
    "snow=PATH": Source(
        lambda path: Corpus(load_snow(path), [], []), "50,000", "CC BY 4.0", lambda: "a file that you have"
    ),
    "pairs=PATH": Source(
        lambda paths: Corpus(_load_own(paths), [], []), "", "", lambda: "your own text, see `attn-course train --help`"
    ),
}


def find_loader(name: str) -> Callable[[], Corpus]:
    """Look up a name without loading the corpus.

    Raises:
        ValueError: if the table has no such name, or if the name lacks its path.
    """
    kind, equals, path = name.partition("=")
    kind += "=PATH" if equals else ""
    if kind not in SOURCES:
        *names, last = SOURCES
        raise ValueError(f"there is no corpus {name!r}; there are {', '.join(names)} and {last}")
    if kind == "pairs=PATH":
        _own_files(path)
    elif equals and not path.strip():
        raise ValueError(f"{name!r} names no file; it must be {kind}")
    return partial(SOURCES[kind].load, path)


def load_corpus(name: str) -> Corpus:
    """Load one corpus without changes. It has the names and errors of
    :func:`~attn_course.data.corpus_mixture.load_text`.
    """
    return find_loader(name)()


def stream_corpus(name: str) -> Iterator[Pair]:
    """Yield the training pairs of a corpus. The pairs of your own files are streamed."""
    kind, _, paths = name.partition("=")
    if kind == "pairs":
        return stream_pairs(*_own_files(paths))
    return iter(load_corpus(name).train)


def describe_corpus(name: str) -> str:
    """Return the SHA-256 of your own files, or of the pairs of another corpus."""
    kind, equals, paths = name.partition("=")
    digest = hashlib.sha256()
    if equals:
        for path in _own_files(paths) if kind == "pairs" else [paths]:
            with Path(path).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    else:
        for ja, en in load_corpus(name).train:
            digest.update(f"{ja}\t{en}\n".encode())
    return digest.hexdigest()


def _find(name: str, files: Iterable[str], cached: str) -> str:
    folder = find_folder(name, None, list(files))
    if folder is not None:
        return f"in {folder}"
    cache = cache_folder()
    return f"in {cache}" if (cache / cached).exists() else "not here yet"


def _load_own(paths: str) -> list[Pair]:
    files = _own_files(paths)
    return load_pairs(*files) if len(files) == 2 else load_tsv(*files)


def _own_files(paths: str) -> list[str]:
    """Return the one or two files after ``pairs=``."""
    ja, comma, en = paths.partition(",")
    files = [ja, en] if comma and not Path(paths).exists() else [paths]
    if not all(file.strip() for file in files):
        raise ValueError(
            f"'pairs={paths}' names no file; it must be pairs=PATH (one file, with a tab between the two "
            "sentences of a line) or pairs=JA,EN (two files)"
        )
    return files


def _load_everyday() -> Corpus:
    corpus = make_corpus()
    parts = (corpus.train, corpus.dev, corpus.test)
    return Corpus(*([Pair(p.japanese, p.english) for p in part] for part in parts))
