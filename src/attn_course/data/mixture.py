"""Several corpora as one training text, with dev and test kept out of it. Used from chapter 12."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from attn_course.data.corpora import (
    Corpus,
    Pair,
    load_small_parallel_enja,
    load_snow,
    load_tatoeba,
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


def load_text(corpora: Sequence[str]) -> Text:
    """Load corpora by name, and make one training text of them.

    Dev and test are those of the first corpus. Every pair that shares its Japanese or its English with one of them
    is left out of the training text (see :func:`~attn_course.data.corpora.remove_overlap`), whichever corpus it is
    from, and so is a pair that is there already. What another corpus keeps for its own dev and test is not used.

    Args:
        corpora: one or more of ``"everyday"``, ``"handwritten"``, ``"small_parallel_enja"``, ``"tatoeba"`` and
            ``"snow=PATH"``. Only ``everyday`` and ``small_parallel_enja`` have dev and test.

    Raises:
        ValueError: if there is no corpus, a name is unknown, or one is there twice.
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
    dev, test = parts[0].dev, parts[0].test
    train = remove_overlap((pair for part in parts for pair in part.train), [*dev, *test])
    # The same pair twice would only be counted twice.
    train = dict.fromkeys(map(_spell, train))
    parts = (train, map(_spell, dev), map(_spell, test))
    return Text(*([_cut(pair) for pair in part] for part in parts))


def load_corpus(name: str) -> Corpus:
    """Load one corpus, as its makers wrote it; names and errors are those of :func:`load_text`."""
    return _loader(name)()


def _loader(name: str) -> Callable[[], Corpus]:
    if name.startswith("snow="):
        return lambda: Corpus(load_snow(name.removeprefix("snow=")), [], [])
    # Looked up when called, so that a name stands for the function that is there then.
    loaders: dict[str, Callable[[], Corpus]] = {
        "everyday": _load_everyday,
        "handwritten": lambda: Corpus(load_handwritten(), [], []),
        "small_parallel_enja": lambda: load_small_parallel_enja(),
        "tatoeba": lambda: Corpus(load_tatoeba(), [], []),
    }
    if name not in loaders:
        raise ValueError(
            f"there is no corpus {name!r}; there are {', '.join(loaders)} and snow=PATH"
        )
    return loaders[name]


def _load_everyday() -> Corpus:
    corpus = make_corpus()
    parts = (corpus.train, corpus.dev, corpus.test)
    return Corpus(*([Pair(p.japanese, p.english) for p in part] for part in parts))


def _spell(pair: Pair) -> Pair:
    return Pair(normalize_japanese(pair.ja), tokenize_english(pair.en))


def _cut(pair: Pair) -> WordPair:
    return WordPair(words(pair.ja), pair.en.split())
