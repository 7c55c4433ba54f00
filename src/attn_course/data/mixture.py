"""Several corpora as one training text, with dev and test kept out of it. Used from chapter 12."""

from collections.abc import Sequence
from typing import NamedTuple

from attn_course.data.corpora import (
    Pair,
    load_small_parallel_enja,
    load_snow,
    load_tatoeba,
    remove_overlap,
)
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
    """Load corpora by name; dev and test come from the first, and whatever they share with any is removed.

    Args:
        corpora: of ``"everyday"``, ``"handwritten"``, ``"small_parallel_enja"``, ``"tatoeba"`` and
            ``"snow=PATH"``.
    """
    train: list[Pair] = []
    dev: list[Pair] = []
    test: list[Pair] = []
    for position, name in enumerate(corpora):
        if name == "everyday":
            from attn_course.data.everyday import make_corpus

            corpus = make_corpus()
            parts = [
                [Pair(p.japanese, p.english) for p in part]
                for part in (corpus.train, corpus.dev, corpus.test)
            ]
        elif name == "handwritten":
            from attn_course.data.everyday import load_handwritten

            parts = [load_handwritten(), [], []]
        elif name == "small_parallel_enja":
            corpus = load_small_parallel_enja()
            parts = [corpus.train, corpus.dev, corpus.test]
        elif name == "tatoeba":
            parts = [load_tatoeba(), [], []]
        elif name.startswith("snow="):
            parts = [load_snow(name.removeprefix("snow=")), [], []]
        else:
            raise ValueError(
                f"there is no corpus {name!r}; there are everyday, handwritten, small_parallel_enja, tatoeba, snow=PATH"
            )
        train += parts[0]
        if position == 0:
            dev, test = parts[1:]
    # The same pair twice would only be counted twice.
    train = list(
        dict.fromkeys(_spell(pair) for pair in remove_overlap(train, [*dev, *test]))
    )
    return Text(
        *(
            [_cut(pair) for pair in part]
            for part in (train, map(_spell, dev), map(_spell, test))
        )
    )


def _spell(pair: Pair) -> Pair:
    return Pair(normalize_japanese(pair[0]), tokenize_english(pair[1]))


def _cut(pair: Pair) -> WordPair:
    return WordPair(words(pair.ja), pair.en.split())
