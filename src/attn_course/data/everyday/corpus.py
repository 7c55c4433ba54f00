"""A corpus drawn from the grammar of everyday sentences, split so that the test holds what training never saw.

Used from chapter 10 on.
"""

import hashlib
import random
from collections import Counter
from dataclasses import dataclass, field

from attn_course.data.everyday.grammar import CONSTRUCTIONS, Draw, Words

__all__ = ["AlignedPair", "EverydayCorpus", "make_corpus", "split_of"]

NAMES = {
    name: name.title()
    for name in [
        "i",
        "hanako",
        "yumi",
        "kenta",
        "tanaka",
        "sato",
        "taro",
        "kyoto",
        "tokyo",
        "english",
        "french",
        "sunday",
        "saturday",
        "wednesday",
    ]
} | {"mr": "Mr.", "ms": "Ms.", "tv": "TV"}
"""English words that are never written small, or carry a point."""


@dataclass(frozen=True, slots=True)
class AlignedPair:
    """A Japanese sentence and its English translation, word by word, with the links between the words.

    Args:
        ja: words and punctuation.
        en: words and punctuation in lower case, ``'s`` on its own.
        alignment: pairs (index into ``en``, index into ``ja``), the order of rows and columns in a heatmap of
            cross-attention. Articles, は, を and others that the other language has no word for are in no pair.
        construction: the name of the construction in the grammar.
        combinations: who does what to what: the combinations of content words that the split is made by.

    Example:
        >>> pair = AlignedPair(("猫", "です", "。"), ("it", "is", "a", "cat", "."), frozenset({(1, 1), (3, 0), (4, 2)}))
        >>> pair.japanese, pair.english
        ('猫です。', 'It is a cat.')
    """

    ja: tuple[str, ...]
    en: tuple[str, ...]
    alignment: frozenset[tuple[int, int]]
    construction: str = field(default="", compare=False)
    combinations: tuple[tuple[str, ...], ...] = field(default=(), compare=False)

    @property
    def japanese(self) -> str:
        """The sentence as it is written, without spaces."""
        return "".join(self.ja)

    @property
    def english(self) -> str:
        """The sentence as it is written, with capitals, and no space before punctuation."""
        text = " ".join(NAMES.get(word, word) for word in self.en)
        for sign in (".", "?", ",", "'"):
            text = text.replace(f" {sign}", sign)
        return text[0].upper() + text[1:]


@dataclass(frozen=True)
class EverydayCorpus:
    """Three lists of pairs; no combination of ``dev`` or ``test`` that they were chosen for occurs in ``train``."""

    train: list[AlignedPair]
    dev: list[AlignedPair]
    test: list[AlignedPair]


_SPLITS: dict[tuple[str, ...], str] = {}


def split_of(combination: tuple[str, ...]) -> str:
    """Which part of the corpus a combination belongs to, by its SHA-256: test and dev get one in ten each.

    Example:
        >>> split_of(("mother", "買う", "book"))
        'train'
    """
    if combination not in _SPLITS:
        number = hashlib.sha256("|".join(combination).encode()).digest()[0]
        _SPLITS[combination] = "test" if number < 26 else "dev" if number < 52 else "train"
    return _SPLITS[combination]


def to_pair(ja: Words, en: Words, construction: str = "", combinations=()) -> AlignedPair:
    places: dict[int, list[int]] = {}
    for j, (_, link) in enumerate(ja):
        if link >= 0:
            places.setdefault(link, []).append(j)
    alignment = frozenset(
        (i, j) for i, (_, link) in enumerate(en) if link >= 0 for j in places.get(link, ())
    )
    return AlignedPair(
        tuple([word for word, _ in ja]),
        tuple([word for word, _ in en]),
        alignment,
        construction,
        tuple(combinations),
    )


MAX_WORDS = 14  # of Japanese, punctuation not counted
MIN_SEEN = 5  # times that a word of dev or test occurs in training
MAX_DRAWS = 100  # for each pair that is asked for; about one is needed


