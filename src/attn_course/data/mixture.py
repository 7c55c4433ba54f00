"""Several corpora as one training text, with dev and test kept out of it. Used from chapter 12."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from random import Random
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
    remove_overlap,
)
from attn_course.data.everyday import load_handwritten, make_corpus
from attn_course.data.text import normalize_japanese, tokenize_english
from attn_course.data.words import words


class WordPair(NamedTuple):
    """A sentence and its translation, as words."""

    ja: list[str]
    en: list[str]


class Text(NamedTuple):
    """Sentence pairs for training, for choosing settings, and for the final measurement."""

    train: list[WordPair]
    dev: list[WordPair]
    test: list[WordPair]


def load_text(
    corpora: Sequence[str],
    *,
    dev: str = "",
    test: str = "",
    held_out: int = 0,
    split_seed: int = 0,
) -> Text:
    """Load corpora by name, and make one training text of them.

    Dev and test are those of the first corpus, unless others are named; see :func:`load_held_out`. Every pair that
    shares its Japanese or its English with one of them is left out of the training text (see
    :func:`~attn_course.data.corpora.remove_overlap`), whichever corpus it is from, and so is a pair that is there
    already. What another corpus keeps for its own dev and test is not used.

    Args:
        corpora: one or more of ``"everyday"``, ``"handwritten"``, ``"small_parallel_enja"``, ``"tatoeba"``,
            ``"snow=PATH"`` and your own ``"pairs=PATH"`` (a file for :func:`~attn_course.data.corpora.load_tsv`) or
            ``"pairs=JA,EN"`` (two for :func:`~attn_course.data.corpora.load_pairs`). Only ``everyday`` and
            ``small_parallel_enja`` have dev and test.
        dev: the corpus to choose settings with, all of it; empty for the first corpus's.
        test: the corpus to measure with, all of it; empty for the first corpus's.
        held_out: how many pairs of the first corpus to take for dev, and how many for test, where there is none.
        split_seed: chooses them; the same one takes the same pairs.

    Raises:
        ValueError: if there is no corpus, a name is unknown, one is there twice, or the first has too few pairs.
        OSError: if a corpus is not there and cannot be downloaded.
    """
    if isinstance(corpora, str) or len(corpora) == 0:
        raise ValueError(
            f"corpora must be a list of one or more names, such as ['everyday'], not {corpora!r}"
        )
    if twice := [name for name in corpora if list(corpora).count(name) > 1]:
        raise ValueError(f"each corpus can be used once, and {twice[0]!r} is there twice")
    loaders = [_loader(name) for name in corpora]  # all names first: loading takes a while
    parts = [load() for load in loaders]
    dev, test = _hold_out(corpora[0], parts[0], dev, test, held_out, split_seed)
    train = remove_overlap((pair for part in parts for pair in part.train), [*dev, *test])
    # The same pair twice would only be counted twice.
    train = dict.fromkeys(map(_spell, train))
    parts = (train, map(_spell, dev), map(_spell, test))
    return Text(*([_cut(pair) for pair in part] for part in parts))


def load_held_out(
    corpus: str, *, dev: str = "", test: str = "", held_out: int = 0, split_seed: int = 0
) -> tuple[list[Pair], list[Pair]]:
    """The dev and test that :func:`load_text` keeps out of a training text that begins with this corpus."""
    return _hold_out(corpus, load_corpus(corpus), dev, test, held_out, split_seed)


def _hold_out(
    name: str, corpus: Corpus, dev: str, test: str, held_out: int, split_seed: int
) -> tuple[list[Pair], list[Pair]]:
    dev_pairs, test_pairs = (
        [pair for part in load_corpus(other) for pair in part] if other else own
        for other, own in ((dev, corpus.dev), (test, corpus.test))
    )
    if held_out == 0 or (dev_pairs and test_pairs):
        return dev_pairs, test_pairs
    rest = remove_overlap(dict.fromkeys(corpus.train), [*dev_pairs, *test_pairs])
    Random(f"{split_seed} held out").shuffle(rest)
    if len(rest) < 4 * held_out:
        raise ValueError(
            f"{name} has {len(rest):,} different pairs, too few to hold out {held_out:,} for dev and {held_out:,} for "
            f"test: held_out must be at most {len(rest) // 4:,}, or name the corpora dev and test"
        )
    if not test_pairs:
        test_pairs = rest[:held_out]
        rest = remove_overlap(rest[held_out:], test_pairs)
    return dev_pairs or rest[:held_out], test_pairs


def load_corpus(name: str) -> Corpus:
    """Load one corpus, as its makers wrote it; names and errors are those of :func:`load_text`."""
    return _loader(name)()


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
    "everyday": Source(
        lambda _: _load_everyday(), "6,000", "MIT", lambda: "in the package"
    ),
    "handwritten": Source(
        lambda _: Corpus(load_handwritten(), [], []),
        "some hundred",
        "MIT",
        lambda: "in the package",
    ),
    "small_parallel_enja": Source(
        lambda _: load_small_parallel_enja(),
        "51,000",
        "CC BY 2.0 FR",
        lambda: _find(
            "small_parallel_enja", SMALL_PARALLEL_ENJA, "small_parallel_enja/train.ja"
        ),
    ),
    "tatoeba": Source(
        lambda _: Corpus(load_tatoeba(), [], []),
        "203,308",
        "CC BY 2.0 FR",
        lambda: _find("", [TATOEBA_ARCHIVE], TATOEBA_TABLE),
    ),
    "snow=PATH": Source(
        lambda path: Corpus(load_snow(path), [], []),
        "50,000",
        "CC BY 4.0",
        lambda: "a file that you have",
    ),
    "pairs=PATH": Source(
        lambda paths: Corpus(_load_own(paths), [], []),
        "",
        "",
        lambda: "your own text, see `attn-course train --help`",
    ),
}


def _loader(name: str) -> Callable[[], Corpus]:
    kind, equals, path = name.partition("=")
    kind += "=PATH" if equals else ""
    if kind not in SOURCES:
        *names, last = SOURCES
        raise ValueError(
            f"there is no corpus {name!r}; there are {', '.join(names)} and {last}"
        )
    return partial(SOURCES[kind].load, path)


def _find(name: str, files: Iterable[str], cached: str) -> str:
    folder = find_folder(name, None, list(files))
    if folder is not None:
        return f"in {folder}"
    cache = cache_folder()
    return f"in {cache}" if (cache / cached).exists() else "not here yet"


def _load_own(paths: str) -> list[Pair]:
    ja, comma, en = paths.partition(",")
    if comma and not Path(paths).exists():
        return load_pairs(ja, en)
    return load_tsv(paths)


def _load_everyday() -> Corpus:
    corpus = make_corpus()
    parts = (corpus.train, corpus.dev, corpus.test)
    return Corpus(*([Pair(p.japanese, p.english) for p in part] for part in parts))


def _spell(pair: Pair) -> Pair:
    return Pair(normalize_japanese(pair.ja), tokenize_english(pair.en))


def _cut(pair: Pair) -> WordPair:
    try:
        return WordPair(words(pair.ja), pair.en.split())
    except ValueError as error:
        raise ValueError(f"{error}; it begins with {pair.ja[:20]!r}") from error
