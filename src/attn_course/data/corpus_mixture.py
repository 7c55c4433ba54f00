"""Combine corpora into one training text without the pairs of the dev and test sets. Used from chapter 12."""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from attn_course.data.corpora import Corpus, Pair, remove_overlap, stream_without_overlap
from attn_course.data.named_corpora import find_loader, load_corpus, stream_corpus
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


def load_text(corpora: Sequence[str], *, dev: str = "", test: str = "", held_out: int = 0, split_seed: int = 0) -> Text:
    """Load corpora by name, and combine them into one training text.

    The dev and test sets come from the first corpus, unless you name others (see :func:`load_held_out`). The
    training text leaves out all pairs that share a side with a held-out pair (see
    :func:`~attn_course.data.corpora.remove_overlap`), and all duplicates. The dev and test sets of the other corpora
    are not used.

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
    _check_names(corpora)
    parts = [load_corpus(name) for name in corpora]
    dev, test = _hold_out(corpora[0], parts[0], dev, test, held_out, split_seed)
    train = remove_overlap((pair for part in parts for pair in part.train), [*dev, *test])
    # The same pair twice would only be counted twice.
    train = dict.fromkeys(map(_spell, train))
    parts = (train, map(_spell, dev), map(_spell, test))
    return Text(*([cut_pair(pair) for pair in part] for part in parts))


class LongText(NamedTuple):
    """A training text that is streamed from disk, with its dev and test sets."""

    train: Callable[[], Iterator[Pair]]
    """Start reading: yield normalised pairs, including duplicates."""
    dev: list[WordPair]
    test: list[WordPair]


def stream_text(
    corpora: Sequence[str], *, dev: str = "", test: str = "", held_out: int = 0, split_seed: int = 0
) -> LongText:
    """Stream the text of :func:`load_text`, with the same arguments, but with duplicates.

    Your own text (``"pairs=…"``) is read pair by pair. No dev and test sets can be drawn from such a text, so you
    must name them.

    Raises:
        ValueError: as :func:`load_text`; or if the first corpus is a text of your own, and dev or test is not named.
    """
    _check_names(corpora)
    if corpora[0].startswith("pairs=") and not (dev and test):
        missing = " and ".join(name for name, value in (("dev", dev), ("test", test)) if not value)
        raise ValueError(
            f"{corpora[0]} is read one pair after the other, so nothing can be drawn from all of it: name a corpus for "
            f"{missing} (--dev, --test), or set pairs_per_shard to 0, which reads the text into memory"
        )
    kept_out = load_held_out(corpora[0], dev=dev, test=test, held_out=held_out, split_seed=split_seed)

    def train() -> Iterator[Pair]:
        pairs = (pair for name in corpora for pair in stream_corpus(name))
        return map(_spell, stream_without_overlap(pairs, [pair for part in kept_out for pair in part]))

    return LongText(train, *([cut_pair(_spell(pair)) for pair in part] for part in kept_out))


def _check_names(corpora: Sequence[str]) -> None:
    if isinstance(corpora, str) or len(corpora) == 0:
        raise ValueError(f"corpora must be a list of one or more names, such as ['everyday'], not {corpora!r}")
    if twice := [name for name in corpora if list(corpora).count(name) > 1]:
        raise ValueError(f"each corpus can be used once, and {twice[0]!r} is there twice")
    for name in corpora:  # all names first: loading takes a while
        find_loader(name)


def load_held_out(
    corpus: str, *, dev: str = "", test: str = "", held_out: int = 0, split_seed: int = 0
) -> tuple[list[Pair], list[Pair]]:
    """Return the dev and test sets that :func:`load_text` holds out if this corpus is the first."""
    # A text may be long, and where both are named nothing of it is needed.
    loaded = Corpus([], [], []) if dev and test else load_corpus(corpus)
    return _hold_out(corpus, loaded, dev, test, held_out, split_seed)


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


def _spell(pair: Pair) -> Pair:
    return Pair(normalize_japanese(pair.ja), tokenize_english(pair.en))


def cut_pair(pair: Pair) -> WordPair:
    """Split a normalised pair into words."""
    try:
        return WordPair(words(pair.ja), pair.en.split())
    except ValueError as error:
        raise ValueError(f"{error}; it begins with {pair.ja[:20]!r}") from error