def draw_pair(draw: Draw) -> AlignedPair:
    """One pair of a construction that is drawn by its weight."""
    while True:
        draw.start()
        name = draw.pick(_WEIGHTED)
        ja, en = CONSTRUCTIONS[name][0](draw)
        if sum(word not in ("、", "。") for word, _ in ja) <= MAX_WORDS:
            return to_pair(ja, en, name, draw.combinations)


_WEIGHTED = [name for name, (_, weight) in CONSTRUCTIONS.items() for _ in range(weight)]


def make_corpus(
    num_pairs: int = 6000, *, seed: int = 0, num_dev: int = 500, num_test: int = 500
) -> EverydayCorpus:
    """Draw pairs of sentences from the grammar, all different, the same on every computer.

    The split is by construction. A *combination* is who does what to what (mother, buy, book), whatever the tense,
    the order of the words, the time and the rest. One in ten belongs to the test and one in ten to dev, and no
    training sentence holds any of these. A test sentence holds at least one of the test's, a dev sentence one of
    dev's. Yet every word of dev and test occurs in training, five times at least, and so does every construction.

    Args:
        num_pairs: of all three parts together.
        seed: another seed draws other pairs; what belongs to which part stays.
        num_dev: how many of the pairs are for choosing settings.
        num_test: how many are for the last judgement.

    Raises:
        ValueError: if fewer than 500 pairs are left for training, too few to hold every word; or if more are
            asked for than the grammar gives, which is more than 180,000 of all kinds together.

    Example:
        >>> corpus = make_corpus(2000, num_dev=100, num_test=100)
        >>> len(corpus.train), len(corpus.dev), len(corpus.test)
        (1800, 100, 100)
    """
    num_train = num_pairs - num_dev - num_test
    if num_dev < 0 or num_test < 0 or num_train < 500:
        raise ValueError(
            f"num_pairs ({num_pairs}) less num_dev ({num_dev}) and num_test ({num_test}) must leave at least 500 pairs "
            "for training, or words of the test would be missing there"
        )
    draw = Draw(random.Random(seed))
    wanted = {"train": num_train, "dev": num_dev, "test": num_test}
    parts: dict[str, list[AlignedPair]] = {"train": [], "dev": [], "test": []}
    seen: set[tuple[str, ...]] = set()
    ja_words: Counter[str] = Counter()
    en_words: Counter[str] = Counter()
    constructions: set[str] = set()
    waiting: list[tuple[str, AlignedPair]] = []
    draws = 0

    def place(part: str, pair: AlignedPair) -> None:
        known = min(
            *(ja_words[word] for word in pair.ja), *(en_words[word] for word in pair.en)
        )
        if len(parts[part]) < wanted[part] and known >= MIN_SEEN:
            parts[part].append(pair)

    while (
        len(parts["train"]) < num_train
        or len(parts["dev"]) < num_dev
        or len(parts["test"]) < num_test
    ):
        draws += 1
        if draws > MAX_DRAWS * num_pairs:
            num_different = sum(len(part) for part in parts.values())
            raise ValueError(
                f"num_pairs ({num_pairs}) is more than the grammar gives: {num_different} different pairs in "
                f"{draws - 1} draws"
            )
        pair = draw_pair(draw)
        kinds = {split_of(combination) for combination in pair.combinations}
        if len(kinds - {"train"}) > 1:  # holds one of dev and one of the test
            continue
        part = "test" if "test" in kinds else "dev" if "dev" in kinds else "train"
        if pair.ja in seen or (len(parts["train"]) == num_train and part == "train"):
            continue
        seen.add(pair.ja)
        if part == "train":
            parts[part].append(pair)
            ja_words.update(pair.ja)
            en_words.update(pair.en)
            constructions.add(pair.construction)
            if len(parts["train"]) == num_train:  # now it is known which words training has
                for other, kept in waiting:
                    place(other, kept)
        elif len(parts["train"]) < num_train:
            waiting.append((part, pair))
        elif pair.construction in constructions:
            place(part, pair)
    return EverydayCorpus(**parts)
