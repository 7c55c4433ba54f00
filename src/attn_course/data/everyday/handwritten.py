"""Sentences written by hand for this course, in a text file of the package. Used from chapter 10 on."""

from importlib.resources import files

from attn_course.data.corpora import Pair
from attn_course.data.everyday.corpus import AlignedPair

__all__ = ["load_handwritten", "load_handwritten_aligned"]


def _lines(name: str) -> list[str]:
    text = (files("attn_course.data.everyday") / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def load_handwritten() -> list[Pair]:
    """Every hand-written pair, as text, in the order of the file.

    Example:
        >>> ja, en = load_handwritten()[0]
        >>> print(ja, en)
        おはよう、昨日の夜はよく眠れた？ Good morning, did you sleep well last night?
    """
    return [Pair(*line.split("\t")) for line in _lines("handwritten.tsv")]


def load_handwritten_aligned() -> list[AlignedPair]:
    """The hand-written pairs whose words were linked by hand, cut into words as a reader would cut them.

    Example:
        >>> len(load_handwritten_aligned())
        57
    """
    pairs = []
    for line in _lines("handwritten_aligned.tsv"):
        ja, en, links = line.split("\t")
        alignment = frozenset(tuple(int(n) for n in link.split("-")) for link in links.split())
        pairs.append(AlignedPair(tuple(ja.split()), tuple(en.split()), alignment, "handwritten"))
    return pairs
