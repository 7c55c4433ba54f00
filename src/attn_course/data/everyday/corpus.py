"""The bundled corpus of everyday sentences, split so that the test holds combinations that training never saw.

Used from chapter 10 on.
"""

import hashlib
import lzma
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files

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


MIN_SEEN = 5  # times that a word of dev or test occurs in training


def read_pairs() -> Iterator[AlignedPair]:
    """Read the pairs of the file, which scripts/write_everyday_corpus.py wrote with a grammar."""
    data = (files("attn_course.data.everyday") / "everyday.tsv.xz").read_bytes()
    for line in lzma.decompress(data).decode("utf-8").splitlines():
        ja, en, links, construction, combinations = line.split("\t")
        alignment = frozenset(tuple(map(int, link.split("-"))) for link in links.split())
        yield AlignedPair(
            tuple(ja.split(" ")),
            tuple(en.split(" ")),
            alignment,
            construction,
            tuple(tuple(words.split("|")) for words in combinations.split(";") if combinations),
        )


def make_corpus(num_pairs: int = 6000, *, num_dev: int = 500, num_test: int = 500) -> EverydayCorpus:
    """Split the first pairs of the bundled file into training, dev and test.

    The split is by construction. A *combination* is who does what to what (mother, buy, book), whatever the tense,
    the order of the words, the time and the rest. One combination in ten belongs to the test and one in ten to dev,
    and no training sentence contains any of these. A test sentence contains at least one combination of the test, a
    dev sentence one of dev. Every word of dev and test occurs at least five times in training, and so does every
    construction.

    Args:
        num_pairs: of all three parts together.
        num_dev: how many of the pairs are for choosing settings.
        num_test: how many are for the final evaluation.

    Raises:
        ValueError: if fewer than 500 pairs are left for training, too few to contain every word; or if the file has
            fewer pairs than are asked for.

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
    candidates: dict[str, list[AlignedPair]] = {"train": [], "dev": [], "test": []}
    for pair in read_pairs():
        kinds = {split_of(combination) for combination in pair.combinations}
        if not {"dev", "test"} <= kinds:
            part = "test" if "test" in kinds else "dev" if "dev" in kinds else "train"
            candidates[part].append(pair)
    train = candidates["train"][:num_train]
    ja_words = Counter(word for pair in train for word in pair.ja)
    en_words = Counter(word for pair in train for word in pair.en)

    def is_covered(pair: AlignedPair) -> bool:
        """Return whether training contains its words often enough."""
        counts = [*(ja_words[word] for word in pair.ja), *(en_words[word] for word in pair.en)]
        return min(counts) >= MIN_SEEN

    dev, test = (
        [pair for pair in candidates[part] if is_covered(pair)][:size]
        for part, size in (("dev", num_dev), ("test", num_test))
    )
    corpus = EverydayCorpus(train, dev, test)
    sizes = len(train), len(dev), len(test)
    if sizes != (num_train, num_dev, num_test):
        raise ValueError(
            f"num_pairs ({num_pairs}): the bundled file has {sizes[0]:,} pairs for training, {sizes[1]:,} for dev and "
            f"{sizes[2]:,} for the test, but {num_train:,}, {num_dev:,} and {num_test:,} are asked for"
        )
    return corpus
